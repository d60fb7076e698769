"""A job that can be killed, and the check that nothing was lost, doubled or put out of order by it.

Numbered records of several keys go from topic `in` through keyed state to topic `out` of an embedded log. Each record
comes out once, in the order of its key, with the count that the key's state has reached: so wrong state shows as well.
"""

import os
import signal
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Self

import msgspec

from tests.integration.programs import TIDEGATE, log_of, wait_until
from tidegate.checkpoint.log import LogView
from tidegate.local import LocalLog

JOB = "counting"
PARTITIONS = 4
PROGRAM = """
import sys
import time
from argparse import ArgumentParser
from pathlib import Path

import msgspec

import tidegate as tg
from tidegate.local import LocalSink, LocalSource


class In(msgspec.Struct):
    key: str
    number: int


class Out(msgspec.Struct):
    key: str
    number: int
    count: int


class Count(tg.KeyedProcessFunction[str, In, Out]):
    count = tg.ValueState(int, default=0)

    def __init__(self, fail_at, exit_at):
        self.fail_at, self.exit_at = fail_at, exit_at

    def process_element(self, value, ctx):
        if value.number == self.fail_at:
            raise ValueError(f"no such number: {value.number}")
        if value.number == self.exit_at:
            sys.exit(0)
        self.count.update(self.count.value() + 1)
        yield Out(ctx.key, value.number, self.count.value())


def build(argv):
    parser = ArgumentParser()
    parser.add_argument("--unbounded", action="store_true")
    parser.add_argument("--pause", type=float, default=0.0)
    parser.add_argument("--fail-at", type=int, default=-1)
    parser.add_argument("--exit-at", type=int, default=-1)
    options = parser.parse_args(argv)

    def take_time(record):
        # Beside the source: behind an exchange, barriers would wait until all that was read before is done.
        time.sleep(options.pause)
        return record

    log = Path(__file__).parent / "log"
    job = tg.Job("counting")
    source = LocalSource(log, "in", value=tg.Json(In), bounded=not options.unbounded)
    counted = (
        job.source(source, name="in")
        .map(take_time, name="pace")
        .key_by(lambda record: record.key, key_type=str)
        .process(Count(options.fail_at, options.exit_at), name="count")
    )
    counted.sink(LocalSink(log, "out", key=lambda record: record.key, value=tg.Json(Out), partitions=4), name="out")
    return job


if __name__ == "__main__":
    tg.main(build)
"""


class In(msgspec.Struct, frozen=True):
    key: str
    number: int


class Out(msgspec.Struct, frozen=True):
    key: str
    number: int
    count: int


# ---- the check -----------------------------------------------------------------------------------------------------


class Difference(NamedTuple):
    """Where the output of one key first is not what it must be; None where there is no record."""

    key: str
    index: int
    wanted: Out | None
    found: Out | None


def differences(records: Iterable[In], output: Iterable[Out]) -> list[Difference]:
    """Empty when each record came out once, in the order of its key and with the right count."""
    wanted: dict[str, list[Out]] = {}
    for record in records:
        of_key = wanted.setdefault(record.key, [])
        of_key.append(Out(record.key, record.number, len(of_key) + 1))
    found: dict[str, list[Out]] = {}
    for out in output:
        found.setdefault(out.key, []).append(out)
    return [
        difference
        for key in sorted({*wanted, *found})
        if (difference := _first_difference(key, wanted.get(key, []), found.get(key, []))) is not None
    ]


def _first_difference(key: str, wanted: Sequence[Out], found: Sequence[Out]) -> Difference | None:
    for index in range(max(len(wanted), len(found))):
        one = wanted[index] if index < len(wanted) else None
        other = found[index] if index < len(found) else None
        if one != other:
            return Difference(key, index, one, other)
    return None


def assert_exactly_once(records: Sequence[In], output: Sequence[Out]) -> None:
    found = differences(records, output)
    assert not found, f"{len(records)} records in, {len(output)} out; {len(found)} keys differ: {found[:5]}"


# ---- the job -------------------------------------------------------------------------------------------------------


