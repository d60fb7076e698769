"""One chaos run: brokers, writer, job and watcher are started, struck by the schedule, healed, drained and judged.

Everything but watching and what brokers do happens on one thread, turn by turn, and never waits for the job: it asks.
Whatever happens, `close` leaves no process behind.
"""

import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.chaos.brokers import Brokers
from tests.chaos.checker import Checker, Violation, check_all
from tests.chaos.disk import make_disk
from tests.chaos.faults import Faults
from tests.chaos.records import OUTPUT_PARTITIONS, PARTITIONS
from tests.chaos.report import Report, plan_line
from tests.chaos.schedule import Kind, plan_of, strikes
from tests.chaos.supervisor import ROOT, Scene, Supervisor
from tests.chaos.timeline import Agenda, Timeline
from tests.chaos.verdict import Progress, check_files, check_processes, check_transactions
from tests.chaos.watcher import Watcher, read_all
from tidegate.connectors.kafka.connection import DEFAULT_CLIENT

TURN = 0.02
"""Seconds between two turns."""
PROGRESS_SECONDS = 15.0
HEALED_PATIENCE = 120.0
"""Seconds in which output must go on when nothing is wrong any more. How long it takes to work off what has come in
since is the machine's affair, as long as there is output all the time."""
BROKERS_PATIENCE = 150.0
"""Seconds in which the last broker must be back."""
OUTPUT_PATIENCE = 40.0
"""Seconds for which a strike waits for output at most."""
STOP_PATIENCE = 60.0


class Trouble(Exception):
    """The run could not be made, and says nothing about the job."""


@dataclass(frozen=True)
class Options:
    seed: int
    minutes: float = 10.0
    nodes: int = 1
    kinds: tuple[Kind, ...] = tuple(Kind)
    rate: int = 2000
    """Orders a second."""
    disk: Literal["auto", "mount", "limit"] = "auto"
    folder: Path | None = None
    delivery: str = "exactly-once"
    client: str = DEFAULT_CLIENT
    """Anything else must be found."""


