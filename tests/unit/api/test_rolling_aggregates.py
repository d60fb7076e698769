"""What a program says of rolling aggregates becomes one operator each, or an error that names it; what they keep goes
with the job."""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

import tidegate as tg
from tests.unit.api.programs import NullSink, orders
from tests.unit.api.programs import Order as Sold
from tests.unit.testing.jobs import STRATEGY, Order, user_of
from tidegate import aggregates
from tidegate.errors import InvalidError
from tidegate.graph.logical import InputEdge, LogicalGraph, Partitioning
from tidegate.ids import OperatorName
from tidegate.testing import CollectSink, JobHarness, ScriptedSource

SUM: tg.Aggregate[Any, Any, int] = aggregates.sum(lambda order: order.amount, type=int)
NAME = OperatorName("spent")


def graph(aggregate: Any = SUM, *function: Any, **arguments: Any) -> LogicalGraph:
    job = tg.Job("shop")
    keyed: tg.KeyedStream[str, Sold] = orders(job).key_by(lambda order: order.user, name="by-user")
    keyed.aggregate(aggregate, *function, **{"name": "spent", **arguments}).sink(NullSink(), name="out")
    return job.graph()


# ---- the graph -----------------------------------------------------------------------------------------------------


def test_it_is_a_keyed_operator_with_its_accumulators_as_state() -> None:
    node = graph(SUM, lambda user, total: total, parallelism=3).node(NAME)
    assert (node.kind, node.keyed, node.parallelism) == ("aggregate", True, 3)
    assert node.inputs == (InputEdge(OperatorName("by-user"), Partitioning.HASH),)
    assert [str(state) for state in node.states] == ["accumulator: aggregating[int] as msgpack/1"]


def test_the_fingerprint_knows_the_type_of_its_accumulators_and_not_its_functions() -> None:
    same = [graph(), graph(SUM, lambda user, total: total), graph(aggregates.count())]
    assert len({one.fingerprint().digest for one in same}) == 1
    others = [graph(aggregates.mean(lambda order: order.amount)), graph(name="sums"), graph(parallelism=2)]
    assert len({one.fingerprint().digest for one in (*same, *others)}) == 4


def generator(user: str, total: int) -> Iterator[int]:
    yield total


async def waiting(user: str, total: int) -> int:
    return total


@pytest.mark.parametrize(
    ("given", "arguments", "said"),
    [
        ((sum,), {}, "operator spent was given builtin_function_or_method where an aggregate is needed"),
        ((None,), {}, "operator spent was given NoneType where an aggregate is needed"),
        ((SUM, "total"), {}, "operator spent: the result function of aggregate needs a function, not .* type str"),
        ((SUM, generator), {}, "operator spent: .* was given a generator function"),
        ((SUM, waiting), {}, "operator spent: .* was given an async function"),
        ((SUM,), {"parallelism": 0}, "operator spent has parallelism 0"),
        ((SUM,), {"name": "no name"}, "'no name' cannot name"),
        ((tg.Aggregate(object, int, max, max, int),), {}, "operator spent: .*object"),
    ],
)
def test_arguments_that_cannot_be_are_refused(given: tuple[Any, ...], arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidError, match=said):
        graph(*given, **arguments)


# ---- in a job ------------------------------------------------------------------------------------------------------


def amount_of(order: Order) -> int:
    return order.amount


def program(aggregate: tg.Aggregate[Order, Any, Any], *function: Callable[[str, Any], Any]) -> tg.Job:
    job = tg.Job("rolling")
    source: tg.Stream[Order] = job.source(ScriptedSource(), name="orders", watermarks=STRATEGY)
    spent: tg.Stream[Any] = source.key_by(user_of).aggregate(aggregate, *function, name="spent")
    spent.sink(CollectSink(), name="out")
    counts = spent.key_by(lambda spent: 0).window(tg.TumblingEventTimeWindows("10ms"))
    counts.aggregate(aggregates.count(), lambda key, window, count: (window.start, count), name="counts").sink(
        CollectSink(), name="windows"
    )
    return job


def test_timestamps_stay_with_the_records_and_watermarks_pass() -> None:
    with JobHarness(program(SUM)) as harness:
        harness.send("orders", Order("ann", 1, 5), Order("bob", 2, 7), Order("ann", 3, 9))
        assert [(record.value, record.timestamp) for record in harness.sink("out").records] == [(1, 5), (2, 7), (4, 9)]
        harness.send("orders", Order("ann", 1, 25))
        assert harness.output("windows") == [(0, 3)]


@pytest.mark.parametrize("restart", [JobHarness.restart, JobHarness.crash])
def test_accumulators_go_with_their_keys_to_another_parallelism(restart: Callable[..., None]) -> None:
    with JobHarness(program(SUM, lambda user, total: (user, total)), parallelism=2) as harness:
        users = [f"user-{number % 5}" for number in range(20)]
        for number, user in enumerate(users[:10]):
            harness.send("orders", Order(user, number))
        harness.checkpoint()
        restart(harness, parallelism=3)
        for number, user in enumerate(users[10:]):
            harness.send("orders", Order(user, number))
        assert harness.state("spent", "accumulator") == {f"user-{user}": 4 * user + 10 for user in range(5)}
        assert harness.output("out")[-5:] == [(f"user-{user}", 4 * user + 10) for user in range(5)]


class Spent(msgspec.Struct, frozen=True):
    total: int
    count: int


class SpentOnBest(msgspec.Struct, frozen=True):
    total: float
    count: int
    best: int = 0


def summary(type: Any) -> tg.Aggregate[Order, Any, Any]:
    def add(kept: Any, order: Order) -> Any:
        return msgspec.structs.replace(kept, total=kept.total + order.amount, count=kept.count + 1)

    return tg.Aggregate(type, lambda: type(0, 0), add, lambda one, other: one, lambda kept: kept)


def test_the_type_of_the_accumulators_may_evolve_as_that_of_other_state() -> None:
    with JobHarness(program(summary(Spent))) as harness:
        harness.send("orders", Order("ann", 3), Order("ann", 4))
        harness.restart(program=program(summary(SpentOnBest)))
        harness.send("orders", Order("ann", 5))
        assert harness.output("out")[-1] == SpentOnBest(12.0, 3)
        with pytest.raises(InvalidError, match="spent in checkpoint 2: state accumulator was stored as"):
            harness.restart(program=program(aggregates.collect(amount_of, type=int)))


def test_an_aggregate_that_is_added_to_others_begins_with_what_comes_then() -> None:
    first = aggregates.combine(spent=aggregates.sum(amount_of, type=int))
    second = aggregates.combine(spent=aggregates.sum(amount_of, type=int), orders=aggregates.count())
    with JobHarness(program(first)) as harness:
        harness.send("orders", Order("ann", 3))
        harness.restart(program=program(second))
        harness.send("orders", Order("ann", 5))
        assert harness.output("out")[-1] == {"spent": 8, "orders": 1}
