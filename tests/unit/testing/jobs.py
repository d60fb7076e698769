"""Jobs as users write them, for the tests of the harness: over the embedded log, with state, timers and windows."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import tidegate as tg
from tidegate.local import LocalSink, LocalSource
from tidegate.testing import CollectSink, ScriptedSource


class Order(NamedTuple):
    user: str
    amount: int
    at: int = 0


class Total(tg.KeyedProcessFunction[str, Order, str]):
    """What each user has spent so far."""

    total = tg.ValueState(int, default=0)

    def process_element(self, value: Order, ctx: tg.KeyedContext[str]) -> Iterator[str]:
        if value.amount < 0:
            raise ValueError("nobody earns money here")
        self.total.update(self.total.value() + value.amount)
        yield f"{ctx.key} {self.total.value()}"


class Average(Total):
    """As `Total`, with one state more."""

    count = tg.ValueState(int, default=0)

    def process_element(self, value: Order, ctx: tg.KeyedContext[str]) -> Iterator[str]:
        self.count.update(self.count.value() + 1)
        self.total.update(self.total.value() + value.amount)
        yield f"{ctx.key} {self.total.value() // self.count.value()}"


class Silence(tg.KeyedProcessFunction[str, Order, str]):
    """Tells of users who order nothing for a minute."""

    due = tg.ValueState(int)

    def process_element(self, value: Order, ctx: tg.KeyedContext[str]) -> None:
        due = self.due.value()
        if due is not None:
            ctx.timer_service.delete_processing_time_timer(due)
        due = ctx.timer_service.current_processing_time() + 60_000
        self.due.update(due)
        ctx.timer_service.register_processing_time_timer(due)

    def on_timer(self, timestamp: int, ctx: tg.KeyedContext[str]) -> Iterable[str]:
        self.due.clear()
        return [f"{ctx.key} is silent at {timestamp}, {ctx.timer_service.current_processing_time()}"]


def user_of(order: Order) -> str:
    return order.user


def time_of(order: Order) -> int:
    return order.at


SUM = tg.Aggregate(
    type=int,
    create=int,
    add=lambda total, order: total + order.amount,
    merge=lambda one, other: one + other,
    result=lambda total: total,
)
STRATEGY: tg.WatermarkStrategy[Order] = tg.WatermarkStrategy.for_bounded_out_of_orderness(
    "2ms"
).with_timestamp_assigner(time_of)
LATE = tg.SideOutput[Order]("late")


def totals_in(folder: Path) -> tg.Job:
    """A program for production."""
    job = tg.Job("totals")
    orders = job.source(LocalSource(folder, "orders", value=tg.Json(Order)), name="orders")
    totals = orders.key_by(user_of).process(Total(), name="total")
    totals.sink(LocalSink(folder, "totals", value=tg.String()), name="totals")
    return job


def totals(function: tg.KeyedProcessFunction[str, Order, str] | None = None, splits: int = 1) -> tg.Job:
    job = tg.Job("totals")
    orders = job.source(ScriptedSource(splits=splits), name="orders")
    orders.key_by(user_of).process(function or Total(), name="total").sink(CollectSink(), name="out")
    return job


def told(user: str, window: tg.TimeWindow, total: int) -> str:
    return f"{user} {window.start}-{window.end}: {total}"


def windows(strategy: tg.WatermarkStrategy[Order] = STRATEGY, splits: int = 1) -> tg.Job:
    job = tg.Job("windows")
    orders = job.source(ScriptedSource(splits=splits), name="orders", watermarks=strategy)
    cut = orders.key_by(user_of).window(tg.TumblingEventTimeWindows("10ms"), late=LATE)
    totals = cut.aggregate(SUM, told, name="sum")
    totals.sink(CollectSink(), name="out")
    totals.side_output(LATE).sink(CollectSink(), name="late")
    return job
