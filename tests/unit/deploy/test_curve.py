"""Wires over TCP with CURVE, on real sockets: peers work as over Unix sockets, and strangers get nowhere."""

import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
import zmq

from tests.integration.programs import wait_until
from tests.unit.deploy.curve_processes import ANYWHERE, GREETING, Pair, PassThrough, Process, port_of, raw, stranger
from tidegate.deploy.curve import WorkerKeys, new_pair, worker_keys
from tidegate.deploy.wires import ControlClient, ControlServer, DataWires
from tidegate.errors import InternalError, InvalidError
from tidegate.ids import Attempt, WorkerIndex

RECORD = b"the password of the shop is swordfish"


@pytest.fixture
def process() -> Iterator[Callable[[], Process]]:
    made: list[Process] = []

    def make() -> Process:
        made.append(Process())
        return made[-1]

    yield make
    for one in made:
        one.close()


# ---- peers ---------------------------------------------------------------------------------------------------------


def test_frames_arrive_in_order_both_ways(process: Callable[[], Process]) -> None:
    pair = Pair(process)
    pair.exchange([str(number).encode() for number in range(2000)])
    assert pair.broken == [False, False]


@pytest.mark.parametrize("side", [0, 1])
def test_both_sides_notice_that_a_peer_is_gone(process: Callable[[], Process], side: int) -> None:
    pair = Pair(process)
    pair.exchange([b"hello"])
    pair.wires[1 - side].close()
    pair.until(lambda: pair.broken[side], "the break")


def test_the_receiver_alone_notices_a_break_too(process: Callable[[], Process]) -> None:
    pair = Pair(process)
    third, keys = process(), pair.keys[0]
    peer = stranger(third, pair.wires[1].address, keys.own, keys.peers[1])
    pair.until(lambda: pair.wires[1]._arrivals.let_in == 2, "one more connection")
    peer.close(linger=0)
    pair.until(lambda: pair.broken[1], "the break")
    assert not pair.broken[0]


