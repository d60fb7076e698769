"""Whatever answers where HDFS should, a storage says that it is none, or that it cannot be reached: nothing else."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.enemy.damage import bombs
from tidegate.errors import TidegateError
from tidegate.storage.hdfs import open_hdfs

STATUS = b'{"FileStatus": {"pathSuffix": "", "type": "FILE", "length": 3, "modificationTime": 0}}'
LISTING = b'{"DirectoryListing": {"partialListing": {"FileStatuses": {"FileStatus": []}}, "remainingEntries": 0}}'


class Answers(ThreadingHTTPServer):
    """A server that gives every request the same answer."""

    daemon_threads = True
    status = 200
    body = b""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Answers

    def _answer(self) -> None:
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(self.server.body)))
        self.end_headers()
        self.wfile.write(self.server.body)

    do_GET = do_PUT = do_DELETE = _answer  # noqa: N815 - so the library calls them

    def log_message(self, format: str, *arguments: object) -> None: ...


@pytest.fixture(scope="module")
def server() -> Iterator[Answers]:
    server = Answers(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


def ask_all(server: Answers) -> None:
    storage = open_hdfs(f"webhdfs://127.0.0.1:{server.server_address[1]}/flows")
    for ask in (storage.list, storage.exists, storage.read, storage.delete):
        try:
            ask("a/" if ask == storage.list else "a")
        except TidegateError:
            continue


@settings(max_examples=25)
@given(
    st.sampled_from([200, 307, 400, 404, 500]),
    st.binary(max_size=40) | st.sampled_from([STATUS, LISTING, *bombs(20_000)]),
    st.integers(0, 60),
)
def test_answers_that_make_no_sense_are_errors_of_ours(server: Answers, status: int, body: bytes, cut: int) -> None:
    server.status, server.body = status, body[: len(body) - cut] if cut < len(body) else body
    ask_all(server)
