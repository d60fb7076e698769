"""Whole jobs with processes, from outside: signals to one process or to all, idleness, several jobs in one process."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.programs import TIDEGATE, is_alive, wait_until
from tidegate.deploy.local import ONE_STOP_SECONDS
from tidegate.local import LocalLog

PROGRAM = """
import sys
import tidegate as tg
from tidegate.local import LocalSink, LocalSource

def step(text):
    while "{stuck}" == text:
        pass
    return text

def build(argv):
    job = tg.Job("copying")
    texts = job.source(LocalSource("log", "in", value=tg.String(), bounded="bounded" in argv), name="in")
    texts.map(step, name="step").sink(LocalSink("log", "out", value=tg.String(), partitions=1), name="out")
    return job
"""


class Running:
    """`tidegate run` in a process group of its own."""

    def __init__(self, folder: Path) -> None:
        self.said = folder / "said"
        with self.said.open("wb") as file:
            self.process = subprocess.Popen(
                [*TIDEGATE, "run", "copying_job.py", "-p", "2", "--checkpoint-dir", "ck"],
                cwd=folder,
                stderr=file,
                start_new_session=True,
            )

    def until(self, text: str) -> None:
        wait_until(lambda: text in self.said.read_text(), f"{text!r} in {self.said.read_text()}", 30)

    @property
    def workers(self) -> list[int]:
        pid = self.process.pid
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def write_program(folder: Path, *, stuck: str = "never") -> None:
    (folder / "copying_job.py").write_text(PROGRAM.replace("{stuck}", stuck))
    with LocalLog(folder / "log") as log:
        log.create_topic("in", 2)
        log.append("in", 0, [b"1", b"2"])


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    write_program(tmp_path)
    yield from started(tmp_path)


@pytest.fixture
def stuck(tmp_path: Path) -> Iterator[Running]:
    """A job whose user code does not return."""
    write_program(tmp_path, stuck="2")
    yield from started(tmp_path)


def started(folder: Path) -> Iterator[Running]:
    made = Running(folder)
    yield made
    made.process.kill()
    made.process.wait()


# ---- signals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_all_processes_that_comes_twice_at_once_is_one_clean_stop(
    running: Running, number: signal.Signals
) -> None:
    running.until("copying running")
    workers = running.workers
    assert len(workers) == 2
    # As `timeout` does it: to its child, then to the whole group.
    running.process.send_signal(number)
    os.killpg(running.process.pid, number)
    assert running.process.wait(30) == 0
    said = running.said.read_text()
    assert "done" in said
    assert "warning" not in said
    assert not any(map(is_alive, workers))


def test_a_second_request_ends_everything_at_once(stuck: Running) -> None:
    stuck.until("copying running")
    workers = stuck.workers
    stuck.process.send_signal(signal.SIGINT)
    begun = time.monotonic()
    wait_until(lambda: time.monotonic() > begun + ONE_STOP_SECONDS, "the end of what counts as one request")
    assert stuck.process.poll() is None
    stuck.process.send_signal(signal.SIGINT)
    assert stuck.process.wait(10) == 130
    assert not any(map(is_alive, workers))
    assert "Traceback" not in stuck.said.read_text()


def test_an_interrupt_before_anything_runs_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "slow_job.py").write_text("import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\n")
    done = subprocess.run(
        [*TIDEGATE, "run", "slow_job.py"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=30
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


# ---- idleness ------------------------------------------------------------------------------------------------------


def processor_ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def test_who_has_nothing_to_do_waits_for_it(running: Running) -> None:
    running.until("copying running")
    processes = [running.process.pid, *running.workers]
    seconds = 2.0
    before = [processor_ticks(pid) for pid in processes]
    time.sleep(seconds)
    used = [processor_ticks(pid) - ticks for pid, ticks in zip(processes, before, strict=True)]
    assert len(used) == 3
    # A loop that does not wait uses all of it; these use about 1 %.
    assert max(used) < 0.1 * seconds * os.sysconf("SC_CLK_TCK"), used


# ---- several jobs in one process -----------------------------------------------------------------------------------


SEVERAL_JOBS = """
import json, os, signal, sys, threading, time
from pathlib import Path
from tidegate.config import StartOptions, read_layers
from tidegate.deploy.launch import launch
from tidegate.deploy.program import spec_of_target

class Silent:
    def update(self, status): ...
    def event(self, level, text, **fields): ...
    def close(self): ...

results, descriptors = [], []

def run(label):
    folder = Path.cwd()
    spec = spec_of_target("copying_job.py", ["bounded"], folder, sys.path)
    layers = read_layers(folder, folder, {}, [("checkpoints.dir", str(folder / "ck"), "test")])
    result = launch(spec, layers, StartOptions(fresh=label), lambda _: Silent())
    results.append([result.records_out, result.restarts])
    descriptors.append(sorted(os.readlink(path) for path in Path("/proc/self/fd").iterdir() if path.exists()))

handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
run("a")
thread = threading.Thread(target=run, args=("b",))
thread.start()
thread.join(60)
run("c")
deadline = time.monotonic() + 30
while threading.active_count() > 1 and time.monotonic() < deadline:
    time.sleep(0.01)
print(json.dumps({
    "results": results,
    "descriptors": descriptors,
    "same handlers": (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == handlers,
    "threads": threading.active_count(),
}))
"""


def test_jobs_run_one_after_another_in_one_process_and_thread_by_thread_and_leave_nothing(tmp_path: Path) -> None:
    write_program(tmp_path)
    # A short path: an address of a socket holds about 100 bytes.
    with tempfile.TemporaryDirectory(prefix="tg-", dir="/tmp") as sockets:
        done = subprocess.run(
            [sys.executable, "-c", SEVERAL_JOBS],
            cwd=tmp_path,
            env=os.environ | {"XDG_RUNTIME_DIR": sockets},
            capture_output=True,
            text=True,
            check=False,
            timeout=110,
        )
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        assert told["results"] == [[2, 0]] * 3
        assert told["descriptors"][2] == told["descriptors"][0]
        assert told["same handlers"]
        assert told["threads"] == 1
        assert list(Path(sockets).iterdir()) == []


# ---- under a test runner -------------------------------------------------------------------------------------------

RUNNER = """
import unittest
import tidegate as tg
from tidegate.connectors.collections import CollectionSink, CollectionSource

def made(name, sink):
    job = tg.Job(name)
    job.source(CollectionSource([1, 2]), name="numbers").sink(sink, name="sink")
    return job

class Tests(unittest.TestCase):
    def test_in_one_process(self):
        sink = CollectionSink()
        made("here", sink).run(in_process=True)
        self.assertEqual(sink.committed, [1, 2])

    def test_errors_are_raised(self):
        job = tg.Job("failing", config=tg.Config(restart="none"))
        job.source(CollectionSource([0]), name="n").map(lambda n: 1 // n, name="m").sink(CollectionSink(), name="s")
        with self.assertRaises(tg.TidegateError):
            job.run(in_process=True)

    def test_with_processes(self):
        made("there", CollectionSink()).run()
"""


def test_under_a_test_runner_a_job_runs_in_process_and_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "test_jobs.py").write_text(RUNNER)
    command = [sys.executable, "-m", "unittest", "test_jobs"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    # The runner is not run once more, by being imported.
    assert re.findall(r"Ran (\d+) tests", done.stderr) == ["3"], done.stderr
    assert "FAILED (errors=1)" in done.stderr
    assert (
        "job.run() was called for job there, and other processes that import the program cannot find it" in done.stderr
    )
    assert "job.run(in_process=True)" in done.stderr
