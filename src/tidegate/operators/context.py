"""What a process function is given with each record, and where its outputs wait until the engine takes them.

The outputs of one input batch wait here in order, main output and side outputs apart. Nothing here outlives the
processing of one batch: whatever must be there at the next one is state.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, repeat
from typing import Any, Generic, TypeVar

from tidegate.clock import Clock
from tidegate.elements import Batch
from tidegate.errors import InvalidError
from tidegate.ids import OperatorName, SubtaskIndex, is_name
from tidegate.operators.timers import TimeDomain, Timers, TimerService

Value = TypeVar("Value")
Key = TypeVar("Key", covariant=True)


@dataclass(frozen=True)
class SideOutput(Generic[Value]):
    """A second output of an operator, for records of type `Value`: `late = SideOutput[Order]("late")`.

    Two with the same name are the same side output. Raises InvalidError for a name outside `[A-Za-z0-9_-]{1,64}`.
    """

    name: str

    def __post_init__(self) -> None:
        name: object = self.name
        if not isinstance(name, str) or not is_name(name):
            raise InvalidError(
                f"{name!r} cannot name a side output",
                remedy="Use 1 to 64 of the characters A-Z, a-z, 0-9, '_' and '-'.",
            )


FULL: Any = object()
"""No output: see `OutputBuffer.batches_of`."""


class OutputBuffer:
    """What one input batch has given so far. With timestamps when the input batch has them."""

    __slots__ = ("_side", "main", "side_records", "stamps")

    def __init__(self, tags: tuple[str, ...], timed: bool) -> None:
        self.stamps: list[int] | None = [] if timed else None
        """Of `batches_of`: the timestamps of the outputs that were asked for."""
        self.main = Batch([], None, [] if timed else None)
        self.side_records = 0
        """How many records wait in side outputs."""
        self._side = {tag: Batch([], None, [] if timed else None, tag) for tag in tags}

    def stamp(self, timestamp: int) -> None:
        """What came into the main output since the last call came from a record of `timestamp`."""
        stamps = self.main.timestamps
        if stamps is not None:
            stamps.extend(repeat(timestamp, len(self.main.values) - len(stamps)))

    def put_aside(self, tag: str, value: Any, timestamp: int | None) -> bool:
        """Add `value` to the side output `tag`; False when there is none of that name."""
        batch = self._side.get(tag)
        if batch is None:
            return False
        batch.values.append(value)
        if batch.timestamps is not None and timestamp is not None:
            batch.timestamps.append(timestamp)
        self.side_records += 1
        return True

    def take(self, timestamp: int | None = None) -> list[Batch]:
        """Everything that waits, main output first, as non-empty batches; nothing waits afterwards. `timestamp` as in
        `stamp`."""
        if timestamp is not None:
            self.stamp(timestamp)
        taken = [batch for batch in (self.main, *self._side.values()) if batch.values]
        self.main = _emptied(self.main)
        self._side = {tag: _emptied(batch) for tag, batch in self._side.items()}
        self.side_records = 0
        return taken

    def batches_of(self, outputs: Iterator[Any], size: int) -> Iterator[Batch]:
        """`outputs` of the main output as batches of `size`, and what came to the side meanwhile, which counts, too.

        Whoever makes an output adds its timestamp to `stamps` before, where there are any, and says `FULL` when a batch
        of side outputs is there. Nothing is made before it is asked for.
        """
        if self._side:
            return self._batches_of_all(outputs, size)
        return self._batches_of_main(outputs, size)

    def _batches_of_main(self, outputs: Iterator[Any], size: int) -> Iterator[Batch]:
        stamps = self.stamps
        while records := list(islice(outputs, size)):
            yield Batch(records, None, None if stamps is None else stamps.copy())
            if stamps is not None:
                stamps.clear()

    def _batches_of_all(self, outputs: Iterator[Any], size: int) -> Iterator[Batch]:
        main = self.main.values
        for output in outputs:
            if output is not FULL:
                main.append(output)
            if output is FULL or len(main) + self.side_records >= size:
                yield from self._take_stamped()
                main = self.main.values
        yield from self._take_stamped()

    def _take_stamped(self) -> list[Batch]:
        if self.stamps is not None:
            self.main.timestamps = self.stamps.copy()
            self.stamps.clear()
        return self.take()


def _emptied(batch: Batch) -> Batch:
    return Batch([], None, None if batch.timestamps is None else [], batch.tag)


class Context:
    """What a `ProcessFunction` knows besides the record. Valid during one call; never kept."""

    __slots__ = ("_buffer", "_key", "operator", "parallelism", "subtask", "timestamp")

    def __init__(self, operator: OperatorName, subtask: SubtaskIndex, parallelism: int) -> None:
        self.operator = operator
        """The operator's name."""
        self.subtask = subtask
        """Which of the operator's `parallelism` subtasks this is, from 0."""
        self.parallelism = parallelism
        self.timestamp: int | None = None
        """The record's, in milliseconds since 1970; None when its source was not asked for timestamps. In `on_timer`:
        the timer's on event time, None on processing time, whose outputs have none."""
        self._key: Any = None
        self._buffer = OutputBuffer((), timed=False)

    def output(self, tag: SideOutput[Value], value: Value) -> None:
        """Send `value` to the side output `tag`. Raises InvalidError when the function does not declare it."""
        if not self._buffer.put_aside(tag.name, value, self.timestamp):
            raise InvalidError(
                f"operator {self.operator} has no side output {tag.name!r}",
                remedy="Make it a class attribute of the function, or name it in process(..., side_outputs=[...]).",
            )

    def _collect_into(self, buffer: OutputBuffer) -> None:
        self._buffer = buffer


class KeyedContext(Context, Generic[Key]):
    """What a `KeyedProcessFunction` knows besides the record."""

    __slots__ = ("time_domain", "timer_service")

    key: Key = Context.__dict__["_key"]
    """The record's or the timer's key; None in `open`."""
    # The slot itself under another name: reading it is no call, as that of a property would be.

    def __init__(
        self,
        operator: OperatorName,
        subtask: SubtaskIndex,
        parallelism: int,
        clock: Clock,
        timers: Timers | None,
    ) -> None:
        """For the engine."""
        super().__init__(operator, subtask, parallelism)
        self.timer_service = TimerService(clock, timers, lambda: self._key)
        """The time, and timers of the current key."""
        self.time_domain: TimeDomain | None = None
        """In `on_timer`: of which kind of time the timer is. None otherwise."""
