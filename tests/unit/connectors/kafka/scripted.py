"""A coordinator and a producer whose answers a test writes down, for what a real broker does rarely or never."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from tidegate.clock import Now
from tidegate.connectors.kafka.client import (
    EndAnswer,
    Header,
    PartitionProducer,
    TopicPartition,
    TransactionDescription,
    TransactionState,
)
from tidegate.connectors.kafka.outcomes import Prepared
from tidegate.errors import TidegateError
from tidegate.ids import Attempt, LogInstance, OperatorName, SubtaskIndex, TransactionalId

STARTED = 1_800_000_000.25
PARTITIONS = (TopicPartition("totals", 0), TopicPartition("totals", 2))
ID = TransactionalId("app", LogInstance("log"), Attempt(1), OperatorName("out"), SubtaskIndex(0), 0)
PREPARED = Prepared(str(ID), 7, 3, STARTED, 60.0, PARTITIONS, 30)


def described(state: TransactionState = TransactionState.ONGOING, **changes: object) -> TransactionDescription:
    """What the coordinator says of `PREPARED`, with changes."""
    partitions = PARTITIONS if state is TransactionState.ONGOING else ()
    found = TransactionDescription(PREPARED.id, state, 7, 3, 60.0, STARTED, partitions)
    return msgspec.structs.replace(found, **changes)


def leaders(**changes: object) -> list[PartitionProducer]:
    """What the partitions say of `PREPARED`, the second one with changes."""
    first, second = (PartitionProducer(PARTITIONS[index], 7, 3, 10 + index * 10, 5) for index in (0, 1))
    return [first, msgspec.structs.replace(second, **changes)]


def ended() -> list[PartitionProducer]:
    """What the partitions say of `PREPARED` when its markers are there."""
    return [msgspec.structs.replace(row, first_open_offset=None) for row in leaders()]


class HandClock:
    """Time passes when a test says so."""

    def __init__(self, wall: float = STARTED + 1) -> None:
        self.wall = wall

    def now(self) -> Now:
        return Now(self.wall - STARTED, self.wall)


class ScriptedAdmin:
    """Answers from lists, the last of each again and again. An answer that is an error is raised."""

    def __init__(
        self,
        descriptions: Sequence[TransactionDescription | TidegateError | None],
        ends: Sequence[EndAnswer | TidegateError] = (),
        producers: Sequence[list[PartitionProducer]] | None = None,
        open_ids: Sequence[str] = (),
    ) -> None:
        self.descriptions = list(descriptions)
        self.ends = list(ends)
        self.rows = [leaders()] if producers is None else list(producers)
        self.ids = list(open_ids)
        self.asked: list[str] = []
        self.maximum = 900.0
        self.sequences: dict[TopicPartition, int] = {}
        self.markers_refused: TidegateError | None = None

    def describe(self, id: str) -> TransactionDescription | None:
        self.asked.append("describe")
        found: TransactionDescription | None = _answer(self.descriptions)
        return found

    def commit(self, id: str, producer_id: int, epoch: int) -> EndAnswer:
        self.asked.append(f"commit {id} {producer_id} {epoch}")
        end: EndAnswer = _answer(self.ends)
        return end

    def producers(self, partitions: Sequence[TopicPartition]) -> list[PartitionProducer]:
        self.asked.append("producers")
        rows: list[PartitionProducer] = _answer(self.rows)
        return rows

    def first_sequences(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        self.asked.append("first_sequences")
        return {partition: self.sequences.get(partition, 0) for partition in offsets}

    def write_markers(self, rows: Sequence[PartitionProducer], commit: bool) -> None:
        kind = "commit" if commit else "abort"
        self.asked.append(f"markers {kind} {' '.join(str(row.partition) for row in rows)}")
        if self.markers_refused is not None:
            raise self.markers_refused
        self.rows = [ended()]

    def open_ids(self) -> list[str]:
        self.asked.append("open_ids")
        return self.ids

    def fence(self, id: str) -> None:
        self.asked.append(f"fence {id}")

    def maximum_timeout(self) -> float:
        self.asked.append("maximum_timeout")
        return self.maximum

    def close(self) -> None:
        self.asked.append("close")


class KeepingProducer:
    """Keeps what it is given; fails when it is told to."""

    def __init__(self, partitions: int = 4) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.partitions = partitions
        self.asked: list[str] = []
        self.has_room = True
        self.fails: TidegateError | None = None
        self.is_dropped = False
        self.sent = 0

    def send(
        self,
        topic: str,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None = None,
        partitions: Sequence[int] | None = None,
        timestamps: Sequence[int] | None = None,
        headers: Sequence[Sequence[Header] | None] | None = None,
    ) -> None:
        self._fail()
        self.sent += len(values)
        self.calls.append((topic, values, keys, partitions, timestamps, headers))

    def flush(self) -> None:
        self.asked.append("flush")
        self._fail()

    def _fail(self) -> None:
        if self.fails is not None:
            raise self.fails

    def partition_count(self, topic: str) -> int:
        self.asked.append(topic)
        return self.partitions

    def drop(self) -> None:
        self.is_dropped = True


class KeepingFactory:
    def __init__(self) -> None:
        self.opened: list[KeepingProducer] = []
        self.timeouts: list[float] = []
        self.on_failure: Callable[[TidegateError, int], None] | None = None

    def open_transaction(self, id: str, timeout: float) -> KeepingProducer:
        self.timeouts.append(timeout)
        self.opened.append(KeepingProducer())
        return self.opened[-1]

    def open_plain(self, on_failure: Callable[[TidegateError, int], None] | None = None) -> KeepingProducer:
        self.on_failure = on_failure
        self.opened.append(KeepingProducer())
        return self.opened[-1]


def _answer(answers: list[Any]) -> Any:
    answer = answers.pop(0) if len(answers) > 1 else answers[0]
    if isinstance(answer, TidegateError):
        raise answer
    return answer
