"""An S3 for tests, on loopback: moto's, one request after the other, with faults that a test asks for.

moto's own conditional put is a test followed by a write, on as many threads as there are requests: two writers could
both win there, which no real S3 allows. So requests go through a lock. Faults act on the connection or on the answer,
around moto, so what moto keeps is what was really carried out.
"""

import enum
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, Never
from urllib.request import Request, urlopen

import boto3
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server
from werkzeug.wrappers import Response

BUCKET = "flows"
FOLDER = "some/flows"
REGION = "eu-central-1"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test-key", "AWS_SECRET_ACCESS_KEY": "very-secret"}


class Asked(NamedTuple):
    """One request, as it came."""

    method: str
    path: str
    query: str
    headers: dict[str, str]

    @property
    def is_conditional(self) -> bool:
        return self.headers.get("HTTP_IF_NONE_MATCH") == "*"

    def completes(self) -> bool:
        """Whether it is the last request of an upload in parts."""
        return self.method == "POST" and "uploadId" in self.query

    @property
    def is_listing(self) -> bool:
        return "list-type=2" in self.query


class Cut(enum.Enum):
    """The connection ends without an answer."""

    BEFORE = "and nothing was carried out"
    AFTER = "and it was carried out"
    AFTER_SUCCESS = "and it was carried out; a refusal is answered"
    IN_THE_MIDDLE = "and half of the answer is there"


class Refusal(NamedTuple):
    """An answer in place of moto's."""

    status: int
    code: str

    @property
    def content(self) -> bytes:
        return f"<Error><Code>{self.code}</Code><Message>that is {self.code}</Message></Error>".encode()


class Wrong(enum.Enum):
    """How a storage behaves that is like S3 only at first sight."""

    UNCONDITIONAL = "it passes over the condition"
    LISTS_NOTHING = "what was just put is not in the listing"
    NOT_XML = "it answers with 503 and a page for people"


Fault = Cut | Refusal | Wrong | None
SLOW_DOWN = Refusal(503, "SlowDown")
Judge = Callable[[Asked], Fault]


def in_turn(*faults: Fault, of: Callable[[Asked], bool] = lambda asked: asked.method == "PUT") -> Judge:
    """The first request that is meant meets the first fault, and so on; later ones meet none."""
    left = iter(faults)
    return lambda asked: next(left, None) if of(asked) else None


class S3Server:
    """Runs until `close`, one at a time in a process, and begins with an empty bucket.

    `judge` says of each request what goes wrong with it; `asked` is what came. `client` has nothing to do with what is
    tested.
    """

    def __init__(self) -> None:
        self._moto: Any = DomainDispatcherApplication(create_backend_app)
        self._one_at_a_time = threading.Lock()
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True, request_handler=_QuietHandler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.port}"
        self.environment = {**CREDENTIALS, "AWS_ENDPOINT_URL": self.url, "AWS_REGION": REGION}
        self.client: Any = boto3.client(
            "s3", endpoint_url=self.url, region_name=REGION, aws_access_key_id="other", aws_secret_access_key="other"
        )
        self.begin_again()

    def begin_again(self) -> None:
        """Forget every object, all that was asked and what goes wrong. moto keeps it all for the whole process."""
        self.behave()
        urlopen(Request(f"{self.url}/moto-api/reset", method="POST")).close()
        self.client.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION})
        self.behave()

    def behave(self) -> None:
        """From now on nothing goes wrong, and nothing has been asked."""
        self.judge: Judge = lambda asked: None
        self.asked: list[Asked] = []

    @property
    def objects(self) -> dict[str, bytes]:
        """What is in the bucket, whoever put it there."""
        found = self.client.list_objects_v2(Bucket=BUCKET).get("Contents", ())
        return {each["Key"]: self.client.get_object(Bucket=BUCKET, Key=each["Key"])["Body"].read() for each in found}

    @property
    def uploads(self) -> list[Any]:
        """The uploads in parts that are neither completed nor abandoned."""
        found: list[Any] = self.client.list_multipart_uploads(Bucket=BUCKET).get("Uploads", [])
        return found

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _answer(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        headers = {name: value for name, value in environ.items() if isinstance(value, str)}
        asked = Asked(environ["REQUEST_METHOD"], environ["PATH_INFO"], environ["QUERY_STRING"], headers)
        self.asked.append(asked)
        fault = self.judge(asked)
        if fault is Cut.BEFORE:
            _cut(environ)
        if isinstance(fault, Refusal) or fault is Wrong.NOT_XML:
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            status, content = (fault.status, fault.content) if isinstance(fault, Refusal) else (503, b"<p>Come again!")
            return Response(content, status, content_type="application/xml")(environ, start_response)
        if fault is Wrong.UNCONDITIONAL:
            environ.pop("HTTP_IF_NONE_MATCH", None)
        if fault is Wrong.LISTS_NOTHING:
            environ["QUERY_STRING"] += "&start-after=~"
        with self._one_at_a_time:
            response = Response.from_app(self._moto, environ, buffered=True)
        if fault is Cut.AFTER or (fault is Cut.AFTER_SUCCESS and response.status_code < 300):
            _cut(environ)
        if fault is Cut.IN_THE_MIDDLE:
            return _cut_in_the_middle(environ, start_response, response)
        return response(environ, start_response)


def _cut(environ: dict[str, Any]) -> Never:
    connection: socket.socket = environ["werkzeug.socket"]
    connection.shutdown(socket.SHUT_RDWR)
    raise ConnectionResetError


def _cut_in_the_middle(
    environ: dict[str, Any], start_response: Callable[..., Any], response: Response
) -> Iterator[bytes]:
    content = response.get_data()
    start_response(response.status, list(response.headers))
    yield content[: len(content) // 2]
    _cut(environ)


class _QuietHandler(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"

    def log(self, *_: Any, **__: Any) -> None:
        """Nothing: a test that fails shows what matters."""
