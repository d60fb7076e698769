"""What a consumer has to do next, as data: what `Fetcher` says."""

from typing import NamedTuple

from tidegate.connectors.kafka.batches.reading import Batches
from tidegate.connectors.kafka.batches.requests import FetchRow
from tidegate.connectors.kafka.client import TopicPartition
from tidegate.errors import TidegateError


class Fetch(NamedTuple):
    """Send to `node`, and tell of the answer. `wait`: seconds that the broker may wait for records."""

    node: int
    rows: list[FetchRow]
    wait: float
    itself: bool = False
    """Whether it must answer itself, and name nobody who is nearer."""


class AskMetadata(NamedTuple):
    topics: list[str]


class AskRange(NamedTuple):
    node: int
    partition: TopicPartition
    leader_epoch: int


class Hand(NamedTuple):
    """Batches for who reads, behind all that was handed before of that partition. `size`: bytes, to be told of as
    `Taken`."""

    batches: Batches
    size: int


class Pass(NamedTuple):
    """Tell who reads, behind all that was handed before: the partition goes on at `end`. `lost`: of the offsets that
    are passed over, those that were never read."""

    partition: TopicPartition
    end: int
    lost: int = 0


class Fail(NamedTuple):
    """Tell who reads, behind all that was handed before of that partition; at once where there is none."""

    error: TidegateError
    partition: TopicPartition | None = None


class Warn(NamedTuple):
    """Something went wrong that passes by itself."""

    text: str


Command = Fetch | AskMetadata | AskRange | Hand | Pass | Fail | Warn