def test_a_peer_that_was_never_there_is_a_break(process: Callable[[], Process]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        nobody = f"tcp://127.0.0.1:{listener.getsockname()[1]}"
    [keys, _] = worker_keys(new_pair(), 2)
    wires = DataWires(process().context, ANYWHERE, keys)
    wires.connect([wires.address, nobody])
    assert not wires.is_complete
    wait_until(wires.has_broken, "the break", 20)


def test_control_frames_find_the_worker_and_come_from_those_of_this_attempt_alone(
    process: Callable[[], Process],
) -> None:
    own = new_pair()
    server = ControlServer(process().context, ANYWHERE, own)
    old, new = worker_keys(own, 1), worker_keys(own, 2)
    server.admit([keys.own.public for keys in new])
    heard: dict[tuple[int, int], bytes] = {}
    clients = [
        ControlClient(process().context, server.address, Attempt(attempt), WorkerIndex(index), keys)
        for attempt, index, keys in [(1, 0, old[0]), (2, 0, new[0]), (2, 1, new[1])]
    ]
    for client in clients:
        client.send([b"hello"])

    def has_heard_both() -> bool:
        while (found := server.receive()) is not None:
            heard[found[0], found[1]] = found[2]
        return len(heard) == 2

    wait_until(has_heard_both, "two frames", 30)
    assert heard == {(2, 0): b"hello", (2, 1): b"hello"}
    server.send(Attempt(2), WorkerIndex(1), [b"to you"])
    wait_until(lambda: clients[2].receive() == b"to you", "the answer", 30)
    assert server.receive() is None
    assert clients[0].receive() is clients[1].receive() is None


def test_what_no_worker_can_have_sent_is_dropped_and_what_follows_is_heard(
    process: Callable[[], Process], tmp_path: Path
) -> None:
    server = ControlServer(process().context, f"ipc://{tmp_path}/control")
    context = process().context
    for identity, frames in [
        (b"", [b"x"]),
        (b"1-x", [b"x"]),
        (b"\xff-1", [b"x"]),
        (b"1-" + b"9" * 200, [b"x"]),
        (b"3-0", [b"x", b"y"]),
        (b"4-0", []),
        (b"1-0", [b"at last"]),
    ]:
        odd = context.socket(zmq.DEALER)
        if identity:
            odd.setsockopt(zmq.IDENTITY, identity)
        odd.connect(server.address)
        odd.send_multipart(frames or [b"", b""])
    found: list[object] = []

    def has_come() -> bool:
        found.extend(iter(server.receive, None))
        return bool(found)

    wait_until(has_come, "the frame of a worker", 30)
    assert found == [(1, 0, b"at last")]


def test_tcp_without_keys_does_not_exist(process: Callable[[], Process]) -> None:
    context = process().context
    with pytest.raises(InternalError, match="needs keys"):
        ControlServer(context, ANYWHERE)
    with pytest.raises(InternalError, match="needs keys"):
        ControlClient(context, "tcp://127.0.0.1:1", Attempt(1), WorkerIndex(0))
    with pytest.raises(InternalError, match="needs keys"):
        DataWires(context, ANYWHERE)


def test_an_address_may_be_of_version_6(process: Callable[[], Process]) -> None:
    keys = worker_keys(new_pair(), 2)
    wires = [DataWires(process().context, "tcp://[::1]:*", one) for one in keys]
    assert wires[1].address.startswith("tcp://[::1]:")
    for one in wires:
        one.connect([one.address for one in wires])

    def is_complete() -> bool:
        for one in wires:
            one.let_peers_in()
            assert not one.has_broken()
        return all(one.is_complete for one in wires)

    wait_until(is_complete, "both connections", 20)


def test_an_address_of_another_machine_is_refused_by_the_name_of_the_setting(process: Callable[[], Process]) -> None:
    with pytest.raises(InvalidError, match=r"network\.host"):
        ControlServer(process().context, "tcp://192.0.2.1:*", new_pair())


# ---- strangers -----------------------------------------------------------------------------------------------------


STRANGERS: dict[str, Callable[[Process, str, WorkerKeys], object]] = {
    "no key": lambda process, address, _: stranger(process, address, None, ""),
    "a key that nobody knows": lambda process, address, keys: stranger(process, address, new_pair(), keys.peers[1]),
    "another server's key": lambda process, address, keys: stranger(process, address, keys.own, new_pair().public),
    "a web browser": lambda process, address, _: raw(process, address, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"),
    "a password": lambda process, address, _: raw(process, address, GREETING + b"PLAIN".ljust(20, b"\0") + bytes(32)),
    "a long frame": lambda process, address, _: raw(
        process, address, GREETING + b"CURVE".ljust(20, b"\0") + bytes(32) + b"\x06" + b"\x7f" * 8 + bytes(1000)
    ),
    "half a greeting": lambda process, address, _: raw(process, address, GREETING[:9]),
    "silence": lambda process, address, _: raw(process, address, b""),
}


@pytest.mark.parametrize("kind", STRANGERS)
def test_a_stranger_gets_nowhere_and_disturbs_nothing(process: Callable[[], Process], kind: str) -> None:
    pair = Pair(process)
    guest = process()
    arrivals = pair.wires[1]._arrived
    STRANGERS[kind](guest, pair.wires[1].address, pair.keys[0])
    assert arrivals.poll(20_000), "the stranger has not come"
    pair.exchange([b"1", b"2", b"3"])
    guest.close()
    pair.until(lambda: pair.wires[1]._arrivals.open == 1, "the end of the stranger's connections")
    pair.exchange([b"4", b"5"])
    assert pair.broken == [False, False]
    assert pair.wires[1]._arrivals.let_in == 1


def test_the_end_of_a_peer_is_noticed_when_strangers_have_come_and_gone(process: Callable[[], Process]) -> None:
    pair = Pair(process)
    guest = process()
    raw(guest, pair.wires[1].address, b"")
    pair.until(lambda: pair.wires[1]._arrivals.open == 2, "the stranger")
    pair.wires[0].close()
    guest.close()
    pair.until(lambda: pair.broken[1], "the break")


def test_many_strangers_at_once_keep_nobody_from_their_work(process: Callable[[], Process]) -> None:
    pair = Pair(process)
    guest = process()
    for number in range(300):
        raw(guest, pair.wires[number % 2].address, GREETING if number % 3 else b"")
        if number % 20 == 0:
            pair.exchange([b"%d" % number])
    guest.close()
    pair.until(lambda: all(wires._arrivals.open == 1 for wires in pair.wires), "the end of all strangers")
    assert pair.broken == [False, False]


# ---- what is on the wire -------------------------------------------------------------------------------------------


def test_nothing_of_a_record_can_be_read_on_the_wire(process: Callable[[], Process]) -> None:
    ways: list[PassThrough] = []

    def way(address: str) -> str:
        ways.append(PassThrough(port_of(address)))
        return ways[-1].address

    pair = Pair(process, way)
    pair.exchange([RECORD] * 50)
    for one in ways:
        assert len(one.carried) > 50 * len(RECORD)
        assert not any(RECORD[at : at + 8] in one.carried for at in range(len(RECORD) - 8))
        one.close()


def test_the_pass_through_would_show_a_record_that_goes_in_the_clear(process: Callable[[], Process]) -> None:
    context = process().context
    inbox, outbox = context.socket(zmq.PULL), context.socket(zmq.PUSH)
    port = inbox.bind_to_random_port("tcp://127.0.0.1")
    with closing(PassThrough(("127.0.0.1", port))) as way:
        outbox.connect(way.address)
        outbox.send(RECORD)
        assert inbox.poll(20_000)
        assert RECORD in way.carried
