"""What HDFS can answer beside what the minicluster does: standby, gateways, logins, answers that are cut off.

The server is scripted; `tests/hdfs` has the real one.
"""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest

from tidegate.errors import InvalidError
from tidegate.storage.hdfs import HdfsStorage, open_hdfs
from tidegate.storage.port import NotFound, StorageUnavailable

TOKEN = "HAAEcm9vdA-a-token"


class Answer:
    def __init__(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.status = status
        self.body = body
        self.headers = {"Content-Length": str(len(body)), **{name.replace("_", "-"): headers[name] for name in headers}}


def refusal(status: int, name: str, message: str = "because") -> Answer:
    body = {"RemoteException": {"exception": name, "javaClassName": f"org.apache.{name}", "message": message}}
    return Answer(status, json.dumps(body).encode())


Script = Callable[[str, dict[str, str]], Answer]
"""From 'PUT /path' and the query to an answer."""


class Server:
    def __init__(self) -> None:
        self.script: Script = lambda request, query: refusal(404, "FileNotFoundException")
        self.asked: list[tuple[str, dict[str, str]]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _handler(server) -> type[BaseHTTPRequestHandler]:  # noqa: N805 - the handler has the other `self`
        class Handler(BaseHTTPRequestHandler):
            def _answer(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                url = urlsplit(self.path)
                query = {name: values[0] for name, values in parse_qs(url.query, keep_blank_values=True).items()}
                request = f"{self.command} {url.path}"
                server.asked.append((request, query))
                answer = server.script(request, query)
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(answer.body)

            do_GET = do_PUT = do_DELETE = _answer  # noqa: N815

            def log_message(self, *arguments: object) -> None:
                pass

        return Handler


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


@pytest.fixture
def storage(server: Server, monkeypatch: pytest.MonkeyPatch) -> HdfsStorage:
    monkeypatch.setenv("HADOOP_USER_NAME", "alice")
    return open_hdfs(f"webhdfs://{server.address}/check/points")


def always(answer: Answer) -> Script:
    return lambda request, query: answer


@pytest.fixture
def closed_port() -> Iterator[str]:
    """An address at which nobody listens, and nobody else will."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


# ---- the URL -------------------------------------------------------------------------------------------------------


def test_the_port_is_the_namenodes_http_port_unless_given() -> None:
    assert open_hdfs("webhdfs://namenode/a/b").location == "webhdfs://namenode:9870/a/b"
    assert open_hdfs("webhdfs://one,[::1]:1/a").location == "webhdfs://one:9870,[::1]:1/a"
    assert open_hdfs("webhdfs://namenode:50070").location == "webhdfs://namenode:50070"


def test_hadoops_own_protocol_is_refused_with_what_to_write() -> None:
    with pytest.raises(InvalidError, match=r"through WebHDFS only\nGive webhdfs://host:port/path"):
        open_hdfs("hdfs://namenode:8020/a")


@pytest.mark.parametrize("address", ["namenode:", "namenode:x", "namenode:0", "namenode:65536", "one,", "a b:1"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(InvalidError, match="does not name a NameNode"):
        open_hdfs(f"webhdfs://{address}/a")


def test_every_request_is_in_the_users_name(server: Server, storage: HdfsStorage) -> None:
    with pytest.raises(NotFound):
        storage.read("x")
    assert server.asked == [("GET /webhdfs/v1/check/points/x", {"op": "OPEN", "user.name": "alice"})]


# ---- what can pass -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer",
    [
        refusal(403, "StandbyException", "Operation category READ is not supported in state standby"),
        refusal(403, "RetriableException", "NameNode still not started"),
        refusal(403, "IOException", "Failed to find datanode, suggest to check cluster health."),
        Answer(503, b"<html>", Content_Type="text/html"),
        Answer(500),
        Answer(429),
    ],
)
def test_what_can_pass_is_unavailable_with_the_place_and_the_reason(
    server: Server, storage: HdfsStorage, answer: Answer
) -> None:
    server.script = always(answer)
    reason = json.loads(answer.body)["RemoteException"]["message"] if answer.body.startswith(b"{") else answer.status
    for call in CALLS:
        with pytest.raises(StorageUnavailable, match=str(reason)) as raised:
            call(storage)
        assert f"{storage.location}" in str(raised.value)


CALLS: tuple[Callable[[HdfsStorage], object], ...] = (
    lambda storage: storage.put_if_absent("x", b""),
    lambda storage: storage.write("x", b""),
    lambda storage: storage.read("x"),
    lambda storage: storage.exists("x"),
    lambda storage: storage.list("x/"),
    lambda storage: storage.delete("x"),
    lambda storage: storage.check_writable(),
)


def test_a_namenode_in_standby_is_told_with_what_to_do(server: Server, storage: HdfsStorage) -> None:
    server.script = always(refusal(403, "StandbyException"))
    with pytest.raises(StorageUnavailable, match="Name all NameNodes"):
        storage.read("x")


@pytest.mark.parametrize("length", ["10", None])
def test_a_content_that_is_cut_off_is_no_content(server: Server, storage: HdfsStorage, length: str | None) -> None:
    cut = Answer(200, b"12345")
    cut.headers = {} if length is None else {"Content-Length": length}

    def script(request: str, query: dict[str, str]) -> Answer:
        if "node" in query:
            return cut
        return Answer(307, Location=f"http://{server.address}/webhdfs/v1/x?op=OPEN&node=1")

    server.script = script
    with pytest.raises(StorageUnavailable):
        storage.read("x")


def test_a_datanode_that_cannot_be_reached_is_gone_around(
    server: Server, storage: HdfsStorage, closed_port: str
) -> None:
    def script(request: str, query: dict[str, str]) -> Answer:
        if "node" in query:
            return Answer(200, b"content")
        node = server.address if "excludedatanodes" in query else closed_port
        return Answer(307, Location=f"http://{node}/webhdfs/v1/x?op=OPEN&node=1")

    server.script = script
    assert storage.read("x") == b"content"
    assert [query.get("excludedatanodes") for _, query in server.asked] == [None, "127.0.0.1", None]


@pytest.mark.parametrize("has_others", [False, True])
def test_where_no_datanode_can_be_reached_the_last_one_is_named_and_its_token_is_not(
    server: Server, storage: HdfsStorage, closed_port: str, has_others: bool
) -> None:
    nodes = iter([closed_port, *(f"localhost:{closed_port[10:]}" for _ in range(9))])

    def script(request: str, query: dict[str, str]) -> Answer:
        if "excludedatanodes" in query and not has_others:
            return refusal(403, "IOException", "Failed to find datanode")
        return Answer(307, Location=f"http://{next(nodes)}/webhdfs/v1/x?op=OPEN&delegation={TOKEN}")

    server.script = script
    with pytest.raises(StorageUnavailable, match="cannot be reached") as raised:
        storage.read("x")
    assert ("localhost" if has_others else closed_port) in str(raised.value)
    assert TOKEN not in str(raised.value)
    assert len(server.asked) <= 3


# ---- several NameNodes ---------------------------------------------------------------------------------------------


@pytest.fixture
def other() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


@pytest.fixture
def both(server: Server, other: Server) -> HdfsStorage:
    return open_hdfs(f"webhdfs://{server.address},{other.address}/check/points")


STANDBY = refusal(403, "StandbyException", "not supported in state standby")


def test_the_active_namenode_is_found_and_asked_first_from_then_on(
    server: Server, other: Server, both: HdfsStorage
) -> None:
    server.script, other.script = always(STANDBY), Gateway(other, b"")
    both.put_if_absent("x", b"")
    assert len(server.asked) == 1
    asked = len(other.asked)
    server.script, other.script = Gateway(server, b""), always(STANDBY)
    both.put_if_absent("y", b"")
    both.put_if_absent("z", b"")
    assert len(other.asked) == asked + 1


def test_a_namenode_that_refused_as_the_active_one_is_asked_first_from_then_on(
    server: Server, other: Server, both: HdfsStorage
) -> None:
    server.script, other.script = always(STANDBY), always(refusal(404, "FileNotFoundException"))
    for _ in range(3):
        assert not both.exists("x")
    assert (len(server.asked), len(other.asked)) == (1, 3)


def test_a_namenode_that_cannot_be_reached_is_gone_past(other: Server, closed_port: str) -> None:
    storage = open_hdfs(f"webhdfs://{closed_port},{other.address}/check/points")
    other.script = Gateway(other, b"")
    assert storage.exists("x")


def test_where_no_namenode_is_active_each_is_named(server: Server, closed_port: str) -> None:
    server.script = always(STANDBY)
    storage = open_hdfs(f"webhdfs://{server.address},{closed_port}/check/points")
    with pytest.raises(StorageUnavailable) as raised:
        storage.read("x")
    assert f"{server.address} is not active" in str(raised.value)
    assert f"{closed_port} cannot be reached" in str(raised.value)


def test_a_change_that_may_have_been_made_is_not_asked_of_another_but_the_next_call_is(
    server: Server, other: Server, both: HdfsStorage
) -> None:
    other.script = Gateway(other, b"")
    gateway = Gateway(server, b"")
    server.script = lambda request, query: Answer(503) if query["op"] == "RENAME" else gateway(request, query)
    with pytest.raises(StorageUnavailable):
        both.put_if_absent("x", b"")
    assert other.asked == []
    both.put_if_absent("x", b"")
    assert "RENAME" in [query["op"] for _, query in other.asked]


# ---- what does not -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Answer(401, b"<html>"), "wants a login"),
        (refusal(401, "SecurityException", "Failed to obtain user group information"), "simple authentication"),
        (Answer(404, b"<html>"), "does not answer as WebHDFS does: 404 Not Found"),
        (Answer(302, Location="http://elsewhere/"), "does not answer as WebHDFS does: 302 Found"),
        (Answer(201), "does not answer as WebHDFS does: 201 Created"),
        (Answer(200, b"<html>"), "does not answer as WebHDFS does"),
        (refusal(400, "IllegalArgumentException", "Invalid value for webhdfs parameter"), "of Hadoop 3 or newer"),
    ],
)
def test_what_does_not_pass_is_invalid_and_says_what_to_name_instead(
    server: Server, storage: HdfsStorage, answer: Answer, reason: str
) -> None:
    server.script = always(answer)
    for call in CALLS:
        with pytest.raises(InvalidError, match=reason) as raised:
            call(storage)
        assert raised.value.failure.remedy


@pytest.mark.parametrize("status", [200, 204, 302, 307])
def test_only_the_answer_that_says_so_counts_as_done(server: Server, storage: HdfsStorage, status: int) -> None:
    gateway = Gateway(server, b"")

    def script(request: str, query: dict[str, str]) -> Answer:
        answer = gateway(request, query)
        return Answer(status) if query["op"] == "CREATE" and "node" in query else answer

    server.script = script
    for call in CALLS[:2]:
        with pytest.raises(InvalidError, match=f"does not answer as WebHDFS does: {status}"):
            call(storage)
    assert not [request for request, query in server.asked if query["op"] == "RENAME"]


@pytest.mark.parametrize("status", [201, 204, 302, 307])
def test_a_rename_counts_as_done_only_when_the_answer_says_so(
    server: Server, storage: HdfsStorage, status: int
) -> None:
    gateway = Gateway(server, b"")
    server.script = lambda request, query: Answer(status) if query["op"] == "RENAME" else gateway(request, query)
    with pytest.raises(InvalidError, match=f"does not answer as WebHDFS does: {status}"):
        storage.put_if_absent("x", b"")


def test_a_datanode_behind_tls_is_refused(server: Server, storage: HdfsStorage) -> None:
    server.script = always(Answer(307, Location=f"https://datanode:9865/webhdfs/v1/x?delegation={TOKEN}"))
    with pytest.raises(InvalidError, match="over https, not over http") as raised:
        storage.read("x")
    assert TOKEN not in str(raised.value)


class Gateway:
    """Knows no `renameoptions`, as HttpFS, and answers a rename with a boolean."""

    def __init__(self, server: Server, answer: bytes) -> None:
        self._server = server
        self._answer = answer

    def __call__(self, request: str, query: dict[str, str]) -> Answer:
        status = {"pathSuffix": "", "type": "FILE", "modificationTime": 1, "fileId": 7}
        if "node" in query:
            return Answer(201)
        return {
            "CREATE": Answer(307, Location=f"http://{self._server.address}/webhdfs/v1/x?op=CREATE&node=1"),
            "GETFILESTATUS": Answer(200, json.dumps({"FileStatus": status}).encode()),
            "DELETE": Answer(200, b'{"boolean": true}'),
            "MKDIRS": Answer(200, b'{"boolean": true}'),
            "RENAME": Answer(200, self._answer),
        }[query["op"]]


def test_a_listing_that_begins_again_instead_of_going_on_is_refused(server: Server, storage: HdfsStorage) -> None:
    status = {"pathSuffix": "a", "type": "FILE", "modificationTime": 1, "fileId": 7}
    part = {"partialListing": {"FileStatuses": {"FileStatus": [status]}}, "remainingEntries": 1}
    server.script = always(Answer(200, json.dumps({"DirectoryListing": part}).encode()))
    with pytest.raises(InvalidError, match="does not go on after its first part"):
        storage.list("")


@pytest.mark.parametrize("answer", [b'{"boolean": true}', b'{"boolean": false}'])
def test_a_server_that_does_not_know_exclusive_renames_is_refused(
    server: Server, storage: HdfsStorage, answer: bytes
) -> None:
    server.script = Gateway(server, answer)
    for call in CALLS[0], CALLS[1], CALLS[-1]:
        with pytest.raises(InvalidError, match="does not know the renameoptions of WebHDFS"):
            call(storage)


def test_a_server_whose_renames_replace_files_is_refused(server: Server, storage: HdfsStorage) -> None:
    gateway = Gateway(server, b"")

    def script(request: str, query: dict[str, str]) -> Answer:
        if query["op"] == "OPEN":
            return Answer(200, b"first") if "node" in query else Answer(307, Location=server_open)
        return gateway(request, query)

    server_open = f"http://{server.address}/webhdfs/v1/x?op=OPEN&node=1"
    server.script = script
    with pytest.raises(InvalidError, match="a rename replaced a file that exists"):
        storage.check_writable()
