"""What is asked of a running job reaches it, and the answer comes back, or the end of the job does."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.integration.programs import wait_until
from tidegate.deploy.requests import RequestServer, RunningJob, Savepoint, Status, Stop, ask, running_jobs
from tidegate.deploy.runtime_folder import RuntimeFolder
from tidegate.errors import ErrorKind, Failure, InvalidError, UnavailableError
from tidegate.ids import JobName
from tidegate.scheduling import protocol as p

JOB = JobName("totals")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RuntimeFolder]:
    # Notes of the jobs of other tests must not be found.
    for variable in ("XDG_RUNTIME_DIR", "TMPDIR"):
        monkeypatch.setenv(variable, str(tmp_path))
    monkeypatch.setattr("tidegate.deploy.runtime_folder._candidates", lambda: [tmp_path])
    with closing(RuntimeFolder(tmp_path)) as made:
        yield made


@pytest.fixture
def server(folder: RuntimeFolder) -> Iterator[RequestServer]:
    with contextlib.closing(RequestServer(folder, JOB, "/flows/totals")) as made:
        yield made


class Asking:
    """Somebody who asks, on a thread of its own."""

    def __init__(self, asked: Callable[[], str]) -> None:
        self.answer: Any = None
        self._asked = asked
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.answer = self._asked()
        except Exception as error:
            self.answer = error


def the_job() -> RunningJob:
    (found,) = running_jobs()
    return found


def next_event(server: RequestServer) -> Any:
    events: list[Any] = []

    def came() -> bool:
        events.extend(server.step())
        return bool(events)

    wait_until(came, "a request", 10)
    assert len(events) == 1
    return events[0]


def test_a_running_job_is_found_by_its_note(server: RequestServer) -> None:
    assert running_jobs() == [RunningJob(JOB, "/flows/totals", server.address)]


def test_a_job_that_has_ended_is_not_found(server: RequestServer, tmp_path: Path) -> None:
    with closing(RuntimeFolder(tmp_path)) as folder, closing(RequestServer(folder, JobName("other"), "/flows/other")):
        assert [one.job for one in running_jobs()] == ["other", JOB]
    assert [one.job for one in running_jobs()] == [JOB]


def test_a_savepoint_is_asked_for_and_its_path_answered(server: RequestServer) -> None:
    asking = Asking(lambda: ask(the_job(), Savepoint("/backup/one")))
    event = next_event(server)
    assert event == p.SavepointWanted(event.request, "/backup/one")
    server.reply(p.Reply(event.request, "/backup/one"))
    asking.thread.join(10)
    assert asking.answer == "/backup/one"


def test_each_of_two_who_ask_gets_its_own_answer(server: RequestServer) -> None:
    first = Asking(lambda: ask(the_job(), Savepoint("/one")))
    one = next_event(server)
    second = Asking(lambda: ask(the_job(), Stop(savepoint=True, path="/two", drain=True)))
    two = next_event(server)
    assert two == p.StopWithCheckpointWanted(two.request, True, "/two", True)
    server.reply(p.Reply(two.request, "2"))
    server.reply(p.Reply(one.request, "1"))
    first.thread.join(10)
    second.thread.join(10)
    assert (first.answer, second.answer) == ("1", "2")


def test_a_failure_is_raised_where_it_was_asked(server: RequestServer) -> None:
    asking = Asking(lambda: ask(the_job(), Savepoint("/full")))
    failure = Failure(ErrorKind.INVALID, "/full holds something", "Give a new folder.")
    server.reply(p.Reply(next_event(server).request, failure=failure))
    asking.thread.join(10)
    assert isinstance(asking.answer, InvalidError)
    assert asking.answer.failure == failure


def test_the_end_of_the_job_before_its_answer_is_told(server: RequestServer) -> None:
    asking = Asking(lambda: ask(the_job(), Savepoint()))
    next_event(server)
    server.close()
    asking.thread.join(10)
    assert isinstance(asking.answer, UnavailableError)
    assert "ended before it answered" in str(asking.answer)


def test_who_waits_for_the_end_gets_the_answer_when_the_job_has_ended(server: RequestServer) -> None:
    asking = Asking(lambda: ask(the_job(), Stop(), until_end=True))
    server.reply(p.Reply(next_event(server).request))
    asking.thread.join(0.2)
    assert asking.thread.is_alive()
    server.close()
    asking.thread.join(10)
    assert asking.answer == ""


def test_an_answer_to_somebody_who_has_gone_does_no_harm(server: RequestServer) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(server.address)
        client.sendall(b'{"type":"savepoint"}\n')
        event = next_event(server)
    wait_until(lambda: server.step() == [] and not server._waiting, "the end of the connection", 10)
    server.reply(p.Reply(event.request, "late"))


def test_a_line_that_is_no_request_is_answered_as_such_and_others_go_on(server: RequestServer) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(server.address)
        client.sendall(b'{"type":"explode"}\n{"type":"savepoint",')
        client.settimeout(0.01)
        answer = b""

        def has_answered() -> bool:
            nonlocal answer
            assert server.step() == []
            with contextlib.suppress(TimeoutError):
                answer += client.recv(4096)
            return answer.endswith(b"\n")

        wait_until(has_answered, "an answer", 10)
        assert b"cannot be read" in answer
        client.sendall(b'"path":null}\n')
        assert isinstance(next_event(server), p.SavepointWanted)


def test_a_job_whose_socket_is_gone_does_not_answer(server: RequestServer) -> None:
    job = the_job()
    Path(job.socket).unlink()
    with pytest.raises(UnavailableError, match="does not answer"):
        ask(job, Savepoint())


def test_how_the_job_is_may_be_asked_for_too(server: RequestServer) -> None:
    asking = Asking(lambda: ask(the_job(), Status()))
    event = next_event(server)
    assert isinstance(event, p.StatusWanted)
    server.reply(p.Reply(event.request, text="{}"))
    asking.thread.join(10)
    assert asking.answer == "{}"
