"""Keys are handed over so that nobody else sees them, and worker processes over TCP are as they are without."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.integration.programs import is_alive
from tests.unit.deploy.curve_processes import GREETING, Process, raw
from tests.unit.deploy.test_cluster import ATTEMPT, PROGRAM, World
from tests.unit.deploy.test_worker_process import deploy
from tidegate.clock import SystemClock
from tidegate.deploy.cluster import PARAMETERS_VARIABLE, LocalCluster, decode_parameters
from tidegate.deploy.curve import hand_over, new_pair, take_keys, worker_keys
from tidegate.errors import InternalError
from tidegate.ids import WorkerIndex
from tidegate.runtime.control import Deploy, StopWorker, TaskFailed, TaskRunning, WorkerReady
from tidegate.scheduling import protocol as p

# ---- keys ----------------------------------------------------------------------------------------------------------


def test_keys_are_handed_over_in_a_file_that_is_empty_and_gone_afterwards(tmp_path: Path) -> None:
    [keys, _] = worker_keys(new_pair(), 2)
    with hand_over(keys, tmp_path) as file:
        assert list(tmp_path.iterdir()) == []
        assert take_keys(os.dup(file.fileno())) == keys
        assert file.seek(0, os.SEEK_END) == 0
    with hand_over(keys, tmp_path) as file:
        file.truncate(20)
        with pytest.raises(InternalError, match="keys"):
            take_keys(os.dup(file.fileno()))


def test_a_secret_is_not_shown() -> None:
    [keys] = worker_keys(new_pair(), 1)
    assert keys.own.secret not in repr(keys)
    assert keys.own.public in repr(keys)


def test_all_keys_of_all_attempts_differ() -> None:
    own = new_pair()
    keys = [one for _ in range(3) for one in worker_keys(own, 4)]
    assert len({one.own.public for one in keys} | {one.own.secret for one in keys}) == 24


# ---- whole workers -------------------------------------------------------------------------------------------------


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path, PROGRAM)
    made.cluster.close()
    made.cluster = LocalCluster(made.spec, 256, made.folder, made.executor, "here", SystemClock(), tcp_host="127.0.0.1")
    yield made
    made.close()


def test_workers_over_tcp_are_ready_keep_their_secrets_and_mind_no_stranger(world: World) -> None:
    records = world.spawn(2)
    for record in records:
        variables = Path(f"/proc/{record.pid}/environ").read_bytes().split(b"\0")
        [text] = [one for one in variables if one.startswith(PARAMETERS_VARIABLE.encode() + b"=")]
        parameters = decode_parameters(text.partition(b"=")[2].decode())
        assert parameters.keys_fd is not None
        opened = [os.readlink(one) for one in Path(f"/proc/{record.pid}/fd").iterdir()]
        assert not any(str(world.folder.path) in one for one in opened), opened
    guest = Process()
    for ready in world.messages(WorkerReady):
        assert isinstance(ready.message, WorkerReady)
        for data in (b"", GREETING, b"GET / HTTP/1.1\r\n\r\n"):
            raw(guest, ready.message.data_address, data)
    guest.close()
    os.kill(records[1].pid, 9)
    world.until(lambda: world.of_kind(p.WorkerDied), "a death")
    assert world.of_kind(p.WorkerDied) == [p.WorkerDied(ATTEMPT, WorkerIndex(1), "killed by SIGKILL")]
    assert world.messages(TaskFailed) == []


def for_both(world: World) -> Deploy:
    ready = [event.message for event in world.messages(WorkerReady)]
    addresses = {one.worker: one.data_address for one in ready if isinstance(one, WorkerReady)}
    return msgspec.structs.replace(deploy(addresses[WorkerIndex(0)], addresses[WorkerIndex(1)]), parallelism=2)


def test_a_worker_runs_no_user_code_while_a_peer_may_still_have_to_be_let_in(world: World) -> None:
    world.spawn(2)
    message = for_both(world)
    world.cluster.send(ATTEMPT, WorkerIndex(0), message)
    # Nothing tells that it waits; that it has not begun is the point.
    end = time.monotonic() + 0.5
    world.until(lambda: time.monotonic() > end, "half a second")
    assert world.messages(TaskRunning) == []
    world.cluster.send(ATTEMPT, WorkerIndex(1), message)
    world.until(lambda: {event.worker for event in world.messages(TaskRunning)} == {0, 1}, "tasks on both")
    assert world.messages(TaskFailed) == []


def test_a_worker_that_waits_for_its_peers_stops_when_it_is_told_to(world: World) -> None:
    records = world.spawn(2)
    world.cluster.send(ATTEMPT, WorkerIndex(0), for_both(world))
    for index in range(2):
        world.cluster.send(ATTEMPT, WorkerIndex(index), StopWorker())
    begun = time.monotonic()
    world.cluster.end(ATTEMPT, 60.0)
    world.until(lambda: world.of_kind(p.WorkersGone), "the end")
    assert time.monotonic() - begun < 20
    assert not any(is_alive(record.pid) for record in records)
