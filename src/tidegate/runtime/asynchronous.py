"""The stage of a task whose first operator is asynchronous. It stands between the gate and the chain and looks like the
gate: what comes goes on in order, records with their answers. Barriers do not wait for calls: the records that do are
state of the operator.

It takes nothing in while `capacity` is reached, so that those before the task wait, too. It decides nothing about
order and retries (`runtime.requests` does), makes no calls (`runtime.ports` does), and knows no thread.
"""

from functools import partial
from typing import Any

from tidegate.clock import Clock
from tidegate.elements import Batch, EndOfInput, Watermark
from tidegate.errors import UserCodeError
from tidegate.ids import CheckpointId
from tidegate.operators.asynchronous import AsyncOperator
from tidegate.operators.contracts import OperatorContext
from tidegate.operators.user_code import raise_user_error
from tidegate.runtime.gate import AlignedBarrier, Ended, InputGate
from tidegate.runtime.lookups import CachedCalls
from tidegate.runtime.ports import AsyncCalls, CallGroup
from tidegate.runtime.requests import CancelCall, GiveUp, RequestQueue, StartCall

OPENING = -1
"""The number of the call that opens what is called; those of records begin at 0."""


class AsyncStage:
    """See the module. `name` is that of the task; `context` the operator's, which is opened before this is."""

    def __init__(
        self,
        gate: InputGate,
        operator: AsyncOperator,
        context: OperatorContext,
        calls: AsyncCalls,
        clock: Clock,
        name: str,
    ) -> None:
        self._gate = gate
        self._operator = operator
        self._context = context
        self._calls = calls
        self._clock = clock
        self._name = name
        self._queue = RequestQueue(operator.policy, context.watermark)
        self._group: CallGroup | None = None
        self._cached: CachedCalls | None = None
        """The same, of a lookup with a cache."""
        self._answers: list[tuple[int, Any, BaseException | None]] = []
        """What came back and was not looked at yet."""
        self.is_open = False
        """Whether the function may be called."""

    # -- life --

    def open(self) -> None:
        """Restored requests stand before everything else, and are called as soon as what is called is open."""
        waiting, reached = self._operator.restored()
        self._queue.restore(waiting, reached)
        make = partial(self._calls.group, self._name, self._operator.policy.threads)
        cache, callee = self._operator.cache, self._operator.callee
        if cache is None:
            self._group = make(self._answered)
        else:
            self._group = self._cached = CachedCalls(make, cache, callee.call, self._clock, self._answered)
        if callee.open is None:
            self.is_open = True
        else:
            self._group.start(OPENING, partial(callee.open, self._operator.call_context))

    def close(self) -> None:
        """Cancel all calls, and close what was opened."""
        group, self._group = self._group, None
        if group is None:
            return
        try:
            group.close(self._operator.callee.close if self.is_open else None)
        except Exception as error:
            raise_user_error(error, self._context, "in close")

    # -- the task's --

    def step(self, now: float) -> None:
        """In every step of the task, whether or not it can go on. Raises UserCodeError for a record that failed for
        good, where that is not borne."""
        self._hear(now)
        while self.is_open and (commands := self._queue.commands(now)):
            for command in commands:
                self._perform(command)
            # Of a record that somebody else has asked for, the answer is there at once.
            self._hear(now)

    @property
    def wake_at(self) -> float | None:
        """When `step` has something to do although nothing comes; monotonic seconds."""
        return self._queue.wake_at if self.is_open else None

    def poll(self) -> Batch | Watermark | AlignedBarrier | Ended | None:
        """As the gate's."""
        took = False
        while (element := self._gate.poll(without_records=not self._queue.has_room)) is not None:
            if isinstance(element, AlignedBarrier):
                return element
            took = True
            self._take_in(element)
        if took:
            self.step(self._clock.now().monotonic)
        going_on = self._queue.take(self._context.batch_size)
        return Ended(going_on.is_drained) if isinstance(going_on, EndOfInput) else going_on

    @property
    def has_records(self) -> bool:
        """As the gate's: also while nothing is taken in because too many wait for answers."""
        return self._gate.has_records

    def abandon(self, checkpoint: CheckpointId) -> None:
        """As the gate's."""
        self._gate.abandon(checkpoint)

    def capture(self) -> None:
        """Before the operator's state is captured."""
        self._operator.keep(self._queue.waiting, self._queue.reached)

    # -- within --

    def _take_in(self, element: Batch | Watermark | Ended) -> None:
        match element:
            case Batch():
                self._queue.put(self._operator.admit(element))
            case Watermark():
                self._queue.put_watermark(element)
            case Ended(is_drained):
                self._queue.put_end(EndOfInput(is_drained))

    def _answered(self, call: int, result: Any, error: BaseException | None) -> None:
        self._answers.append((call, result, error))

    def _hear(self, now: float) -> None:
        answers, self._answers = self._answers, []
        for call, result, raised in answers:
            error = None if raised is None else _as_failure(raised)
            if call != OPENING:
                self._queue.answered(call, result, error, now)
            elif error is not None:
                raise_user_error(error, self._context, "in open")
            else:
                self.is_open = True

    def _perform(self, command: StartCall | CancelCall | GiveUp) -> None:
        assert self._group is not None
        match command:
            case StartCall(call, record):
                if self._cached is not None:
                    self._cached.ask(call, record)
                else:
                    self._group.start(call, partial(self._operator.callee.call, record))
            case CancelCall(call):
                self._group.cancel(call)
            case GiveUp(answer):
                self._operator.check(answer)


def _as_failure(error: BaseException) -> Exception:
    """What ended a call, as what its record failed with. What ends processes does so."""
    if isinstance(error, Exception):
        return error
    if isinstance(error, SystemExit | KeyboardInterrupt):
        raise error
    return UserCodeError(f"the call was ended by {type(error).__name__}: {error}")
