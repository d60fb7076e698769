"""Operators whose function waits for something outside: what is declared of its calls, and what is made of the answers.

The calls themselves are made by the task, before records reach the operator (`runtime.asynchronous`): it gives the
operator answers in place of records. Which records still waited for theirs at a barrier is the operator's state, so
that they are called again after a restore: a call may happen more than once, a result never. The operator never calls
the function itself, and never waits.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import compress
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec

from tidegate.elements import MIN_WATERMARK, Batch
from tidegate.errors import CorruptError, InvalidError, place
from tidegate.operators.context import Context
from tidegate.operators.contracts import OperatorContext
from tidegate.operators.stateless import FunctionOperator, select
from tidegate.operators.user_code import OnError, call_each, describe, raise_user_error
from tidegate.state.handles import ListHandle
from tidegate.state.operator_descriptors import InternalOperatorListState

REACHED: InternalOperatorListState[int] = InternalOperatorListState(int, redistribution="union", name=".reached")
"""The highest watermark that came to each subtask, whether or not it has gone on."""
TIMES: InternalOperatorListState[tuple[int, int | None]] = InternalOperatorListState(
    tuple[int, int | None], name=".request-times"
)
"""Of each request, in the order of those: the watermark that it came behind, and its timestamp."""
_record = attrgetter("record")
_result = attrgetter("result")


def requests_state(record_type: Any) -> InternalOperatorListState[Any]:
    """Records that wait for their answers, of the declared type. Raises InvalidError for what cannot be stored."""
    return InternalOperatorListState(record_type, name=".requests")


class Answer(msgspec.Struct):
    """What became of a record's calls: a result, or the error of the last of `tries`."""

    record: Any
    result: Any
    error: Exception | None = None
    tries: int = 1


class Waiting(NamedTuple):
    """A record that waits for its answer, and the watermark that it came behind."""

    record: Any
    timestamp: int | None
    watermark: int


class RetryPolicy(msgspec.Struct, frozen=True):
    """`attempts`: calls of one record at most. delay: seconds before the second, each further one `backoff` times
    longer. on: errors that are worth another call, besides calls that took too long."""

    attempts: int
    delay: float
    backoff: float
    on: tuple[type[Exception], ...]

    def covers(self, error: Exception, tries: int) -> bool:
        """Whether there is another call after so many that ended with `error`. Being out of memory says nothing about
        the call."""
        worth = isinstance(error, (CallTimeout, *self.on)) and not isinstance(error, MemoryError)
        return worth and tries < self.attempts

    def pause(self, tries: int) -> float:
        """Seconds between the end of the `tries`-th call and the next."""
        pause: float = self.delay * self.backoff ** (tries - 1)
        return pause


class CallTimeout(TimeoutError):
    """A call took longer than it may."""


@dataclass(frozen=True)
class CallPolicy:
    """How the function is called. capacity: records between their arrival and their going on. concurrency: calls at
    once. timeout: seconds that one may take; None: as long as it likes. threads: on which plain functions run; None:
    on the event loop. ordered: whether results keep the order of the records."""

    capacity: int
    concurrency: int
    timeout: float | None = None
    retries: RetryPolicy | None = None
    ordered: bool = True
    threads: int | None = None

    def too_slow(self) -> CallTimeout:
        return CallTimeout(f"the call took longer than {self.timeout:g} s")


@dataclass(frozen=True)
class Callee:
    """What is called for each record, of one subtask. `open` is awaited before the first call, `close` after the last
    one, both where calls run."""

    call: Callable[[Any], Any]
    open: Callable[[Context], Awaitable[None]] | None = None
    close: Callable[[], Awaitable[None]] | None = None


@dataclass(frozen=True)
class CachePolicy:
    """What is kept of answers: at most `size`, for `ttl` seconds (None: for ever), by what `key` gives of a record."""

    key: Callable[[Any], Any]
    size: int
    ttl: float | None


