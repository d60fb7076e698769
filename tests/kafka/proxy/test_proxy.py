"""The proxy of the tests carries everything in order, and each of its faults does what networks do and no more."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.programs import wait_until
from tests.kafka.proxy import KafkaProxy
from tests.kafka.proxy.framed_server import FramedClient, FramedServer
from tests.kafka.proxy.frames import Api, NotKafkaError, Splitter


@pytest.fixture
def server() -> Iterator[FramedServer]:
    with FramedServer() as started:
        yield started


@pytest.fixture
def proxy(server: FramedServer) -> Iterator[KafkaProxy]:
    with KafkaProxy(server.port) as started:
        yield started


@pytest.fixture
def client(proxy: KafkaProxy) -> Iterator[FramedClient]:
    with FramedClient(proxy.port) as connected:
        yield connected


# ---- without faults ------------------------------------------------------------------------------------------------


def test_requests_and_replies_pass_whole_and_in_order_and_are_counted(
    server: FramedServer, proxy: KafkaProxy, client: FramedClient
) -> None:
    bodies = [bytes([number]) * (number * 1000) for number in range(100)]
    numbers = [client.send(Api.Produce, body) for body in bodies]
    assert [client.receive() for _ in bodies] == list(zip(numbers, bodies, strict=True))
    client.ask(Api.EndTxn)
    assert [one.body for one in server.got] == [*bodies, b""]
    assert proxy.seen == proxy.answered == {"Produce": 100, "EndTxn": 1}
    assert proxy.lost == {}


def test_a_frame_that_comes_byte_by_byte_is_one_frame() -> None:
    frames = [b"\0\0\0\x08abcdefgh", b"\0\0\0\x0912345678\0"]
    splitter = Splitter(12)
    assert [frame for byte in b"".join(frames) for frame in splitter.feed(bytes([byte]))] == frames
    with pytest.raises(NotKafkaError):
        splitter.feed(b"GET / HTTP/1.1")


def test_a_large_frame_passes(client: FramedClient) -> None:
    body = bytes(10_000_000)
    sender = threading.Thread(target=client.send, args=(Api.Produce, body))
    sender.start()
    assert client.receive() == (1, body)
    sender.join()


def test_a_client_that_speaks_something_else_is_cut_off_and_nobody_else(
    proxy: KafkaProxy, client: FramedClient
) -> None:
    with FramedClient(proxy.port) as stranger:
        stranger.end.sendall(b"GET / HTTP/1.1\r\n\r\n")
        with pytest.raises(ConnectionResetError):
            stranger.receive()
    client.ask(Api.Metadata)


def test_the_end_of_one_side_is_told_to_the_other(server: FramedServer, proxy: KafkaProxy) -> None:
    with FramedClient(proxy.port) as client:
        client.ask(Api.Metadata)
    wait_until(lambda: server.ended == 1, "the end at the server")
    with FramedClient(proxy.port) as client:
        client.ask(Api.Metadata)
        server.drop_clients()
        assert client.receive() is None
    wait_until(lambda: proxy.connections == 0, "the end of the connections")


def test_without_a_broker_connections_break_and_nothing_else_happens() -> None:
    with FramedServer() as server:
        port = server.port
    with KafkaProxy(port) as proxy, FramedClient(proxy.port) as client:
        assert client.receive() is None


@pytest.mark.parametrize("count", [400, pytest.param(5000, marks=pytest.mark.slow)])
def test_connections_come_and_go_and_nothing_stays(server: FramedServer, proxy: KafkaProxy, count: int) -> None:
    def open_files() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    threads, files = threading.active_count(), open_files()
    for number in range(count):
        with FramedClient(proxy.port) as client:
            client.send(Api.Metadata)
            if number % 3:
                assert client.receive() == (1, b"")
        if number % 100 == 0:
            proxy.reset_connections()
    wait_until(lambda: proxy.connections == 0, "the end of all connections")
    wait_until(lambda: threading.active_count() <= threads and open_files() <= files, "that nothing is left")


def test_what_is_closed_leaves_neither_thread_nor_file(server: FramedServer) -> None:
    def resources() -> tuple[int, int]:
        return threading.active_count(), len(list(Path("/proc/self/fd").iterdir()))

    before = resources()
    with KafkaProxy(server.port) as proxy:
        clients = [FramedClient(proxy.port) for _ in range(5)]
        held = proxy.hold("EndTxn")
        clients[0].send(Api.EndTxn)
        held.wait()
    for client in clients:
        client.close()
    held.release()
    proxy.heal()
    assert proxy.seen == {"EndTxn": 1}
    wait_until(lambda: resources() == before, "that nothing is left")


# ---- faults of the network -----------------------------------------------------------------------------------------


def test_a_delay_holds_each_way_and_keeps_the_order(proxy: KafkaProxy, client: FramedClient) -> None:
    proxy.delay(0.05, jitter=0.03)
    sent = [client.send(Api.Fetch) for _ in range(20)]
    begin = time.monotonic()
    received = [client.receive() for _ in sent]
    assert time.monotonic() - begin > 0.1
    assert received == [(number, b"") for number in sent]
    proxy.delay(3600)
    proxy.heal()
    client.ask(Api.Fetch)


def test_a_slow_line_passes_so_many_bytes_a_second(proxy: KafkaProxy, client: FramedClient) -> None:
    proxy.throttle(400_000)
    begin = time.monotonic()
    client.ask(Api.Produce, bytes(100_000))
    assert time.monotonic() - begin > 0.4
    proxy.throttle(100)
    proxy.heal()
    client.ask(Api.Produce, bytes(1_000_000))


def test_what_is_cut_off_arrives_when_it_is_healed(
    server: FramedServer, proxy: KafkaProxy, client: FramedClient
) -> None:
    client.ask(Api.Metadata)
    proxy.cut()
    number = client.send(Api.Produce)
    with FramedClient(proxy.port, 100) as newcomer:
        newcomer.send(Api.Metadata)
        newcomer.assert_hears_nothing()
        client.assert_hears_nothing()
        assert server.numbers("Produce") == []
        proxy.heal()
        assert client.receive() == (number, b"")
        assert newcomer.receive() == (100, b"")


def test_what_a_client_sent_before_it_died_arrives_after_the_cut(server: FramedServer, proxy: KafkaProxy) -> None:
    with FramedClient(proxy.port) as client:
        client.ask(Api.Metadata)
        proxy.cut()
        client.send(Api.EndTxn)
        wait_until(lambda: proxy.seen["EndTxn"] == 1, "the request")
    assert server.ended == 0
    proxy.heal()
    wait_until(lambda: server.ended == 1, "the end at the server")
    assert server.numbers("EndTxn") == [2]


def test_one_direction_can_be_cut_alone(server: FramedServer, proxy: KafkaProxy, client: FramedClient) -> None:
    client.ask(Api.Metadata)
    proxy.cut(requests=False)
    number = client.send(Api.Produce)
    wait_until(lambda: server.numbers("Produce") == [number], "the request at the server")
    client.assert_hears_nothing()
    proxy.heal()
    assert client.receive() == (number, b"")


def test_while_it_refuses_there_are_no_new_connections(proxy: KafkaProxy, client: FramedClient) -> None:
    client.ask(Api.Metadata)
    proxy.refuse()
    with pytest.raises(ConnectionRefusedError):
        FramedClient(proxy.port)
    client.ask(Api.Metadata)
    proxy.heal()
    with FramedClient(proxy.port) as newcomer:
        newcomer.ask(Api.Metadata)


def test_a_reset_breaks_the_connections_that_there_are(
    server: FramedServer, proxy: KafkaProxy, client: FramedClient
) -> None:
    client.ask(Api.Metadata)
    proxy.reset_connections()
    with pytest.raises(ConnectionResetError):
        client.receive()
    wait_until(lambda: server.ended == 1, "the end at the server")
    with FramedClient(proxy.port) as newcomer:
        newcomer.ask(Api.Metadata)


# ---- faults by the kind of request ---------------------------------------------------------------------------------


def test_a_reply_is_lost_after_the_broker_has_done_what_was_asked(
    server: FramedServer, proxy: KafkaProxy, client: FramedClient
) -> None:
    proxy.lose_replies("EndTxn", times=1)
    client.ask(Api.Produce)
    lost = client.send(Api.EndTxn)
    client.send(Api.Produce)
    wait_until(lambda: len(server.got) == 3, "the requests")
    client.assert_hears_nothing()
    assert server.numbers("EndTxn") == [lost]
    assert proxy.lost == {"EndTxn": 1}
    with FramedClient(proxy.port) as newcomer:
        newcomer.ask(Api.EndTxn)


def test_a_reply_may_be_lost_with_its_connection(server: FramedServer, proxy: KafkaProxy, client: FramedClient) -> None:
    proxy.lose_replies("EndTxn", "Produce", reset=True)
    client.ask(Api.Metadata)
    client.send(Api.EndTxn)
    with pytest.raises(ConnectionResetError):
        client.receive()
    assert server.numbers("EndTxn") == [2]
    proxy.heal()
    with FramedClient(proxy.port) as newcomer:
        newcomer.ask(Api.EndTxn)


def test_a_lost_request_and_what_follows_it_never_arrive(
    server: FramedServer, proxy: KafkaProxy, client: FramedClient
) -> None:
    proxy.lose_requests("Produce", times=1)
    client.ask(Api.Metadata)
    client.send(Api.Produce)
    client.send(Api.EndTxn)
    client.assert_hears_nothing()
    assert [one.api for one in server.got] == ["Metadata"]
    assert proxy.seen == {"Metadata": 1, "Produce": 1, "EndTxn": 1}
    assert proxy.lost == {"Produce": 1}
    client.close()
    wait_until(lambda: server.ended == 1, "the end at the server")


def test_what_is_held_holds_its_connection_and_no_other(
    server: FramedServer, proxy: KafkaProxy, client: FramedClient
) -> None:
    held = proxy.hold("EndTxn", times=1)
    first = client.send(Api.EndTxn)
    held.wait()
    behind = client.send(Api.Produce)
    with FramedClient(proxy.port, 100) as other:
        other.ask(Api.EndTxn)
    client.assert_hears_nothing()
    assert server.numbers("EndTxn") == [100]
    held.release()
    assert client.receive() == (first, b"")
    assert client.receive() == (behind, b"")
    client.ask(Api.EndTxn)
    assert held.count == 1


@pytest.mark.parametrize("how", ["close", "reset", "cut"])
def test_what_is_held_arrives_also_when_its_client_has_gone(
    server: FramedServer, proxy: KafkaProxy, client: FramedClient, how: str
) -> None:
    held = proxy.hold("EndTxn")
    client.send(Api.EndTxn)
    held.wait()
    if how == "close":
        client.close()
    elif how == "reset":
        proxy.reset_connections()
        with pytest.raises(ConnectionResetError):
            client.receive()
    else:
        proxy.cut()
        client.close()
        proxy.heal()
    with FramedClient(proxy.port, 100) as other:
        other.ask(Api.Metadata)
    assert server.numbers("EndTxn") == []
    assert proxy.answered == {"Metadata": 1}
    held.release()
    wait_until(lambda: server.numbers("EndTxn") == [1], "what was held")
    wait_until(lambda: proxy.answered["EndTxn"] == 1, "its answer")
    wait_until(lambda: proxy.connections == 0, "the end of its connection")


def test_a_kind_of_request_that_does_not_exist_is_refused(proxy: KafkaProxy) -> None:
    for act in (proxy.lose_replies, proxy.lose_requests, proxy.hold):
        with pytest.raises(ValueError, match="EndTransaction"):
            act("EndTransaction")
        with pytest.raises(ValueError, match="nothing"):
            act()


def test_a_failure_of_the_proxy_itself_is_not_hidden(server: FramedServer) -> None:
    proxy = KafkaProxy(server.port)
    with FramedClient(proxy.port) as client:
        client.ask(Api.Metadata)
        proxy.call(lambda: proxy._loop.watch(client.end, 1, lambda mask: [][mask]))
        client.send(Api.Metadata)
        with pytest.raises(AssertionError, match="failed"):
            wait_until(lambda: proxy.connections > 5, "the failure")
    with pytest.raises(AssertionError, match="failed"):
        proxy.close()
