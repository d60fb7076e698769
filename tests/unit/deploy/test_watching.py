"""A source that says on what its records arrive is asked when something does, and seldom otherwise."""

import os
import subprocess
import time
from pathlib import Path

from tests.integration.programs import TIDEGATE, wait_until
from tidegate.local import LocalLog

PROGRAM = """
import os
import tidegate as tg
from tidegate.checkpoint.protocol import SplitState
from tidegate.local import LocalSink
from tidegate.operators.contracts import Fetched

class Reader:
    def __init__(self):
        self.pipe = os.open("pipe", os.O_RDWR | os.O_NONBLOCK)
        self.polls, self.split = 0, None

    def add_splits(self, splits):
        self.split = splits[0]

    def poll(self, max_records):
        self.polls += 1
        if self.split is None:
            return None
        try:
            text = os.read(self.pipe, 100).decode()
        except BlockingIOError:
            return None
        return Fetched(self.split.id, [f"{text} {self.polls}"], self.polls)

    def watched(self):
        return [self.pipe]

    def notify_checkpoint_complete(self, splits): ...
    def close(self): ...

class Pipe:
    bounded, deserializer, discovery_interval, inspection_spec = False, None, None, None

    def discover(self, known):
        return [SplitState("pipe", 0, None)]

    def open_reader(self, context):
        return Reader()

def build(argv):
    job = tg.Job("watching")
    job.source(Pipe(), name="pipe").sink(LocalSink("log", "out", value=tg.String(), partitions=1), name="out")
    return job
"""
QUIET = 3.0
"""Seconds without a record."""


def polls_of_a_quiet_time(folder: Path) -> int:
    """How often the reader was asked between two records."""
    os.mkfifo(folder / "pipe")
    (folder / "watching.py").write_text(PROGRAM)
    command = [*TIDEGATE, "run", "watching.py", "--checkpoint-dir", "ck", "--checkpoint-interval", "1s"]
    with (folder / "said").open("wb") as said, subprocess.Popen(command, cwd=folder, stderr=said) as process:
        pipe = os.open(folder / "pipe", os.O_RDWR)
        try:
            found: list[str] = []
            for text in ("first", "second"):
                os.write(pipe, text.encode())
                wait_until(lambda: any(line.startswith(text) for line in written(folder)), f"{text} comes out")  # noqa: B023
                found = written(folder)
                time.sleep(QUIET if text == "first" else 0.0)
        finally:
            os.close(pipe)
            process.kill()
    first, second = (int(line.rpartition(" ")[2]) for line in found)
    return second - first


def written(folder: Path) -> list[str]:
    if not (folder / "log").exists():
        return []
    with LocalLog(folder / "log") as log:
        if "out" not in log.topics():
            return []
        return [(record.value or b"").decode() for record in log.read("out", 0)]


def test_it_is_seldom_asked_while_nothing_arrives(tmp_path: Path) -> None:
    # Every 0.25 s, and when the worker is awake for something else. Not watched it is asked every 0.05 s at least.
    assert polls_of_a_quiet_time(tmp_path) < 45
