"""The chain of a task: fused operators that records pass without a channel between them. `push` begins an input batch,
`fire_timers` what is due without one, `advance` what a watermark brings about, `next_output` does the next piece of
work and gives the next batch that leaves the chain, until it gives None.

Depth first: what an operator emits passes all operators behind it before the operator is asked for more, so that only
one batch per operator is held, and the task can stop between any two outputs when it has no credit or its time is over.
A barrier may be handled only when the chain is `idle`. The chain never runs an operator ahead of need, and never looks
at single records.
"""

from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import TypeGuard

import msgspec

from tidegate.elements import MAX_WATERMARK, Batch
from tidegate.errors import InternalError
from tidegate.ids import OperatorName
from tidegate.operators.contracts import EventTimeOperator, Operator, TimerOperator
from tidegate.operators.sink import SinkOperator
from tidegate.operators.source import SourceOperator


class OperatorCounts(msgspec.Struct, frozen=True):
    """Records of one operator since the attempt began; `records_out` with side outputs."""

    name: OperatorName
    records_in: int
    records_out: int


class _Advance(msgspec.Struct, frozen=True):
    """An operator learns of a watermark, as often as it has something to do because of it."""

    position: int
    watermark: int
    must_stop: Callable[[], bool]


class _End(msgspec.Struct, frozen=True):
    """An operator learns of the end of its input."""

    position: int


