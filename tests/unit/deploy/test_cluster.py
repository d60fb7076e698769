"""Workers as real child processes: they start, say what they are, die with a reason, and are all gone in the end."""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zmq

from tests.integration.programs import is_alive, wait_until
from tidegate.checkpoint.log import ProcessRecord, Takeover
from tidegate.clock import SystemClock
from tidegate.deploy.cluster import LocalCluster
from tidegate.deploy.curve import Context
from tidegate.deploy.executor import ThreadExecutor, WakeUp
from tidegate.deploy.processes import process_record
from tidegate.deploy.program import load, spec_of_target
from tidegate.deploy.runtime_folder import RuntimeFolder
from tidegate.errors import ErrorKind
from tidegate.ids import Attempt, WorkerIndex
from tidegate.runtime.control import StopWorker, TaskFailed, WorkerReady
from tidegate.scheduling import protocol as p

HOST = "here"
ATTEMPT = Attempt(3)
PROGRAM = """
import tidegate as tg
from tidegate.connectors.collections import CollectionSink, CollectionSource

job = tg.Job("small")
job.source(CollectionSource([1, 2, 3]), name="numbers", parallelism=200).sink(CollectionSink("x"), name="sink")
"""


class World:
    """A cluster with its loop."""

    def __init__(self, folder: Path, program: str) -> None:
        self.path = folder / "small_job.py"
        self.path.write_text(program)
        self.spec = spec_of_target(str(self.path), (), folder, sys.path)
        self.wake_up = WakeUp()
        self.executor = ThreadExecutor(self.wake_up)
        self.folder = RuntimeFolder(None)
        self.cluster = LocalCluster(self.spec, 256, self.folder, self.executor, HOST, SystemClock())
        self.events: list[p.Event] = []

    def until(self, has_happened: Callable[[], object], what: str) -> None:
        def happens() -> bool:
            self.executor.drain()
            self.cluster.step()
            self.events += self.cluster.events
            self.cluster.events.clear()
            return bool(has_happened())

        wait_until(happens, f"{what}; so far: {self.events}", 30)

    def of_kind(self, kind: type) -> list[p.Event]:
        return [event for event in self.events if isinstance(event, kind)]

    def messages(self, kind: type) -> list[p.Received]:
        return [event for event in self.events if isinstance(event, p.Received) and isinstance(event.message, kind)]

    def spawn(self, count: int) -> list[ProcessRecord]:
        """Returns when all are ready."""
        self.cluster.spawn(ATTEMPT, count)
        self.until(lambda: len(self.messages(WorkerReady)) == count, "workers that are ready")
        [spawned] = self.of_kind(p.WorkersSpawned)
        assert isinstance(spawned, p.WorkersSpawned)
        return list(spawned.processes)

    def close(self) -> None:
        self.cluster.close()
        self.executor.close()
        self.folder.close()
        self.wake_up.close()


@pytest.fixture
def world_of(tmp_path: Path) -> Iterator[Callable[[str], World]]:
    made: list[World] = []

    def make(program: str = PROGRAM) -> World:
        made.append(World(tmp_path, program))
        return made[-1]

    yield make
    for world in made:
        world.close()


def test_workers_report_the_programs_graph_and_are_on_record(world_of: Callable[..., World]) -> None:
    world = world_of()
    records = world.spawn(2)
    fingerprint = load(world.spec).graph(256).fingerprint()
    ready = world.messages(WorkerReady)
    assert sorted((event.attempt, event.worker) for event in ready) == [(ATTEMPT, 0), (ATTEMPT, 1)]
    for event in ready:
        assert isinstance(event.message, WorkerReady)
        assert event.message.fingerprint == fingerprint
    assert all(record == process_record(record.pid) for record in records)
    assert world.of_kind(p.WorkerDied) == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGABRT])
def test_a_death_is_told_with_its_reason(world_of: Callable[..., World], number: signal.Signals) -> None:
    world = world_of()
    records = world.spawn(2)
    os.kill(records[1].pid, number)
    world.until(lambda: world.of_kind(p.WorkerDied), "a death")
    assert world.of_kind(p.WorkerDied) == [p.WorkerDied(ATTEMPT, WorkerIndex(1), f"killed by {number.name}")]
    assert is_alive(records[0].pid)


def test_a_death_wakes_the_loop(world_of: Callable[..., World]) -> None:
    world = world_of()
    [record] = world.spawn(1)
    world.until(lambda: not world.cluster.poller.poll(300), "silence")
    os.kill(record.pid, signal.SIGKILL)
    assert world.cluster.poller.poll(10_000)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_stops_a_job_does_not_reach_workers_from_their_first_moment(
    world_of: Callable[..., World], number: signal.Signals
) -> None:
    world = world_of()
    world.cluster.spawn(ATTEMPT, 1)
    world.until(lambda: world.of_kind(p.WorkersSpawned), "a worker")
    [spawned] = world.of_kind(p.WorkersSpawned)
    assert isinstance(spawned, p.WorkersSpawned)

    def interrupted() -> bool:
        os.kill(spawned.processes[0].pid, number)
        return bool(world.messages(WorkerReady))

    world.until(interrupted, "readiness")
    assert world.of_kind(p.WorkerDied) == []


def test_workers_that_are_ended_are_gone_and_did_not_die(world_of: Callable[..., World]) -> None:
    world = world_of()
    records = world.spawn(3)
    os.kill(records[0].pid, signal.SIGSTOP)
    world.cluster.end(ATTEMPT, 0.0)
    world.until(lambda: world.of_kind(p.WorkersGone), "the end")
    assert world.of_kind(p.WorkersGone) == [p.WorkersGone(ATTEMPT)]
    assert world.of_kind(p.WorkerDied) == []
    assert not any(is_alive(record.pid) for record in records)