class AsyncOperator(FunctionOperator):
    """Emits the results of `callee`. `record_type` is the type of what comes in."""

    cache: CachePolicy | None = None

    def __init__(self, callee: Callee, policy: CallPolicy, record_type: Any, on_error: OnError) -> None:
        super().__init__(callee.call, on_error)
        self.callee = callee
        self.policy = policy
        self._descriptor = requests_state(record_type)

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._requests: ListHandle[Any] = context.operator_state.register(self._descriptor)
        self._times: ListHandle[tuple[int, int | None]] = context.operator_state.register(TIMES)
        self._reached: ListHandle[int] = context.operator_state.register(REACHED)

    @property
    def call_context(self) -> Context:
        """What the callee is opened with."""
        return Context(self._context.operator, self._context.subtask, self._context.parallelism)

    # -- records that wait --

    def admit(self, batch: Batch) -> Batch:
        """The records as they can be stored. Raises InvalidError, naming the type, for one that is of another."""
        element = self._descriptor.element
        if all(type(record) in element.classes for record in batch.values):
            return batch
        try:
            return Batch(list(map(element.admit, batch.values)), None, batch.timestamps)
        except InvalidError as error:
            raise InvalidError(
                f"records wait for their calls as {self._descriptor.type_name}, and one is of another type: "
                f"{error.failure.message}",
                remedy="Give type= the type of the records that come in.",
                where=place(self._context.operator, self._context.subtask),
            ) from error

    def restored(self) -> tuple[list[Waiting], int]:
        """What waited when the restored checkpoint was made, in the order of watermarks, and how far all subtasks had
        come.

        No record stands behind a later watermark than that: those that read on may have been behind the others, and
        what they bring would be late.
        """
        reached = min(self._reached.get(), default=MIN_WATERMARK)
        requests, times = self._requests.get(), self._times.get()
        if len(requests) != len(times):
            raise CorruptError(
                f"{len(requests)} records wait for calls and {len(times)} of them have a time",
                where=place(self._context.operator, self._context.subtask),
            )
        waiting = [
            Waiting(record, stamp, min(watermark, reached))
            for record, (watermark, stamp) in zip(requests, times, strict=True)
        ]
        return sorted(waiting, key=attrgetter("watermark")), reached

    def keep(self, waiting: Sequence[Waiting], reached: int) -> None:
        """Before a capture: this is what waits now."""
        self._requests.update([one.record for one in waiting])
        self._times.update([(one.watermark, one.timestamp) for one in waiting])
        self._reached.update([reached])

    # -- answers --

    def check(self, answer: Answer) -> None:
        """Raise what became of a record, unless its failure is to be borne: then it goes on in its turn."""
        if self._is_fatal(answer):
            self._raise(answer)

    def process(self, batch: Batch) -> list[Batch]:
        """The batch's records are answers."""
        failed = [answer.error is not None for answer in batch.values]
        if not any(failed):
            return self._emit(batch)
        for answer in compress(batch.values, failed):
            self._bear(answer, answer.error)
        answered = select(batch, [not has_failed for has_failed in failed])
        return self._emit(answered) + self._left_out(select(batch, failed))

    def _emit(self, answered: Batch) -> list[Batch]:
        """What is made of answers that are no errors."""
        results = list(map(_result, answered.values))
        return [Batch(results, None, answered.timestamps)] if results else []

    def _left_out(self, failed: Batch) -> list[Batch]:
        return self._rejected(Batch(list(map(_record, failed.values)), None, failed.timestamps))

    def _is_fatal(self, answer: Answer) -> bool:
        return self._on_error.fails or isinstance(answer.error, MemoryError)

    def _bear(self, answer: Answer, error: Exception) -> None:
        answer.error = error
        self.check(answer)
        if self._on_error.skip:
            self.records_skipped += 1

    def _raise(self, answer: Answer) -> None:
        assert answer.error is not None
        tries = f", in call {answer.tries}" if answer.tries > 1 else ""
        raise_user_error(answer.error, self._context, f"on record {describe(answer.record)}{tries}")


class LookupOperator(AsyncOperator):
    """Emits `join(record, row)`, where the callee has looked up the row; None is no row. Without a row a record has no
    output, unless `outer`."""

    def __init__(
        self,
        callee: Callee,
        join: Callable[[Any, Any], Any],
        outer: bool,
        cache: CachePolicy | None,
        policy: CallPolicy,
        record_type: Any,
        on_error: OnError,
    ) -> None:
        super().__init__(callee, policy, record_type, on_error)
        self._join = join
        self._outer = outer
        self.cache = cache

    def _emit(self, answered: Batch) -> list[Batch]:
        if not self._outer:
            answered = select(answered, [answer.result is not None for answer in answered.values])
        results, left_out = call_each(self._joined, answered.values, self._bear)
        if not left_out:
            return [Batch(results, None, answered.timestamps)] if results else []
        failed = [False] * len(answered)
        for position in left_out:
            failed[position] = True
        stamps = select(answered, [not has_failed for has_failed in failed]).timestamps
        emitted = [Batch(results, None, stamps)] if results else []
        return emitted + self._left_out(select(answered, failed))

    def _joined(self, answer: Answer) -> Any:
        return self._join(answer.record, answer.result)
