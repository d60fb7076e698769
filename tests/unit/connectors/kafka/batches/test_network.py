"""Requests have exactly one outcome each, whoever is at the other end, and nothing waits for it."""

import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from kafka.protocol.metadata import ApiVersionsResponse

from tidegate.connectors.kafka.batches import requests
from tidegate.connectors.kafka.batches.network import Network, Outcome
from tidegate.errors import InvalidError, UnavailableError

CONFIG = {"client_id": "test"}
Serve = Callable[[socket.socket], None]


@contextmanager
def server(serve: Serve) -> Iterator[str]:
    """One that serves each connection on a thread."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()

        def accept() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=quietly, args=(serve, connection), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)


def quietly(serve: Serve, connection: socket.socket) -> None:
    with connection:
        try:
            serve(connection)
        except OSError:
            return


def receive(connection: socket.socket) -> tuple[int, int]:
    """Key and number of the next request."""
    (length,) = struct.unpack(">i", exactly(connection, 4))
    body = exactly(connection, length)
    key, _, number = struct.unpack_from(">hhi", body)
    return key, number


def exactly(connection: socket.socket, size: int) -> bytes:
    parts = b""
    while len(parts) < size:
        part = connection.recv(size - len(parts))
        if not part:
            raise OSError("closed")
        parts += part
    return parts


def greet(connection: socket.socket, versions: tuple[int, int] = (0, 20)) -> None:
    """As a broker that speaks these versions of everything."""
    _, number = receive(connection)
    row = ApiVersionsResponse.ApiVersion
    response = ApiVersionsResponse(
        error_code=0,
        api_keys=[row(api_key=key, min_version=versions[0], max_version=versions[1], version=3) for key in range(70)],
        throttle_time_ms=0,
        version=3,
    )
    body = struct.pack(">i", number) + response.encode()
    connection.sendall(struct.pack(">i", len(body)) + body)


def outcomes(network: Network, count: int, patience: float = 10.0) -> list[Outcome]:
    found: list[Outcome] = []
    until = time.monotonic() + patience
    while len(found) < count:
        assert time.monotonic() < until, f"only {found}"
        network.wait(0.01)
        found += network.poll()
    assert network.poll() == []
    return found


def asked(bootstrap: str, count: int = 2, timeout: float = 5.0) -> list[Outcome]:
    network = Network(bootstrap, CONFIG, timeout)
    began = time.monotonic()
    for number in range(count):
        network.ask_any("questions", requests.metadata(["t"]), number)
    assert time.monotonic() - began < 1
    found = outcomes(network, count)
    network.close()
    assert sorted(one.about for one in found) == list(range(count))
    return found


def message(outcome: Outcome) -> str:
    assert isinstance(outcome.error, UnavailableError)
    return outcome.error.failure.message


def test_where_nobody_listens_every_request_fails() -> None:
    assert all("Connection refused" in message(one) for one in asked("127.0.0.1:1"))


def test_who_hangs_up_fails_every_request() -> None:
    with server(lambda connection: None) as address:
        assert all(address in message(one) for one in asked(address))


@pytest.mark.parametrize("greets", [False, True])
def test_who_never_answers_fails_every_request_in_time(greets: bool) -> None:
    def silent(connection: socket.socket) -> None:
        if greets:
            greet(connection)
        time.sleep(30)

    with server(silent) as address:
        began = time.monotonic()
        assert all("no answer in 0.3 s" in message(one) for one in asked(address, timeout=0.3))
        assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    "answer",
    [b"HTTP/1.1 400 Bad Request\r\n", b"\x00\x00\x00\x08\x00\x00\x00\x63\x00\x00\x00\x00", b"\xff\xff\xff\xff"],
    ids=["another protocol", "another number", "a length below zero"],
)
def test_who_answers_something_else_is_not_believed(answer: bytes) -> None:
    def wrong(connection: socket.socket) -> None:
        greet(connection)
        receive(connection)
        connection.sendall(answer)
        time.sleep(5)

    with server(wrong) as address:
        assert [type(one.error) for one in asked(address, count=1)] == [UnavailableError]


def test_what_is_watched_becomes_readable_with_the_answer_and_is_not_after_it_was_taken() -> None:
    goes_on = threading.Event()

    def slow(connection: socket.socket) -> None:
        greet(connection)
        receive(connection)
        goes_on.wait(10)
        connection.sendall(b"\x00\x00\x00\x08\x00\x00\x00\x63")
        goes_on.clear()
        time.sleep(5)

    with server(slow) as address:
        network = Network(address, CONFIG, 5.0)
        assert network.watched() == []
        network.ask_any("questions", requests.metadata(["t"]), "it")
        assert network.watched() == [], "nothing tells when a connection is open"
        until = time.monotonic() + 5
        while not network.watched():
            assert time.monotonic() < until
            network.wait(0.01)
            network.poll()
        watched = network.watched()
        assert select.select(watched, [], [], 0.05)[0] == []
        goes_on.set()
        assert select.select(watched, [], [], 5)[0] == watched
        assert network.poll() == [], "half an answer"
        assert network.watched() == watched
        assert select.select(watched, [], [], 0.05)[0] == []
        network.close()


def test_an_answer_that_nobody_asked_for_ends_the_connection() -> None:
    def eager(connection: socket.socket) -> None:
        greet(connection)
        connection.sendall(b"\x00\x00\x00\x04\x00\x00\x00\x01" * 2)
        time.sleep(5)

    with server(eager) as address:
        assert [type(one.error) for one in asked(address, count=1)] == [UnavailableError]


def test_a_broker_that_is_too_old_is_said_to_be() -> None:
    def old(connection: socket.socket) -> None:
        greet(connection, (0, 3))
        time.sleep(5)

    with server(old) as address:
        (outcome,) = asked(address, count=1)
    assert isinstance(outcome.error, InvalidError)
    assert "version 9 of MetadataRequest is not among its versions 0 to 3" in outcome.error.failure.message


def test_a_large_answer_over_a_slow_line_is_not_late_while_it_comes() -> None:
    def slow(connection: socket.socket) -> None:
        greet(connection)
        _, number = receive(connection)
        body = struct.pack(">i", number) + b"\x00" * 20
        connection.sendall(struct.pack(">i", len(body)))
        for byte in body:
            connection.sendall(bytes([byte]))
            time.sleep(0.05)
        time.sleep(5)

    with server(slow) as address:
        (outcome,) = asked(address, count=1, timeout=0.4)
    assert outcome.error is None


def test_after_a_failure_another_broker_is_asked() -> None:
    def good(connection: socket.socket) -> None:
        greet(connection)
        _, number = receive(connection)
        connection.sendall(struct.pack(">ii", 24, number) + b"\x00" * 20)
        time.sleep(5)

    with server(good) as address:
        network = Network(f"127.0.0.1:1,{address}", CONFIG, 5.0)
        for expected in (UnavailableError, type(None)):
            network.ask_any("questions", requests.metadata([]), 0)
            (outcome,) = outcomes(network, 1)
            assert isinstance(outcome.error, expected)
        network.close()


def test_a_broker_that_is_not_there_any_more_fails_at_once() -> None:
    network = Network("127.0.0.1:1", CONFIG, 5.0)
    network.ask(7, "records", requests.metadata([]), "about")
    (outcome,) = network.poll()
    assert "broker 7 is not among those of the cluster" in message(outcome)
