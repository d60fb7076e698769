"""A bench on which a job is started, stopped and killed, and everything that must hold afterwards is looked at.

Only processes that the bench itself started are ever signalled: each start leads a process group of its own.
"""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from tests.integration import totals_program
from tests.integration.exactly_once import Answer, Written, assert_exactly_once
from tests.integration.mediums import Medium
from tests.integration.programs import TIDEGATE, log_of, wait_until
from tests.integration.totals_program import Order, Total
from tidegate.checkpoint.log import Completed, Entry, LogView, Takeover
from tidegate.checkpoint.manifest import Manifest, files_of
from tidegate.checkpoint.protocol import SplitState
from tidegate.checkpoint.store import CheckpointStore
from tidegate.ids import JobName, OperatorName
from tidegate.savepoints.rows import read_operator
from tidegate.state.key_types import decode_keys, parse_layout
from tidegate.storage.resolve import open_storage

PARTITIONS = 4
OUTPUT_PARTITIONS = 2
STARTS_MAX = 10
KILLED = -signal.SIGKILL


def orders(first: int, count: int, users: int) -> list[Order]:
    return [Order(f"u{number % users}", number) for number in range(first, first + count)]


def partition_of(order: Order) -> int:
    """All of one user in one: their order is defined."""
    return int(order.user[1:]) % PARTITIONS


def by_partition(found: Iterable[Order]) -> list[list[bytes]]:
    """As they are appended to a topic of `PARTITIONS`."""
    encoded: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
    for order in found:
        encoded[partition_of(order)].append(msgspec.json.encode(order))
    return encoded


