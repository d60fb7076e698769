"""Totals by user and window of event time, Kafka to Kafka, exactly once: each order counts in the window of its `ts`.

Orders are JSON, as {"user": "ada", "amount": 3, "ts": 1760000000000}; totals are {"user": "ada", "start":
1759999980000, "total": 7}, one for each user and window when the window is complete. Both have the user as key. Orders
may come out of order by --out-of-orderness; what comes later is left out and counted. At the end of a bounded input all
windows close.

    tidegate dev-kafka --topic orders:4 --topic totals:4
    tidegate run examples/window_totals.py -p 2 -- --bootstrap localhost:9092 --input orders --output totals

With --partitions 4 each worker reads the partitions of its users, and nothing goes between workers.
"""

from argparse import ArgumentParser
from operator import attrgetter

import msgspec

import tidegate as tg
from tidegate.kafka import KafkaSink, KafkaSource


# gc=False: no order or total can be part of a cycle, so the garbage collector need not know them.
class Order(msgspec.Struct, frozen=True, gc=False):
    user: str
    amount: int
    ts: int
    """When it was placed, in milliseconds since 1970."""


class Total(msgspec.Struct, frozen=True, gc=False):
    user: str
    start: int
    """Of its window, in milliseconds since 1970."""
    total: int


user_of = attrgetter("user")
"""Of orders and totals. It is asked for each record, and this one is no Python code that runs."""
AMOUNT = tg.aggregates.sum(attrgetter("amount"), type=int)


def build(argv: list[str]) -> tg.Job:
    parser = ArgumentParser(prog="window_totals.py", description="Totals by user and window, Kafka to Kafka.")
    parser.add_argument("--bootstrap", required=True, metavar="HOST:PORT", help="a broker, or several with commas")
    parser.add_argument("--input", required=True, metavar="TOPIC")
    parser.add_argument("--output", required=True, metavar="TOPIC")
    parser.add_argument("--bounded", action="store_true", help="end where the input ends now")
    parser.add_argument("--from", dest="start", choices=("earliest", "latest"), default="earliest")
    parser.add_argument("--partitions", type=int, metavar="N", help="of the input, which has the user as key (murmur2)")
    parser.add_argument("--window", default="60s", metavar="DURATION")
    parser.add_argument("--out-of-orderness", default="5s", metavar="DURATION")
    options = parser.parse_args(argv)

    job = tg.Job("window-totals")
    source = KafkaSource(
        options.bootstrap, options.input, value=tg.Json(Order), start=options.start, bounded=options.bounded
    )
    sink = KafkaSink(options.bootstrap, options.output, key=user_of, value=tg.Json(Total))
    in_time = tg.WatermarkStrategy.for_bounded_out_of_orderness(options.out_of_orderness)
    watermarks = in_time.with_timestamp_assigner(lambda order: order.ts)
    orders = job.source(source, name="orders", watermarks=watermarks)
    by_user = orders.key_by(user_of, key_type=str, partitions=options.partitions)
    windows = by_user.window(tg.TumblingEventTimeWindows(options.window))
    totals = windows.aggregate(AMOUNT, lambda user, window, total: Total(user, window.start, total), name="totals")
    totals.sink(sink, name="output")
    return job


if __name__ == "__main__":
    tg.main(build)
