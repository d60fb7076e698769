"""Every ready operator, trigger and join in a job: snapshots behind every element and restarts at another parallelism
change nothing of what it commits, and timers on the clock fire by the clock."""

from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

import tidegate as tg
from tests.unit.testing.jobs import Order, time_of, user_of
from tidegate.testing import CollectSink, JobHarness, ScriptedSource

STRATEGY: tg.WatermarkStrategy[Order] = tg.WatermarkStrategy.for_bounded_out_of_orderness(
    "3ms"
).with_timestamp_assigner(time_of)
ORDERS = [Order("abcd"[n % 4] if n % 5 else "a", n, n + (n * 7) % 4) for n in range(36)]
OTHERS = [Order("abd"[n % 3], 100 + n, n + (n * 5) % 3) for n in range(36)]
COUNT = tg.aggregates.count()
SPENT = tg.aggregates.combine(sum=tg.aggregates.sum(lambda order: order.amount, type=int), count=COUNT)
Keyed = tg.KeyedStream[str, Order]
Fragment = Callable[[tg.Stream[Order], tg.Stream[Order]], tg.Stream[Any]]


def counted(cut: Callable[[Keyed], tg.WindowedStream[str, Order]]) -> Fragment:
    def fragment(orders: tg.Stream[Order], others: tg.Stream[Order]) -> tg.Stream[Any]:
        both = orders.union(others, name="both").key_by(user_of, name="by-user")
        return cut(both).aggregate(COUNT, shown, name="it")

    return fragment


def shown(key: str, window: Any, count: int) -> tuple[str, str, int]:
    return key, str(window), count


def joined(join: Callable[[Keyed, Keyed], tg.Stream[Any]]) -> Fragment:
    return lambda orders, others: join(orders.key_by(user_of, name="left"), others.key_by(user_of, name="right"))


def keyed(make: Callable[[Keyed], tg.Stream[Any]]) -> Fragment:
    return lambda orders, others: make(orders.union(others, name="both").key_by(user_of, name="by-user"))


async def asked(order: Order) -> int:
    return order.amount + 1


def looked_up(user: str) -> str | None:
    return user.upper() if user < "c" else None


def pair(one: Any, other: Any) -> tuple[Any, Any]:
    return one, other


TYPES = (Order, Order)
SECOND = tg.TumblingProcessingTimeWindows("1s")
TEN = tg.TumblingEventTimeWindows("10ms")
EVERY: dict[str, Fragment] = {
    "tumbling": counted(lambda s: s.window(tg.TumblingEventTimeWindows("10ms", offset="3ms"))),
    "sliding": counted(lambda s: s.window(tg.SlidingEventTimeWindows("10ms", "4ms"))),
    "session": counted(lambda s: s.window(tg.EventTimeSessionWindows("4ms"))),
    "lateness": counted(lambda s: s.window(TEN, allowed_lateness="5ms")),
    "tumbling by the clock": counted(lambda s: s.window(SECOND)),
    "sliding by the clock": counted(lambda s: s.window(tg.SlidingProcessingTimeWindows("1s", "500ms"))),
    "session by the clock": counted(lambda s: s.window(tg.ProcessingTimeSessionWindows("600ms"))),
    "global": counted(lambda s: s.window(tg.GlobalWindows(), trigger=tg.PurgingTrigger(tg.CountTrigger(4)))),
    "counts": counted(lambda s: s.count_window(5, 2)),
    "count trigger": counted(lambda s: s.window(TEN, trigger=tg.CountTrigger(2))),
    "early": counted(lambda s: s.window(TEN, trigger=tg.EventTimeTrigger(early=tg.CountTrigger(3)))),
    "early by the clock": counted(
        lambda s: s.window(TEN, trigger=tg.EventTimeTrigger(early=tg.ContinuousProcessingTimeTrigger("500ms")))
    ),
    "continuous": counted(lambda s: s.window(TEN, trigger=tg.ContinuousEventTimeTrigger("4ms"))),
    "continuous sessions": counted(
        lambda s: s.window(tg.EventTimeSessionWindows("4ms"), trigger=tg.ContinuousEventTimeTrigger("3ms"))
    ),
    "continuous by the clock": counted(
        lambda s: s.window(tg.GlobalWindows(), trigger=tg.ContinuousProcessingTimeTrigger("700ms"))
    ),
    "by the clock": counted(lambda s: s.window(SECOND, trigger=tg.ProcessingTimeTrigger())),
    "timeout": counted(
        lambda s: s.window(
            TEN, trigger=tg.ProcessingTimeoutTrigger(tg.EventTimeTrigger(), "300ms", reset_on_record=True)
        )
    ),
    "window join": joined(lambda a, b: a.window_join(b, TEN, pair, name="it", types=TYPES, how="full")),
    "interval join": joined(
        lambda a, b: a.interval_join(b, pair, lower="-2ms", upper="3ms", name="it", types=TYPES, how="full")
    ),
    "temporal join": joined(lambda a, b: a.temporal_join(b, pair, name="it", types=TYPES, how="left", within="9ms")),
    "duplicates": keyed(lambda s: s.deduplicate("7ms", name="it")),
    "duplicates by the clock": keyed(lambda s: s.deduplicate("1s", name="it", clock="processing")),
    "top n": keyed(lambda s: s.top_n(2, by=lambda order: -(order.amount % 17), name="it", type=Order)),
    "aggregate": keyed(lambda s: s.aggregate(SPENT, lambda user, spent: (user, spent), name="it")),
    "aggregate of lists": keyed(lambda s: s.aggregate(tg.aggregates.collect(type=Order), name="it")),
    "reduce": keyed(lambda s: s.reduce(max, name="it", type=Order)),
    "sample": lambda orders, _: orders.sample(0.5, by=lambda order: order.amount, name="it"),
    "map_batch": lambda orders, _: orders.map_batch(lambda values: [v.amount for v in values], name="it"),
    "async_map": lambda orders, _: orders.async_map(asked, name="it", type=Order),
    "lookup_join": lambda orders, _: orders.lookup_join(looked_up, pair, by=user_of, name="it", type=Order, how="left"),
}