class Started:
    """One start of the command. `mark` is where its fail points leave their files."""

    def __init__(self, process: "subprocess.Popen[bytes]", said: Path, mark: Path) -> None:
        self.process = process
        self.pid = process.pid
        self._said = said
        self._mark = mark

    @property
    def said(self) -> str:
        return self._said.read_text()

    def living(self) -> dict[int, str]:
        """The state of each process of the group by pid, as in /proc; zombies live no more."""
        self.process.poll()
        found: dict[int, str] = {}
        for folder in Path("/proc").iterdir():
            if folder.name.isdecimal():
                with suppress(OSError):
                    state, _, group = (folder / "stat").read_text().rpartition(")")[2].split()[:3]
                    if int(group) == self.pid and state not in "ZX":
                        found[int(folder.name)] = state
        return found

    def wait_until(self, has_happened: Callable[[], bool], what: str) -> None:
        """As long as the command has not ended."""
        wait_until(lambda: has_happened() or self.process.poll() is not None, what)
        assert has_happened(), f"the job ended with {self.process.returncode} before {what}:\n{self.said}"

    def wait_for_fail_point(self, index: int = 0) -> None:
        self.wait_until(Path(f"{self._mark}.{index}").exists, f"fail point {index}")

    def wait_until_stopped(self, count: int = 1) -> list[int]:
        """The pids of the processes that are stopped, as soon as there are `count`."""

        def stopped() -> list[int]:
            return [pid for pid, state in self.living().items() if state == "T"]

        wait_until(lambda: len(stopped()) >= count, f"the stop of {count} processes")
        return stopped()

    def kill(self, pid: int) -> None:
        assert pid in self.living(), f"process {pid} is not of this start, or does not live any more:\n{self.said}"
        os.kill(pid, signal.SIGKILL)

    def send_to_all(self, number: signal.Signals) -> None:
        """To the JobManager and its workers at the same moment."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def wait(self) -> int:
        wait_until(lambda: self.process.poll() is not None, f"the end of start {self.pid}")
        return self.process.returncode


class Bench:
    """A medium, a folder of checkpoints and a folder for sockets, and the starts made with them.

    Where a method takes a job, it is the totals job by default, which is called `job`.
    """

    def __init__(self, folder: Path, medium: Medium) -> None:
        self.medium = medium
        self.checkpoints = folder / "checkpoints"
        self.job = medium.name("totals")
        self.topic = medium.name("orders")
        self.hurry = folder / "hurry"
        """For `--hurry` of the totals job."""
        self._folder = folder
        # Addresses of sockets must be short, so it cannot lie in the test's folder.
        self._sockets = Path(tempfile.mkdtemp(prefix="tidegate-test-"))
        self._starts: list[Started] = []
        self._marks: dict[tuple[str, str], Path] = {}
        medium.create_topic(self.topic, PARTITIONS)

    def clear(self) -> None:
        """Leave no process and no socket behind, also when the test has failed."""
        for started in self._starts:
            started.send_to_all(signal.SIGKILL)
            started.process.wait()
        shutil.rmtree(self._sockets)
        self.medium.clear()

    def append(self, found: Iterable[Order]) -> None:
        self.medium.append(self.topic, by_partition(found))

    # -- starting --

    def start(
        self, *program_arguments: str, job: str = "", fail_point: str = "", options: Sequence[str] = ()
    ) -> Started:
        """Start the totals job. The same fail points act once, however often the job is started with them."""
        job = job or self.job
        self.medium.create_topic(_output_of(job), OUTPUT_PARTITIONS)
        topics = ["--orders", self.topic, "--out", _output_of(job)]
        arguments = [*self.medium.arguments, *topics, "--job", job, *program_arguments]
        return self.start_program(totals_program.__file__, arguments, job, fail_point, options)

    def start_program(
        self, program: str, arguments: Sequence[str], job: str, fail_point: str = "", options: Sequence[str] = ()
    ) -> Started:
        own = ["--checkpoint-dir", str(self.checkpoints), "-p", "2", "--checkpoint-interval", "100ms"]
        own += ["--restart", "fixed-delay:10:20ms", *options]
        mark = self._marks.setdefault((job, fail_point), self._folder / f"mark-{len(self._marks)}")
        environment = {"XDG_RUNTIME_DIR": str(self._sockets), "TIDEGATE_FAIL_POINT": fail_point}
        environment["XDG_CACHE_HOME"] = str(self._folder / "cache")
        environment["TIDEGATE_FAIL_POINT_MARK"] = str(mark)
        said = self._folder / f"said-{len(self._starts)}"
        with said.open("wb") as file:
            process = subprocess.Popen(
                [*TIDEGATE, "run", program, *own, "--", *arguments],
                cwd=self._folder,
                env=os.environ | environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        self._starts.append(Started(process, said, mark))
        return self._starts[-1]

    def command(self, *words: str, timeout: float = 60) -> "subprocess.CompletedProcess[str]":
        """Run another command of the command line to its end, in the surroundings of the starts."""
        if words[0] in ("savepoint", "stop") and (Path(self.checkpoints) / words[1]).exists():
            # By its place: jobs of that name may run in other tests on this machine.
            words = (*words, "--checkpoint-dir", str(self.checkpoints))
        return subprocess.run(
            [*TIDEGATE, *words],
            cwd=self._folder,
            env=os.environ | {"XDG_RUNTIME_DIR": str(self._sockets)},
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
        )

    def repeat_until_finished(
        self, started: Started, *program_arguments: str, job: str = "", options: Sequence[str] = ()
    ) -> None:
        """Start the same command again as long as it is killed, as a supervisor does."""
        for _ in range(STARTS_MAX):
            code = started.wait()
            if code == 0:
                return
            assert code == KILLED, f"ended with {code}:\n{started.said}"
            started = self.start(*program_arguments, job=job, options=options)
        raise AssertionError(f"not finished after {STARTS_MAX} starts:\n{started.said}")

    @property
    def said(self) -> str:
        """What every start has said, one after another."""
        return "\n".join(started.said for started in self._starts)

    # -- looking --

    def view(self, job: str = "") -> LogView:
        return log_of(self.checkpoints, job or self.job)

    def takeover(self, job: str = "") -> Takeover:
        found = self.view(job).takeover
        assert found is not None, "nobody has taken over yet"
        return found

    def read_up_to(self, job: str = "") -> int:
        """How many orders the newest completed checkpoint covers."""
        return sum(split.position for split in _splits(self.view(job).newest))

    def output(self, job: str = "") -> list[Written]:
        return [
            Written(number, msgspec.json.decode(value, type=Total))
            for number, values in enumerate(self.medium.read(_output_of(job or self.job)))
            for value in values
        ]

    def has_orders(self) -> bool:
        return any(self.medium.read(self.topic))

    def open_transactions(self, job: str = "") -> list[str]:
        """Those of the job: of its name as prefix."""
        return [id for id in self.medium.open_transactions() if id.partition(":")[0] == (job or self.job)]

    def pending(self, job: str = "") -> set[str]:
        """The ids of the transactions that the newest completed checkpoint names."""
        newest = self.view(job).newest
        found = [one for record in (newest.operators if newest else ()) for one in record.pending]
        return {one.committable.id for one in found}

    def held(self, job: str = "") -> dict[str, tuple[int, int, list[tuple[int, int]]]]:
        """The state in the newest completed checkpoint, by user."""
        manifest = self.view(job).newest
        assert manifest is not None
        store = CheckpointStore(open_storage(str(self.checkpoints)), JobName(job or self.job))
        record = manifest.operator(OperatorName("totals"))
        assert record is not None
        states: dict[str, dict[str, Any]] = {"orders": {}, "total": {}, "marks": {}}
        for row in read_operator(record, store, range(manifest.max_parallelism), self._folder / "scratch"):
            (user,) = decode_keys([row.key], parse_layout("str"))
            assert user not in states[row.state], f"{row.state} of {user} is in two pieces of state"
            states[row.state][user] = msgspec.msgpack.decode(row.value)
        assert states["orders"].keys() == states["total"].keys() == states["marks"].keys()
        return {
            user: (count, states["total"][user], [(mark["number"], mark["age"]) for mark in states["marks"][user]])
            for user, count in states["orders"].items()
        }

    # -- judging --

    def assert_right(self, answer: Answer, job: str = "") -> None:
        """After the end of the job: output, state, transactions, files, processes and sockets are as they must be."""
        assert_exactly_once(answer.totals, self.output(job))
        assert self.held(job) == dict(answer.held)
        assert self.open_transactions(job) == []
        self.assert_nothing_is_left(job)
        self.medium.assert_readers_are_free(_output_of(job or self.job))

    def assert_nothing_is_left(self, job: str = "") -> None:
        """No file that no entry of the log names, no process, no folder of sockets."""
        view = self.view(job)
        bodies = [entry.body for entry in view.entries if isinstance(entry, Entry)]
        manifests = [body.manifest for body in bodies if isinstance(body, Completed)]
        store = CheckpointStore(open_storage(str(self.checkpoints)), JobName(job or self.job))
        stored, named = set(store.state_files()), files_of(manifests)
        assert stored == named, f"left over: {sorted(stored - named)}; missing: {sorted(named - stored)}\n{self.said}"
        for started in self._starts:
            assert started.living() == {}, f"processes of start {started.pid} still live"
        assert list(self._sockets.iterdir()) == []


def _output_of(job: str) -> str:
    return f"{job}-out"


def _splits(manifest: Manifest | None) -> tuple[SplitState, ...]:
    record = manifest.operator(OperatorName("orders")) if manifest else None
    return record.splits if record else ()
