"""Measures one run: a system's command over a complete input topic, until its output is complete, and what it took.

Rates come from the broker's times of appending to the output, CPU seconds and memory from all processes of the command,
and a run counts only when its output is the answer.
"""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from benchmarks.suite import proc
from benchmarks.suite.checks import Check
from benchmarks.suite.contracts import Command, Guarantee, JobRun, System, Workload
from benchmarks.suite.places import without_places
from benchmarks.suite.processes import Tree, Usage
from benchmarks.suite.reading import AppendTimes, Output
from benchmarks.suite.topics import Topics
from benchmarks.suite.usage import Cores, CpuUse, Sample
from benchmarks.suite.workloads import Data, output_records
from tidegate.errors import UnavailableError

RATE_FROM = 0.1
"""Share of the output before which a rate does not begin: by then everything is started and warm."""
PATIENCE = 300.0
"""Seconds without a new record of output, after which a run is given up."""
_LOOK = 0.25
_ASK = 1.0
"""Seconds between two questions to the broker how far the output is."""


class Plan(msgspec.Struct, frozen=True):
    """What is to be run, besides by whom."""

    workload: Workload
    slots: int
    data: Data
    checkpoint_seconds: float = 1.0
    guarantee: Guarantee = Guarantee.EXACTLY_ONCE


class Measured(msgspec.Struct, frozen=True):
    """One run, checked. Times count from the moment at which the command was started."""

    arguments: list[str]
    """Of the command, without the places of one machine and one run."""
    seconds_to_first: float
    """Until the broker appended the first record of the output; its transaction was committed later."""
    seconds_to_tenth: float
    seconds_to_last: float
    seconds_to_end: float
    """Until all processes had ended."""
    records: int
    output_records: int
    cpu_seconds: float
    """Of all processes, from start to end."""
    peak_memory: int
    """Bytes: the largest sum of the proportional set sizes of all processes, looked at four times a second."""
    broker_cpu_seconds: float | None
    """None where the broker was not started by this session."""
    other_cpu_seconds: float | None
    """Of all other processes of the machine, this one among them: how calm it was."""
    cores: Cores | None = None
    """Busy ones while the last 90 % of the output were appended, at a known broker."""

    @property
    def rate(self) -> float:
        """Records of the input a second, while the last 90 % of the output were appended."""
        seconds = max(self.seconds_to_last - self.seconds_to_tenth, 0.001)
        return self.records * (1 - RATE_FROM) / seconds

    @property
    def rate_per_cpu(self) -> float:
        """Records of the input a CPU second, start and end included."""
        return self.records / max(self.cpu_seconds, 0.001)


class Measuring:
    """One broker's runs. `say` is told how far a run is, again and again."""

    def __init__(self, bootstrap: str, folder: Path, broker: int | None, say: Callable[[str], None]) -> None:
        """`broker`: its pid, where it is known."""
        self._bootstrap = bootstrap
        self._topics = Topics(bootstrap)
        self._folder = folder
        self._broker = broker
        self._say = say
        self._runs = 0

    def measure(self, system: System, plan: Plan) -> Measured:
        """Raises WrongResult when its output is not the answer, UnavailableError when the command fails."""
        plan.data.check(plan.workload)
        source = self._topics.ensure_source(plan.data)
        self._runs += 1
        sink = f"bench-output-{os.getpid()}-{self._runs}"
        self._topics.create_output(sink, plan.data.partitions)
        folder = self._folder / sink
        folder.mkdir(parents=True)
        output = Output(self._bootstrap, sink, plan.data.partitions, check := Check(plan.workload, plan.data))
        run = JobRun(
            workload=plan.workload,
            bootstrap=self._bootstrap,
            source=source,
            sink=sink,
            slots=plan.slots,
            records=plan.data.records,
            checkpoint_seconds=plan.checkpoint_seconds,
            guarantee=plan.guarantee,
            folder=folder,
            partitions=plan.data.partitions,
        )
        try:
            measured = self._run(system.command(run), run, output, output_records(plan.workload, plan.data))
            self._say("checking")
            check.finish()
        finally:
            output.close()
            self._topics.delete(sink)
        return measured

    def _run(self, command: Command, run: JobRun, output: Output, expected: int) -> Measured:
        use = CpuUse()
        before = self._sample(0.0)
        with Tree(command, run.folder / "log") as tree:

            def look() -> None:
                use.add(self._sample(tree.look()))

            is_stopped = Watch(tree, self._topics, run.sink, output, expected, self._say).wait(command, look)
            usage = tree.usage()
        after = self._sample(usage.cpu_seconds)
        use.add(after)
        if not is_stopped and (usage.exit_code != 0 or not command.ends):
            raise UnavailableError(f"it ended with {usage.exit_code}", remedy=f"What it said:\n{tree.tail()}")
        self._say("reading the output")
        if output.read_on() == 0:
            raise UnavailableError("it has written nothing", remedy=f"What it said:\n{tree.tail()}")
        measured = _measured(run, command, usage, after.moment, output.times)
        return measured if self._broker is None else _with_others(measured, usage.started, before, after, use)

    def _sample(self, own: float) -> Sample:
        broker = 0.0 if self._broker is None else proc.cpu_seconds(self._broker)
        return Sample(time.time(), own, broker, proc.busy_seconds())


