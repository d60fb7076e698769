"""Several processes write into one embedded log and are killed at any moment: nothing is lost, doubled, torn or
reordered."""

import random
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.unit.connectors.log_writer import PARTITIONS, RECORDS, text
from tidegate.connectors.local.database import FILE_NAME
from tidegate.local import LocalLog

ROOT = Path(__file__).parents[3]
NAMES = ("ann", "bob", "cid")

Rows = list[tuple[int, int, str]]
"""Partition, offset and text of committed records, as they lie in the file."""


class Writers:
    """One process a name, started again as often as it is killed."""

    def __init__(self, directory: Path, transactions: int) -> None:
        self.directory = directory
        self.transactions = transactions
        self.processes = {name: self._start(name) for name in NAMES}

    def _start(self, name: str) -> "subprocess.Popen[bytes]":
        arguments = (self.directory / "log", self.directory / f"{name}.ledger", name, self.transactions)
        command = [sys.executable, "-m", "tests.unit.connectors.log_writer", *map(str, arguments)]
        return subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE)

    def kill_and_restart(self, name: str) -> bool:
        """Whether it was still at work."""
        process = self.processes[name]
        at_work = process.poll() is None
        process.kill()
        _, stderr = process.communicate()
        assert process.returncode in (-9, 0), stderr.decode()
        self.processes[name] = self._start(name)
        return at_work

    def finish(self) -> None:
        for process in self.processes.values():
            _, stderr = process.communicate(timeout=60)
            assert process.returncode == 0, stderr.decode()

    def kill_all(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.communicate()


def committed_rows(directory: Path) -> Rows:
    """Read without the log's own code."""
    connection = sqlite3.connect(directory / FILE_NAME)
    try:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        query = (
            "SELECT partition, offset, value FROM records JOIN partitions ON partitions.number = partition_number"
            " JOIN transactions ON transactions.number = transaction_number"
            " WHERE state = 'CompleteCommit' ORDER BY partition, offset"
        )
        return [(partition, offset, str(value, "utf-8")) for partition, offset, value in connection.execute(query)]
    finally:
        connection.close()


def problems(rows: Rows, transactions: int) -> list[str]:
    """What is lost, doubled, foreign, or out of order within a partition."""
    found = []
    counts: dict[str, int] = {}
    last: dict[tuple[int, str], tuple[int, int]] = {}
    for partition, _, value in rows:
        counts[value] = counts.get(value, 0) + 1
        name, number, record = value.split(":")
        place = (int(number), int(record))
        if place <= last.get((partition, name), (-1, -1)):
            found.append(f"{value} of partition {partition} comes too late")
        last[partition, name] = place
    expected = {
        text(name, number, record) for name in NAMES for number in range(transactions) for record in range(RECORDS)
    }
    found += [f"{value} is missing" for value in sorted(expected - counts.keys())]
    found += [f"{value} is foreign" for value in sorted(counts.keys() - expected)]
    found += [f"{value} is there {count} times" for value, count in sorted(counts.items()) if count > 1]
    return found


def _kill_in_a_loop(directory: Path, kills: int, transactions: int, seed: int) -> int:
    """Run the writers to their end; how many of the kills hit one at work."""
    chance = random.Random(seed)
    writers = Writers(directory, transactions)
    hits = 0
    try:
        for _ in range(kills):
            time.sleep(chance.uniform(0.1, 0.5))
            at_work = [name for name, process in writers.processes.items() if process.poll() is None]
            if at_work:
                hits += writers.kill_and_restart(chance.choice(at_work))
        writers.finish()
    finally:
        writers.kill_all()
    return hits


@pytest.mark.parametrize(
    ("kills", "transactions", "seed"), [(6, 25, 1), pytest.param(40, 150, 2, marks=pytest.mark.slow)]
)
def test_killed_writers_lose_and_double_nothing(kills: int, transactions: int, seed: int, tmp_path: Path) -> None:
    assert _kill_in_a_loop(tmp_path, kills, transactions, seed) > 0
    rows = committed_rows(tmp_path / "log")
    assert problems(rows, transactions) == []
    with LocalLog(tmp_path / "log") as log:
        assert log.list_transactions(ongoing_only=True) == []
        for partition in range(PARTITIONS):
            read = log.read("output", partition)
            expected = [row for row in rows if row[0] == partition]
            assert [(partition, record.offset, str(record.value or b"", "utf-8")) for record in read] == expected
            offsets = [record.offset for record in log.read("output", partition, isolation="read_uncommitted")]
            assert offsets == list(range(log.end_offset("output", partition)))


def test_a_reader_that_keeps_up_with_killed_writers_sees_exactly_what_stays(tmp_path: Path) -> None:
    writers = Writers(tmp_path, transactions=12)
    seen: Rows = []
    at = dict.fromkeys(range(PARTITIONS), 0)
    try:
        with LocalLog(tmp_path / "log") as log:
            log.create_topic("output", PARTITIONS)
            killed = False
            running = True
            while running:
                running = any(process.poll() is None for process in writers.processes.values())
                for partition in range(PARTITIONS):
                    chunk = log.fetch("output", partition, at[partition], 1000)
                    at[partition] = chunk.next_offset
                    pairs = zip(chunk.offsets, chunk.values, strict=True)
                    seen += [(partition, offset, str(value or b"", "utf-8")) for offset, value in pairs]
                if seen and not killed:
                    killed = writers.kill_and_restart("bob")
            for partition in range(PARTITIONS):
                rest = log.read("output", partition, at[partition])
                seen += [(partition, record.offset, str(record.value or b"", "utf-8")) for record in rest]
        writers.finish()
    finally:
        writers.kill_all()
    assert sorted(seen) == committed_rows(tmp_path / "log")
    assert problems(sorted(seen), 12) == []


def test_processes_that_append_at_once_all_get_through(tmp_path: Path) -> None:
    script = (
        "import sys; from tidegate.local import LocalLog\n"
        "with LocalLog(sys.argv[1]) as log:\n"
        "    log.create_topic('input', 2)\n"
        "    for number in range(50): log.append('input', number % 2, [f'{sys.argv[2]}:{number}:0'.encode()] * 1)\n"
    )
    processes = [subprocess.Popen([sys.executable, "-c", script, str(tmp_path / "log"), name]) for name in NAMES * 2]
    assert [process.wait(timeout=60) for process in processes] == [0] * len(processes)
    with LocalLog(tmp_path / "log") as log:
        values = [record.value for partition in range(2) for record in log.read("input", partition)]
    assert sorted(values, key=str) == sorted(
        (f"{name}:{number}:0".encode() for name in NAMES * 2 for number in range(50)), key=str
    )


def _complete_rows() -> Rows:
    values = [text(name, number, record) for name in NAMES for number in range(2) for record in range(RECORDS)]
    return [(0, offset, value) for offset, value in enumerate(values)]


def test_the_checker_is_content_with_a_complete_log() -> None:
    assert problems(_complete_rows(), 2) == []


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda rows: rows[:7] + rows[8:], "ann:0:7 is missing"),
        (lambda rows: [*rows, rows[-1]], "cid:1:4499 is there 2 times"),
        (lambda rows: [(0, 0, "ann:9:9"), *rows[1:]], "ann:9:9 is foreign"),
        (lambda rows: [rows[1], rows[0], *rows[2:]], "ann:0:0 of partition 0 comes too late"),
    ],
)
def test_the_checker_finds_a_record_removed_doubled_changed_or_moved(change: object, complaint: str) -> None:
    assert callable(change)
    assert complaint in problems(change(_complete_rows()), 2)
