"""The job of a chaos run: running totals by user, Kafka to Kafka, with a state that is changed in place.

Each record of the output shows all of its user's state, so that state which is not exactly that of the last checkpoint
gives wrong output. The right answers are not computed here.
"""

import argparse
from collections.abc import Iterator

import msgspec

import tidegate as tg
from tests.chaos.records import REMEMBERED, Order, Total
from tidegate.kafka import KafkaSink, KafkaSource


class Mark(msgspec.Struct):
    """One of the last orders of a user, and how many came after it."""

    number: int
    age: int


class RunningTotal(tg.KeyedProcessFunction[str, Order, Total]):
    """One total for each order."""

    orders = tg.ValueState(int, default=0)
    total = tg.ValueState(int, default=0)
    marks = tg.ListState(Mark)

    def process_element(self, value: Order, ctx: tg.KeyedContext[str]) -> Iterator[Total]:
        for mark in self.marks:
            mark.age += 1
        self.marks.add(Mark(value.number, 0))
        marks = self.marks.get()
        if len(marks) > REMEMBERED:
            self.marks.update(marks[1:])
        orders, total = self.orders.value() + 1, self.total.value() + value.number
        self.orders.update(orders)
        self.total.update(total)
        yield Total(ctx.key, value.number, orders, total, sum(mark.age for mark in self.marks))


def user_of(record: Order | Total) -> str:
    return record.user


def build(argv: list[str]) -> tg.Job:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--input", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--job", required=True)
    parser.add_argument("--delivery", choices=("exactly-once", "at-least-once"), default="exactly-once")
    parser.add_argument("--client", choices=("librdkafka", "batches"))
    options = parser.parse_args(argv)
    job = tg.Job(options.job)
    source = KafkaSource(options.bootstrap, options.input, value=tg.Json(Order), client=options.client)
    sink = KafkaSink(
        options.bootstrap,
        options.output,
        key=user_of,
        value=tg.Json(Total),
        delivery=options.delivery,
        client=options.client,
    )
    orders = job.source(source, name="orders")
    orders.key_by(user_of, key_type=str).process(RunningTotal(), name="totals").sink(sink, name="out")
    return job


if __name__ == "__main__":
    tg.main(build)
