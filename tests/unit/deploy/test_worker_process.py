"""A worker process from outside: its start, its wires, what it leaves behind, and that it never outlives its parent."""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
import zmq

from tests.integration.programs import is_alive, wait_until
from tests.unit.deploy.test_cluster import ATTEMPT, PROGRAM, World
from tidegate.clock import SystemClock
from tidegate.deploy.cluster import LocalCluster, WorkerParameters, decode_parameters, encode_parameters
from tidegate.deploy.curve import Context
from tidegate.deploy.executor import InlineExecutor
from tidegate.deploy.program import ProgramSpec
from tidegate.deploy.runtime_folder import RuntimeFolder
from tidegate.errors import ErrorKind, Failure
from tidegate.ids import (
    Attempt,
    CheckpointId,
    JobName,
    LogInstance,
    OperatorName,
    SubtaskIndex,
    TaskId,
    VertexName,
    WorkerIndex,
)
from tidegate.runtime.control import (
    AssignSplits,
    Deploy,
    RuntimeOptions,
    StopWorker,
    TaskFailed,
    TaskRunning,
    WorkerReady,
)
from tidegate.scheduling import protocol as p


@pytest.fixture
def world_of(tmp_path: Path) -> Iterator[Callable[[str], World]]:
    made: list[World] = []

    def make(program: str) -> World:
        made.append(World(tmp_path, program))
        return made[-1]

    yield make
    for world in made:
        world.close()


@pytest.fixture
def context() -> Iterator[Context]:
    made = Context()
    yield made
    made.destroy(linger=0)


def deploy(*peers: str) -> Deploy:
    """For one worker of several, if there are other peers than itself."""
    return Deploy(
        job=JobName("small"),
        attempt=ATTEMPT,
        instance=LogInstance("0a"),
        parallelism=1,
        max_parallelism=256,
        restored=(),
        peers=peers,
        options=RuntimeOptions(),
        storage="memory:",
        last_checkpoint=CheckpointId(0),
    )


def ready_worker(world: World) -> str:
    """Its data address."""
    world.spawn(1)
    message = world.messages(WorkerReady)[0].message
    assert isinstance(message, WorkerReady)
    return message.data_address


def failure_told(world: World) -> Failure:
    world.until(lambda: world.messages(TaskFailed), "a failure")
    message = world.messages(TaskFailed)[0].message
    assert isinstance(message, TaskFailed)
    return message.failure


# ---- how it is started ---------------------------------------------------------------------------------------------


