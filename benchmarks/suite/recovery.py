"""How long a job stands still when its processes are killed, and how long it takes to start, with where the time goes:
`python -m benchmarks.suite.recovery --help`.

Orders go in at a steady rate all the time. The end of a recovery is the moment at which a reader of committed records
has the first output of the new attempt; told besides is when it has the first total of an order that was sent after the
kill. Every total that comes out, before and after, is compared with what it has to be.
"""

import statistics
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec

from benchmarks.suite import systems
from benchmarks.suite.contracts import Command, Guarantee, JobRun, Workload
from benchmarks.suite.measures import breakdown, load
from benchmarks.suite.measures.arrivals import Arrivals
from benchmarks.suite.measures.breakdown import Boundary, Breakdown
from benchmarks.suite.measures.job import Job, endless
from benchmarks.suite.measures.orders import TICK, Expected, Orders
from benchmarks.suite.measures.publish import ended, parser_of, publish, table
from benchmarks.suite.measures.quantiles import NoMeasure
from benchmarks.suite.measures.stage import PARTITIONS, Helper, Stage, sent, stage, until
from tidegate.config.restart import ExponentialDelay

LARGE = Path(__file__).parent / "measures" / "programs" / "large_totals.py"
BALLAST = 10_000
"""Bytes of each user's state where it is to be large."""
USERS = 10_000
PATIENCE = 180.0
"""Seconds for the state to be there, and for a recovery."""
HEAD_START = 0.5
"""Seconds that orders come before a new job is started."""
SETTLED = 2
"""Checkpoints between two kills, so that each hits a healthy job."""
LATE_SHARE = 0.1
"""Of the crowds of orders: a late one can only make a recovery longer."""
RESTART = str(msgspec.structs.replace(ExponentialDelay(), reset_after=1.0))
"""The default, but that a job counts as healthy after a second: each kill is then the first one."""


