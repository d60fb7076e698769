"""`tidegate demo`: flights stream through the embedded log, processes are killed, and every record is checked.

The job runs as anybody's would: `tidegate run` in a process of its own, which starts its workers. The demo feeds the
input topic, reads the output topic as a consumer in `read_committed` does, and learns everything else from the job's
checkpoint log. It kills when what must come before has happened, never after some time, so that a slow machine sees the
same story.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import NamedTuple, Self

import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from tidegate.checkpoint.log import LogView, view_log
from tidegate.checkpoint.store import CheckpointStore
from tidegate.connectors.local.log import LocalLog
from tidegate.deploy.demo_answer import EXAMPLES, Change, Difference, compare, expected_changes, read_flights
from tidegate.errors import InternalError, InvalidError, UnavailableError
from tidegate.ids import Attempt, CheckpointId, JobName, OperatorName
from tidegate.storage.port import StorageUnavailable
from tidegate.storage.resolve import open_storage

JOB = JobName("flights")
SOURCE = OperatorName("flights")
INPUT, OUTPUT = "flights", "carriers"
PARTITIONS = 4
WORKERS = 2
SLICE = 100
"""Flights that arrive at once."""
TICK = 0.04
"""Seconds between two arrivals, and between two looks at the job."""
PATIENCE = 60.0
"""Seconds without anything new after which the demo gives up."""
STOP_PATIENCE = 40.0
_TIDEGATE = (sys.executable, "-c", "from tidegate.cli.main import main; main()")
_DIFFERENCES_SHOWN = 10

console = Console(highlight=False, soft_wrap=True)


def run_demo(keep: Path | None) -> None:
    """Run the demo in a temporary folder, or in `keep`, which must be empty or absent and is left as it is at the end.

    Raises InternalError when the output is not what it must be, UnavailableError when the job does not get on.
    """
    begin = time.monotonic()
    rows = read_flights()
    with _folder(keep) as folder, _ended_by_sigterm(), _Stage(folder, rows) as stage:
        console.print(f"{len(rows):,} flights of January 2013 stream through an embedded log in {folder}.")
        _play(stage)
        check_output(rows, stage.output.changes)
        stage.show_what_happened(time.monotonic() - begin)
        if keep is not None:
            console.print(f"All of it is kept. Look at it with: tidegate checkpoints list {folder / 'checkpoints'}")


def _play(stage: "_Stage") -> None:
    """The story: each kill lands while flights arrive, after a checkpoint completed and results became visible."""
    stage.start_job()
    stage.stream(share=1 / 3)
    stage.kill_worker()
    stage.stream(share=2 / 3)
    stage.kill_job_manager()
    stage.start_job()
    stage.stream(share=1)
    stage.stop_job()


def check_output(rows: Sequence[Mapping[str, str]], actual: Mapping[str, Sequence[Change]]) -> None:
    """Show the result if it is what it must be for `rows`, else raise InternalError that says where it differs."""
    differences = compare(expected_changes(rows), actual)
    if differences:
        raise InternalError(_wrong_result(differences), remedy="Run it with --keep DIR to have what it left behind.")
    console.print(_table(actual))
    console.print(
        f"{len(rows):,} flights in, {sum(map(len, actual.values())):,} changes out. [bold green]Right[/]: compared "
        "with the answer computed without the engine, nothing is lost, doubled or out of order."
    )


def _wrong_result(differences: Sequence[Difference]) -> str:
    shown = [f"  {difference}" for difference in differences[:_DIFFERENCES_SHOWN]]
    more = len(differences) - len(shown)
    lines = [f"the output differs from the answer computed without the engine in {len(differences)} places:", *shown]
    return "\n".join([*lines, f"  and {more} more"] if more else lines)


def _table(changes: Mapping[str, Sequence[Change]]) -> Table:
    table = Table("carrier", box=SIMPLE_HEAD)
    for title in ("flights", "cancelled", "mean delay", "worst delay"):
        table.add_column(title, justify="right")
    for last in sorted(
        (of_one[-1] for of_one in changes.values()), key=lambda change: (-change.flights, change.carrier)
    ):
        mean = "" if last.mean_delay is None else f"{last.mean_delay:.1f} min"
        worst = "" if last.worst_delay is None else f"{last.worst_delay} min"
        table.add_row(last.carrier, f"{last.flights:,}", str(last.cancelled), mean, worst)
    return table


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="tidegate-demo-") as name:
            yield Path(name)
        return
    folder = keep.absolute()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InvalidError(f"--keep {keep} is not an empty folder", remedy="Remove it, or name another one.")
    folder.mkdir(parents=True, exist_ok=True)
    yield folder


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """SIGTERM ends the demo as Ctrl-C does: with everything that it started."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


