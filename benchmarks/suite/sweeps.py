"""What a record costs by the number of keys, the size of records, partitions and workers, and what exactly once costs
against at least once: `python -m benchmarks.suite.sweeps --help`.

One thing is varied at a time, every run is checked. What is compared runs in turns. The CPU time of a record is without
that of starting and ending, which a run of hardly any records shows.
"""

import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from benchmarks.suite import systems
from benchmarks.suite.contracts import Guarantee, System, Workload
from benchmarks.suite.measure import Measured, Plan
from benchmarks.suite.measures.publish import ended, parser_of, publish, table
from benchmarks.suite.measures.quantiles import NoMeasure
from benchmarks.suite.measures.stage import Stage, stage
from benchmarks.suite.workloads import VALUE_BYTES, Data

KEYS = (1_000, 10_000, 100_000, 1_000_000)
MANY_KEYS = 10_000_000
"""Only where it is asked for: the records alone that make so many take minutes."""
BYTES = (20, VALUE_BYTES, 200, 2_000, 20_000)
PARTITIONS = (1, 4, 16, 64)
WORKERS = (1, 2)
INPUT_BYTES_MAX = 1_000_000_000
"""Of an input topic: of large records there are fewer."""
FEWEST = 20_000
HARDLY_ANY = 1_000


class Cost(msgspec.Struct, frozen=True):
    """The median of all rounds of one kind of run."""

    what: str
    """What is varied: 'keys'."""
    value: str
    workload: Workload
    records: int
    rate: float
    """Records a second."""
    cpu_microseconds: float
    """Of all processes of the job for each record, without what starting and ending take."""
    peak_memory: int
    rates: tuple[float, ...]
    """Of each round."""


class Kind(NamedTuple):
    what: str
    value: str
    plan: Plan


def keys(records: int, counts: Sequence[int]) -> Iterator[Kind]:
    """There must be as many orders as there are users."""
    for count in counts:
        data = Data(max(records, 2 * count), count)
        yield Kind("keys", f"{count:,}", Plan(Workload.TOTALS, 1, data))


def sizes(records: int) -> Iterator[Kind]:
    """With W0, which takes records that are no JSON."""
    for size in BYTES:
        data = Data(max(FEWEST, min(records, INPUT_BYTES_MAX // size)), value_bytes=size)
        yield Kind("bytes of a value", f"{size:,}", Plan(Workload.FORWARD, 1, data))


def partitions(records: int) -> Iterator[Kind]:
    for count in PARTITIONS:
        yield Kind("partitions", str(count), Plan(Workload.TOTALS, 1, Data(records, partitions=count)))


def workers(records: int) -> Iterator[Kind]:
    for count in WORKERS:
        yield Kind("workers", str(count), Plan(Workload.TOTALS, count, Data(records)))


def guarantees(records: int) -> Iterator[Kind]:
    for guarantee in Guarantee:
        plan = Plan(Workload.TOTALS, 1, Data(records), 1.0, guarantee)
        yield Kind("guarantee", f"{guarantee}, a checkpoint each second", plan)


SWEEPS: dict[str, Callable[[int], Iterator[Kind]]] = {
    "keys": lambda records: keys(records, KEYS),
    "many-keys": lambda records: keys(records, [MANY_KEYS]),
    "bytes": sizes,
    "partitions": partitions,
    "workers": workers,
    "guarantee": guarantees,
}


def run(at: Stage, system: System, kinds: Sequence[Kind], rounds: int) -> list[Cost]:
    """All of them again and again, every second time in the other order. Raises what `Measuring.measure` raises."""
    at.say(f"{kinds[0].what}: what starting and ending take")
    firsts = {kind.plan.slots: kind.plan for kind in reversed(kinds)}
    least = {slots: at.measuring.measure(system, _with_hardly_any(plan)) for slots, plan in firsts.items()}
    measured: dict[Kind, list[Measured]] = {kind: [] for kind in kinds}
    for number in range(rounds):
        for kind in kinds if number % 2 == 0 else kinds[::-1]:
            at.say(f"{kind.what} {kind.value}, round {number + 1} of {rounds}")
            measured[kind].append(at.measuring.measure(system, kind.plan))
    return [of(kind, runs, least[kind.plan.slots]) for kind, runs in measured.items()]


def _with_hardly_any(plan: Plan) -> Plan:
    return msgspec.structs.replace(plan, data=plan.data._replace(records=HARDLY_ANY))


def of(kind: Kind, runs: Sequence[Measured], least: Measured) -> Cost:
    """`least`: a run of hardly any records with as many workers. Raises NoMeasure where more records took no more."""
    spent = [(run.cpu_seconds - least.cpu_seconds) / (run.records - least.records) for run in runs]
    if min(spent) <= 0:
        raise NoMeasure(f"{kind.what} {kind.value}: too few records to tell their cost from that of starting")
    return Cost(
        what=kind.what,
        value=kind.value,
        workload=kind.plan.workload,
        records=kind.plan.data.records,
        rate=statistics.median(run.rate for run in runs),
        cpu_microseconds=statistics.median(spent) * 1e6,
        peak_memory=round(statistics.median(run.peak_memory for run in runs)),
        rates=tuple(run.rate for run in runs),
    )


def ratio(costs: Sequence[Cost]) -> float | None:
    """Of exactly once's rate to at least once's, the median of all rounds: the two of one round ran one after the
    other. None where they were not measured."""
    rates = {cost.value.partition(",")[0]: cost.rates for cost in costs if cost.what == "guarantee"}
    if len(rates) < len(Guarantee):
        return None
    pairs = zip(rates[Guarantee.EXACTLY_ONCE], rates[Guarantee.AT_LEAST_ONCE], strict=True)
    return statistics.median(exactly / at_least for exactly, at_least in pairs)


def text_of(costs: Sequence[Cost]) -> str:
    parts = []
    for what in dict.fromkeys(cost.what for cost in costs):
        own = [cost for cost in costs if cost.what == what]
        head = [f"{own[0].workload}: {what}", "records", "records/s", "CPU µs of a record", "peak memory"]
        rows = [
            [
                cost.value,
                f"{cost.records:,}",
                f"{cost.rate:,.0f}",
                f"{cost.cpu_microseconds:.2f}",
                f"{cost.peak_memory / 1e6:,.0f} MB",
            ]
            for cost in own
        ]
        parts.append(table(head, rows))
    if (share := ratio(costs)) is not None:
        parts.append(f"Exactly once reads {share:.2f} of what at least once reads.")
    return "\n\n".join(parts)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = parser_of("sweeps", __doc__, "4 minutes; `many-keys` takes 4 more")
    usual = [name for name in SWEEPS if name != "many-keys"]
    parser.add_argument("--what", nargs="+", default=usual, choices=list(SWEEPS))
    parser.add_argument("--records", type=int, default=1_000_000, help="of each run, where nothing needs more or fewer")
    parser.add_argument("--rounds", type=int, default=1, help="of the guarantees three times as many: pairs")
    parser.add_argument("--system", default="tidegate", help="or with a client of Kafka: tidegate-librdkafka")
    options = parser.parse_args(arguments)
    system, costs = systems.load(options.system), []
    with stage() as at:
        for name in options.what:
            rounds = options.rounds * (3 if name == "guarantee" else 1)
            costs += run(at, system, list(SWEEPS[name](options.records)), rounds)
    publish("sweeps", costs, text_of(costs), write=options.write)


if __name__ == "__main__":
    sys.exit(ended(main))
