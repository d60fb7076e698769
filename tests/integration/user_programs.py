"""A user's project: a folder with a program that keeps totals, a topic of orders, and the commands typed there.

Programs are text with changes, as a user edits a file: a change whose place is not in the program is an error here, so
that no test can pass by changing nothing. What goes on is started in a session of its own, and only that is signalled.
"""

import os
import re
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from tests.integration.programs import TIDEGATE, is_alive, log_of, wait_until
from tidegate.checkpoint.log import LogView
from tidegate.local import LocalLog

JOB = "totals"
USERS = 7
PARTITIONS = 4
PROGRAM = """\
from pathlib import Path

import msgspec

import tidegate as tg
from tidegate.local import LocalSink, LocalSource

LOG = Path(__file__).parent / "log"


class Order(msgspec.Struct, frozen=True):
    user: str
    amount: int


class Total(msgspec.Struct, frozen=True):
    user: str
    total: int


class RunningTotal(tg.KeyedProcessFunction[str, Order, Total]):
    total = tg.ValueState(int, default=0)

    def process_element(self, value, ctx):
        self.total.update(self.total.value() + value.amount)
        yield Total(ctx.key, self.total.value())


job = tg.Job("totals")
orders = job.source(LocalSource(LOG, "orders", value=tg.Json(Order), bounded=True), name="orders")
totals = orders.key_by(lambda order: order.user).process(RunningTotal(), name="totals")
totals.sink(LocalSink(LOG, "totals", key=lambda total: total.user, value=tg.Json(Total), partitions=2), name="out")

if __name__ == "__main__":
    job.run()
"""
UNBOUNDED = (", bounded=True", "")
Change = tuple[str, str]
TRACEBACK = "Traceback (most recent call last)"


def changed(*changes: Change, program: str = PROGRAM) -> str:
    """`program` with each (old, new) carried out."""
    for old, new in changes:
        assert old in program, f"nothing to change: {old}"
        program = program.replace(old, new)
    return program


