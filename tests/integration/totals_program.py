"""The job that the crash tests kill: running totals by user, out of four partitions, into a sink of two subtasks.

Its state has an immutable value and a list whose elements are changed in place without an update; both show in each
record of the output, so state that is not exactly that of the barrier gives wrong output. The expected answer is not
computed here.
"""

import argparse
import time

import msgspec

import tidegate as tg
from tidegate.local import LocalSink, LocalSource

REMEMBERED = 3
"""Marks that are kept for each user."""


class Order(msgspec.Struct, frozen=True):
    """One record of the input. `number` tells it from every other."""

    user: str
    number: int


class Mark(msgspec.Struct):
    """One of the last orders of a user, and how many came after it."""

    number: int
    age: int


class Total(msgspec.Struct, frozen=True):
    """A user's totals after one order."""

    user: str
    orders: int
    total: int
    ages: int


class RunningTotal(tg.KeyedProcessFunction[str, Order, Total]):
    """One total for each order."""

    orders = tg.ValueState(int, default=0)
    total = tg.ValueState(int, default=0)
    marks = tg.ListState(Mark)

    def process_element(self, value: Order, ctx: tg.KeyedContext[str]):  # type: ignore[no-untyped-def]
        for mark in self.marks:
            mark.age += 1
        self.marks.add(Mark(value.number, 0))
        marks = self.marks.get()
        if len(marks) > REMEMBERED:
            self.marks.update(marks[1:])
        self.orders.update(self.orders.value() + 1)
        self.total.update(self.total.value() + value.number)
        yield Total(ctx.key, self.orders.value(), self.total.value(), sum(mark.age for mark in self.marks))


def build(argv: list[str]) -> tg.Job:
    """The job that the arguments describe."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--log", required=True)
    parser.add_argument("--job", default="totals")
    parser.add_argument("--bounded", action="store_true")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds that each order takes")
    arguments = parser.parse_args(argv)

    def take_time(order: Order) -> Order:
        if arguments.pause:
            time.sleep(arguments.pause)
        return order

    job = tg.Job(arguments.job)
    source = LocalSource(arguments.log, "orders", value=tg.Json(Order), bounded=arguments.bounded)
    sink = LocalSink(
        arguments.log, f"{arguments.job}-out", key=lambda total: total.user, value=tg.Json(Total), partitions=2
    )
    (
        job.source(source, name="orders")
        .map(take_time, name="pace")
        .key_by(lambda order: order.user)
        .process(RunningTotal(), name="totals")
        .sink(sink, name="out")
    )
    return job


if __name__ == "__main__":
    tg.main(build)