# ---- what the demo sees --------------------------------------------------------------------------------------------


class _Sight(NamedTuple):
    """The job at one moment, as its checkpoint log tells it."""

    attempt: Attempt
    """The newest that has taken over; 0 before the first."""
    workers: tuple[int, ...]
    """Their process ids."""
    checkpoint: CheckpointId
    """The newest completed one; 0 for none."""
    checkpoint_attempt: Attempt
    flights: int
    """How many flights that checkpoint holds."""


class _Observer:
    """Reads the checkpoint log, and remembers which checkpoints it saw."""

    def __init__(self, checkpoints: Path) -> None:
        self._store = CheckpointStore(open_storage(str(checkpoints)), JOB)
        self._sight = _sight_of(view_log(()))
        self._seen: dict[CheckpointId, None] = {}

    @property
    def checkpoints(self) -> int:
        """How many completed."""
        return len(self._seen)

    def look(self) -> _Sight:
        # The job prunes its log while it is read; then the next look sees more.
        with suppress(StorageUnavailable):
            view = view_log(self._store.read_log())
            self._seen |= {manifest.checkpoint: None for manifest in view.manifests}
            self._sight = _sight_of(view)
        return self._sight


def _sight_of(view: LogView) -> _Sight:
    workers = tuple(worker.pid for worker in view.takeover.workers) if view.takeover else ()
    newest = view.newest
    if newest is None:
        return _Sight(view.attempt, workers, CheckpointId(0), Attempt(0), 0)
    source = newest.operator(SOURCE)
    flights = sum(split.position for split in source.splits) if source else 0
    return _Sight(view.attempt, workers, newest.checkpoint, newest.attempt, flights)


class _Output:
    """A consumer of the output topic in `read_committed`: what it has been given, it has been given for good."""

    def __init__(self, log: LocalLog) -> None:
        self._log = log
        self._decode = msgspec.json.Decoder(Change).decode
        self._positions = [0] * PARTITIONS
        self.changes: dict[str, list[Change]] = {}
        self.count = 0

    def read(self) -> None:
        """Take all that has become visible."""
        for partition, position in enumerate(self._positions):
            for record in self._log.read(OUTPUT, partition, position):
                change = self._decode(record.value or b"")
                self.changes.setdefault(change.carrier, []).append(change)
                self.count += 1
                self._positions[partition] = record.offset + 1


# ---- what the demo does --------------------------------------------------------------------------------------------