def job_of(fragment: Fragment) -> tg.Job:
    job = tg.Job("every")
    orders, others = (job.source(ScriptedSource(), name=name, watermarks=STRATEGY) for name in ("orders", "others"))
    fragment(orders, others).sink(CollectSink(), name="out")
    others.filter(lambda _: False, name="none").sink(CollectSink(), name="rest")
    return job


def committed(fragment: Fragment, between: Callable[[JobHarness, int], object], **options: Any) -> Counter[str]:
    with JobHarness(job_of(fragment), **options) as harness:
        for number, (order, other) in enumerate(zip(ORDERS, OTHERS, strict=True)):
            harness.send("orders", order)
            between(harness, number)
            harness.send("others", other)
            harness.advance_processing_time("130ms")
        harness.finish()
        assert harness.committed("rest") == []
        return Counter(map(repr, harness.sink("out").committed_records))


def moves(harness: JobHarness, number: int) -> None:
    """To another parallelism, now and then, and once by a crash. That is behind a checkpoint: what is read again comes
    later by the clock."""
    if number in (7, 19, 30):
        harness.restart(parallelism=number % 3 + 1)
    if number == 23:
        harness.checkpoint()
        harness.crash(parallelism=1)


@cache
def undisturbed(name: str) -> Counter[str]:
    return committed(EVERY[name], lambda *_: None)


@pytest.mark.parametrize("name", EVERY)
def test_restarts_at_another_parallelism_change_nothing(name: str) -> None:
    assert sum(undisturbed(name).values()) > 5
    assert committed(EVERY[name], moves, parallelism=2) == undisturbed(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY)
def test_snapshots_behind_every_element_change_nothing(name: str) -> None:
    assert committed(EVERY[name], lambda *_: None, snapshot_every_element=True) == undisturbed(name)


@pytest.mark.parametrize("name", [name for name in EVERY if "clock" in name])
def test_what_goes_by_the_clock_fires_by_the_clock(name: str) -> None:
    with JobHarness(job_of(EVERY[name])) as harness:
        harness.send("orders", *ORDERS[:3])
        before = harness.output("out")
        harness.advance_processing_time("2s")
        if name == "duplicates by the clock":
            harness.send("orders", *ORDERS[:3])
        assert len(harness.output("out")) > len(before)
