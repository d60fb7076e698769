"""What can happen to a producer and what it has to do next, as data: what `Sending` is told, and what it says."""

from collections.abc import Mapping
from typing import NamedTuple

from tidegate.connectors.kafka.batches.building import Sealed
from tidegate.connectors.kafka.client import TopicPartition
from tidegate.connectors.kafka.messages import Cluster
from tidegate.errors import TidegateError

# ---- what to do ----------------------------------------------------------------------------------------------------


class Produce(NamedTuple):
    node: int
    batches: dict[TopicPartition, Sealed]


class AskMetadata(NamedTuple):
    topics: list[str]


class AddPartitions(NamedTuple):
    """To the transaction; ask its coordinator."""

    partitions: list[TopicPartition]


class FindCoordinator(NamedTuple):
    """It is another one now, or not there: look for it before it is asked again."""


class Fail(NamedTuple):
    """So many records are not written, and never will be."""

    error: TidegateError
    records: int


Command = Produce | AskMetadata | AddPartitions | FindCoordinator | Fail


# ---- what happened -------------------------------------------------------------------------------------------------


class Put(NamedTuple):
    """These are to be sent, each behind all that were put for its partition before."""

    batches: list[tuple[TopicPartition, Sealed]]


class Described(NamedTuple):
    cluster: Cluster


class NotDescribed(NamedTuple):
    error: TidegateError


class Added(NamedTuple):
    """The answer to AddPartitions: a code for each partition."""

    codes: Mapping[TopicPartition, int]


class NotAdded(NamedTuple):
    error: TidegateError


class Produced(NamedTuple):
    """The answer to a Produce: a code for each partition, and the words that came with it."""

    asked: Produce
    codes: Mapping[TopicPartition, tuple[int, str]]
    throttle: float


class NotProduced(NamedTuple):
    asked: Produce
    error: TidegateError


class Tick(NamedTuple):
    """Time has passed."""


Event = Put | Described | NotDescribed | Added | NotAdded | Produced | NotProduced | Tick
TICK = Tick()