def test_a_worker_that_is_asked_to_stop_exits_within_its_grace(world_of: Callable[..., World]) -> None:
    world = world_of()
    records = world.spawn(2)
    for index in range(2):
        world.cluster.send(ATTEMPT, WorkerIndex(index), StopWorker())
    begun = time.monotonic()
    world.cluster.end(ATTEMPT, 60.0)
    world.until(lambda: world.of_kind(p.WorkersGone), "the end")
    assert time.monotonic() - begun < 20
    assert not any(is_alive(record.pid) for record in records)


def test_an_attempt_without_workers_is_gone_at_once(world_of: Callable[..., World]) -> None:
    world = world_of()
    world.cluster.end(ATTEMPT, 60.0)
    world.until(lambda: world.of_kind(p.WorkersGone), "the end")


def test_a_program_that_cannot_be_imported_is_told_with_the_users_frames(world_of: Callable[..., World]) -> None:
    world = world_of("raise ValueError('not today')\n")
    world.cluster.spawn(ATTEMPT, 1)
    world.until(lambda: world.messages(TaskFailed), "the failure")
    [event] = world.messages(TaskFailed)
    assert isinstance(event.message, TaskFailed)
    assert event.message.task is None
    assert event.message.failure.kind is ErrorKind.INVALID
    assert "ValueError: not today" in event.message.failure.traceback
    assert str(world.path) in event.message.failure.traceback
    world.until(lambda: world.of_kind(p.WorkerDied), "its end")
    assert world.of_kind(p.WorkerDied) == [p.WorkerDied(ATTEMPT, WorkerIndex(0), "exited with 1")]


def test_a_death_is_noticed_although_a_child_of_the_worker_lives_on(world_of: Callable[..., World]) -> None:
    forks = "import os, time\nif os.environ.get('FORK') and os.fork() == 0:\n    time.sleep(20)\n    os._exit(0)\n"
    world = world_of(forks + PROGRAM)
    os.environ["FORK"] = "1"
    try:
        [record] = world.spawn(1)
    finally:
        del os.environ["FORK"]
    begun = time.monotonic()
    os.kill(record.pid, signal.SIGKILL)
    world.until(lambda: world.of_kind(p.WorkerDied), "a death")
    assert time.monotonic() - begun < 10


def test_workers_that_cannot_be_started_fail_the_step(world_of: Callable[..., World], tmp_path: Path) -> None:
    world = world_of()
    folder = tmp_path / "gone"
    spec = spec_of_target(str(world.path), (), folder, sys.path)
    cluster = LocalCluster(spec, 128, RuntimeFolder(tmp_path), world.executor, HOST, SystemClock())
    cluster.spawn(ATTEMPT, 2)
    [event] = cluster.events
    assert isinstance(event, p.StepFailed)
    assert event.failure.kind is ErrorKind.UNAVAILABLE
    cluster.close()


def test_a_data_connection_that_breaks_without_a_death_fails_the_attempt(world_of: Callable[..., World]) -> None:
    world = world_of()
    world.spawn(1)
    [ready] = world.messages(WorkerReady)
    assert isinstance(ready.message, WorkerReady)
    context = Context()
    peer = context.socket(zmq.PUSH)
    connected = peer.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED)
    peer.connect(ready.message.data_address)
    assert connected.poll(10_000)
    context.destroy(linger=0)
    world.until(lambda: world.messages(TaskFailed), "the failure")
    [event] = world.messages(TaskFailed)
    assert isinstance(event.message, TaskFailed)
    assert event.message.failure.kind is ErrorKind.UNAVAILABLE
    assert "data connection" in event.message.failure.message
    assert world.of_kind(p.WorkerDied) == []


# ---- workers of earlier attempts -----------------------------------------------------------------------------------


@pytest.fixture
def old_worker() -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    yield process
    process.kill()
    process.wait()


@pytest.mark.parametrize(("host", "shift", "is_killed"), [(HOST, 0, True), (HOST, 1, False), ("elsewhere", 0, False)])
def test_only_recorded_workers_of_this_host_are_ended(
    world_of: Callable[..., World], old_worker: "subprocess.Popen[bytes]", host: str, shift: int, is_killed: bool
) -> None:
    world = world_of()
    record = process_record(old_worker.pid)
    takeover = Takeover(host, record, (ProcessRecord(record.pid, record.start_time + shift),))
    world.cluster.end_recorded(takeover)
    world.until(lambda: world.of_kind(p.OldWorkersEnded), "the end of old workers")
    assert is_alive(old_worker.pid) is not is_killed


# ---- the death of the parent ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_busy", [False, True])
def test_workers_die_with_their_parent_whatever_they_are_doing(tmp_path: Path, is_busy: bool) -> None:
    program = tmp_path / "small_job.py"
    program.write_text(("import time\nwhile True:\n    time.sleep(1)\n" if is_busy else "") + PROGRAM)
    parent = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from tests.unit.deploy.test_cluster import ATTEMPT, World\n"
        "folder = Path(sys.argv[1])\n"
        "world = World(folder, (folder / 'small_job.py').read_text())\n"
        "world.cluster.spawn(ATTEMPT, 2)\n"
        "print(*(record.pid for record in world.cluster.events[0].processes), flush=True)\n"
        "time.sleep(60)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", parent, str(tmp_path)], cwd=Path(__file__).parents[3], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert select.select([process.stdout], [], [], 30)[0]
    workers = [int(word) for word in process.stdout.readline().split()]
    assert len(workers) == 2
    time.sleep(1.0 if is_busy else 0.0)
    process.kill()
    process.communicate()
    wait_until(lambda: not any(map(is_alive, workers)), f"the death of {workers}", 30)
