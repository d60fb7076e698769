"""What is checked of asynchronous operators before anything runs, and the graph that they make."""

from functools import partial
from typing import Any

import pytest

import tidegate as tg
from tidegate.api.asynchronous import DEFAULT_THREADS
from tidegate.connectors.collections import CollectionSink, CollectionSource
from tidegate.errors import InvalidError
from tidegate.graph.logical import ErrorPolicy
from tidegate.graph.physical import build_physical
from tidegate.ids import OperatorName
from tidegate.operators.asynchronous import AsyncOperator


async def ask(number: int) -> int:
    return number


def plain(number: int) -> int:
    return number


class Ask(tg.AsyncFunction[int, int]):
    async def call(self, value: int) -> int:
        return value


class AskPlainly(tg.AsyncFunction[int, int]):
    def call(self, value: int) -> int:  # type: ignore[override]
        return value


class Callable:
    async def __call__(self, number: int) -> int:
        return number


def stream_of(job: tg.Job) -> tg.Stream[int]:
    return job.source(CollectionSource([1, 2, 3]), name="src")


def node_of(function: Any, **options: Any) -> Any:
    job = tg.Job("asking")
    given: dict[str, Any] = {"name": "ask", "type": int} | options
    stream_of(job).async_map(function, **given).sink(CollectionSink(), name="out")
    return job.graph().node(OperatorName("ask"))


def operator_of(function: Any, **options: Any) -> AsyncOperator:
    operator = node_of(function, **options).factory()
    assert isinstance(operator, AsyncOperator)
    return operator


@pytest.mark.parametrize("function", [ask, Ask(), Callable(), partial(ask), Ask().call])
def test_async_functions_run_on_the_event_loop_as_many_at_once_as_there_is_capacity_for(function: Any) -> None:
    policy = operator_of(function, capacity=7).policy
    assert (policy.threads, policy.concurrency, policy.capacity) == (None, 7, 7)


@pytest.mark.parametrize("function", [plain, partial(plain), lambda number: number, int, str.upper])
def test_plain_functions_run_on_threads(function: Any) -> None:
    policy = operator_of(function).policy
    assert (policy.threads, policy.concurrency, policy.capacity) == (DEFAULT_THREADS, DEFAULT_THREADS, 100)
    assert operator_of(function, threads=40, capacity=30).policy.concurrency == 30


def test_what_is_given_as_durations_and_retries_is_what_is_meant() -> None:
    retries = tg.Retries(attempts=4, delay="250ms", backoff=3, on=(OSError, ValueError))
    policy = operator_of(ask, timeout="2m", retries=retries, ordered=False).policy
    assert (policy.timeout, policy.ordered) == (120.0, False)
    assert policy.retries is not None
    assert [policy.retries.pause(tries) for tries in (1, 2, 3)] == [0.25, 0.75, 2.25]
    assert [policy.retries.covers(OSError(), tries) for tries in (1, 3, 4)] == [True, True, False]
    assert not policy.retries.covers(KeyError(), 1)
    assert operator_of(ask, timeout=None).policy.timeout is None
    assert operator_of(ask).policy.timeout == 30.0


def test_each_subtask_has_its_own_copy_of_an_object() -> None:
    function = Ask()
    calls: list[Any] = [function.call, *(operator_of(function).callee.call for _ in range(2))]
    assert len({id(call.__self__) for call in calls}) == 3


WRONG: list[tuple[Any, dict[str, Any], str]] = [
    (Ask, {}, r"operator ask was given the class Ask instead of a function.*async_map\(Ask"),
    (AskPlainly(), {}, r"AskPlainly.call is not async.*async def"),
    (7, {}, r"async_map needs a function, not an object of type int"),
    (ask, {"threads": 3}, r"has an async function and threads=3"),
    (plain, {"threads": 0}, r"operator ask: threads: 0 is not a whole number"),
    (ask, {"capacity": 0}, r"operator ask: capacity: 0 is not a whole number"),
    (ask, {"timeout": "0s"}, r"operator ask: timeout: '0s' is no time at all"),
    (ask, {"timeout": 5}, r"operator ask: timeout: 5 is not a duration"),
    (ask, {"retries": 3}, r"operator ask has retries=3.*tg.Retries"),
    (ask, {"on_error": "ignore"}, r"operator ask has on_error='ignore'"),
    (ask, {"type": list}, r"operator ask: records that wait for their calls: .*list"),
    (ask, {"type": Ask}, r"operator ask: records that wait for their calls: .*pickled\(Ask\)"),
    (ask, {"parallelism": 0}, r"operator ask has parallelism 0"),
    (ask, {"name": "a b"}, r"'a b' cannot name an operator"),
]


