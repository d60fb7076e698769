"""Running totals, Kafka to Kafka: each order changes the total of its user and puts out the new one, exactly once.

Orders are JSON, as {"user": "ada", "amount": 3, "ts": 1760000000000}; totals are {"user": "ada", "total": 7}. Both have
the user as key, so that what concerns one user is in one partition and in order.

    tidegate dev-kafka --topic orders:4 --topic totals:4
    tidegate run examples/running_totals.py -p 2 -- --bootstrap localhost:9092 --input orders --output totals

With --partitions 4 each worker reads the partitions of its users, and nothing goes between workers.
"""

from argparse import ArgumentParser
from operator import attrgetter

import msgspec

import tidegate as tg
from tidegate.kafka import KafkaSink, KafkaSource


# gc=False: no order or total can be part of a cycle, so the garbage collector need not know them.
class Order(msgspec.Struct, frozen=True, gc=False):
    """What the job needs of an order; other fields, as `ts`, are passed over."""

    user: str
    amount: int


class Total(msgspec.Struct, frozen=True, gc=False):
    user: str
    total: int


user_of = attrgetter("user")
"""Of orders and totals. It is asked for each record, and this one is no Python code that runs."""
amount_of = attrgetter("amount")


def build(argv: list[str]) -> tg.Job:
    parser = ArgumentParser(prog="running_totals.py", description="Running totals by user, Kafka to Kafka.")
    parser.add_argument("--bootstrap", required=True, metavar="HOST:PORT", help="a broker, or several with commas")
    parser.add_argument("--input", required=True, metavar="TOPIC")
    parser.add_argument("--output", required=True, metavar="TOPIC")
    parser.add_argument("--bounded", action="store_true", help="end where the input ends now")
    parser.add_argument("--from", dest="start", choices=("earliest", "latest"), default="earliest")
    parser.add_argument("--partitions", type=int, metavar="N", help="of the input, which has the user as key (murmur2)")
    options = parser.parse_args(argv)

    job = tg.Job("running-totals")
    source = KafkaSource(
        options.bootstrap, options.input, value=tg.Json(Order), start=options.start, bounded=options.bounded
    )
    sink = KafkaSink(options.bootstrap, options.output, key=user_of, value=tg.Json(Total))
    orders = job.source(source, name="orders")
    by_user = orders.key_by(user_of, key_type=str, partitions=options.partitions)
    # What comes out for each order is Total(user, sum).
    by_user.aggregate(tg.aggregates.sum(amount_of, type=int), Total, name="totals").sink(sink, name="output")
    return job


if __name__ == "__main__":
    tg.main(build)