def _measured(run: JobRun, command: Command, usage: Usage, ended: float, times: AppendTimes) -> Measured:
    return Measured(
        arguments=[without_places(argument, run.folder) for argument in command.arguments],
        seconds_to_first=times.at(0) - usage.started,
        seconds_to_tenth=times.at(RATE_FROM) - usage.started,
        seconds_to_last=times.at(1) - usage.started,
        seconds_to_end=ended - usage.started,
        records=run.records,
        output_records=len(times),
        cpu_seconds=usage.cpu_seconds,
        peak_memory=usage.peak_memory,
        broker_cpu_seconds=None,
        other_cpu_seconds=None,
    )


def _with_others(measured: Measured, started: float, before: Sample, after: Sample, use: CpuUse) -> Measured:
    broker, machine = after.broker - before.broker, after.machine - before.machine
    return msgspec.structs.replace(
        measured,
        broker_cpu_seconds=broker,
        other_cpu_seconds=max(0.0, machine - broker - measured.cpu_seconds),
        cores=use.between(started + measured.seconds_to_tenth, started + measured.seconds_to_last),
    )


class Watch:
    """Waits for the end of a run, and looks at it meanwhile."""

    def __init__(
        self, tree: Tree, topics: Topics, sink: str, output: Output, expected: int, say: Callable[[str], None]
    ) -> None:
        self._tree = tree
        self._topics = topics
        self._sink = sink
        self._output = output
        self._expected = expected
        self._say = say
        self._end = 0
        self._is_still = False
        self._give_up_at = time.monotonic() + PATIENCE

    def wait(self, command: Command, look: Callable[[], None]) -> bool:
        """Until it has ended, or, where it does not by itself, until its output is complete; then it is stopped, and
        this is true. `look` is called a few times a second. Raises UnavailableError when no output comes for long."""
        ask_at = 0.0
        while self._tree.is_running:
            look()
            if (now := time.monotonic()) >= ask_at:
                self._ask()
                ask_at = now + _ASK
                if not command.ends and self._is_complete():
                    self._tree.stop()
                    return True
            if now >= self._give_up_at:
                raise UnavailableError(
                    f"for {PATIENCE:.0f} s it has written nothing; {self._end:,} of {self._expected:,} are there",
                    remedy=f"What it said:\n{self._tree.tail()}",
                )
            time.sleep(_LOOK)
        return False

    def _ask(self) -> None:
        try:
            end = sum(self._topics.ends(self._sink))
        except UnavailableError:
            return
        self._is_still = end == self._end
        self._end = end
        if not self._is_still:
            self._give_up_at = time.monotonic() + PATIENCE
        self._say(f"{end:,} of {self._expected:,} written")

    def _is_complete(self) -> bool:
        """Offsets count markers of transactions as well, so records are counted by reading; that would disturb a run
        that is not nearly done."""
        if self._end < self._expected or not self._is_still:
            return False
        return self._output.read_on() >= self._expected


def say_on_terminal(text: str) -> None:
    """One line that the next one replaces; nothing where nobody looks."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()
