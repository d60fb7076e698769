"""Deduplication, rankings and aggregates in a job that is stopped and started again at other parallelisms, on every
state backend: what comes out is what plain Python makes of the whole input."""

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import tidegate as tg
from tests.integration.stepping import BACKENDS, INPUT, OUTPUT, OUTPUT_PARTITIONS, SteppedJob
from tidegate import aggregates
from tidegate.local import LocalSink, LocalSource

JOB = "ready"
WITHIN = 50
"""Milliseconds. Orders come ten milliseconds apart."""
WINDOW = 1000
OUT_OF_ORDERNESS = 30
USERS = 7
STEPS = (2, 3, 1)
"""The parallelism of the runs."""


class Order(msgspec.Struct, frozen=True):
    user: str
    amount: int
    at: int


class Out(msgspec.Struct, frozen=True):
    """Of which operator, of whom, and what."""

    what: str
    user: str
    value: Any


def user_of(record: Order | Out) -> str:
    return record.user


def amount_of(order: Order) -> int:
    return order.amount


def time_of(order: Order) -> int:
    return order.at


SUMMARY: tg.Aggregate[Order, Any, dict[str, Any]] = aggregates.combine(
    orders=aggregates.count(),
    share=aggregates.sum(lambda order: order.amount / 10, type=float),
    mean=aggregates.mean(amount_of, type=int),
    first=aggregates.first(amount_of, type=int, by=time_of),
    best=aggregates.top_n(2, amount_of, type=Order),
)


def ranking_of(user: str, ranking: list[Order]) -> Out:
    return Out("best", user, list(map(amount_of, ranking)))


def told(user: str, window: tg.TimeWindow, summary: dict[str, Any]) -> Out:
    return Out("window", user, summary)


def job_of(log: Path) -> tg.Job:
    in_time = tg.WatermarkStrategy.for_bounded_out_of_orderness(f"{OUT_OF_ORDERNESS}ms")
    source = LocalSource(log, INPUT, value=tg.Json(Order))
    job = tg.Job(JOB)
    orders = job.source(source, name="orders", watermarks=in_time.with_timestamp_assigner(time_of))
    by_user = orders.key_by(user_of)
    windows = by_user.window(tg.TumblingEventTimeWindows(f"{WINDOW}ms")).aggregate(SUMMARY, told, name="windows")
    once = by_user.deduplicate(f"{WITHIN}ms", name="once")
    best = once.key_by(user_of).top_n(3, amount_of, ranking_of, name="best", type=Order)
    some = once.sample(0.5, by=user_of, name="some").map(lambda order: Out("some", order.user, order.at), name="taken")
    passed = once.map_batch(lambda orders: [Out("once", order.user, order.at) for order in orders], name="passed")
    sink = LocalSink(log, OUTPUT, key=user_of, value=tg.Json(Out), partitions=OUTPUT_PARTITIONS)
    passed.union(best, windows, some, name="all").sink(sink, name="out")
    return job


def orders(first: int, count: int) -> list[Order]:
    """Some of them out of order by less than the strategy waits."""
    found = []
    for number in range(first, first + count):
        user, earlier = number % USERS if number % 5 else 0, 25 if number % 4 == 0 else 0
        found.append(Order(f"u{user}", number * 37 % 101, number * 10 - earlier))
    return found


def passed_of(orders: Iterable[Order]) -> list[Order]:
    passed: list[Order] = []
    for order in orders:
        if all(abs(other.at - order.at) >= WITHIN for other in passed):
            passed.append(order)
    return passed


def rankings_of(passed: Iterable[Order]) -> list[list[int]]:
    rankings: list[list[int]] = [[]]
    for order in passed:
        ranking = sorted([*rankings[-1], order.amount], reverse=True)[:3]
        if ranking != rankings[-1]:
            rankings.append(ranking)
    return rankings[1:]


def summary_of(orders: list[Order]) -> dict[str, Any]:
    amounts = [order.amount for order in orders]
    return {
        "orders": len(orders),
        "share": math.fsum(amount / 10 for amount in amounts),
        "mean": sum(amounts) / len(amounts),
        "first": min(orders, key=time_of).amount,
        "best": [msgspec.to_builtins(order) for order in sorted(orders, key=lambda order: -order.amount)[:2]],
    }


def summaries_of(orders: list[Order], until: int) -> list[dict[str, Any]]:
    """Of the windows that are complete when the watermark is there."""
    ended = sorted({end for order in orders if (end := order.at // WINDOW * WINDOW + WINDOW) - 1 <= until})
    return [summary_of([order for order in orders if end - WINDOW <= order.at < end]) for end in ended]


def values_of(output: Iterable[Out], what: str, user: str) -> list[Any]:
    return [record.value for record in output if (record.what, record.user) == (what, user)]


class Job(SteppedJob):
    """Runs so short that there would be no watermark in any of them."""

    def settings(self, parallelism: int) -> list[tuple[str, str, str]]:
        return [*super().settings(parallelism), ("watermarks.interval", "1ms", "test")]


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
def test_they_go_on_where_they_were_at_another_parallelism(tmp_path: Path, backend: str) -> None:
    stepped, fed = Job(tmp_path, JOB, backend), list[Order]()
    for parallelism in (*STEPS, *STEPS):
        fed += orders(len(fed), 400)
        stepped.append(fed[-400:])
        stepped.run(job_of(stepped.log), parallelism)
    output = stepped.output(Out)
    until = max(map(time_of, fed)) - OUT_OF_ORDERNESS - 1
    for user in sorted(set(map(user_of, fed))):
        own = [order for order in fed if order.user == user]
        passed, summaries = passed_of(own), summaries_of(own, until)
        assert 0 < len(passed) < len(own)
        assert values_of(output, "once", user) == list(map(time_of, passed))
        assert values_of(output, "best", user) == rankings_of(passed)
        # The last watermark may not have been sent before the job was stopped.
        given = values_of(output, "window", user)
        assert len(given) > len(summaries) // 2
        assert given == summaries[: len(given)]
    sampled = {(record.user, record.value) for record in output if record.what == "some"}
    users = {user for user, _ in sampled}
    assert 0 < len(users) < USERS
    assert sampled == {(out.user, out.value) for out in output if out.what == "once" and out.user in users}
