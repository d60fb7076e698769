"""A proxy in front of the NameNode that loses requests or answers, or stops to let a test act in between.

DataNodes are reached past it, since the NameNode's redirections name them.
"""

import http.client
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self
from urllib.parse import parse_qs, urlsplit

Hook = Callable[[str], bool]
"""Gets the operation, 'RENAME'. Whether the proxy goes on."""


def _go_on(operation: str) -> bool:
    return True


class Proxy:
    def __init__(self, target: str) -> None:
        self.before: Hook = _go_on
        """Called before the request is carried out; it is lost when this says no."""
        self.after: Hook = _go_on
        """Called when it was carried out; the answer is lost when this says no."""
        self.operations: list[str] = []
        """What was asked, in the order of the requests."""
        self._target = target
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.server_port}"

    def lose_answers(self, *operations: str) -> None:
        """From now on these are carried out and not answered; with none, all is well again."""
        self.before = _go_on
        self.after = lambda operation: operation not in operations

    def lose_requests(self, *operations: str) -> None:
        """From now on these never arrive."""
        self.before = lambda operation: operation not in operations
        self.after = _go_on

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _handler(proxy) -> type[BaseHTTPRequestHandler]:  # noqa: N805 - the handler has the other `self`
        class Handler(BaseHTTPRequestHandler):
            def _pass_on(self) -> None:
                operation = parse_qs(urlsplit(self.path).query)["op"][0]
                proxy.operations.append(operation)
                self.close_connection = True
                if proxy.before(operation):
                    status, location, body = proxy.ask(self.command, self.path)
                    if proxy.after(operation):
                        self.send_response(status)
                        self.send_header("Location", location)
                        self.send_header("Content-Length", str(len(body)))
                        self.end_headers()
                        self.wfile.write(body)

            do_GET = do_PUT = do_DELETE = _pass_on  # noqa: N815

            def log_message(self, *arguments: object) -> None:
                pass

        return Handler

    def ask(self, method: str, path: str) -> tuple[int, str, bytes]:
        connection = http.client.HTTPConnection(self._target, timeout=60)
        try:
            connection.request(method, path)
            answer = connection.getresponse()
            return answer.status, answer.headers.get("Location", ""), answer.read()
        finally:
            connection.close()
