"""Calls on a real event loop and on real threads: answers on the stepping thread, cancelling, closing, nothing left
over; and whole jobs in this process whose calls are in flight when something happens."""

import asyncio
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tests.integration.programs import wait_until
from tests.unit.deploy.test_in_process import Runner
from tidegate.connectors.collections import CollectionSink, CollectionSource
from tidegate.deploy import calls as calls_module
from tidegate.deploy.calls import LoopAndThreads
from tidegate.deploy.executor import WakeUp
from tidegate.errors import UserCodeError
from tidegate.local import LocalLog, LocalSink, LocalSource
from tidegate.runtime.ports import CallGroup

Answers = dict[int, tuple[Any, BaseException | None]]


class Desk:
    """Groups of calls, and what was answered."""

    def __init__(self) -> None:
        self.wake_up = WakeUp()
        self.calls = LoopAndThreads(self.wake_up.set)
        self.answers: Answers = {}
        self.threads: list[threading.Thread] = []

    def group(self, threads: int | None = None) -> CallGroup:
        return self.calls.group("asking", threads, self._answered)

    def _answered(self, call: int, result: Any, error: BaseException | None) -> None:
        assert call not in self.answers
        self.threads.append(threading.current_thread())
        self.answers[call] = (result, error)

    def wait_for(self, *numbers: int) -> Answers:
        """Do as a loop does until all of these are answered."""
        while not all(number in self.answers for number in numbers):
            assert select.select([self.wake_up], [], [], 10)[0], f"only {self.answers} came"
            self.wake_up.clear()
            self.calls.drain()
        return self.answers

    def close(self) -> None:
        self.calls.close()
        self.wake_up.close()


def names() -> list[str]:
    """Of the threads that make calls."""
    return sorted(thread.name for thread in threading.enumerate() if thread.name.startswith(("calls", "asking")))


def no_thread_is_left() -> None:
    wait_until(lambda: not names(), "the end of all threads that made calls", 10)


@pytest.fixture
def desk() -> Iterator[Desk]:
    no_thread_is_left()
    with closing(Desk()) as made:
        yield made
    no_thread_is_left()


# ---- on the loop ---------------------------------------------------------------------------------------------------


def test_coroutines_run_at_the_same_time_and_are_answered_on_the_thread_that_steps(desk: Desk) -> None:
    ran_on: list[threading.Thread] = []

    async def meet(number: int) -> int:
        ran_on.append(threading.current_thread())
        if len(ran_on) == 100:
            all_are_there.set()
        await all_are_there.wait()
        return number

    all_are_there = asyncio.Event()
    group = desk.group()
    for number in range(100):
        group.start(number, lambda number=number: meet(number))  # type: ignore[misc]
    assert desk.wait_for(*range(100)) == {number: (number, None) for number in range(100)}
    assert {*desk.threads} == {threading.current_thread()}
    assert {thread.name for thread in ran_on} == {"calls"}


@pytest.mark.parametrize("error", [ConnectionError("no answer"), SystemExit(3), KeyboardInterrupt()])
def test_what_a_coroutine_raises_is_its_answer_and_the_loop_goes_on(desk: Desk, error: BaseException) -> None:
    async def fail() -> None:
        raise error

    async def succeed() -> int:
        return 7

    group = desk.group()
    group.start(0, fail)
    assert desk.wait_for(0)[0] == (None, error)
    group.start(1, succeed)
    assert desk.wait_for(1)[1] == (7, None)


def test_what_is_no_coroutine_is_said(desk: Desk) -> None:
    group = desk.group()
    group.start(0, lambda: 7)
    assert isinstance(desk.wait_for(0)[0][1], TypeError)


def test_what_user_code_leaves_to_the_loop_cannot_end_it(desk: Desk) -> None:
    async def leave() -> None:
        raise SystemExit(3)

    async def leave_something_behind() -> int:
        left.append(asyncio.get_running_loop().create_task(leave()))
        await asyncio.sleep(0.01)
        return 7

    left: list[Any] = []
    group = desk.group()
    group.start(0, leave_something_behind)
    assert desk.wait_for(0)[0] == (7, None)


