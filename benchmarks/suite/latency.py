"""How long it takes from an order to its total at a reader, running totals on Kafka at a fixed rate:
`python -m benchmarks.suite.latency --help`.

A process of its own sends orders when they are due, whatever comes out; another one reads. Latency counts from the
moment at which an order was due, so a job that stands still is not spared by a generator that waits for it. The rate is
half of what the same job reads at full speed in the same session, if none is given. Every total is compared with what
it has to be; when the generator fell behind, or totals are missing, there is no measure.
"""

import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from benchmarks.suite import systems
from benchmarks.suite.contracts import Guarantee, JobRun, Workload
from benchmarks.suite.measure import Plan
from benchmarks.suite.measures import arrivals, load
from benchmarks.suite.measures.arrivals import Arrival
from benchmarks.suite.measures.job import Job, endless
from benchmarks.suite.measures.load import Sent
from benchmarks.suite.measures.orders import TICK, Expected, Orders
from benchmarks.suite.measures.publish import ended, milliseconds, parser_of, publish, table
from benchmarks.suite.measures.quantiles import Histogram, NoMeasure, Quantiles
from benchmarks.suite.measures.stage import Helper, Stage, sent, stage, until
from benchmarks.suite.workloads import USERS, Data
from tidegate.connectors.kafka.client import Isolation

WARM_UP = 5.0
"""Seconds from the first order on that do not count; at least one and a half intervals."""
LEFT = 3.0
"""Seconds, besides an interval, within which all must have come out."""


class Kind(msgspec.Struct, frozen=True):
    guarantee: Guarantee
    interval: float

    @property
    def isolation(self) -> Isolation:
        return "read_committed" if self.guarantee is Guarantee.EXACTLY_ONCE else "read_uncommitted"

    @property
    def warm_up(self) -> float:
        return max(WARM_UP, 1.5 * self.interval)


KINDS = (
    Kind(Guarantee.AT_LEAST_ONCE, 1.0),
    *(Kind(Guarantee.EXACTLY_ONCE, interval) for interval in (0.1, 1.0, 10.0)),
)


class Latency(msgspec.Struct, frozen=True):
    """Of one kind."""

    kind: Kind
    workers: int
    rate: int
    """Orders a second."""
    latency: Quantiles
    """Seconds."""
    generator: Sent


def of(arrived: Iterable[Arrival], orders: Orders, done: Sent, warm_up: float) -> Quantiles:
    """Raises WrongTotal, and NoMeasure when totals are missing."""
    expected, times, first = Expected(orders), Histogram(), round(warm_up / TICK)
    for arrival in arrived:
        since = arrival.at - done.began
        for tick in expected.ticks_of(arrival.values()):
            if tick >= first:
                times.add(since - tick * TICK)
    if expected.outputs != done.ticks * orders.per_tick:
        went_in = done.ticks * orders.per_tick
        raise NoMeasure(
            f"{went_in:,} orders went in, {expected.outputs:,} totals came out in time: the job does not keep up with"
            f" {orders.rate:,} orders a second; take a lower --rate"
        )
    return times.summary()


def measure(at: Stage, system: str, kind: Kind, orders: Orders, workers: int, seconds: float) -> Latency:
    """`seconds` count, behind the warm-up. Raises as `of`, NoMeasure when the generator fell behind."""
    folder, (source, sink) = at.new_folder("latency"), at.new_topics("latency")
    run = JobRun(
        workload=Workload.TOTALS,
        bootstrap=at.bootstrap,
        source=source,
        sink=sink,
        slots=workers,
        records=0,
        checkpoint_seconds=kind.interval,
        guarantee=kind.guarantee,
        folder=folder,
    )
    kept: Path = folder / "arrivals"
    with (
        Helper(arrivals.command(at.bootstrap, sink, kind.isolation, kept)) as reader,
        Job(endless(systems.load(system).command(run)), folder / "run") as job,
    ):
        job.wait_for("phase running")
        with Helper(load.command(at.bootstrap, source, orders)) as generator:
            until(float(generator.said) + kind.warm_up + seconds)
            done = sent(generator)
        time.sleep(kind.interval + LEFT)
        job.check_alive()
        reader.end()
    at.say(f"{describe(kind)}: comparing {done.ticks * orders.per_tick:,} totals")
    latency = of(arrivals.read(kept), orders, done, kind.warm_up)
    kept.unlink()
    at.topics.delete(source, sink)
    return Latency(kind, workers, orders.rate, latency, done)


def half_of_full_speed(at: Stage, system: str, workers: int, records: int) -> int:
    """Orders a second."""
    at.say("the rate at full speed")
    plan = Plan(Workload.TOTALS, workers, Data(records))
    return int(at.measuring.measure(systems.load(system), plan).rate / 200) * 100


def describe(kind: Kind) -> str:
    return f"{kind.guarantee}, a checkpoint each {kind.interval:g} s"


def text_of(rows: Sequence[Latency]) -> str:
    head = [
        "guarantee",
        "orders/s",
        "p50",
        "p99",
        "p99.9",
        "longest",
    ]
    return table(
        head,
        [
            [
                describe(row.kind),
                f"{row.rate:,}",
                *map(milliseconds, (row.latency.p50, row.latency.p99, row.latency.p999, row.latency.longest)),
            ]
            for row in rows
        ],
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = parser_of("latency", __doc__, "3 minutes")
    parser.add_argument("--rate", type=int, help="orders a second, instead of half of what full speed is")
    parser.add_argument("--records", type=int, default=2_000_000, help="of the run at full speed")
    parser.add_argument("--seconds", type=float, default=20.0, help="that count")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--users", type=int, default=USERS)
    parser.add_argument(
        "--kinds",
        type=int,
        nargs="+",
        default=range(len(KINDS)),
        choices=range(len(KINDS)),
        help="; ".join(f"{number}: {describe(kind)}" for number, kind in enumerate(KINDS)),
    )
    parser.add_argument("--system", default="tidegate", help="or with a client of Kafka: tidegate-librdkafka")
    options = parser.parse_args(arguments)
    with stage() as at:
        rate = options.rate or half_of_full_speed(at, options.system, options.workers, options.records)
        orders = Orders(rate, options.users)
        rows = []
        for number in options.kinds:
            at.say(f"{describe(KINDS[number])}, {rate:,} orders a second")
            rows.append(measure(at, options.system, KINDS[number], orders, options.workers, options.seconds))
    publish("latency", rows, text_of(rows), write=options.write)


if __name__ == "__main__":
    sys.exit(ended(main))
