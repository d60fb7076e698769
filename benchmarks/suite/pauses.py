"""How long a job stands still because of a barrier, while it reads as fast as it can:
`python -m benchmarks.suite.pauses --help`.

The times are those of the tasks themselves (see `measures/barriers.py`); what the job writes is checked. Barriers come
more often than usual, so that there are many of them in a short time: in a second all keys have changed either way.
"""

import sys
from collections.abc import Sequence

import msgspec

from benchmarks.suite import systems
from benchmarks.suite.contracts import Workload
from benchmarks.suite.measure import Plan
from benchmarks.suite.measures.barriers import Pause, before_the_end, pauses, with_longest_only
from benchmarks.suite.measures.publish import ended, milliseconds, parser_of, publish, table
from benchmarks.suite.measures.quantiles import Histogram, NoMeasure, Quantiles
from benchmarks.suite.measures.stage import Stage, stage
from benchmarks.suite.measures.variants import Variant
from benchmarks.suite.workloads import USERS, Data

END_INTERVALS = 2.0
"""Between two checkpoints: how much of a run's end is left out. Splits end one after the other, and whoever has read
its own waits for nothing but the end."""
FEWEST = 20
"""Barriers, below which there is nothing to be said about the longest of a hundred."""


class Pauses(msgspec.Struct, frozen=True):
    """Of one kind of run. Seconds."""

    workers: int
    interval: float
    users: int
    whole: Quantiles
    captured: Quantiles
    """Until the state was captured."""
    flushed: Quantiles
    """Until all that came before the barrier was written."""
    worst: tuple[Pause, ...]


def measure(at: Stage, system: str, plan: Plan, rounds: int) -> Pauses:
    """Raises NoMeasure where there were too few barriers, and what `Measuring.measure` raises."""
    variant = Variant(systems.load(system), with_marks=True)
    found: list[Pause] = []
    for number in range(rounds):
        at.say(f"{plan.slots} workers, {plan.checkpoint_seconds:g} s, round {number + 1} of {rounds}")
        at.measuring.measure(variant, plan)
        marks = variant.marks()
        found += with_longest_only(before_the_end(pauses(marks), marks, END_INTERVALS * plan.checkpoint_seconds))
    return of(found, plan)


def of(found: Sequence[Pause], plan: Plan) -> Pauses:
    if len(found) < FEWEST:
        raise NoMeasure(f"only {len(found)} barriers came: take more --records, or a shorter --interval")
    whole, captured, flushed = Histogram(), Histogram(), Histogram()
    for pause in found:
        whole.add(pause.whole)
        captured.add(pause.captured)
        flushed.add(pause.flushed)
    worst = tuple(sorted(found, key=lambda pause: -pause.whole)[:5])
    times = (whole.summary(), captured.summary(), flushed.summary())
    return Pauses(plan.slots, plan.checkpoint_seconds, plan.data.users, *times, worst)


def text_of(rows: Sequence[Pauses]) -> str:
    head = [
        "workers, keys, interval",
        "barriers",
        "pause, median",
        "p99",
        "longest",
        "captured, median",
        "p99",
        "flushed, median",
        "p99",
    ]
    return table(
        head,
        [
            [
                f"{row.workers}, {row.users:,}, {row.interval:g} s",
                str(row.whole.times),
                *map(milliseconds, (row.whole.p50, row.whole.p99, row.whole.longest)),
                *map(milliseconds, (row.captured.p50, row.captured.p99, row.flushed.p50, row.flushed.p99)),
            ]
            for row in rows
        ],
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = parser_of("pauses", __doc__, "2 minutes")
    parser.add_argument("--records", type=int, default=4_000_000, help="of each round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--interval", type=float, default=0.2, help="seconds between two checkpoints")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--users", type=int, nargs="+", default=[USERS])
    parser.add_argument("--system", default="tidegate", help="or with a client of Kafka: tidegate-librdkafka")
    options = parser.parse_args(arguments)
    rows = []
    with stage() as at:
        for users in options.users:
            for workers in options.workers:
                data = Data(options.records, users)
                plan = Plan(Workload.TOTALS, workers, data, options.interval)
                rows.append(measure(at, options.system, plan, options.rounds))
    publish("pauses", rows, text_of(rows), write=options.write)


if __name__ == "__main__":
    sys.exit(ended(main))