def test_started_by_hand_it_says_who_starts_it() -> None:
    command = [sys.executable, "-m", "tidegate.worker"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "A worker is started by the JobManager: start the job with `tidegate run`.\n"


def test_paths_and_arguments_that_are_no_utf_8_reach_it() -> None:
    odd = os.fsdecode(b"/tmp/\xff\xfe ok\xc3\xa9")
    program = ProgramSpec(odd, "job", (odd, "plain"), (odd,), odd)
    parameters = WorkerParameters(program, 128, Attempt(1), WorkerIndex(0), "ipc:///c", "ipc:///d", 5, 1)
    text = encode_parameters(parameters)
    assert text.isascii()
    assert decode_parameters(text) == parameters


def test_standard_streams_may_be_closed(tmp_path: Path) -> None:
    (tmp_path / "small_job.py").write_text(
        "import tidegate as tg\nfrom tidegate.local import LocalSink\n"
        "from tidegate.connectors.collections import CollectionSource\njob = tg.Job('small')\n"
        "job.source(CollectionSource([b'1', b'2']), name='n').sink(LocalSink('log', 'out', partitions=1), name='s')\n"
    )
    run = f"{sys.executable} -c 'from tidegate.cli.main import main; main()' run small_job.py --checkpoint-dir ck"
    done = subprocess.run(
        ["sh", "-c", f"{run} <&- >&-"], cwd=tmp_path, stderr=subprocess.PIPE, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


def test_what_user_code_raises_to_end_a_program_is_told_as_its_failure(world_of: Callable[[str], World]) -> None:
    world = world_of("raise KeyboardInterrupt\n")
    world.cluster.spawn(ATTEMPT, 1)
    failure = failure_told(world)
    assert failure.kind is ErrorKind.USER_CODE
    assert "raised KeyboardInterrupt in the middle of a job" in failure.message
    assert "small_job.py" in failure.traceback


# ---- its wires -----------------------------------------------------------------------------------------------------


def test_a_frame_of_a_peer_that_was_deployed_earlier_waits_for_its_own_deployment(
    world_of: Callable[[str], World], context: Context
) -> None:
    world = world_of(PROGRAM)
    address = ready_worker(world)
    peer = context.socket(zmq.PUSH)
    peer.connect(address)
    peer.send(b"what no worker can have sent")
    # Whether it has arrived cannot be seen from here; that it is not taken yet is the point.
    time.sleep(0.3)
    assert world.messages(TaskFailed) == []
    world.cluster.send(ATTEMPT, WorkerIndex(0), deploy(address))
    assert failure_told(world).kind is ErrorKind.INTERNAL


def test_a_data_connection_that_breaks_fails_the_attempt(world_of: Callable[[str], World], context: Context) -> None:
    world = world_of(PROGRAM)
    address = ready_worker(world)
    peer = context.socket(zmq.PULL)
    peer.bind(world.folder.address("peer"))
    world.cluster.send(ATTEMPT, WorkerIndex(0), deploy(address, world.folder.address("peer")))
    world.until(lambda: world.messages(TaskRunning), "a task that runs")
    assert world.messages(TaskFailed) == []
    peer.close(linger=0)
    failure = failure_told(world)
    assert failure.kind is ErrorKind.UNAVAILABLE
    assert "a data connection to another worker broke" in failure.message
    assert failure.where == f"worker 0, attempt {ATTEMPT}"


def test_what_comes_together_with_the_word_to_stop_is_still_carried_out(world_of: Callable[[str], World]) -> None:
    world = world_of(PROGRAM)
    address = ready_worker(world)
    [spawned] = world.of_kind(p.WorkersSpawned)
    assert isinstance(spawned, p.WorkersSpawned)
    os.kill(spawned.processes[0].pid, signal.SIGSTOP)
    nowhere = TaskId(VertexName("nowhere"), SubtaskIndex(0))
    for message in (deploy(address), AssignSplits(OperatorName("nowhere"), nowhere, (), True), StopWorker()):
        world.cluster.send(ATTEMPT, WorkerIndex(0), message)
    os.kill(spawned.processes[0].pid, signal.SIGCONT)
    assert "nowhere" in failure_told(world).message
    world.until(lambda: world.of_kind(p.WorkerDied), "its end")
    assert world.of_kind(p.WorkerDied) == [p.WorkerDied(ATTEMPT, WorkerIndex(0), "exited with 0")]


# ---- what it leaves behind -----------------------------------------------------------------------------------------


def test_restarts_leave_no_descriptor_and_no_zombie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short_lived = tmp_path / "short-lived"
    short_lived.write_text("#!/bin/sh\nexit 3\n")
    short_lived.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(short_lived))
    folder = RuntimeFolder()
    spec = ProgramSpec("nothing", folder=str(tmp_path))
    cluster = LocalCluster(spec, 128, folder, InlineExecutor(), "here", SystemClock())
    with closing(cluster):
        descriptors = [after_an_attempt_that_dies(cluster, Attempt(attempt)) for attempt in range(1, 51)]
        # A leak shows in every attempt; a few of this process's own come and go with clients of other tests.
        assert descriptors[-1] < descriptors[0] + len(descriptors) // 2
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    # A zombie has no command line.
    assert [child for child in children if Path(f"/proc/{child}/cmdline").read_bytes() == b""] == []
    folder.close()


def after_an_attempt_that_dies(cluster: LocalCluster, attempt: Attempt) -> int:
    """How many descriptors this process has then."""

    def is_dead() -> bool:
        cluster.poller.poll(10)
        cluster.step()
        deaths = [event for event in cluster.events if isinstance(event, p.WorkerDied)]
        assert {event.how for event in deaths} <= {"exited with 3"}
        return len(deaths) == 3

    cluster.spawn(attempt, 3)
    wait_until(is_dead, "three deaths", 20)
    cluster.end(attempt, 0.0)
    assert cluster.events[-1] == p.WorkersGone(attempt)
    cluster.events.clear()
    return len(os.listdir("/proc/self/fd"))


# ---- the death of the parent ---------------------------------------------------------------------------------------

BUSY = """
import os, re, signal
import tidegate as tg
from tidegate.connectors.collections import CollectionSource
from tidegate.local import LocalSink

def endless(number):
    print("at it")
    {work}

job = tg.Job("busy")
job.source(CollectionSource([1]), name="numbers").map(endless, name="busy").sink(
    LocalSink("log", "out", partitions=1), name="sink"
)
"""


@pytest.mark.parametrize(
    "work",
    [
        "while True: pass",
        # One call that holds the interpreter's lock: no other thread of the worker runs.
        're.match(r"(a+)+$", "a" * 40 + "b")',
        "os.kill(os.getpid(), signal.SIGSTOP)",
    ],
    ids=["busy", "in a call that holds the lock", "stopped"],
)
def test_a_worker_dies_with_its_job_manager_whatever_user_code_does(tmp_path: Path, work: str) -> None:
    (tmp_path / "busy_job.py").write_text(BUSY.format(work=work))
    command = [sys.executable, "-c", "from tidegate.cli.main import main; main()", "run", "busy_job.py"]
    process = subprocess.Popen(
        [*command, "--checkpoint-dir", "checkpoints"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdout is not None
    assert select.select([process.stdout], [], [], 30)[0]
    assert process.stdout.readline() == b"at it\n"
    [worker] = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert is_alive(int(worker))
    process.kill()
    process.communicate()
    wait_until(lambda: not is_alive(int(worker)), f"the death of worker {worker}", 10)
