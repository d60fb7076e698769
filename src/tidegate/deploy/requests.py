"""What somebody may ask of a running job from another process of the same user: how it is, a savepoint, an end. Both
ends of it.

A request is one line of JSON over a stream socket in the job's runtime folder, which nobody else may enter; so is the
answer, and the end of the connection says that the job's process is gone. Beside the socket lies a note that says which
job it is: that is how a command finds it by name. Nothing here may block the loop of the job.
"""

import selectors
import socket
from collections.abc import Iterator
from contextlib import suppress

import msgspec

from tidegate.deploy.runtime_folder import RuntimeFolder, runtime_folders
from tidegate.errors import Failure, InternalError, InvalidError, UnavailableError, raise_failure
from tidegate.ids import JobName
from tidegate.scheduling import protocol as p

SOCKET = "requests"
NOTE = "job.json"
CONNECT_SECONDS = 5.0
LONGEST = 64 * 1024
"""Bytes of a request, and of a note."""


class Status(msgspec.Struct, frozen=True, tag="status"):
    """How it is: answered with a `JobStatus` as JSON."""


class Savepoint(msgspec.Struct, frozen=True, tag="savepoint"):
    """Write a savepoint to `path`; None: under the job's own folder."""

    path: str | None = None


class Stop(msgspec.Struct, frozen=True, tag="stop"):
    """End after a last checkpoint, written as a savepoint if wanted; `drain`: after the end of all input."""

    savepoint: bool = False
    path: str | None = None
    drain: bool = False


Request = Status | Savepoint | Stop
Wanted = p.StatusWanted | p.SavepointWanted | p.StopWithCheckpointWanted


class Answer(msgspec.Struct, frozen=True):
    """How it ended. `text` as in `Reply`."""

    text: str = ""
    failure: Failure | None = None


class RunningJob(msgspec.Struct, frozen=True):
    """A job that runs on this machine, of this user."""

    job: JobName
    location: str
    """Where its checkpoints are."""
    socket: str


_decode_request = msgspec.json.Decoder(Request).decode
_decode_answer = msgspec.json.Decoder(Answer).decode
_decode_note = msgspec.json.Decoder(RunningJob).decode


def _line(message: Request | Answer) -> bytes:
    return msgspec.json.encode(message) + b"\n"


# ---- the job's end -------------------------------------------------------------------------------------------------


class _Connection:
    """Somebody who asks. What comes is kept until a line is whole; what cannot be sent at once waits."""

    def __init__(self, socket: socket.socket) -> None:
        self.socket = socket
        self.received = b""


class RequestServer:
    """Listens in `folder`. `step` is called when its descriptor is readable, and gives the events that came."""

    def __init__(self, folder: RuntimeFolder, job: JobName, location: str) -> None:
        path = folder.path / SOCKET
        self.address = str(path)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(self.address)
        self._listener.listen()
        self._listener.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._waiting: dict[str, _Connection] = {}
        self._count = 0
        note = folder.path / NOTE
        note.with_suffix(".new").write_bytes(msgspec.json.encode(RunningJob(job, location, self.address)))
        note.with_suffix(".new").rename(note)

    def fileno(self) -> int:
        """Readable when `step` has something to do."""
        return self._selector.fileno()

    def step(self) -> list[Wanted]:
        """What is asked for since the last call."""
        events: list[Wanted] = []
        for key, _ in self._selector.select(0):
            if key.data is None:
                self._accept()
            else:
                events += self._receive(key.data)
        return events

    def reply(self, reply: p.Reply) -> None:
        """To whoever asked; nothing happens when that one is gone."""
        connection = self._waiting.pop(reply.request, None)
        if connection is not None:
            self._send(connection, Answer(reply.text, reply.failure))

    def close(self) -> None:
        """Connections end: that is how others see that the job has."""
        for key in list((self._selector.get_map() or {}).values()):
            self._selector.unregister(key.fileobj)
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
        self._selector.close()

    def _accept(self) -> None:
        with suppress(OSError):
            accepted, _ = self._listener.accept()
            accepted.setblocking(False)
            self._selector.register(accepted, selectors.EVENT_READ, _Connection(accepted))

    def _receive(self, connection: _Connection) -> Iterator[Wanted]:
        try:
            data = connection.socket.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._drop(connection)
            return
        *lines, connection.received = (connection.received + data).split(b"\n")
        for line in lines:
            try:
                request = _decode_request(line)
            except (msgspec.MsgspecError, RecursionError) as error:
                self._refuse(connection, str(error))
            else:
                yield self._event(request, connection)
        if len(connection.received) > LONGEST:
            self._refuse(connection, f"it has more than {LONGEST} bytes")
            self._drop(connection)

    def _refuse(self, connection: _Connection, why: str) -> None:
        self._send(connection, Answer(failure=InvalidError(f"a request to the job cannot be read: {why}").failure))

    def _event(self, request: Request, connection: _Connection) -> Wanted:
        self._count += 1
        name = str(self._count)
        self._waiting[name] = connection
        match request:
            case Status():
                return p.StatusWanted(name)
            case Savepoint(path):
                return p.SavepointWanted(name, path)
            case Stop(savepoint, path, drain):
                return p.StopWithCheckpointWanted(name, savepoint, path, drain)

    def _send(self, connection: _Connection, answer: Answer) -> None:
        # An answer fits into the buffer of a socket on which nothing else was sent.
        try:
            connection.socket.sendall(_line(answer))
        except OSError:
            self._drop(connection)

    def _drop(self, connection: _Connection) -> None:
        self._waiting = {name: other for name, other in self._waiting.items() if other is not connection}
        with suppress(KeyError):
            self._selector.unregister(connection.socket)
        connection.socket.close()


# ---- the other end -------------------------------------------------------------------------------------------------


def running_jobs() -> list[RunningJob]:
    """The jobs of this user that run on this machine now, by name."""
    notes: list[RunningJob] = []
    for folder in runtime_folders():
        with suppress(OSError, msgspec.MsgspecError, RecursionError), (folder / NOTE).open("rb") as note:
            notes.append(_decode_note(note.read(LONGEST)))
    return sorted(notes, key=lambda note: (note.job, note.location))


def ask(job: RunningJob, request: Request, *, until_end: bool = False) -> str:
    """Ask and wait for the answer; with `until_end` also for the end of the job's process.

    Returns the answer's text. Raises the failure that was answered, UnavailableError when the job ends without an
    answer.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(CONNECT_SECONDS)
        try:
            client.connect(job.socket)
        except OSError as error:
            raise UnavailableError(f"job {job.job} does not answer at {job.socket}: {error}") from error
        # From here on it takes as long as it takes: a savepoint may be large.
        client.settimeout(None)
        client.sendall(_line(request))
        with client.makefile("rb") as lines:
            line = lines.readline()
            if not line.endswith(b"\n"):
                raise UnavailableError(
                    f"job {job.job} ended before it answered", remedy="See what its process said, and ask again."
                )
            answer = _answer(job, line)
            if answer.failure is not None:
                raise_failure(answer.failure)
            while until_end and lines.readline():
                pass
            return answer.text


def _answer(job: RunningJob, line: bytes) -> Answer:
    try:
        return _decode_answer(line)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InternalError(
            f"what job {job.job} answered cannot be read: {error}",
            remedy="Use the version of Tidegate that the job runs with.",
        ) from error