class Chain:
    """Runs `operators` in the order in which records pass them. They are opened and closed by whoever made them.

    The main output of the last operator leaves the chain; so does, besides going to the next operator, that of an
    operator in `outside`, and every batch with a tag (a side output), which the next operator does not see. `ended`:
    those that had ended in the restored checkpoint, which have nothing to say any more.
    """

    def __init__(
        self,
        operators: Sequence[tuple[OperatorName, Operator]],
        outside: AbstractSet[OperatorName] = frozenset(),
        ended: AbstractSet[OperatorName] = frozenset(),
    ) -> None:
        if not operators:
            raise InternalError("a chain was made without operators")
        self._names = [name for name, _ in operators]
        self._operators = [operator for _, operator in operators]
        self._outside = [name in outside for name in self._names]
        self._outside[-1] = True
        if len(operators) > 1 and not self._outside[0]:
            _join(*self._operators[:2])
        self._records_in = [0] * len(operators)
        self._records_out = [0] * len(operators)
        self._working: list[tuple[int, Iterator[Batch]]] = []
        """Who is being asked for output, innermost last."""
        self._position = 0
        """Who is at work, or was last."""
        self.watch: Callable[[int], None] | None = None
        """Told when the operator at a position has been at work, where somebody wants to know for how long."""
        self._plan: list[_Advance | _End] = []
        """What operators are still to be told, the next one last: each is told when all that those before it had to
        say about the same has passed it."""
        self._input_ended = False
        self._ended = ended
        self._timed = [
            (position, operator)
            for position, (name, operator) in enumerate(operators)
            if _has_timers(operator) and name not in ended
        ]
        """Those that may have timers, the one whose turn is next first."""
        self._in_event_time = [
            position
            for position, (name, operator) in enumerate(operators)
            if isinstance(operator, EventTimeOperator) and name not in ended
        ]

    @property
    def idle(self) -> bool:
        """Whether everything that was begun has left the chain."""
        return not self._working and not self._plan

    @property
    def ended(self) -> bool:
        """Whether the input has ended and what the operators do at the end is done."""
        return self._input_ended and self.idle

    @property
    def at_work(self) -> OperatorName:
        """Which operator is at work, or was last: for somebody who looks from another thread."""
        return self._names[self._position]

    @property
    def counts(self) -> tuple[OperatorCounts, ...]:
        return tuple(map(OperatorCounts, self._names, self._records_in, self._records_out))

    def push(self, batch: Batch) -> None:
        """Begin a batch; only when idle."""
        self._begin()
        self._enter(0, batch)

    @property
    def next_timer(self) -> int | None:
        """When the earliest timer of its operators is due, in milliseconds since 1970; None when none will fire."""
        if not self._timed or self._input_ended:
            return None
        return min((at for _, operator in self._timed if (at := operator.next_timer) is not None), default=None)

    def fire_timers(self, now: int, must_stop: Callable[[], bool]) -> None:
        """Begin with the timers that are due at `now`, of one operator that has any, until `must_stop`; only when idle.
        Operators take turns."""
        self._begin()
        for turn, (position, operator) in enumerate(self._timed, start=1):
            at = operator.next_timer
            if at is not None and at <= now:
                self._working.append((position, iter(operator.fire_timers(now, must_stop))))
                self._timed = self._timed[turn:] + self._timed[:turn]
                return

    def advance(self, watermark: int, must_stop: Callable[[], bool] = lambda: False) -> None:
        """Begin with what `watermark` brings about, operator by operator; only when idle. `must_stop`: as for timers,
        but what is left then comes with the next `next_output`."""
        self._begin()
        self._plan = [_Advance(position, watermark, must_stop) for position in reversed(self._in_event_time)]

    def end_of_input(self, must_stop: Callable[[], bool] = lambda: False) -> None:
        """Begin the end, operator by operator, and with it that of event time; only when idle."""
        self._begin()
        self._input_ended = True
        for position, name in reversed(list(enumerate(self._names))):
            if name not in self._ended:
                self._plan.append(_End(position))
                if position in self._in_event_time:
                    self._plan.append(_Advance(position, MAX_WATERMARK, must_stop))

    def next_output(self, must_pause: Callable[[], bool] = lambda: False) -> tuple[OperatorName, Batch] | None:
        """The next batch that leaves the chain, and whose output it is; None when what was begun is finished, or, with
        the chain not `idle`, when it `must_pause`: asked between two pieces of work, for a chain from which nothing
        leaves (it ends in a sink, or filters all) would never stop else.

        Raises what operators raise; then the chain is in pieces and the attempt over.
        """
        is_first = True
        while not self.idle:
            if not is_first and must_pause():
                return None
            is_first = False
            if not self._working and not self._tell_next():
                continue
            position, outputs = self._working[-1]
            self._position = position
            batch = next(outputs, None)
            if self.watch is not None:
                self.watch(position)
            if batch is None:
                self._working.pop()
                continue
            self._records_out[position] += len(batch)
            if batch.tag is not None:
                return self._names[position], batch
            if position + 1 < len(self._operators):
                self._enter(position + 1, batch)
            if self._outside[position]:
                return self._names[position], batch
        return None

    def _tell_next(self) -> bool:
        """Carry out the next item of the plan; False when nothing comes of it."""
        told = self._plan[-1]
        self._position = told.position
        operator = self._operators[told.position]
        if isinstance(told, _End):
            self._plan.pop()
            outputs = iter(operator.end_of_input())
        else:
            assert isinstance(operator, EventTimeOperator)
            advanced = operator.advance_watermark(told.watermark, told.must_stop)
            if advanced is None:
                self._plan.pop()
                return False
            outputs = iter(advanced)
        self._working.append((told.position, outputs))
        return True

    def _begin(self) -> None:
        if not self.idle or self._input_ended:
            state = "had ended" if self.ended else "was busy"
            raise InternalError(f"work was given to the chain of {self._names[0]} while it {state}")

    def _enter(self, position: int, batch: Batch) -> None:
        self._position = position
        self._records_in[position] += len(batch)
        self._working.append((position, iter(self._operators[position].process(batch))))
        if self.watch is not None:
            self.watch(position)


def _join(first: Operator, second: Operator) -> None:
    """A source and a sink that have only each other may agree on more than batches of lists."""
    if isinstance(first, SourceOperator) and isinstance(second, SinkOperator) and second.takes_columns:
        first.leave_columns()


def _has_timers(operator: Operator) -> TypeGuard[TimerOperator]:
    """Asked of its class: `isinstance` asks for the value of `next_timer`, which there may only be behind `open`."""
    return hasattr(type(operator), "fire_timers")
