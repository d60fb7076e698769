"""What can happen to a consumer, as data: what `Fetcher` is told."""

from collections.abc import Mapping
from typing import NamedTuple

from tidegate.connectors.kafka.batches.requests import FetchedRow
from tidegate.connectors.kafka.client import TopicPartition
from tidegate.connectors.kafka.messages import Cluster
from tidegate.errors import TidegateError


class Added(NamedTuple):
    positions: Mapping[TopicPartition, int]


class Removed(NamedTuple):
    partition: TopicPartition


class Taken(NamedTuple):
    """So many bytes of each partition that were handed over are used up."""

    sizes: Mapping[TopicPartition, int]


class Described(NamedTuple):
    """The answer to AskMetadata."""

    cluster: Cluster


class NotDescribed(NamedTuple):
    error: TidegateError


class Fetched(NamedTuple):
    """The answer to a Fetch. `throttle`: seconds in which the broker wants to hear nothing."""

    node: int
    code: int
    throttle: float
    rows: list[FetchedRow]


class NotFetched(NamedTuple):
    node: int
    error: TidegateError


class Range(NamedTuple):
    """The answer to AskRange: the partition's records are from `low` to before `end`."""

    partition: TopicPartition
    low: int
    end: int


class NoRange(NamedTuple):
    partition: TopicPartition
    error: TidegateError


class Tick(NamedTuple):
    """Time has passed."""


Event = Added | Removed | Taken | Described | NotDescribed | Fetched | NotFetched | Range | NoRange | Tick
TICK = Tick()
