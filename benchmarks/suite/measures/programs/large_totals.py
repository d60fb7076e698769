"""Running totals as in `examples/running_totals.py`, with a large value besides the total of each user: `--ballast`
bytes, written with the user's first order and never again. So state of any size is there after one order of each user.
"""

from argparse import ArgumentParser
from collections.abc import Iterator

import msgspec

import tidegate as tg
from tidegate.kafka import KafkaSink, KafkaSource


class Order(msgspec.Struct, frozen=True):
    user: str
    amount: int


class Total(msgspec.Struct, frozen=True):
    user: str
    total: int


class LargeTotal(tg.KeyedProcessFunction[str, Order, Total]):
    total = tg.ValueState(int, default=0)
    ballast = tg.ValueState(bytes)

    def __init__(self, size: int) -> None:
        self._size = size

    def process_element(self, value: Order, ctx: tg.KeyedContext[str]) -> Iterator[Total]:
        total = self.total.value() + value.amount
        if total == value.amount:
            self.ballast.update(ctx.key.encode().ljust(self._size, b"."))
        self.total.update(total)
        yield Total(ctx.key, total)


def user_of(record: Order | Total) -> str:
    return record.user


def build(argv: list[str]) -> tg.Job:
    parser = ArgumentParser(prog="large_totals.py", description="Running totals with large state, Kafka to Kafka.")
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--input", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--ballast", type=int, required=True)
    options = parser.parse_args(argv)
    job = tg.Job("large-totals")
    source = KafkaSource(options.bootstrap, options.input, value=tg.Json(Order))
    sink = KafkaSink(options.bootstrap, options.output, key=user_of, value=tg.Json(Total))
    orders = job.source(source, name="orders")
    orders.key_by(user_of, key_type=str).process(LargeTotal(options.ballast), name="totals").sink(sink, name="output")
    return job


if __name__ == "__main__":
    tg.main(build)
