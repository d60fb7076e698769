"""A job over topics whose partitions keep users together: running totals, windows with a count over all users behind
them, or two topics side by side in one state."""

import argparse
from collections.abc import Iterator
from operator import attrgetter

import msgspec

import tidegate as tg
from tidegate.kafka import KafkaSink, KafkaSource


class Order(msgspec.Struct, frozen=True):
    user: str
    amount: int
    ts: int = 0


class Total(msgspec.Struct, frozen=True):
    user: str
    total: int


class Orders(msgspec.Struct, frozen=True):
    """How many orders all users had in a window."""

    start: int
    orders: int


user_of = attrgetter("user")


class RunningTotal(tg.KeyedProcessFunction[str, Order, Total]):
    total = tg.ValueState(int, default=0)

    def process_element(self, value: Order, ctx: tg.KeyedContext[str]) -> Iterator[Total]:
        self.total.update(self.total.value() + value.amount)
        yield Total(ctx.key, self.total.value())


class Balance(tg.KeyedCoProcessFunction[str, Order, Order, Total]):
    """What is left when the second topic's amounts are taken from the first one's."""

    total = tg.ValueState(int, default=0)

    def process_element1(self, value: Order, ctx: tg.KeyedContext[str]) -> Iterator[Total]:
        yield self._changed(ctx.key, value.amount)

    def process_element2(self, value: Order, ctx: tg.KeyedContext[str]) -> Iterator[Total]:
        yield self._changed(ctx.key, -value.amount)

    def _changed(self, user: str, amount: int) -> Total:
        self.total.update(self.total.value() + amount)
        return Total(user, self.total.value())


COUNT: tg.Aggregate[object, int, int] = tg.Aggregate(
    type=int,
    create=int,
    add=lambda count, _: count + 1,
    merge=lambda one, other: one + other,
    result=lambda count: count,
)
SUM: tg.Aggregate[Orders, int, int] = tg.Aggregate(
    type=int,
    create=int,
    add=lambda count, window: count + window.orders,
    merge=lambda one, other: one + other,
    result=lambda count: count,
)


def windows(by_user: tg.KeyedStream[str, Order]) -> tg.Stream[Orders]:
    """The windows of each user without an exchange, and with one those of all users together."""
    minute = tg.TumblingEventTimeWindows("60s")
    counts = by_user.window(minute).aggregate(COUNT, lambda _, window, n: Orders(window.start, n), name="counts")
    together = counts.key_by(attrgetter("start"), key_type=int).window(minute)
    return together.aggregate(SUM, lambda start, _, n: Orders(start, n), name="together")


def build(argv: list[str]) -> tg.Job:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--input", nargs="+", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--kind", choices=("totals", "windows", "balance"), default="totals")
    parser.add_argument("--partitions", type=int)
    parser.add_argument("--partitioner", default="murmur2")
    parser.add_argument("--bounded", action="store_true")
    options = parser.parse_args(argv)
    job = tg.Job(f"co-{options.kind}")
    in_order = tg.WatermarkStrategy[Order].for_monotonous_timestamps().with_timestamp_assigner(attrgetter("ts"))

    def by_user(topic: str, name: str) -> tg.KeyedStream[str, Order]:
        source = KafkaSource(
            options.bootstrap, topic, value=tg.Json(Order), bounded=options.bounded, discovery_interval=0.5
        )
        stream = job.source(source, name=name, watermarks=in_order)
        return stream.key_by(
            user_of, key_type=str, partitions=options.partitions, partitioner=options.partitioner, name=f"{name}-key"
        )

    orders = by_user(options.input[0], "orders")
    result: tg.Stream[Total] | tg.Stream[Orders]
    match options.kind:
        case "totals":
            result = orders.process(RunningTotal(), name="totals")
        case "windows":
            result = windows(orders)
        case _:
            result = orders.connect(by_user(options.input[1], "returns")).process(Balance(), name="balance")
    result.sink(KafkaSink(options.bootstrap, options.output, value=tg.Json(), key=_key), name="output")
    return job


def _key(record: Total | Orders) -> str:
    return record.user if isinstance(record, Total) else str(record.start)


if __name__ == "__main__":
    tg.main(build)
