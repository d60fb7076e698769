"""Which partitions a source reads, from where and how far: all of it resolved to numbers here, once, and nowhere else.

A restored split is never resolved again, and what it names is never passed over: a topic that is read no more, or that
is gone, is an error that lets the user choose.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Literal

from tidegate.checkpoint.protocol import SplitState
from tidegate.connectors.kafka.client import At, Isolation, Questions, Topic, TopicPartition, partition_of
from tidegate.connectors.kafka.connection import Connection
from tidegate.errors import InvalidError, LostDataError, UnavailableError

TOPIC_ID = "topic_id"
"""The attribute of a split by which a topic that was created anew under its name is told from the one before."""

Where = Literal["earliest", "latest"] | Mapping[str, int] | datetime
"""A position in every partition; a mapping is by split id."""

Offsets = dict[TopicPartition, int]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_SHOWN = 8


@dataclass(frozen=True)
class Selection:
    """The topics of a source: `names`, or all whose whole name matches `pattern`."""

    names: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None

    def __contains__(self, topic: str) -> bool:
        return topic in self.names if self.pattern is None else self.pattern.fullmatch(topic) is not None

    def __str__(self) -> str:
        return f"pattern={self.pattern.pattern!r}" if self.pattern else f"topics={', '.join(self.names)}"


def refuse_foreign(selection: Selection, known: Iterable[TopicPartition]) -> None:
    """Raise InvalidError when a partition of the restored checkpoint is of a topic that the source reads no more."""
    foreign = sorted({partition.topic for partition in known if partition.topic not in selection})
    if foreign:
        raise InvalidError(
            f"the checkpoint has positions in topic {', '.join(foreign)}, which is not among the source's {selection}",
            remedy="Read the topic again; or, to leave its unread records behind, start afresh (--fresh).",
        )


class Discovery:
    """What to look for. `ask` begins a look at the cluster; `start` applies to the first look of all; `bound` is None
    for reading on for ever."""

    def __init__(
        self,
        ask: Callable[[], Questions],
        selection: Selection,
        start: Where = "earliest",
        bound: Where | None = None,
        isolation: Isolation = "read_committed",
    ) -> None:
        self._ask = ask
        self._selection = selection
        self._start = start
        self._bound = bound
        self._isolation: Isolation = isolation

    def splits(self, known: frozenset[str] | None) -> list[SplitState]:
        """As `Source.discover`. Raises LostDataError when a known partition is not there any more."""
        known_partitions = [partition_of(split) for split in sorted(known or ())]
        refuse_foreign(self._selection, known_partitions)
        cluster = self._ask()
        topics = self._topics(cluster, {partition.topic for partition in known_partitions})
        partitions = sorted(
            TopicPartition(topic.name, number) for topic in topics.values() for number in topic.partitions
        )
        _refuse_gone(known_partitions, frozenset(partitions), cluster.bootstrap)
        new = [one for one in partitions if known is None or str(one) not in known]
        # Of thousands that are known nothing is asked again and again. A bound may name any of them.
        ranges = Ranges(cluster, new if self._bound is None else partitions, self._isolation)
        starts = self._starts(ranges) if known is None else ranges.beginnings
        stops = self._stops(ranges)
        return [SplitState(str(one), starts[one], stops.get(one), {TOPIC_ID: topics[one.topic].id}) for one in new]

    # ---- topics ----------------------------------------------------------------------------------------------------

    def _topics(self, cluster: Questions, known: Collection[str]) -> dict[str, Topic]:
        if self._selection.pattern is None:
            return self._named(cluster, known)
        matching = {name for name in cluster.names() if name in self._selection}
        topics = cluster.topics(sorted(matching | {*known}))
        topics = {name: topic for name, topic in topics.items() if not topic.is_internal}
        if not topics and self._bound is not None:
            raise InvalidError(
                f"no topic of {cluster.bootstrap} matches {self._selection}, and a bounded source needs one to end",
                remedy="Correct the pattern, which must match the whole name, or create the topic.",
            )
        return topics

    def _named(self, cluster: Questions, known: Collection[str]) -> dict[str, Topic]:
        topics = cluster.topics(self._selection.names)
        missing = [name for name in self._selection.names if name not in topics]
        if missing and missing[0] not in known:
            raise InvalidError(
                f"topic {missing[0]!r} does not exist at {cluster.bootstrap}, or the user may not see it",
                remedy="Create it, or correct the source's topics.",
            )
        return topics

    # ---- offsets ---------------------------------------------------------------------------------------------------

    def _starts(self, ranges: "Ranges") -> Offsets:
        if isinstance(self._start, Mapping):
            _check(self._start, ranges, "start")
        return ranges.resolve(self._start, ranges.beginnings)

    def _stops(self, ranges: "Ranges") -> Offsets:
        if self._bound is None:
            return {}
        if isinstance(self._bound, Mapping):
            _check(self._bound, ranges, "bounded")
        return ranges.resolve(self._bound, ranges.ends)


class Ranges:
    """Where partitions begin and end, asked when it is needed and once."""

    def __init__(self, cluster: Questions, partitions: Sequence[TopicPartition], isolation: Isolation) -> None:
        self._cluster = cluster
        self._partitions = partitions
        self._isolation: Isolation = isolation

    @property
    def bootstrap(self) -> str:
        return self._cluster.bootstrap

    @cached_property
    def beginnings(self) -> Offsets:
        return self._offsets("earliest", self._isolation)

    @cached_property
    def ends(self) -> Offsets:
        """What is below can be read: of committed records, that is the last stable offset."""
        return self._offsets("latest", self._isolation)

    @cached_property
    def log_ends(self) -> Offsets:
        return self._offsets("latest", "read_uncommitted")

    def since(self, moment: datetime) -> Offsets:
        """The first record of that moment or later; the end where there is none.

        The ends come first: a record that is written between the two questions must be behind them.
        """
        ends = self.ends
        milliseconds = max(0, -((_EPOCH - moment) // _MILLISECOND))
        found = self._offsets(milliseconds, self._isolation)
        return {partition: end if found[partition] < 0 else found[partition] for partition, end in ends.items()}

    def resolve(self, where: Where, unnamed: Offsets) -> Offsets:
        """`unnamed` is for partitions that a mapping leaves out."""
        match where:
            case "earliest":
                return self.beginnings
            case "latest":
                return self.ends
            case datetime():
                return self.since(where)
        return {partition: where.get(str(partition), offset) for partition, offset in unnamed.items()}

    def _offsets(self, at: At, isolation: Isolation) -> Offsets:
        found = self._cluster.offsets(self._partitions, at, isolation)
        missing = [partition for partition in self._partitions if partition not in found]
        if missing:
            raise UnavailableError(f"{_listed(missing)} at {self._cluster.bootstrap} vanished while it was looked at")
        return found


def _check(offsets: Mapping[str, int], ranges: Ranges, argument: str) -> None:
    bootstrap = ranges.bootstrap
    partitions = {str(partition): partition for partition in ranges.beginnings}
    for split, offset in offsets.items():
        if split not in partitions:
            raise InvalidError(
                f"{argument} names {split}, which is not among what the source reads at {bootstrap}",
                remedy=f"It reads {_listed(partitions.values())}.",
            )
        low, end = ranges.beginnings[partitions[split]], ranges.log_ends[partitions[split]]
        # A stop before the beginning is reached at once; a start there would leave out what is asked for.
        if offset > end or (offset < low and argument == "start"):
            raise InvalidError(
                f"{argument} names offset {offset} of {split}, which begins at {low} and ends at {end}",
                remedy=f"Give an offset from {low} to {end}.",
            )


def _refuse_gone(known: Iterable[TopicPartition], there: frozenset[TopicPartition], bootstrap: str) -> None:
    gone = [partition for partition in known if partition not in there]
    if gone:
        raise LostDataError(
            f"{_listed(gone)} at {bootstrap} was read and is not there any more: the topic was deleted, or created "
            "anew with fewer partitions",
            remedy="Bring the topic back; or, to go on without what was not read, start afresh (--fresh).",
        )


def _listed(partitions: Iterable[TopicPartition]) -> str:
    names = [str(partition) for partition in partitions]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


# ---- for tools -----------------------------------------------------------------------------------------------------


class KafkaInspection:
    """`SourceInspection`: where partitions end, for who has the checkpoint and not the program."""

    def __init__(self, connection: Connection, isolation: Isolation) -> None:
        self._connection = connection
        self._isolation: Isolation = isolation

    def end_positions(self, splits: Sequence[str]) -> dict[str, int]:
        from tidegate.connectors.kafka.cluster import Cluster

        found = Cluster(self._connection).offsets(map(partition_of, splits), "latest", self._isolation)
        return {str(partition): offset for partition, offset in found.items()}

    def close(self) -> None:
        """Nothing is kept open."""


def open_inspection(bootstrap: str, settings: str, isolation: Isolation = "read_committed") -> KafkaInspection:
    """From what a source's `inspection_spec` says. Raises InvalidError when a secret is not in the environment."""
    return KafkaInspection(Connection.of_arguments(bootstrap, settings), isolation)
