"""Executors: lanes in order, results on the stepping thread, a loop that is woken, threads that hold nobody up."""

import select
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from typing import Any

import pytest

from tests.integration.programs import wait_until
from tidegate.deploy.executor import InlineExecutor, ThreadExecutor, WakeUp

Results = list[tuple[Any, BaseException | None]]


@pytest.fixture
def wake_up() -> Iterator[WakeUp]:
    with closing(WakeUp()) as made:
        yield made


@pytest.fixture
def executor(wake_up: WakeUp) -> Iterator[ThreadExecutor]:
    with closing(ThreadExecutor(wake_up)) as made:
        yield made


def collect(results: Results, executor: ThreadExecutor, wake_up: WakeUp, count: int) -> Results:
    """Do as a loop does until so many results are there."""
    while len(results) < count:
        assert select.select([wake_up], [], [], 10)[0], f"nothing came after {results}"
        wake_up.clear()
        executor.drain()
    return results


def test_a_result_is_brought_back_by_the_thread_that_drains(executor: ThreadExecutor, wake_up: WakeUp) -> None:
    threads: list[threading.Thread] = []
    results: Results = []

    def done(result: Any, error: BaseException | None) -> None:
        threads.append(threading.current_thread())
        results.append((result, error))

    executor.submit("a", threading.current_thread, done)
    [(worker, error)] = collect(results, executor, wake_up, 1)
    assert error is None
    assert threads == [threading.current_thread()]
    assert worker is not threading.current_thread()
    assert worker.daemon


def test_work_of_a_lane_runs_in_order_and_one_after_another(executor: ThreadExecutor, wake_up: WakeUp) -> None:
    running: list[int] = []
    overlaps: list[int] = []
    results: Results = []

    def work(number: int) -> int:
        overlaps.extend(running)
        running.append(number)
        running.remove(number)
        return number

    for number in range(200):
        executor.submit("a", partial(work, number), lambda *answer: results.append(answer))
    assert [result for result, _ in collect(results, executor, wake_up, 200)] == list(range(200))
    assert overlaps == []


def test_lanes_run_side_by_side(executor: ThreadExecutor, wake_up: WakeUp) -> None:
    meeting = threading.Barrier(2, timeout=10)
    results: Results = []
    for lane in ("a", "b"):
        executor.submit(lane, meeting.wait, lambda *answer: results.append(answer))
    assert [error for _, error in collect(results, executor, wake_up, 2)] == [None, None]


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), KeyboardInterrupt()])
def test_an_exception_is_handed_over_and_the_lane_lives_on(
    executor: ThreadExecutor, wake_up: WakeUp, error: BaseException
) -> None:
    results: Results = []

    def fail() -> None:
        raise error

    executor.submit("a", fail, lambda *answer: results.append(answer))
    executor.submit("a", lambda: 7, lambda *answer: results.append(answer))
    assert collect(results, executor, wake_up, 2) == [(None, error), (7, None)]


def test_draining_says_whether_there_was_anything(executor: ThreadExecutor, wake_up: WakeUp) -> None:
    assert not executor.drain()
    executor.submit("a", lambda: 1, lambda *_: None)
    assert select.select([wake_up], [], [], 10)[0]
    assert executor.drain()
    assert not executor.drain()


def test_threads_end_when_it_is_closed(wake_up: WakeUp) -> None:
    executor = ThreadExecutor(wake_up)
    results: Results = []
    executor.submit("of this test", threading.current_thread, lambda *answer: results.append(answer))
    [(thread, _)] = collect(results, executor, wake_up, 1)
    executor.close()
    thread.join(10)
    assert not thread.is_alive()


def test_a_call_that_never_returns_does_not_keep_the_process_alive() -> None:
    program = (
        "import threading\n"
        "from tidegate.deploy.executor import ThreadExecutor, WakeUp\n"
        "ThreadExecutor(WakeUp()).submit('a', threading.Event().wait, print)\n"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=30, check=True).returncode == 0


def test_a_wake_up_that_nobody_clears_takes_any_number_of_calls(wake_up: WakeUp) -> None:
    for _ in range(100_000):
        wake_up.set()
    assert select.select([wake_up], [], [], 0)[0]
    wake_up.clear()
    assert not select.select([wake_up], [], [], 0)[0]


def test_a_late_thread_may_wake_a_loop_that_is_gone() -> None:
    wake_up = WakeUp()
    wake_up.close()
    wake_up.set()


def test_inline_work_runs_when_it_is_drained_and_what_it_submits_the_next_time() -> None:
    executor = InlineExecutor()
    seen: list[object] = []
    executor.submit("a", lambda: 1, lambda result, _: executor.submit("a", lambda: 2, lambda two, _: seen.append(two)))
    executor.submit("b", lambda: 3, lambda result, _: seen.append(result))
    assert seen == []
    assert executor.drain()
    assert seen == [3]
    assert executor.drain()
    assert seen == [3, 2]
    assert not executor.drain()


def test_what_work_holds_goes_with_it_and_not_with_the_next(executor: ThreadExecutor, wake_up: WakeUp) -> None:
    class Held:
        def work(self) -> None: ...

    held = Held()
    is_gone = weakref.ref(held)
    results: Results = []
    executor.submit("a", held.work, lambda *answer: results.append(answer))
    del held
    collect(results, executor, wake_up, 1)
    wait_until(lambda: is_gone() is None, "the end of what the work held")


def test_work_that_each_answer_submits_does_not_keep_draining_for_ever(
    executor: ThreadExecutor, wake_up: WakeUp
) -> None:
    answers: list[Any] = []

    def again(result: Any, error: BaseException | None) -> None:
        answers.append(result)
        executor.submit("a", lambda: len(answers), again)
        # As it is with work that is quicker than the thread that drains.
        wait_until(lambda: select.select([wake_up], [], [], 0)[0] != [], "its answer", 10)

    executor.submit("a", lambda: 0, again)
    assert select.select([wake_up], [], [], 10)[0]
    executor.drain()
    assert answers == [0]


def test_an_exit_of_inline_work_is_handed_over_and_an_interrupt_is_not() -> None:
    executor = InlineExecutor()
    errors: list[BaseException | None] = []

    def interrupt() -> None:
        raise KeyboardInterrupt

    executor.submit("a", sys.exit, lambda _, error: errors.append(error))
    executor.submit("a", interrupt, lambda _, error: errors.append(error))
    with pytest.raises(KeyboardInterrupt):
        executor.drain()
    assert [type(error) for error in errors] == [SystemExit]


def test_an_exception_of_inline_work_is_handed_over() -> None:
    executor = InlineExecutor()
    errors: list[BaseException | None] = []
    executor.submit("a", lambda: int("x"), lambda _, error: errors.append(error))
    executor.drain()
    assert isinstance(errors[0], ValueError)
