"""One job that is run several times on one log, each time in another version, and stopped or killed between the runs.

In this process a run costs a fraction of a second, and everything but the death of processes is as it is in them.
"""

import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

import tidegate as tg
from tests.integration.programs import TIDEGATE, log_of
from tests.integration.user_programs import Running
from tidegate.checkpoint.manifest import Manifest
from tidegate.config import StartOptions, read_layers
from tidegate.deploy.launch import run_job
from tidegate.local import LocalLog
from tidegate.metrics import JobStatus, Level

BACKENDS = ["fs", "rocksdb"]
INPUT, OUTPUT = "orders", "seen"
OUTPUT_PARTITIONS = 2

Record = TypeVar("Record")


class SteppedJob:
    """Its input is one partition, so that its order is known."""

    def __init__(self, folder: Path, name: str, backend: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.name = name
        self.backend = backend
        self.log = folder / "log"
        self.checkpoints = folder / "checkpoints"
        self.local = folder / "local"
        self.count = 0
        """Of the records that were fed."""
        with LocalLog(self.log) as log:
            log.create_topic(INPUT, 1)
            log.create_topic(OUTPUT, OUTPUT_PARTITIONS)

    def append(self, records: Sequence[object], timestamps: Sequence[int] | None = None) -> None:
        self.count += len(records)
        with LocalLog(self.log) as log:
            log.append(INPUT, 0, list(map(msgspec.json.encode, records)), timestamps=timestamps)

    # -- running --

    def run(
        self,
        job: tg.Job,
        parallelism: int,
        *,
        allow: bool = False,
        is_over: Callable[[], bool] | None = None,
        **beginning: Any,
    ) -> None:
        """In this process. `is_over` is asked after each checkpoint whether the job is to be stopped; without it, that
        is when a checkpoint covers all input. `beginning`: of `StartOptions`. Raises as the job ends."""
        layers = read_layers(self.folder, self.folder, {}, self.settings(parallelism))
        options = StartOptions(allow_non_restored_state=allow, **beginning)
        stopper = Stopper(is_over or self.is_covered)
        run_job(job, layers, options, lambda _: stopper)

    def start(self, program: str, parallelism: int, arguments: Sequence[str], *more: str) -> Running:
        """As processes."""
        return Running(self.command(program, parallelism, arguments, *more), self.folder, os.environ)

    def command(self, program: str, parallelism: int, arguments: Sequence[str], *more: str) -> list[str]:
        given = [word for name, value, _ in self.settings(parallelism) for word in ("--set", f"{name}={value}")]
        return [*TIDEGATE, "run", program, *given, *more, "--", *arguments]

    def settings(self, parallelism: int) -> list[tuple[str, str, str]]:
        """Name, value, and where it was given."""
        given = {
            "checkpoints.dir": str(self.checkpoints),
            "checkpoints.interval": "20ms",
            "parallelism": str(parallelism),
            "restart": "none",
            "state.backend": self.backend,
            "state.local_dir": str(self.local),
        }
        return [(name, value, "test") for name, value in given.items()]

    # -- looking --

    @property
    def newest(self) -> Manifest | None:
        return log_of(self.checkpoints, self.name).newest if self.checkpoints.exists() else None

    @property
    def covered(self) -> int:
        """How many records the newest completed checkpoint covers."""
        newest = self.newest
        return sum(split.position for record in (newest.operators if newest else ()) for split in record.splits)

    def is_covered(self) -> bool:
        return self.covered == self.count

    def output(self, type: type[Record]) -> list[Record]:
        with LocalLog(self.log, create=False) as log:
            values = [record.value for partition in range(OUTPUT_PARTITIONS) for record in log.read(OUTPUT, partition)]
        return [msgspec.json.decode(value or b"", type=type) for value in values]

    def stored_files(self) -> dict[str, bytes]:
        """All that there is of checkpoints and their log."""
        return {str(path): path.read_bytes() for path in self.checkpoints.rglob("*") if path.is_file()}


class Stopper:
    """A reporter that asks for the end of the job in this process, as Ctrl-C does, behind the first checkpoint after
    which `is_over`."""

    def __init__(self, is_over: Callable[[], bool]) -> None:
        self._is_over = is_over
        self._has_asked = False

    def update(self, status: JobStatus) -> None:
        """Nobody looks."""

    def event(self, level: Level, text: str, **fields: object) -> None:
        if " completed in " in text and not self._has_asked and self._is_over():
            self._has_asked = True
            os.kill(os.getpid(), signal.SIGINT)

    def close(self) -> None:
        """Nothing is kept."""


def kill_all(running: Running) -> None:
    """Every process of a start, at once."""
    os.killpg(running.process.pid, signal.SIGKILL)
    running.process.wait()
