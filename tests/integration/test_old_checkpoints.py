"""Checkpoints that earlier versions wrote are gone on from: each folder in `old_checkpoints` was written by one, by the
program beside them, when it had read `BEFORE` orders of each partition.

They are never written anew: a version that cannot read one of them breaks its users' jobs. A version with a new form
adds a folder of its own (`python -m tests.integration.test_old_checkpoints FOLDER BACKEND` writes one).
"""

import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from shutil import copy, copytree

import msgspec
import pytest

from tests.integration.programs import TIDEGATE, log_of, wait_until
from tidegate.local import LocalLog

HERE = Path(__file__).parent / "old_checkpoints"
BEFORE = 2000
AFTER = 150
PARTITIONS = 3
USERS = 600
FIRST, LATER = 1960, 10
"""Orders of each partition that are written at once."""

pytestmark = pytest.mark.skipif(not Path("/proc/self/cwd").exists(), reason="the programs find their log in /proc")


def order(partition: int, number: int) -> tuple[str, int]:
    """User and amount. All orders of a user are in one partition."""
    return f"user-{(partition + PARTITIONS * number) % USERS}", (number * 7) % 11


def write_orders(log: LocalLog, begin: int, end: int) -> None:
    for partition in range(PARTITIONS):
        orders = (order(partition, number) for number in range(begin, end))
        log.append("orders", partition, [b'{"user":"%b","amount":%d}' % (user.encode(), n) for user, n in orders])


class Remembered:
    """What a user's state is, told without any state backend."""

    def __init__(self) -> None:
        self.amounts: list[int] = []
        self.by_size: dict[str, int] = {}

    def after(self, user: str, amount: int) -> dict[str, object]:
        self.amounts.append(amount)
        size = "large" if amount > 5 else "small"
        self.by_size[size] = self.by_size.get(size, 0) + 1
        return {
            "user": user,
            "total": sum(self.amounts),
            "recent": self.amounts[-4:],
            "by_size": dict(self.by_size),
            "highest": max(self.amounts),
            "basket": list(self.amounts),
        }


def expected() -> dict[str, list[dict[str, object]]]:
    """By user, what is put out for the orders that came after the checkpoint."""
    users: dict[str, Remembered] = {}
    found: dict[str, list[dict[str, object]]] = {}
    for partition in range(PARTITIONS):
        for number in range(BEFORE + AFTER):
            user, amount = order(partition, number)
            seen = users.setdefault(user, Remembered()).after(user, amount)
            if number >= BEFORE:
                found.setdefault(user, []).append(seen)
    return found


def put_out(log: LocalLog) -> dict[str, list[dict[str, object]]]:
    found: dict[str, list[dict[str, object]]] = {}
    for partition in range(2):
        for record in log.read("seen", partition, 0, 1_000_000):
            assert record.value is not None
            seen = msgspec.json.decode(record.value)
            found.setdefault(seen["user"], []).append(seen)
    return found


def run_until(folder: Path, arguments: list[str], is_done: Callable[[], bool]) -> str:
    """Run the program until then, and stop it. Returns what it said."""
    with (folder / "said").open("wb") as said:
        command = [*TIDEGATE, "run", "old_totals.py", "--checkpoint-dir", "checkpoints", *arguments]
        process = subprocess.Popen(command, cwd=folder, stderr=said)
        try:
            wait_until(lambda: process.poll() is not None or is_done(), "the whole output", 60)
            process.send_signal(signal.SIGINT)
            code = process.wait(30)
        finally:
            process.kill()
    text = (folder / "said").read_text()
    assert code == 0, text
    return text


VERSIONS = sorted(path.name for path in HERE.iterdir() if path.is_dir() and path.name != "__pycache__")
BACKENDS = ("fs", "rocksdb")


def ways() -> Iterator[tuple[str, str, int]]:
    """Version, backend and parallelism: as it was, and with both changed."""
    for version in VERSIONS:
        own = "rocksdb" if version.endswith("rocksdb") else "fs"
        yield version, own, 2
        yield version, next(backend for backend in BACKENDS if backend != own), 3


@pytest.mark.parametrize(("version", "backend", "parallelism"), ways())
def test_a_job_goes_on_from_the_checkpoint_of_an_earlier_version(
    tmp_path: Path, version: str, backend: str, parallelism: int
) -> None:
    copytree(HERE / version / "checkpoints", tmp_path / "checkpoints")
    copy(HERE / "old_totals.py", tmp_path)
    with LocalLog(tmp_path / "log") as log:
        log.create_topic("orders", PARTITIONS)
        log.create_topic("seen", 2)
        write_orders(log, 0, BEFORE + AFTER)
    pretend_to_be_the_log_of(tmp_path)
    with LocalLog(tmp_path / "log") as log:
        count = PARTITIONS * AFTER
        said = run_until(
            tmp_path,
            ["-p", str(parallelism), "--state-backend", backend],
            lambda: sum(map(len, put_out(log).values())) >= count,
        )
        assert "without state" not in said
        assert put_out(log) == expected()


def pretend_to_be_the_log_of(folder: Path) -> None:
    """A log knows when it was made, and a source reads on in no other: this one is to be the one that was read, so that
    its many records need not be kept."""
    newest = log_of(folder / "checkpoints", "old-totals").newest
    assert newest is not None
    (created,) = {split.attributes["created"] for record in newest.operators for split in record.splits}
    with closing(sqlite3.connect(folder / "log" / "log.sqlite")) as connection, connection:
        connection.execute("UPDATE log SET created = ?", (int(created),))


def write_checkpoint(folder: Path, backend: str) -> None:
    """Today's checkpoint, to be kept: of `folder`, the part called `checkpoints`."""
    folder.mkdir(parents=True)
    copy(HERE / "old_totals.py", folder)
    with LocalLog(folder / "log") as log:
        log.create_topic("orders", PARTITIONS)
        log.create_topic("seen", 2)
        written = 0

        def is_done() -> bool:
            """One portion after another, each in a checkpoint of its own: the last ones change little."""
            nonlocal written
            if sum(map(len, put_out(log).values())) < PARTITIONS * written:
                return False
            begin, written = written, min(BEFORE, written + (FIRST if written == 0 else LATER))
            write_orders(log, begin, written)
            return begin == BEFORE

        run_until(folder, ["-p", "2", "--set", "checkpoints.retained=1", "--state-backend", backend], is_done)


if __name__ == "__main__":
    write_checkpoint(Path(sys.argv[1]), sys.argv[2])