def test_a_cancelled_coroutine_ends_and_is_answered_once_also_when_it_had_not_begun(desk: Desk) -> None:
    async def wait_for_ever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    ended: list[bool] = []
    group = desk.group()
    group.start(0, wait_for_ever)
    group.cancel(0)
    group.start(1, wait_for_ever)
    wait_until(lambda: group.__dict__["_tasks"].keys() == {1} or 0 in desk.answers, "the beginning of 1")
    group.cancel(1)
    answers = desk.wait_for(0, 1)
    assert [type(error) for _, error in answers.values()] == [asyncio.CancelledError] * 2
    group.cancel(1)
    assert len(ended) <= 2


def test_closing_ends_all_calls_waits_for_the_farewell_and_answers_nothing_more(desk: Desk) -> None:
    async def wait_for_ever() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            said.append("cancelled")
            raise

    async def farewell() -> None:
        await asyncio.sleep(0)
        said.append("farewell")

    said: list[str] = []
    group = desk.group()
    group.start(0, wait_for_ever)
    wait_until(lambda: bool(group.__dict__["_tasks"]), "the beginning of the call")
    group.close(farewell)
    assert said == ["cancelled", "farewell"]
    desk.calls.drain()
    assert desk.answers == {}


def test_a_farewell_that_fails_is_told_and_one_that_never_ends_is_not_waited_for(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail() -> None:
        raise ConnectionError("gone")

    async def wait_for_ever() -> None:
        await asyncio.Event().wait()

    with pytest.raises(ConnectionError, match="gone"):
        desk.group().close(fail)
    monkeypatch.setattr(calls_module, "CLOSE_SECONDS", 0.1)
    begun_at = time.monotonic()
    desk.group().close(wait_for_ever)
    assert 0.1 <= time.monotonic() - begun_at < 2


def test_a_coroutine_that_will_not_be_cancelled_holds_nobody_up(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    async def stay() -> None:
        while not may_go.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                refused.append(True)

    monkeypatch.setattr(calls_module, "CLOSE_SECONDS", 0.1)
    may_go, refused = threading.Event(), list[bool]()
    group = desk.group()
    group.start(0, stay)
    wait_until(lambda: bool(group.__dict__["_tasks"]), "the beginning of the call")
    begun_at = time.monotonic()
    group.close(None)
    desk.calls.close()
    assert time.monotonic() - begun_at < 2
    may_go.set()
    assert refused


# ---- on threads ----------------------------------------------------------------------------------------------------


def test_plain_functions_run_on_as_many_threads_as_were_asked_for_and_are_answered_where_is_stepped(desk: Desk) -> None:
    ran_on: list[str] = []
    barrier = threading.Barrier(3)

    def meet() -> None:
        ran_on.append(threading.current_thread().name)
        barrier.wait(10)

    group = desk.group(3)
    for number in range(9):
        group.start(number, meet)
    assert desk.wait_for(*range(9)) == dict.fromkeys(range(9), (None, None))
    assert {*ran_on} == {"asking/0", "asking/1", "asking/2"}
    assert {*desk.threads} == {threading.current_thread()}


def test_threads_begin_when_they_are_needed(desk: Desk) -> None:
    group = desk.group(50)
    assert names() == []
    group.start(0, time.monotonic)
    assert names() == ["asking/0"]


@pytest.mark.parametrize("error", [ConnectionError("no answer"), SystemExit(3), KeyboardInterrupt()])
def test_what_a_plain_function_raises_is_its_answer_and_the_thread_goes_on(desk: Desk, error: BaseException) -> None:
    def fail() -> None:
        raise error

    group = desk.group(1)
    group.start(0, fail)
    group.start(1, lambda: 7)
    assert desk.wait_for(0, 1) == {0: (None, error), 1: (7, None)}


def test_a_coroutine_that_a_plain_function_returns_is_an_error_that_says_what_to_do(desk: Desk) -> None:
    async def ask() -> int:
        return 7

    group = desk.group(1)
    group.start(0, ask)
    error = desk.wait_for(0)[0][1]
    assert isinstance(error, TypeError)
    assert "async def" in str(error)


def test_a_thread_that_never_returns_keeps_nobody_waiting_and_takes_no_further_call(desk: Desk) -> None:
    may_go = threading.Event()
    called: list[int] = []
    group = desk.group(1)
    group.start(0, may_go.wait)
    group.start(1, lambda: called.append(1))
    group.cancel(0)
    group.close(None)
    desk.calls.close()
    assert names() == ["asking/0"]
    may_go.set()
    no_thread_is_left()
    desk.calls.drain()
    assert called == []
    assert desk.answers == {}


# ---- whole jobs ----------------------------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Runner]:
    yield Runner(tmp_path)
    no_thread_is_left()


class Session(tg.AsyncFunction[int, int]):
    """Notes what is done with it."""

    log: list[str]

    def __init__(self, log: list[str], answer: Callable[[int], Any]) -> None:
        self.log = log
        self.answer = answer

    def __deepcopy__(self, memo: object) -> "Session":
        return Session(self.log, self.answer)

    async def open(self, ctx: tg.Context) -> None:
        await asyncio.sleep(0.01)
        self.log.append("open")

    async def close(self) -> None:
        await asyncio.sleep(0.01)
        self.log.append("close")

    async def call(self, value: int) -> int:
        assert "open" in self.log
        await asyncio.sleep(0.001)
        return int(self.answer(value))


def test_sessions_are_opened_and_closed_and_no_thread_is_left_behind(run: Runner) -> None:
    log: list[str] = []
    sink, job = CollectionSink(), tg.Job("asking")
    stream = job.source(CollectionSource(range(500)), name="numbers")
    asked = stream.async_map(Session(log, lambda n: n + 1), name="ask", type=int, capacity=50)
    asked.async_map(lambda n: n * 2, name="double", type=int, threads=3).sink(sink, name="out", parallelism=1)
    assert run(job).restarts == 0
    assert sorted(sink.committed) == [2 * (n + 1) for n in range(500)]
    assert sorted(log) == ["close", "close", "open", "open"]


def test_a_failing_attempt_ends_its_calls_and_the_next_one_has_calls_of_its_own(run: Runner) -> None:
    failed: list[int] = []

    def answer(number: int) -> int:
        if number == 77 and not failed:
            failed.append(number)
            raise ConnectionError("once")
        return number

    log: list[str] = []
    sink, job = CollectionSink(), tg.Job("asking")
    job.source(CollectionSource(range(200)), name="numbers").async_map(
        Session(log, answer), name="ask", type=int, ordered=False
    ).sink(sink, name="out", parallelism=1)
    result = run(job)
    assert (result.attempts, result.restarts) == (2, 1)
    assert sorted(sink.committed) == [*range(200)]
    assert log.count("open") == log.count("close") == 4


def test_the_error_of_a_call_says_which_record_it_was_and_shows_only_the_users_frames(run: Runner) -> None:
    async def ask(number: int) -> int:
        if number == 3:
            raise ConnectionError("no answer")
        return number

    job = tg.Job("asking")
    job.source(CollectionSource(range(9)), name="numbers").async_map(ask, name="ask", type=int).sink(
        CollectionSink(), name="out"
    )
    with pytest.raises(UserCodeError) as caught:
        run(job, restart="none")
    failure = caught.value.failure
    assert failure.message == "ConnectionError on record 3: no answer"
    assert failure.where.startswith("operator ask, subtask")
    assert failure.traceback.count("  File ") == 1
    assert "in ask" in failure.traceback


def test_an_interrupt_with_calls_in_flight_stops_cleanly_and_the_next_run_makes_them_again(
    run: Runner, tmp_path: Path
) -> None:
    log = LocalLog(tmp_path / "log")
    log.create_topic("in", 1)
    log.append("in", 0, [b"%d" % number for number in range(10)])
    called: list[str] = []

    def asking(most: int) -> tg.Job:
        async def ask(text: str) -> str:
            called.append(text)
            if int(text) >= most:
                await asyncio.Event().wait()
            return text

        job = tg.Job("asking")
        source = LocalSource(tmp_path / "log", "in", value=tg.String())
        sink = LocalSink(tmp_path / "log", "out", value=tg.String(), partitions=1)
        job.source(source, name="in").async_map(ask, name="ask", type=str, timeout=None).sink(sink, name="out")
        return job

    for most, records_in in ((5, 10), (10, 0)):

        def interrupt(most: int = most) -> None:
            wait_until(lambda: len(called) >= 10, "all calls")
            wait_until(lambda: "out" in log.topics() and log.end_offset("out", 0) >= most, f"{most} records")
            os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=interrupt)
        thread.start()
        assert run(asking(most), parallelism="1").records_in == records_in
        thread.join()
    assert called == [*map(str, range(10)), *map(str, range(5, 10))]
    assert [record.value for record in log.read("out", 0)] == [b"%d" % number for number in range(10)]
    log.close()
