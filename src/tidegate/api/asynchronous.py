"""Calls to something outside for each record: `async_map` and `lookup_join` of a stream, what users give to them, and
what is checked of it. It adds operators to the graph and calls nothing."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

from tidegate.api.builder import GraphBuilder
from tidegate.api.functions import Context, SideOutput
from tidegate.api.validation import check_function, check_parallelism, declarations, error_policy
from tidegate.config.values import parse_positive_duration, parse_whole
from tidegate.errors import InvalidError
from tidegate.event_time.durations import seconds_of
from tidegate.graph.logical import ErrorPolicy, InputEdge, LogicalNode
from tidegate.ids import OperatorName
from tidegate.operators.asynchronous import (
    REACHED,
    TIMES,
    AsyncOperator,
    CachePolicy,
    Callee,
    CallPolicy,
    LookupOperator,
    RetryPolicy,
    requests_state,
)
from tidegate.operators.contracts import Operator
from tidegate.operators.user_code import OnError, copy_function

if TYPE_CHECKING:
    from tidegate.api.stream import Stream

In = TypeVar("In", contravariant=True)
Out = TypeVar("Out", covariant=True)
Record = TypeVar("Record", covariant=True)
Result = TypeVar("Result")
Key = TypeVar("Key", bound=Hashable)

DEFAULT_THREADS = 16
"""On which plain functions run, where nothing else is said."""
OnErrorArgument = Literal["fail", "skip"] | SideOutput[Any]


class AsyncFunction(ABC, Generic[In, Out]):
    """An asynchronous function with something to open and to close, a session of a client for example. All of it runs
    on the event loop of the worker; each subtask has its own copy (`copy.deepcopy`) of the object.

        class Prices(AsyncFunction[Order, Priced]):
            async def open(self, ctx):
                self.session = aiohttp.ClientSession()

            async def close(self):
                await self.session.close()

            async def call(self, value):
                async with self.session.get(f"{URL}/{value.article}") as response:
                    return Priced(value, float(await response.text()))
    """

    async def open(self, ctx: Context) -> None:
        """Awaited once in each attempt, before the first call."""

    async def close(self) -> None:
        """Awaited when the attempt ends in good order, after `open` succeeded, for two seconds at most; not when the
        process dies. For manners only."""

    @abstractmethod
    async def call(self, value: In) -> Out:
        """Awaited for each record, for several at the same time. After a failure of the job it is awaited again for
        records whose results were not part of a checkpoint: what it does outside must bear that. `value` must not be
        changed."""


@dataclass(frozen=True)
class Retries:
    """Another call for a record whose call failed or took too long: `attempts` calls of one record at most, the first
    one included.

    Between two calls lie `delay`, and `backoff` times as much each further time. `on`: the exceptions that are worth
    another call; a call that took too long always is. Raises InvalidError.
    """

    attempts: int = 3
    delay: object = "1s"
    backoff: float = 2.0
    on: type[Exception] | tuple[type[Exception], ...] = Exception
    policy: RetryPolicy = field(init=False, repr=False, compare=False)
    """For the engine."""

    def __post_init__(self) -> None:
        kinds: Any = self.on if isinstance(self.on, tuple) else (self.on,)
        if not all(isinstance(kind, type) and issubclass(kind, Exception) for kind in kinds):
            raise InvalidError(
                f"retries are to be made on {self.on!r}", remedy="Give classes of exceptions: on=(OSError, MyError)."
            )
        backoff: object = self.backoff
        if isinstance(backoff, bool) or not isinstance(backoff, int | float) or not backoff >= 1:
            raise InvalidError(f"retries have backoff={self.backoff!r}", remedy="Give a number from 1.")
        attempts = _whole("retries: attempts", self.attempts, 2)
        delay = seconds_of("retries: delay", self.delay)
        object.__setattr__(self, "policy", RetryPolicy(attempts, delay, float(self.backoff), kinds))


@dataclass(frozen=True)
class LookupCache:
    """What a lookup join keeps of rows: at most `size` in each subtask, the ones that were used last, and each for
    `ttl` at most (None: as long as it is used). Keys without a row are kept alike. In memory only, never in a
    checkpoint. Raises InvalidError."""

    size: int = 10_000
    ttl: object = "10m"

    def __post_init__(self) -> None:
        _whole("a cache of lookups: size", self.size, 1)
        if self.ttl is not None:
            seconds_of("a cache of lookups: ttl", self.ttl, parse_positive_duration)

    def policy(self, key: Callable[[Any], Hashable]) -> CachePolicy:
        """For the engine."""
        return CachePolicy(key, self.size, None if self.ttl is None else seconds_of("ttl", self.ttl))


@dataclass(frozen=True)
class CallOptions:
    """What `async_map` and `lookup_join` have in common."""

    parallelism: int | None
    capacity: int
    timeout: object
    retries: Retries | None
    ordered: bool
    threads: int | None
    on_error: OnErrorArgument

    def policy(self, operator: OperatorName, is_async: bool) -> CallPolicy:
        """Checked."""
        label = f"operator {operator}"
        capacity = _whole(f"{label}: capacity", self.capacity, 1)
        if self.retries is not None and not isinstance(self.retries, Retries):
            raise InvalidError(
                f"{label} has retries={self.retries!r}", remedy='Give tg.Retries(attempts=3, delay="1s"), or None.'
            )
        threads = self._threads(label, is_async)
        timeout = self.timeout
        return CallPolicy(
            capacity=capacity,
            concurrency=capacity if threads is None else min(threads, capacity),
            timeout=None if timeout is None else seconds_of(f"{label}: timeout", timeout, parse_positive_duration),
            retries=None if self.retries is None else self.retries.policy,
            ordered=bool(self.ordered),
            threads=threads,
        )

    def _threads(self, label: str, is_async: bool) -> int | None:
        if not is_async:
            return DEFAULT_THREADS if self.threads is None else _whole(f"{label}: threads", self.threads, 1)
        if self.threads is not None:
            raise InvalidError(
                f"{label} has an async function and threads={self.threads!r}",
                remedy="Leave threads out: async functions run on the event loop. Say with capacity how many run at "
                "once.",
            )
        return None


class AsyncMethods(Generic[Record]):
    """The methods of a `Stream` whose functions wait for something outside."""

    _builder: GraphBuilder

    def _edge(self) -> InputEdge:
        raise NotImplementedError

    def _behind(self, operator: OperatorName) -> "Stream[Any]":
        raise NotImplementedError

    @overload
    def async_map(
        self,
        function: AsyncFunction[Record, Result] | Callable[[Record], Awaitable[Result]],
        *,
        name: str,
        type: object,
        parallelism: int | None = None,
        capacity: int = 100,
        timeout: object = "30s",
        retries: Retries | None = None,
        ordered: bool = True,
        threads: None = None,
        on_error: OnErrorArgument = "fail",
    ) -> "Stream[Result]": ...
    @overload
    def async_map(
        self,
        function: Callable[[Record], Result],
        *,
        name: str,
        type: object,
        parallelism: int | None = None,
        capacity: int = 100,
        timeout: object = "30s",
        retries: Retries | None = None,
        ordered: bool = True,
        threads: int | None = None,
        on_error: OnErrorArgument = "fail",
    ) -> "Stream[Result]": ...
    def async_map(
        self,
        function: Any,
        *,
        name: str,
        type: object,
        parallelism: int | None = None,
        capacity: int = 100,
        timeout: object = "30s",
        retries: Retries | None = None,
        ordered: bool = True,
        threads: int | None = None,
        on_error: OnErrorArgument = "fail",
    ) -> "Stream[Any]":
        """One record for each, when its call has ended: many calls at once, while others wait.

        function: an `async def` function or an `AsyncFunction`, which run on an event loop, or a plain function, which
        runs on `threads` threads (16). type: of the records that come in; those that wait are part of every checkpoint,
        and are called again after a restore. capacity: records that are taken in at once; then those before this
        operator wait. timeout: of each call, None for none; what runs on a thread is only not waited for any more.
        retries: see `Retries`. ordered: results come in the order of the records; otherwise as they are ready, never
        across a watermark. on_error: as for `map`, for a record whose last call has failed.
        """
        options = CallOptions(parallelism, capacity, timeout, retries, ordered, threads, on_error)
        operator = self._builder.name("async_map", name)
        _check_callee(operator, "async_map", function)
        policy = options.policy(operator, _is_async(function))

        def make(errors: OnError) -> Operator:
            return AsyncOperator(_callee(function, operator), policy, type, errors)

        return self._add(operator, "async_map", make, type, options)

    def lookup_join(
        self,
        lookup: AsyncFunction[Key, Any] | Callable[[Key], Any],
        function: Callable[[Record, Any], Result],
        *,
        by: Callable[[Record], Key],
        name: str,
        type: object,
        cache: LookupCache | None = None,
        how: Literal["inner", "left"] = "inner",
        parallelism: int | None = None,
        capacity: int = 100,
        timeout: object = "30s",
        retries: Retries | None = None,
        ordered: bool = True,
        threads: int | None = None,
        on_error: OnErrorArgument = "fail",
    ) -> "Stream[Result]":
        """The records with rows of a table outside: `function(record, row)`, where `lookup(by(record))` gives the row,
        or None when there is none. Such records are left out; with how="left" they are given to the function with None.

        The row is that of the moment of the call: other than in a temporal join, a restored job may find another one.
        `cache` keeps rows in memory, and asks once for records of the same key that come at the same time; rows must
        not be changed. Everything else as for `async_map`.
        """
        options = CallOptions(parallelism, capacity, timeout, retries, ordered, threads, on_error)
        operator = self._builder.name("lookup_join", name)
        _check_callee(operator, "lookup_join", lookup)
        check_function(operator, "lookup_join", function)
        check_function(operator, "lookup_join", by)
        _check_lookup(operator, cache, how)
        policy = options.policy(operator, _is_async(lookup))
        kept = None if cache is None else cache.policy(by)

        def make(errors: OnError) -> Operator:
            callee = _by_key(_callee(lookup, operator), by)
            return LookupOperator(callee, function, how == "left", kept, policy, type, errors)

        return self._add(operator, "lookup_join", make, type, options)

    def _add(
        self,
        operator: OperatorName,
        kind: str,
        make: Callable[[OnError], Operator],
        record_type: object,
        options: CallOptions,
    ) -> "Stream[Any]":
        policy, tag = error_policy(operator, options.on_error)
        try:
            states = {state.name: state for state in (requests_state(record_type), TIMES, REACHED)}
        except InvalidError as error:
            message = f"operator {operator}: records that wait for their calls: {error.failure.message}"
            raise InvalidError(message, remedy=error.failure.remedy) from error
        self._builder.add(
            LogicalNode(
                operator,
                kind,
                (self._edge(),),
                check_parallelism(operator, options.parallelism),
                factory=partial(make, OnError(skip=policy is ErrorPolicy.SKIP, tag=tag)),
                states=declarations(states),
                side_outputs=(tag,) if tag is not None else (),
                on_error=policy,
                error_tag=tag,
                asynchronous=options.capacity,
            )
        )
        return self._behind(operator)


def _whole(what: str, value: object, least: int) -> int:
    try:
        return parse_whole(value, least)
    except InvalidError as error:
        raise InvalidError(f"{what}: {error.failure.message}", remedy=f"Give a whole number from {least}.") from error


def _is_async(function: Any) -> bool:
    if isinstance(function, AsyncFunction):
        return True
    call = function if inspect.isroutine(function) or isinstance(function, partial) else type(function).__call__
    return inspect.iscoroutinefunction(call)


def _check_callee(operator: str, kind: str, function: Any) -> None:
    """Whether it can be called, on the event loop or on a thread."""
    if isinstance(function, type) and issubclass(function, AsyncFunction):
        raise InvalidError(
            f"operator {operator} was given the class {function.__name__} instead of a function",
            remedy=f"Make an instance: {kind}({function.__name__}(...), ...).",
        )
    if not isinstance(function, AsyncFunction):
        if not callable(function) or not _is_async(function):
            check_function(operator, kind, function)
        return
    for method in ("open", "close", "call"):
        if not inspect.iscoroutinefunction(getattr(function, method)):
            raise InvalidError(
                f"operator {operator}: {type(function).__name__}.{method} is not async",
                remedy="Define it with `async def`; for a plain function give the function itself, which runs on a "
                "thread.",
            )


def _check_lookup(operator: str, cache: object, how: object) -> None:
    if how not in ("inner", "left"):
        raise InvalidError(f"operator {operator} has how={how!r}", remedy='Give "inner" or "left".')
    if cache is not None and not isinstance(cache, LookupCache):
        raise InvalidError(
            f"operator {operator} has cache={cache!r}", remedy='Give tg.LookupCache(size=10_000, ttl="10m"), or None.'
        )


def _callee(function: Any, operator: OperatorName) -> Callee:
    if not isinstance(function, AsyncFunction):
        return Callee(function)
    own = copy_function(function, operator)
    return Callee(own.call, own.open, own.close)


def _by_key(callee: Callee, by: Callable[[Any], Any]) -> Callee:
    """Called with what `by` gives of a record."""
    call = callee.call
    return Callee(lambda record: call(by(record)), callee.open, callee.close)
