"""Wires over real ZeroMQ sockets: frames arrive in order, and a data connection that breaks is never silent."""

from collections.abc import Iterator

import pytest
import zmq

from tests.integration.programs import wait_until
from tidegate.deploy.curve import Context
from tidegate.deploy.runtime_folder import RuntimeFolder
from tidegate.deploy.wires import ControlClient, ControlServer, DataWires
from tidegate.ids import Attempt, WorkerIndex


@pytest.fixture
def folder() -> Iterator[RuntimeFolder]:
    made = RuntimeFolder()
    yield made
    made.close()


@pytest.fixture
def context() -> Iterator[Context]:
    made = Context()
    yield made
    made.destroy(linger=0)


def receive(wire: DataWires | ControlClient, count: int) -> list[bytes]:
    frames: list[bytes] = []

    def has_all() -> bool:
        while (frame := wire.receive()) is not None:
            frames.append(frame)
        return len(frames) >= count

    wait_until(has_all, f"{count} frames", 20)
    return frames


def pair(context: Context, folder: RuntimeFolder) -> tuple[DataWires, DataWires]:
    addresses = [folder.address("data-0"), folder.address("data-1")]
    wires = [DataWires(context, address) for address in addresses]
    for wire in wires:
        wire.connect(addresses)
    return wires[0], wires[1]


# ---- control -------------------------------------------------------------------------------------------------------


def test_control_frames_find_the_worker_of_the_attempt(context: Context, folder: RuntimeFolder) -> None:
    server = ControlServer(context, folder.address("control"))
    clients = {
        who: ControlClient(context, folder.address("control"), *who)
        for who in [(Attempt(1), WorkerIndex(0)), (Attempt(1), WorkerIndex(1)), (Attempt(2), WorkerIndex(0))]
    }
    for who, client in clients.items():
        client.send([repr(who).encode()])
    heard: dict[tuple[Attempt, WorkerIndex], bytes] = {}

    def has_heard_all() -> bool:
        while (found := server.receive()) is not None:
            heard[found[0], found[1]] = found[2]
        return len(heard) == 3

    wait_until(has_heard_all, "three frames", 20)
    assert heard == {who: repr(who).encode() for who in clients}
    for who in clients:
        server.send(*who, [b"to", repr(who).encode()])
    for who, client in clients.items():
        assert receive(client, 2) == [b"to", repr(who).encode()]


def test_control_frames_to_nobody_are_dropped(context: Context, folder: RuntimeFolder) -> None:
    server = ControlServer(context, folder.address("control"))
    server.send(Attempt(1), WorkerIndex(0), [b"lost"])
    assert server.receive() is None


def test_a_worker_may_connect_before_the_job_manager_listens(context: Context, folder: RuntimeFolder) -> None:
    client = ControlClient(context, folder.address("control"), Attempt(1), WorkerIndex(0))
    client.send([b"early"])
    server = ControlServer(context, folder.address("control"))
    found: list[object] = []

    def has_come() -> bool:
        if (frame := server.receive()) is not None:
            found.append(frame)
        return bool(found)

    wait_until(has_come, "the frame", 20)
    assert found == [(1, 0, b"early")]


# ---- data ----------------------------------------------------------------------------------------------------------


def test_data_frames_arrive_in_order_both_ways(context: Context, folder: RuntimeFolder) -> None:
    first, second = pair(context, folder)
    frames = [str(number).encode() for number in range(5000)]
    for frame in frames:
        first.send(WorkerIndex(1), frame)
        second.send(WorkerIndex(0), frame)
    assert receive(second, 5000) == frames
    assert receive(first, 5000) == frames
    assert not first.has_broken()
    assert not second.has_broken()


def test_sending_never_waits_for_a_slow_receiver(context: Context, folder: RuntimeFolder) -> None:
    first, second = pair(context, folder)
    for _ in range(200):
        first.send(WorkerIndex(1), bytes(100_000))
    assert len(receive(second, 200)) == 200


@pytest.mark.parametrize("side", [0, 1])
def test_both_sides_notice_that_a_peer_is_gone(context: Context, folder: RuntimeFolder, side: int) -> None:
    wires = pair(context, folder)
    for sender, receiver in ((0, 1), (1, 0)):
        wires[sender].send(WorkerIndex(receiver), b"hello")
        receive(wires[receiver], 1)
    wires[1 - side].close()
    wait_until(wires[side].has_broken, "the break", 20)


def test_what_is_sent_after_a_break_is_known_to_be_lost(context: Context, folder: RuntimeFolder) -> None:
    first, second = pair(context, folder)
    first.send(WorkerIndex(1), b"hello")
    receive(second, 1)
    second.close()
    wait_until(first.has_broken, "the break", 20)
    # One that binds the same address again gets nothing of what was meant for the other.
    again = DataWires(context, folder.address("data-1"))

    def is_lost() -> bool:
        first.send(WorkerIndex(1), b"late")
        return first.has_broken()

    wait_until(is_lost, "a frame that is known to be lost", 20)
    assert again.receive() is None


def test_a_peer_that_was_never_there_is_a_break(context: Context, folder: RuntimeFolder) -> None:
    wire = DataWires(context, folder.address("data-0"))
    wire.connect([folder.address("data-0"), folder.address("data-1")])
    wait_until(wire.has_broken, "the break", 20)


def test_a_break_wakes_who_waits_for_the_monitors(context: Context, folder: RuntimeFolder) -> None:
    first, second = pair(context, folder)
    first.send(WorkerIndex(1), b"hello")
    receive(second, 1)
    poller = zmq.Poller()
    for monitor in first.monitors:
        poller.register(monitor, zmq.POLLIN)
    second.close()
    assert poller.poll(10_000)
