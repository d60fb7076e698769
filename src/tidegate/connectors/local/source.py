"""Reading topics of the embedded log as a source: one split a partition, positions are offsets.

Starts and stops are resolved to numbers in `discover` and nowhere else. A reader must never choose an offset itself:
what it cannot read is an error and not a reason to go on elsewhere.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from tidegate.checkpoint.protocol import RecoverySpec, SplitState
from tidegate.clock import Clock
from tidegate.connectors.local.log import SYSTEM_CLOCK, LocalLog
from tidegate.connectors.local.records import Isolation, PartitionInfo
from tidegate.connectors.rotation import RotatingReader
from tidegate.errors import InvalidError, LostDataError
from tidegate.operators.contracts import Deserializer, Fetched, SourceContext, SourceReader

Start = str | Mapping[int | str, int]


class LocalSource:
    """Records of one or more topics in `directory`.

    value: the format of the values; without it they are bytes. start: 'earliest', 'latest', or the first offset by
    partition (by 'topic/partition' where there are several topics; partitions that are not named start at their
    beginning). bounded: stop where each partition ended, for the chosen isolation, when it was discovered.
    discovery_interval: seconds between two looks for new partitions; a bounded source looks once.
    """

    def __init__(
        self,
        directory: str | Path,
        topic: str | Sequence[str],
        *,
        value: Deserializer | None = None,
        start: Start = "earliest",
        bounded: bool = False,
        isolation: Isolation = "read_committed",
        discovery_interval: float | None = 10.0,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.directory = Path(directory).absolute()
        self.topics = (topic,) if isinstance(topic, str) else tuple(dict.fromkeys(topic))
        self.isolation = isolation
        self._deserializer = value
        self._bounded = bounded
        self._discovery_interval = None if bounded else discovery_interval
        self._clock = clock
        if isolation not in ("read_committed", "read_uncommitted"):
            raise InvalidError(f"isolation={isolation!r} is not known", remedy="Use 'read_committed'.")
        self._start = _by_split(start, self.topics)
        self.starts_at_end = start == "latest"

    @property
    def bounded(self) -> bool:
        return self._bounded

    @property
    def deserializer(self) -> Deserializer | None:
        return self._deserializer

    @property
    def discovery_interval(self) -> float | None:
        return self._discovery_interval

    @property
    def inspection_spec(self) -> RecoverySpec | None:
        arguments = {"directory": str(self.directory), "isolation": self.isolation}
        return RecoverySpec("tidegate.connectors.local.source:open_inspection", arguments)

    def discover(self, known: frozenset[str] | None) -> list[SplitState]:
        with LocalLog(self.directory, create=False, clock=self._clock) as log:
            attributes = {"created": str(log.created)}
            infos = {
                f"{topic}/{partition}": log.partition_info(topic, partition)
                for topic in self.topics
                for partition in range(log.partitions(topic))
            }
        self._check_start(infos)
        return [
            SplitState(
                id=split,
                position=self._first(split, info) if known is None else info.low_watermark,
                stop=self._end(info) if self._bounded else None,
                attributes=attributes,
            )
            for split, info in infos.items()
            if split not in (known or ())
        ]

    def _first(self, split: str, info: PartitionInfo) -> int:
        if self._start == "earliest":
            return info.low_watermark
        if isinstance(self._start, str):
            return self._end(info)
        return self._start.get(split, info.low_watermark)

    def _end(self, info: PartitionInfo) -> int:
        return _end(info, self.isolation)

    def _check_start(self, infos: Mapping[str, PartitionInfo]) -> None:
        if isinstance(self._start, str):
            return
        for split, offset in self._start.items():
            if split not in infos:
                raise InvalidError(
                    f"start names {split}, which {self.directory} does not have",
                    remedy=f"Its partitions are: {', '.join(infos)}.",
                )
            low, end = infos[split].low_watermark, infos[split].end_offset
            if not low <= offset <= end:
                raise InvalidError(f"start names offset {offset} of {split}, which begins at {low} and ends at {end}")

    def open_reader(self, context: SourceContext) -> SourceReader:
        log = LocalLog(self.directory, create=False, clock=self._clock)
        created = str(log.created)

        def read(split: SplitState, max_records: int) -> Fetched | None:
            if split.attributes.get("created", created) != created:
                raise LostDataError(
                    f"{split.id}: the embedded log in {self.directory} is not the one that was read before",
                    remedy="Put the old directory back, or start afresh.",
                )
            return self._read(log, split, max_records)

        return RotatingReader(read, log.close)

    def _read(self, log: LocalLog, split: SplitState, max_records: int) -> Fetched | None:
        if split.stop is not None and split.position >= split.stop:
            return Fetched(split.id, [], split.position, finished=True)
        topic, _, partition = split.id.rpartition("/")
        chunk = log.fetch(topic, int(partition), split.position, max_records, self.isolation, split.stop)
        if chunk.next_offset == split.position:
            return None
        return Fetched(
            split=split.id,
            values=list(chunk.values),
            next_position=chunk.next_offset,
            keys=list(chunk.keys),
            timestamps=list(chunk.timestamps),
            finished=split.stop is not None and chunk.next_offset >= split.stop,
        )


class LocalInspection:
    """Partitions of a directory, seen by tools."""

    def __init__(self, log: LocalLog, isolation: Isolation) -> None:
        self._log = log
        self._isolation = isolation

    def end_positions(self, splits: Sequence[str]) -> dict[str, int]:
        topics = self._log.topics()
        found: dict[str, int] = {}
        for split in splits:
            topic, _, partition = split.rpartition("/")
            if topic in topics and int(partition) < topics[topic]:
                found[split] = _end(self._log.partition_info(topic, int(partition)), self._isolation)
        return found

    def close(self) -> None:
        self._log.close()


def open_inspection(directory: str, isolation: Isolation) -> LocalInspection:
    """The factory that a manifest names."""
    return LocalInspection(LocalLog(directory, create=False), isolation)


def _end(info: PartitionInfo, isolation: Isolation) -> int:
    return info.last_stable_offset if isolation == "read_committed" else info.end_offset


def _by_split(start: Start, topics: tuple[str, ...]) -> str | dict[str, int]:
    if isinstance(start, str):
        if start not in ("earliest", "latest"):
            raise InvalidError(
                f"start={start!r} is not known", remedy="Use 'earliest', 'latest' or {partition: offset}."
            )
        return start
    if len(topics) > 1 and any(isinstance(key, int) for key in start):
        raise InvalidError("start names partitions by number alone, of several topics", remedy="Use 'topic/partition'.")
    return {f"{topics[0]}/{key}" if isinstance(key, int) else key: offset for key, offset in start.items()}