class Run:
    """`run` does it all; `close` afterwards, in any case."""

    def __init__(self, options: Options, show: Callable[[str], None]) -> None:
        self._options = options
        self._show = show
        self.folder = options.folder or Path(tempfile.mkdtemp(prefix="tidegate-chaos-"))
        self.folder.mkdir(parents=True, exist_ok=True)
        self.plan = plan_of(options.seed, options.nodes, options.kinds)
        # Before any thread is started.
        self._disk = make_disk(self.folder / "disk", options.disk)
        self.timeline = Timeline(self.folder / "timeline.txt")
        self.report = Report(options.seed, options.nodes, disk=self._disk.name, folder=str(self.folder))
        self._agenda = Agenda()
        # Addresses of sockets must be short.
        self._sockets = Path(tempfile.mkdtemp(prefix="tc-"))
        job = f"chaos-{options.seed}"
        self._input, self._output = f"{job}-orders", f"{job}-totals"
        topics = {self._input: PARTITIONS, self._output: OUTPUT_PARTITIONS}
        self._brokers = Brokers(self.folder / "kafka", options.nodes, topics)
        topics = (self._input, self._output)
        self._scene = Scene(self.folder, self._disk, self._sockets, job, *topics, options.delivery, options.client)
        self._supervisor = Supervisor(self._scene, self.plan, self.timeline, self._agenda)
        self._watcher = Watcher(self._output, Checker(self.plan.users))
        self._writer: subprocess.Popen[str] | None = None
        self._written = 0
        self._written_in_all: int | None = None
        self._progress = Progress(self._scene)
        self._show_at = 0.0

    # ---- the phases ------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Raises Violation for what is wrong with the job, Trouble or what kept the run from being made."""
        self._show(f"SEED={self.plan.seed} NODES={self.plan.nodes}: {plan_line(self.plan)}")
        self._show(f"logs in {self.folder}; what fills the disk: {self._disk.name}")
        self._brokers.start_and_wait()
        self._scene.bootstrap = self._brokers.bootstrap
        self._start_writer()
        self._watcher.begin(self._brokers.direct)
        self._until(lambda: self._watcher.count > 0, HEALED_PATIENCE, "the first output")
        self._watcher.begin_again()
        self._strike_for(self._options.minutes * 60)
        self._heal()
        self._drain()
        self._stop()
        self._judge()

    def _strike_for(self, seconds: float) -> None:
        faults = Faults(self._supervisor, self._brokers, self._disk, self.timeline, self._agenda)
        began = time.monotonic()
        end = began + seconds
        for strike in strikes(self.plan):
            count, until = self._watcher.count, min(time.monotonic() + OUTPUT_PATIENCE, end)
            while strike.waits_for_output and self._watcher.count == count and time.monotonic() < until:
                self._turn()
            until = min(time.monotonic() + strike.after, end)
            while time.monotonic() < until:
                self._turn()
            if time.monotonic() >= end:
                break
            faults.strike(strike)
        while time.monotonic() < end:
            self._turn()
        self.report.seconds = round(time.monotonic() - began, 1)

    def _heal(self) -> None:
        """End all faults; output must go on."""
        self.timeline.tell("healing: no fault is begun any more, and all end")
        self._supervisor.is_calm = True
        self._brokers.heal()
        self._agenda.run_all()
        self._until(lambda: not self._brokers.is_busy, BROKERS_PATIENCE, "the return of the last broker")
        for proxy in self._brokers.proxies:
            proxy.heal()
        self.timeline.tell("healed")
        healed, written, count = time.monotonic(), self._written, self._watcher.count
        self._until(lambda: self._watcher.count > count, HEALED_PATIENCE, "output after the faults")
        self.report.recovered_after = round(time.monotonic() - healed, 1)
        self._until(lambda: self._watcher.count > written, HEALED_PATIENCE, "output of orders written after the faults")
        self.report.caught_up_after = round(time.monotonic() - healed, 1)

    def _drain(self) -> None:
        assert self._writer is not None
        assert self._writer.stdin is not None
        self._writer.stdin.close()
        self._until(lambda: self._written_in_all is not None, HEALED_PATIENCE, "the end of the writer")
        count = self._written_in_all or 0
        self.timeline.tell(f"the writer has ended: {count} orders")
        self._until(lambda: self._watcher.count >= count, HEALED_PATIENCE, f"the last of {count} orders")

    def _stop(self) -> None:
        self._supervisor.is_finishing = True
        for start in self._supervisor.living():
            self._supervisor.interrupt(start)
        self._until(lambda: not self._supervisor.living(), STOP_PATIENCE, "the end of the job")

    def _judge(self) -> None:
        count = self._written_in_all or 0
        self._watcher.end()
        self._look()
        if not self._watcher.has_all(count):
            raise Violation("lost", f"{self._watcher.count} totals were seen of {count}, not of the same orders")
        check_all(read_all(self._brokers.direct, self._output), count, self.plan.users)
        self.report.lost = self.report.doubled = 0
        check_processes(self._scene, self._supervisor.starts)
        check_transactions(self._scene, self._brokers)
        check_files(self._scene)

    # ---- turns -----------------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        time.sleep(TURN)
        self._agenda.run_due()
        self._supervisor.tick()
        self._look()
        if time.monotonic() >= self._show_at:
            self._show_at = time.monotonic() + PROGRESS_SECONDS
            self._progress.look()
            self._show(self._progress_line())

    def _look(self) -> None:
        if self._watcher.violation is not None:
            raise self._watcher.violation
        if self._watcher.error is not None:
            raise Trouble(f"the output cannot be watched: {self._watcher.error!r}")
        if self._brokers.failure is not None:
            raise Trouble(f"the brokers are gone: {self._brokers.failure!r}")
        writer = self._writer
        if writer is not None and writer.poll() not in (None, 0):
            raise Trouble(f"the writer has ended with {writer.returncode}: see {self.folder / 'writer.log'}")

    def _until(self, has_happened: Callable[[], bool], patience: float, what: str) -> None:
        """Raises Violation when there was neither that nor any output for `patience` seconds."""
        deadline, count = time.monotonic() + patience, self._watcher.count
        while not has_happened():
            if self._watcher.count != count:
                deadline, count = time.monotonic() + patience, self._watcher.count
            if time.monotonic() > deadline:
                tail = self._supervisor.starts[-1].tail() if self._supervisor.starts else ""
                raise Violation("not live", f"{what} did not come within {patience:g} s; the job said last:\n{tail}")
            self._turn()

    def _progress_line(self) -> str:
        gap, _ = self._watcher.longest_gap()
        return (
            f"{self.timeline.now:5.0f} s  {self._written} written, {self._watcher.count} right, "
            f"{sum(self.timeline.kills.values())} kills, {len(self._supervisor.starts)} starts, "
            f"{self._progress.attempts} attempts, {self._progress.checkpoints} checkpoints, longest gap {gap:.1f} s"
        )

    # ---- the writer ------------------------------------------------------------------------------------------------

    def _start_writer(self) -> None:
        words = ["--bootstrap", self._brokers.direct, "--topic", self._input, "--users", str(self.plan.users)]
        with (self.folder / "writer.log").open("wb") as log:
            self._writer = subprocess.Popen(
                [sys.executable, "-m", "tests.chaos.writer", *words, "--rate", str(self._options.rate)],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        threading.Thread(target=self._listen, args=(self._writer,), name="writer", daemon=True).start()

    def _listen(self, writer: "subprocess.Popen[str]") -> None:
        for line in writer.stdout or ():
            words = line.split()
            self._written = int(words[-1])
            if len(words) > 1:
                self._written_in_all = self._written

    # ---- the end ---------------------------------------------------------------------------------------------------

    def close(self, keep: bool) -> None:
        """End every process; without `keep` nothing stays."""
        self._watcher.end()
        self._supervisor.clear()
        if self._writer is not None:
            self._writer.kill()
            self._writer.wait()
        self._brokers.end()
        self._fill_report()
        if keep:
            with suppress(OSError, shutil.Error):
                shutil.copytree(self._disk.path, self.folder / "disk-then", ignore=shutil.ignore_patterns("ballast"))
        self._disk.close()
        shutil.rmtree(self._sockets, ignore_errors=True)
        self.timeline.close()
        if not keep:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _fill_report(self) -> None:
        report, codes = self.report, Counter[str]()
        for start in self._supervisor.starts:
            codes[str(start.started.process.returncode)] += 1
        report.kills, report.faults = dict(self.timeline.kills), dict(self.timeline.faults)
        report.starts, report.exit_codes = len(self._supervisor.starts), dict(codes)
        report.attempts, report.checkpoints = self._progress.attempts, self._progress.checkpoints
        report.records = self._watcher.count
        gap, at = self._watcher.longest_gap()
        report.longest_gap, report.longest_gap_at = round(gap, 1), round(self.timeline.seconds(at), 1)