class Project:
    """The folder. `environment` goes to every process."""

    def __init__(self, folder: Path, environment: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.environment = dict(environment or {})
        self.amounts: list[int] = []
        folder.mkdir(exist_ok=True)

    def write(self, *changes: Change, name: str = "app.py", program: str = PROGRAM) -> Path:
        """Write the program, with changes, as `name`."""
        path = self.folder / name
        path.write_text(changed(*changes, program=program))
        return path

    def feed(self, count: int) -> None:
        """So many more orders; those of one user lie in one partition, in order."""
        first = len(self.amounts)
        self.amounts += range(first, first + count)
        self.append([{"user": user_of(amount), "amount": amount} for amount in range(first, first + count)])

    def append(self, orders: Sequence[object]) -> None:
        values = [order if isinstance(order, bytes) else msgspec.json.encode(order) for order in orders]
        keys = [str(order["user"]).encode() if isinstance(order, dict) else b"poison" for order in orders]
        with LocalLog(self.folder / "log") as log:
            log.create_topic("orders", PARTITIONS)
            log.append("orders", None, values, keys)

    # -- running --

    def run(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """`tidegate WORDS` to its end."""
        return self.execute([*TIDEGATE, *words], **variables)

    def execute(
        self, command: Sequence[str], folder: Path | None = None, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=folder or self.folder,
            env=os.environ | self.environment | variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def python(self, *words: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
        """`python WORDS` to its end."""
        return self.execute([sys.executable, *words], folder)

    def start(self, *words: str) -> "Running":
        """`tidegate run WORDS`, going on."""
        return Running([*TIDEGATE, "run", *words], self.folder, os.environ | self.environment)

    # -- looking --

    @property
    def checkpoints(self) -> Path:
        """Where they are when nobody says where."""
        home = self.environment.get("XDG_STATE_HOME") or os.environ["XDG_STATE_HOME"]
        return Path(home) / "tidegate"

    def view(self, job: str = JOB) -> LogView:
        return log_of(self.checkpoints, job)

    def read_up_to(self, job: str = JOB) -> int:
        """How many orders the newest completed checkpoint covers; -1 before the first."""
        newest = self.view(job).newest if self.checkpoints.exists() else None
        if newest is None:
            return -1
        return sum(split.position for record in newest.operators for split in record.splits)

    def output(self, topic: str = "totals") -> dict[str, list[int]]:
        """What is committed: the totals of each user, in order."""
        found: dict[str, list[int]] = defaultdict(list)
        with LocalLog(self.folder / "log", create=False) as log:
            for partition in range(log.partitions(topic)) if topic in log.topics() else ():
                for record in log.read(topic, partition):
                    total = msgspec.json.decode(record.value or b"")
                    found[total["user"]].append(total["total"])
        return dict(found)

    def raw(self, topic: str) -> list[bytes]:
        """The committed values of all partitions."""
        with LocalLog(self.folder / "log", create=False) as log:
            numbers = range(log.partitions(topic))
            return [record.value or b"" for number in numbers for record in log.read(topic, number)]

    def expected(self) -> dict[str, list[int]]:
        return totals_of(self.amounts)

    def open_transactions(self) -> list[str]:
        with LocalLog(self.folder / "log", create=False) as log:
            return [one.id for one in log.list_transactions(ongoing_only=True)]

    def wait_until_read(self, running: "Running", count: int | None = None) -> None:
        """Until a completed checkpoint covers `count` orders, by default all."""
        wanted = len(self.amounts) if count is None else count
        running.wait_for(lambda: self.read_up_to() >= wanted, f"a checkpoint of {wanted} orders")


def user_of(amount: int) -> str:
    return f"u{amount % USERS}"


def totals_of(amounts: Sequence[int]) -> dict[str, list[int]]:
    """The answer, in plain Python."""
    answer: dict[str, list[int]] = defaultdict(list)
    for amount in amounts:
        of_user = answer[user_of(amount)]
        of_user.append((of_user[-1] if of_user else 0) + amount)
    return dict(answer)


class Running:
    """A command that goes on; leaving it kills what is left of it. What it says on both streams is in `said`."""

    def __init__(self, command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> None:
        self._said = folder / f"said-{len(list(folder.glob('said-*')))}"
        with self._said.open("wb") as file:
            self.process = subprocess.Popen(
                command,
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )

    @property
    def said(self) -> str:
        return self._said.read_text()

    def wait_for(self, has_happened, what: str, patience: float = 30) -> None:  # type: ignore[no-untyped-def]
        """As long as the command goes on."""
        wait_until(lambda: has_happened() or self.process.poll() is not None, what, patience)
        assert has_happened(), f"it ended with {self.process.returncode} before {what}:\n{self.said}"

    def wait_to_say(self, text: str) -> None:
        self.wait_for(lambda: text in self.said, f"{text!r}")

    def interrupt(self) -> None:
        """Ctrl-C, as a terminal does it: to every process of the group."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGINT)

    def ends(self, patience: float = 20) -> int:
        """The exit code; nothing of its group lives any more."""
        code = self.process.wait(patience)
        wait_until(lambda: not self.living(), "the end of its workers", 10)
        return code

    def living(self) -> list[int]:
        """The pids of its group that live."""
        found = []
        for folder in Path("/proc").iterdir():
            if folder.name.isdecimal():
                with suppress(OSError):
                    group = (folder / "stat").read_text().rpartition(")")[2].split()[2]
                    if int(group) == self.process.pid and is_alive(int(folder.name)):
                        found.append(int(folder.name))
        return found

    def workers(self) -> list[int]:
        return [pid for pid in self.living() if pid != self.process.pid]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


# ---- what a refusal looks like -------------------------------------------------------------------------------------


def problems_of(done: "subprocess.CompletedProcess[str]", code: int, said: Sequence[str], tracebacks: int) -> list[str]:
    """In what a command that failed is not one clear message on standard error with the right exit code; [] when it is.

    `said`: what the message must contain, the first of them exactly once. `tracebacks`: how many the user's code gives.
    """
    text = done.stderr
    problems = [] if done.returncode == code else [f"exit code {done.returncode}, not {code}"]
    problems += [f"missing: {part}" for part in said if part not in text]
    problems += [f"said {text.count(said[0])} times: {said[0]}"] if text.count(said[0]) > 1 else []
    problems += [f"{text.count(TRACEBACK)} tracebacks"] if text.count(TRACEBACK) != tracebacks else []
    problems += ["called a bug of Tidegate"] if "bug in Tidegate" in text else []
    problems += [f"frame of the engine: {line}" for line in re.findall(r'File ".*/tidegate/.*', text)]
    problems += ["something on standard output"] if done.stdout else []
    return problems


def assert_refused(done: "subprocess.CompletedProcess[str]", code: int, *said: str, tracebacks: int = 0) -> None:
    problems = problems_of(done, code, said, tracebacks)
    assert not problems, f"{problems}:\n{done.stdout}{done.stderr}"
