"""Whoever reaches the socket of a running job disturbs nothing with what is no request, and notes of jobs that cannot
be read are passed over."""

import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.enemy.damage import bombs
from tidegate.deploy.requests import LONGEST, NOTE, RequestServer, RunningJob, Savepoint, ask, running_jobs
from tidegate.deploy.runtime_folder import RuntimeFolder, remove_abandoned
from tidegate.errors import InternalError, UnavailableError
from tidegate.ids import JobName
from tidegate.scheduling import protocol as p

JOB = JobName("totals")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RuntimeFolder]:
    monkeypatch.setattr("tidegate.deploy.runtime_folder._candidates", lambda: [tmp_path])
    with closing(RuntimeFolder(tmp_path)) as made:
        yield made


@pytest.fixture
def server(folder: RuntimeFolder) -> Iterator[RequestServer]:
    with closing(RequestServer(folder, JOB, "/flows/totals")) as made:
        yield made


class Guest:
    """Somebody with a connection to the job, in the same thread: it sends a little, the job looks, it reads."""

    def __init__(self, server: RequestServer) -> None:
        self._server = server
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.connect(server.address)
        self.socket.setblocking(False)
        self.events: list[Any] = []

    def say(self, data: bytes) -> bytes:
        """What is answered meanwhile. Raises OSError when the job has closed the connection."""
        answered = b""
        while data:
            data = data[self.socket.send(data[:60_000]) :]
            answered += self._listen()
        return answered

    def _listen(self) -> bytes:
        # Once to accept, once to receive, once more for what follows from that.
        for _ in range(3):
            self.events += self._server.step()
        try:
            return self.socket.recv(1 << 20)
        except BlockingIOError:
            return b""


def asks_well(server: RequestServer) -> None:
    """The job still takes requests."""
    with closing((guest := Guest(server)).socket):
        guest.say(msgspec.json.encode(Savepoint("/savepoints/a")) + b"\n")
    (event,) = guest.events
    assert isinstance(event, p.SavepointWanted)
    assert event.path == "/savepoints/a"


@settings(max_examples=60)
@given(st.lists(st.binary(max_size=50), min_size=1, max_size=4))
def test_bytes_that_are_no_request_are_refused(server: RequestServer, lines: list[bytes]) -> None:
    lines = [line.replace(b"\n", b" ") for line in lines]
    with closing((guest := Guest(server)).socket):
        answers = guest.say(b"\n".join([*lines, b""])).splitlines()
    assert guest.events == []
    assert len(answers) == len(lines)
    assert all(b'"kind":"invalid"' in answer and b"cannot be read" in answer for answer in answers)
    asks_well(server)


def test_bombs_are_refused(server: RequestServer) -> None:
    for bomb in bombs(LONGEST // 2):
        with closing((guest := Guest(server)).socket):
            assert b"cannot be read" in guest.say(bomb.replace(b"\n", b" ") + b"\n")
    asks_well(server)


def test_a_request_without_end_is_cut_off(server: RequestServer) -> None:
    with closing((guest := Guest(server)).socket), pytest.raises(BrokenPipeError):
        guest.say(b"x" * 1_000_000)
    asks_well(server)


def test_a_request_that_comes_byte_by_byte_is_one(server: RequestServer) -> None:
    line = msgspec.json.encode(Savepoint("/savepoints/a")) + b"\n"
    with closing((guest := Guest(server)).socket):
        for index in range(len(line)):
            guest.say(line[index : index + 1])
    assert len(guest.events) == 1


# ---- notes -----------------------------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(st.binary(max_size=60) | st.sampled_from([*bombs(50_000), b"", b"null", b'{"job": 1}']))
def test_a_note_that_cannot_be_read_is_no_job(folder: RuntimeFolder, note: bytes) -> None:
    (folder.path / NOTE).write_bytes(note)
    assert running_jobs() == []


def test_a_note_of_any_length_takes_no_memory(folder: RuntimeFolder) -> None:
    with (folder.path / NOTE).open("wb") as file:
        file.truncate(1 << 40)
    assert running_jobs() == []


def test_a_link_that_somebody_puts_beside_a_job_is_no_job_and_loses_nothing(
    folder: RuntimeFolder, server: RequestServer, tmp_path: Path
) -> None:
    """Where all users may write, a link of another user may lead into a folder of this one."""
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "lock").touch()
    (tmp_path / "tidegate-run-link-to-a-job").symlink_to(folder.path)
    (tmp_path / "tidegate-run-link-to-more").symlink_to(precious)
    assert [job.job for job in running_jobs()] == [JOB]
    remove_abandoned(tmp_path)
    assert (precious / "lock").exists()
    assert [job.job for job in running_jobs()] == [JOB]


# ---- answers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", [b"\n", b"[" * 10_000 + b"\n", b'{"text": 7}\n', b"\xff\n", b"no line"])
def test_what_is_no_answer_is_told(tmp_path: Path, answer: bytes) -> None:
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as listener:
        listener.bind(str(tmp_path / "requests"))
        listener.listen()
        job = RunningJob(JOB, "/flows/totals", str(tmp_path / "requests"))
        # What is asked fits into the connection's buffer, and so does what is answered: one thread is enough.
        with pytest.raises((InternalError, UnavailableError), match=r"cannot be read|ended before it answered"):
            _ask(job, listener, answer)


def _ask(job: RunningJob, listener: socket.socket, answer: bytes) -> None:
    import threading

    def serve() -> None:
        connection, _ = listener.accept()
        with closing(connection):
            connection.recv(1000)
            connection.sendall(answer)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        ask(job, Savepoint())
    finally:
        thread.join(10)