class Kind(msgspec.Struct, frozen=True):
    """What is killed, in which job."""

    state_bytes: int = 0
    backend: str = "fs"
    workers: int = 1
    rate: int = 5_000
    interval: float = 1.0
    system: str = "tidegate"
    victim: str = "worker"
    """Or 'all', and the command is run again; or 'start': nothing is killed, a new job is started."""

    @property
    def orders(self) -> Orders:
        return Orders(self.rate, max(USERS, self.state_bytes // BALLAST))

    def command(self, at: Stage, folder: Path, source: str, sink: str) -> Command:
        run = JobRun(
            workload=Workload.TOTALS,
            bootstrap=at.bootstrap,
            source=source,
            sink=sink,
            slots=self.workers,
            records=0,
            checkpoint_seconds=self.interval,
            guarantee=Guarantee.EXACTLY_ONCE,
            folder=folder,
        )
        usual = systems.load(self.system).command(run)
        usual = usual._replace(environment={**usual.environment, "TIDEGATE_STATE_LOCAL_DIR": str(folder / "local")})
        options = ("--state-backend", self.backend, "--restart", RESTART)
        if not self.state_bytes:
            return endless(usual, None, *options)
        return endless(usual, LARGE, *options, arguments=("--ballast", str(BALLAST)))


class Recoveries(msgspec.Struct, frozen=True):
    """Of one kind, in order."""

    kind: Kind
    breakdowns: tuple[Breakdown, ...]

    @property
    def median(self) -> Breakdown:
        return breakdown.median(self.breakdowns)

    @property
    def until_later(self) -> float:
        return statistics.median(one.until_later for one in self.breakdowns)

    @property
    def longest(self) -> float:
        return max(one.seconds for one in self.breakdowns)


class Watching:
    """Reads the output and compares it, as it comes."""

    def __init__(self, arrivals: Arrivals, orders: Orders, began: float, job: Job) -> None:
        self._arrivals = arrivals
        self._expected = Expected(orders)
        self._began = began
        self._came: list[float] = []
        """When anything did."""
        self.job = job

    def until_due(self, moment: float) -> float:
        """When the first total came of an order that was due not before `moment`. Raises WrongTotal, NoMeasure when
        none comes."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            found = [(one.at, self._expected.ticks_of(one.values())) for one in self._arrivals.poll()]
            self._came += [at for at, ticks in found if ticks]
            due = [at for at, ticks in found if ticks and self._began + max(ticks) * TICK >= moment]
            if due:
                return min(due)
            self.job.check_alive()
        raise NoMeasure(f"nothing came out for {PATIENCE:.0f} s, {self._expected.outputs:,} totals before that")

    def recovered(self, begin: float, steps: Sequence[Boundary], due: float | None = None) -> Breakdown:
        """From `begin` to the first output behind the last of the steps; it goes on to the first total of an order that
        was due since then, or since `due`. Raises as `until_due` and `breakdown.of`."""
        later = self.until_due(begin if due is None else due)
        return breakdown.of(self.job.marks(), steps, begin, self._came, later)

    def until_settled(self) -> None:
        """It has caught up, with some checkpoints since; one has just been committed."""
        for _ in range(SETTLED):
            self.until_due(time.monotonic())


def kills(at: Stage, kind: Kind, times: int) -> Recoveries:
    """Of one job, again and again, at moments spread evenly over the time between two checkpoints."""
    folder, (source, sink) = at.new_folder("recovery"), at.new_topics("recovery")
    command = kind.command(at, folder, source, sink)
    arrivals = Arrivals(at.bootstrap, sink, PARTITIONS, "read_committed")
    found: list[Breakdown] = []
    with Helper(load.command(at.bootstrap, source, kind.orders)) as generator, ExitStack() as running:
        began = float(generator.said)
        watching = Watching(arrivals, kind.orders, began, running.enter_context(Job(command, folder / "run-0")))
        watching.until_due(began + kind.orders.cycle_ticks * TICK)
        for number in range(times):
            at.say(f"{describe(kind)}: kill {number + 1} of {times}")
            watching.until_settled()
            until(time.monotonic() + kind.interval * (number + 0.5) / times)
            if kind.victim == "worker":
                found.append(watching.recovered(watching.job.kill_worker(), breakdown.WORKER_KILLED))
            else:
                watching.job.kill_all()
                running.close()
                watching.job = running.enter_context(Job(command, folder / f"run-{number + 1}"))
                found.append(watching.recovered(watching.job.began, breakdown.STARTED))
        watching.until_settled()
        sent(generator, LATE_SHARE)
    arrivals.close()
    return Recoveries(kind, tuple(found))


def starts(at: Stage, kind: Kind, times: int) -> Recoveries:
    """Of new jobs, each with topics of its own, over orders that are there already."""
    found = []
    for number in range(times):
        at.say(f"{describe(kind)}: {number + 1} of {times}")
        folder, (source, sink) = at.new_folder("start"), at.new_topics("start")
        arrivals = Arrivals(at.bootstrap, sink, PARTITIONS, "read_committed")
        with Helper(load.command(at.bootstrap, source, kind.orders)) as generator:
            began = float(generator.said)
            until(began + HEAD_START)
            with Job(kind.command(at, folder, source, sink), folder / "run") as job:
                watching = Watching(arrivals, kind.orders, began, job)
                found.append(watching.recovered(job.began, breakdown.STARTED, due=began))
            sent(generator, LATE_SHARE)
        arrivals.close()
    return Recoveries(kind, tuple(found))


def describe(kind: Kind) -> str:
    what = {
        "worker": "SIGKILL of a worker",
        "all": "SIGKILL of all, from when it is run again",
        "start": "start of a new job",
    }
    state = f", {kind.state_bytes // 1_000_000:,} MB of state in {kind.backend}" if kind.state_bytes else ""
    return f"{what[kind.victim]}{state}, {kind.workers} worker{'s' if kind.workers > 1 else ''}"


def text_of(all_of: Sequence[Recoveries]) -> str:
    """One row for each kind; then, of those that look alike in all steps, where the time of the median one went."""
    rows = [
        [
            describe(one.kind),
            str(len(one.breakdowns)),
            *(f"{seconds:.2f} s" for seconds in (one.median.seconds, one.longest, one.until_later)),
        ]
        for one in all_of
    ]
    head = ["what", "times", "first new output, median", "longest", "of an order sent afterwards, median"]
    parts = [table(head, rows)]
    for victims in (("worker",), ("start", "all")):
        own = [one for one in all_of if one.kind.victim in victims]
        if own:
            parts.append(steps_of(own))
    return "\n\n".join(parts)


def steps_of(alike: Sequence[Recoveries]) -> str:
    """Where the time of the median ones went, one column each."""
    medians = [one.median for one in alike]
    rows = [
        [steps[0].name, *(f"{step.seconds:.3f} s" for step in steps)]
        for steps in zip(*(one.steps for one in medians), strict=True)
    ]
    rows += [
        [f"({steps[0].name})", *(f"{step.seconds:.3f} s" for step in steps)]
        for steps in zip(*(one.beside for one in medians), strict=True)
    ]
    return table(["step", *(describe(one.kind) for one in alike)], rows)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = parser_of("recovery", __doc__, "5 minutes; with --megabytes 0 one and a half")
    parser.add_argument("--kills", type=int, default=5, help="of each kind, half as many with 1 GB")
    parser.add_argument("--megabytes", type=int, nargs="*", default=[0, 100, 1000], help="of state")
    parser.add_argument("--backends", nargs="+", default=["fs"], choices=("fs", "rocksdb"))
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--interval", type=float, default=1.0, help="seconds between two checkpoints")
    parser.add_argument("--victims", nargs="+", default=["start", "worker", "all"], choices=("start", "worker", "all"))
    parser.add_argument("--system", default="tidegate", help="or with a client of Kafka: tidegate-librdkafka")
    options = parser.parse_args(arguments)
    done = []
    with stage() as at:
        for megabytes in options.megabytes:
            for backend in options.backends:
                for victim in options.victims:
                    if victim == "start" and megabytes:
                        continue
                    kind = Kind(
                        state_bytes=megabytes * 1_000_000,
                        backend=backend,
                        workers=options.workers,
                        interval=options.interval,
                        system=options.system,
                        victim=victim,
                    )
                    times = options.kills if megabytes < 1000 else max(1, options.kills // 2)
                    done.append((starts if victim == "start" else kills)(at, kind, times))
    publish("recovery", done, text_of(done), write=options.write)


if __name__ == "__main__":
    sys.exit(ended(main))