class CountingJob:
    """The program, its topics and its checkpoints in one folder; runs as a user would run it."""

    def __init__(self, folder: Path, count: int = 2000, keys: int = 23) -> None:
        self.folder = folder
        self.program = folder / "counting_job.py"
        self.program.write_text(PROGRAM)
        self.records: list[In] = []
        with self._log() as log:
            log.create_topic("in", PARTITIONS)
            log.create_topic("out", PARTITIONS)
        self.feed(count, keys)

    def feed(self, count: int, keys: int = 23) -> None:
        """So many more records, numbered on."""
        begin = len(self.records)
        new = [In(f"key-{number % keys}", number) for number in range(begin, begin + count)]
        self.records += new
        with self._log() as log:
            log.append("in", None, [*map(msgspec.json.encode, new)], [record.key.encode() for record in new])

    def run(
        self, *options: str, program: Sequence[str] = (), environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """`tidegate run` to its end; any exit code will do."""
        return subprocess.run(
            self.command(options, program),
            cwd=self.folder,
            env=os.environ | (environment or {}),
            capture_output=True,
            text=True,
            check=False,
            timeout=90,
        )

    def start(
        self, *options: str, program: Sequence[str] = (), environment: Mapping[str, str] | None = None
    ) -> "RunningJob":
        return RunningJob(self, self.command(options, program), environment or {})

    def command(self, options: Sequence[str], program: Sequence[str]) -> list[str]:
        usual = ["--checkpoint-dir", "checkpoints", "--checkpoint-interval", "100ms"]
        usual += ["--set", f"state.local_dir={self.local}"]
        return [
            *TIDEGATE,
            "run",
            self.program.name,
            *usual,
            "--restart",
            "fixed-delay:5:50ms",
            *options,
            "--",
            *program,
        ]

    @property
    def local(self) -> Path:
        """What workers keep on their machine."""
        return self.folder / "local"

    @property
    def view(self) -> LogView:
        return log_of(self.folder / "checkpoints", JOB)

    @property
    def output(self) -> list[Out]:
        """What is committed."""
        with self._log() as log:
            partitions = [log.read("out", partition) for partition in range(log.partitions("out"))]
        return [msgspec.json.decode(record.value or b"", type=Out) for of_one in partitions for record in of_one]

    def assert_exactly_once(self) -> None:
        assert_exactly_once(self.records, self.output)

    def _log(self) -> LocalLog:
        return LocalLog(self.folder / "log")


class RunningJob:
    """A `tidegate run` that goes on; leaving it kills what is left of it."""

    def __init__(self, job: CountingJob, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._job = job
        self.errors = job.folder / "stderr.txt"
        with self.errors.open("ab") as errors:
            self.process = subprocess.Popen(
                command, cwd=job.folder, env=os.environ | environment, stdout=errors, stderr=errors
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    def wait_for_checkpoint(self, more: int = 1) -> None:
        """Until so many more checkpoints are completed, in an attempt of this process."""
        before = self._job.view.newest
        newest = before.checkpoint if before is not None else 0

        def has_completed() -> bool:
            view = self._job.view
            is_own = view.takeover is not None and view.takeover.job_manager.pid == self.process.pid
            return is_own and view.newest is not None and view.newest.checkpoint >= newest + more

        wait_until(lambda: self.process.poll() is not None or has_completed(), "a checkpoint")
        assert self.process.poll() is None, self.errors.read_text()

    @property
    def workers(self) -> list[int]:
        """Process ids."""
        takeover = self._job.view.takeover
        assert takeover is not None
        return [worker.pid for worker in takeover.workers]

    def interrupt(self) -> None:
        """As Ctrl-C does it: to the whole foreground, workers too."""
        for pid in (self.process.pid, *self.workers):
            os.kill(pid, signal.SIGINT)

    def wait_for_text(self, text: str) -> None:
        wait_until(lambda: text in self.errors.read_text(), f"{text!r} on the screen")

    def wait(self) -> int:
        return self.process.wait(60)