class _Stage:
    """The folder, the log, and the job's process, if there is one. Leaving it ends the process."""

    def __init__(self, folder: Path, rows: Sequence[Mapping[str, str]]) -> None:
        self._folder = folder
        self._rows = rows
        shutil.copy(EXAMPLES / "flights.py", folder)
        self._log = LocalLog(folder / "log")
        self._log.create_topic(INPUT, PARTITIONS)
        self._log.create_topic(OUTPUT, PARTITIONS)
        self.output = _Output(self._log)
        self._observer = _Observer(folder / "checkpoints")
        self._process: subprocess.Popen[bytes] | None = None
        self._fed = 0
        self._starts = 0
        self._read_again = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_PATIENCE)
            self._process.kill()
            self._process.wait()
        self._log.close()

    @property
    def _command(self) -> list[str]:
        """The same each time: what a supervisor would repeat."""
        options = ["--checkpoint-interval", "300ms", "--restart", "fixed-delay:10:100ms"]
        folders = ["--checkpoint-dir", str(self._folder / "checkpoints")]
        return ["run", "flights.py", "--parallelism", str(WORKERS), *options, *folders, "--", "--log", "log"]

    def start_job(self) -> None:
        with (self._folder / "job.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*_TIDEGATE, *self._command], cwd=self._folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self._starts += 1
        console.print(f"$ tidegate {' '.join(self._command)}" if self._starts == 1 else "$ the same command again")

    def stream(self, share: float) -> None:
        """Let flights arrive until this share of them has, and until the job, in its present attempt, has completed a
        checkpoint and made something of it visible; for the last of them, until all is visible."""
        goal = round(share * len(self._rows))
        visible = self.output.count
        attempt = self._observer.look().attempt

        def is_there() -> bool:
            sight = self._observer.look()
            if goal == len(self._rows):
                return self.output.count >= goal
            has_completed = sight.checkpoint_attempt == sight.attempt >= max(attempt, 1)
            return self._fed >= goal and has_completed and self.output.count > visible

        self._until(is_there, f"results of {goal:,} flights", goal)

    def kill_worker(self) -> None:
        self._arrive(len(self._rows))
        sight = self._observer.look()
        number = WORKERS - 1
        console.print(
            f"SIGKILL for worker {number} (process {sight.workers[number]}): {self._fed:,} flights have arrived, "
            f"{self.output.count:,} changes are visible."
        )
        os.kill(sight.workers[number], signal.SIGKILL)
        self._until(lambda: self._observer.look().attempt > sight.attempt, "a restart of the job", self._fed)
        self._tell_restored(self._fed)

    def kill_job_manager(self) -> None:
        process = self._running()
        self._arrive(len(self._rows))
        console.print(
            f"SIGKILL for the JobManager (process {process.pid}), and its workers die with it: {self._fed:,} flights "
            f"have arrived, {self.output.count:,} changes are visible."
        )
        process.kill()
        process.wait()
        self._process = None
        self._tell_restored(self._fed)

    def _tell_restored(self, arrived: int) -> None:
        """What the job goes on from; a checkpoint that completed just before the kill counts."""
        sight = self._observer.look()
        again = max(arrived - sight.flights, 0)
        self._read_again += again
        console.print(
            f"  It goes on from checkpoint {sight.checkpoint}, which holds {sight.flights:,} flights; "
            f"up to {again:,} after them are read again."
        )

    def stop_job(self) -> None:
        """End it as Ctrl-C does, and look once more: what should not be there could have come last."""
        process = self._running()
        process.terminate()
        try:
            code = process.wait(STOP_PATIENCE)
        except subprocess.TimeoutExpired:
            raise UnavailableError(self._with_log(f"the job did not stop within {STOP_PATIENCE:g} s")) from None
        self._process = None
        if code != 0:
            raise InternalError(self._with_log(f"the job was asked to stop and ended with exit code {code}"))
        self.output.read()
        self._observer.look()

    def show_what_happened(self, seconds: float) -> None:
        attempts = self._observer.look().attempt
        console.print(
            f"{self._observer.checkpoints} checkpoints completed, {attempts} attempts, {attempts - 1} restarts, "
            f"at most {self._read_again:,} flights read again, {seconds:.0f} s."
        )

    def _until(self, has_happened: Callable[[], bool], what: str, goal: int) -> None:
        """Let flights arrive, up to `goal` of them, until it has happened."""
        before, changed_at = (-1, -1), time.monotonic()
        while True:
            self._arrive(goal)
            self.output.read()
            if has_happened():
                return
            now, state = time.monotonic(), (self._fed, self.output.count)
            if state != before:
                before, changed_at = state, now
            if now - changed_at > PATIENCE:
                text = f"nothing new for {PATIENCE:g} s while waiting for {what}; {self.output.count:,} are visible"
                raise UnavailableError(self._with_log(text))
            self._running()
            time.sleep(TICK)

    def _arrive(self, goal: int) -> None:
        """The next flights come in."""
        rows = self._rows[self._fed : min(self._fed + SLICE, goal)]
        if rows:
            keys = [row["carrier"].encode() for row in rows]
            self._log.append(INPUT, None, [msgspec.json.encode(_as_flight(row)) for row in rows], keys)
            self._fed += len(rows)

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            code = None if self._process is None else self._process.returncode
            raise UnavailableError(self._with_log(f"the job ended by itself, with exit code {code}"))
        return self._process

    def _with_log(self, message: str) -> str:
        path = self._folder / "job.log"
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []
        return "\n".join([message, "The last lines that it wrote:", *(f"  {line}" for line in lines[-15:])])


def _as_flight(row: Mapping[str, str]) -> dict[str, object]:
    delay = row["dep_delay"]
    return {"carrier": row["carrier"], "flight": int(row["flight"]), "dep_delay": None if delay == "NA" else int(delay)}