@pytest.mark.parametrize(("function", "options", "message"), WRONG)
def test_what_is_wrong_is_named_where_it_is_given(function: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidError, match=f"(?s){message}"):
        node_of(function, **options)


async def generating(number: int) -> Any:
    yield number


def generating_plainly(number: int) -> Any:
    yield number


@pytest.mark.parametrize("function", [generating, generating_plainly])
def test_generators_are_refused(function: Any) -> None:
    with pytest.raises(InvalidError, match=r"generator|async"):
        node_of(function)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"attempts": 1}, "retries: attempts: 1 is not a whole number"),
        ({"delay": "soon"}, "retries: delay: 'soon' is not a duration"),
        ({"backoff": 0.5}, "retries have backoff=0.5"),
        ({"backoff": float("nan")}, "retries have backoff=nan"),
        ({"on": "OSError"}, "retries are to be made on 'OSError'"),
        ({"on": (OSError, KeyboardInterrupt)}, "retries are to be made on"),
    ],
)
def test_retries_that_cannot_be_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidError, match=message):
        tg.Retries(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"size": 0}, "a cache of lookups: size: 0"), ({"ttl": "never"}, "a cache of lookups: ttl: 'never'")],
)
def test_caches_that_cannot_be_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidError, match=message):
        tg.LookupCache(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"how": "full"}, 'has how=\'full\'.*"inner" or "left"'),
        ({"cache": 100}, r"has cache=100.*tg.LookupCache"),
        ({"by": "id"}, "lookup_join needs a function"),
        ({"function": ask}, "lookup_join was given an async function"),
        ({"lookup": Ask}, r"was given the class Ask.*lookup_join\(Ask"),
    ],
)
def test_lookups_that_cannot_be_are_refused(options: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {
        "lookup": ask,
        "function": lambda n, row: n,
        "by": lambda n: n,
        "name": "look",
        "type": int,
    } | options
    with pytest.raises(InvalidError, match=f"(?s)operator look.*{message}"):
        stream_of(tg.Job("looking")).lookup_join(**given)


def test_a_side_output_for_failing_records_must_be_read() -> None:
    job = tg.Job("asking")
    failed = tg.SideOutput[int]("failed")
    asked = stream_of(job).async_map(ask, name="ask", type=int, on_error=failed)
    asked.sink(CollectionSink(), name="out")
    with pytest.raises(InvalidError, match="nobody reads"):
        job.graph()
    asked.side_output(failed).sink(CollectionSink(), name="failed")
    node = job.graph().node(OperatorName("ask"))
    assert (node.on_error, node.error_tag) == (ErrorPolicy.SIDE_OUTPUT, "failed")


def test_it_begins_a_chain_and_what_follows_joins_it() -> None:
    job = tg.Job("asking")
    stream = stream_of(job).map(plain, name="before").async_map(ask, name="one", type=int)
    stream.map(plain, name="between").async_map(ask, name="two", type=int).sink(CollectionSink(), name="out")
    for parallelism in (1, 3):
        physical = build_physical(job.graph(), parallelism, 8)
        chains = [vertex.operators for vertex in physical.vertices]
        assert chains == [("src", "before"), ("one", "between"), ("two", "out")]


def test_what_waits_is_declared_as_state_so_that_its_type_is_checked_against_checkpoints() -> None:
    states = {state.name: (state.kind, state.value_type) for state in node_of(ask).states}
    assert states == {
        ".reached": ("list-union", "int"),
        ".request-times": ("list-split", "tuple[int, int | None]"),
        ".requests": ("list-split", "int"),
    }
    assert "asynchronous" not in node_of(ask).kind
