"""The job that the crash tests kill: running totals by user, out of four partitions, into a sink of two subtasks.

Its state has an immutable value and a list whose elements are changed in place without an update; both show in each
record of the output, so state that is not exactly that of the barrier gives wrong output. The expected answer is not
computed here.
"""

import argparse
import os
import time
from collections.abc import Sequence
from typing import Any

import msgspec

import tidegate as tg
from tidegate.checkpoint.protocol import SplitState
from tidegate.operators.contracts import Fetched, Sink, Source, SourceContext, SourceReader

REMEMBERED = 3
"""Marks that are kept for each user."""
FIRST_PATIENCE = 3.0
"""Seconds for which a reader that was given something waits for its first records."""


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


class PromptReader:
    """Begins by waiting for what comes first, so that already the first checkpoint covers something, however long it
    takes to get connected. See `SourceReader`."""

    def __init__(self, inner: SourceReader) -> None:
        self._inner = inner
        self._wait_until: float | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def add_splits(self, splits: Sequence[SplitState]) -> None:
        self._inner.add_splits(splits)
        self._wait_until = time.monotonic() + FIRST_PATIENCE

    def poll(self, max_records: int) -> Fetched | None:
        fetched = self._inner.poll(max_records)
        while fetched is None and self._wait_until is not None and time.monotonic() < self._wait_until:
            time.sleep(0.001)
            fetched = self._inner.poll(max_records)
        self._wait_until = None
        return fetched


class PromptSource:
    """The source `inner`, with readers that are prompt."""

    def __init__(self, inner: Source) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def open_reader(self, context: SourceContext) -> SourceReader:
        return PromptReader(self._inner.open_reader(context))


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
    medium = parser.add_mutually_exclusive_group(required=True)
    medium.add_argument("--log", help="the folder of an embedded log")
    medium.add_argument("--bootstrap", help="host and port of a Kafka broker")
    parser.add_argument("--client", choices=("librdkafka", "batches"), help="who moves Kafka's records")
    parser.add_argument("--orders", required=True, help="topic")
    parser.add_argument("--out", required=True, help="topic")
    parser.add_argument("--job", required=True)
    parser.add_argument("--bounded", action="store_true")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds that each order takes")
    parser.add_argument("--hurry", help="a file; when it is there, orders take no time any more")
    arguments = parser.parse_args(argv)

    def take_time(order: Order) -> Order:
        if arguments.pause and not (arguments.hurry and os.path.lexists(arguments.hurry)):
            time.sleep(arguments.pause)
        return order

    job = tg.Job(arguments.job)
    source, sink = on_kafka(arguments) if arguments.bootstrap else on_the_embedded_log(arguments)
    (
        job.source(source, name="orders")
        .map(take_time, name="pace")
        .key_by(lambda order: order.user)
        .process(RunningTotal(), name="totals")
        .sink(sink, name="out")
    )
    return job


def on_the_embedded_log(arguments: argparse.Namespace) -> tuple[Source, Sink]:
    from tidegate.local import LocalSink, LocalSource

    source = LocalSource(arguments.log, arguments.orders, value=tg.Json(Order), bounded=arguments.bounded)
    return source, LocalSink(arguments.log, arguments.out, key=lambda total: total.user, value=tg.Json(Total))


def on_kafka(arguments: argparse.Namespace) -> tuple[Source, Sink]:
    from tidegate.kafka import KafkaSink, KafkaSource

    source = KafkaSource(
        arguments.bootstrap, arguments.orders, value=tg.Json(Order), bounded=arguments.bounded, client=arguments.client
    )
    if arguments.bounded:
        source = PromptSource(source)
    return source, KafkaSink(
        arguments.bootstrap,
        arguments.out,
        key=lambda total: total.user,
        value=tg.Json(Total),
        client=arguments.client,
    )


if __name__ == "__main__":
    tg.main(build)
