"""Asynchronous operators in running tasks: what fails, what is opened and closed, what cannot be stored."""

from types import FunctionType
from typing import Any

import pytest

import tidegate as tg
from tests.unit.runtime.asking import Asking, Build, Lateness, tenfold
from tests.unit.runtime.hand_calls import HandCalls
from tests.unit.runtime.harness import Bench, HandSource
from tidegate.connectors.collections import CollectionSink
from tidegate.errors import ErrorKind
from tidegate.ids import OperatorName
from tidegate.runtime.control import RuntimeOptions, TaskFailed, TaskRunning

# ---- failures ------------------------------------------------------------------------------------------------------


def refuse_two(number: int) -> int:
    if number == 2:
        raise ValueError("no such number")
    return number * 10


ASK = OperatorName("ask")
FAILED = tg.SideOutput[int]("failed")


def test_a_failing_call_fails_the_attempt_at_once_and_says_which_record_it_was() -> None:
    asking = Asking(lambda stream: stream.async_map(refuse_two, name="ask", type=int))
    asking.put(1, 2)
    asking.answer(2)
    failure = asking.bench.failure
    assert failure.kind is ErrorKind.USER_CODE
    assert failure.message == "ValueError on record 2: no such number"
    assert failure.where == "operator ask, subtask 0, attempt 1"
    assert "in refuse_two" in failure.traceback


def test_a_failing_record_can_be_left_out_and_is_counted() -> None:
    asking = Asking(lambda stream: stream.async_map(refuse_two, name="ask", type=int, on_error="skip"))
    asking.put(1, 2, 3)
    asking.answer(2, 3, 1)
    assert asking.out == [10, 30]
    counts = {count.operator: count for count in asking.bench.task("ask").metrics()}
    assert (counts[ASK].records_in, counts[ASK].records_out, counts[ASK].records_skipped) == (3, 2, 1)


def test_a_failing_record_can_go_to_a_side_output_as_it_came_in_and_with_its_timestamp() -> None:
    def build(stream: tg.Stream[int]) -> tg.Stream[Any]:
        asked = stream.async_map(refuse_two, name="ask", type=int, on_error=FAILED)
        failed = asked.side_output(FAILED).map(lambda number: -number, name="failed")
        return asked.union(failed, name="both").key_by(lambda _: 0, name="key").process(Lateness(), name="lateness")

    asking = Asking(build)
    asking.put(1, 2, 3)
    asking.answer_all()
    assert [number for number, _ in sorted(asking.out)] == [-2, 10, 30]


def test_a_record_is_tried_again_and_its_last_failure_is_told() -> None:
    asked: list[int] = []

    def unsteady(number: int) -> int:
        asked.append(number)
        raise ConnectionError(f"try {len(asked)}")

    retries = tg.Retries(attempts=3, delay="1s", on=ConnectionError)
    asking = Asking(lambda stream: stream.async_map(unsteady, name="ask", type=int, retries=retries))
    asking.put(7)
    for _ in range(4):
        asking.answer_all()
        asking.bench.clock.time += 2.0
        asking.come()
    assert asked == [7, 7, 7]
    assert asking.bench.failure.message == "ConnectionError on record 7, in call 3: try 3"


def test_a_call_that_takes_too_long_fails_and_is_cancelled() -> None:
    asking = Asking(lambda stream: stream.async_map(tenfold, name="ask", type=int, timeout="5s", on_error="skip"))
    begun_at = asking.bench.clock.time
    asking.put(7)
    wake_at = asking.bench.task("ask").step().wake_at
    assert wake_at is not None
    assert begun_at + 5.0 <= wake_at <= asking.bench.clock.time + 5.0
    asking.bench.clock.time += 5.0
    asking.come()
    (group,) = asking.calls.groups
    assert group.cancelled == [0]
    asking.answer(7)
    assert asking.out == []
    assert asking.bench.task("ask").metrics()[0].records_skipped == 1


def test_a_call_that_takes_too_long_fails_also_while_those_behind_have_no_room() -> None:
    def build(stream: tg.Stream[int]) -> tg.Stream[int]:
        asked = stream.async_map(tenfold, name="ask", type=int, capacity=2, timeout="5s", on_error="skip")
        return asked.async_map(tenfold, name="again", type=int, capacity=1, timeout=None)

    asking = Asking(build, options=RuntimeOptions(linger=0.0, batch_size=1, channel_records=1), strategy=None)
    asking.put(*range(20))
    first, second = asking.calls.groups
    # One is asked for in the second operator, and one stands before it: there is no room.
    asking.answer(0)
    asking.answer(1)
    assert (first.records, second.records) == ([2], [0])
    asking.bench.clock.time += 5.0
    asking.come()
    assert len(first.cancelled) == 1
    assert asking.bench.task("ask").failure is None


@pytest.mark.parametrize("where", ["call", "join"])
def test_being_out_of_memory_says_nothing_about_a_record_and_always_fails(where: str) -> None:
    def fail(*_: Any) -> Any:
        raise MemoryError

    def build(stream: tg.Stream[int]) -> tg.Stream[Any]:
        if where == "call":
            return stream.async_map(fail, name="ask", type=int, on_error="skip")
        return stream.lookup_join(tenfold, fail, by=int, name="ask", type=int, on_error="skip")

    asking = Asking(build)
    asking.put(1)
    asking.calls.answer_all()
    asking.come()
    assert asking.bench.failure.message == "MemoryError on record 1: "


@pytest.mark.parametrize("ending", [SystemExit(3), KeyboardInterrupt()])
def test_what_ends_processes_is_not_taken_for_the_failure_of_a_record(ending: BaseException) -> None:
    def leave(number: int) -> int:
        raise ending

    asking = Asking(lambda stream: stream.async_map(leave, name="ask", type=int, on_error="skip"))
    asking.put(1)
    asking.calls.answer(1)
    with pytest.raises(type(ending)):
        asking.come()


def test_a_record_of_another_type_than_declared_is_refused_when_it_comes() -> None:
    asking = Asking(lambda stream: stream.map(str, name="text").async_map(lambda text: text, name="ask", type=int))
    asking.put(1)
    failure = asking.bench.failure
    assert failure.kind is ErrorKind.INVALID
    assert "records wait for their calls as int, and one is of another type" in failure.message
    assert "given a str" in failure.message
    assert failure.remedy == "Give type= the type of the records that come in."
    assert failure.where == "operator ask, subtask 0"


class Money:
    """Not a type that msgspec knows."""

    def __init__(self, cents: int) -> None:
        self.cents = cents


def test_records_of_any_type_that_a_state_may_have_can_wait() -> None:
    def build(stream: tg.Stream[int]) -> tg.Stream[int]:
        money = stream.map(Money, name="money")
        return money.async_map(lambda value: value.cents, name="ask", type=tg.pickled(Money))

    before = Asking(build)
    before.put(1, 2)
    before.checkpoint()
    after = Asking(build, before=before)
    assert [value.cents for value in after.calls.records] == [1, 2]
    after.answer_all()
    assert after.out == [1, 2]


def test_a_record_that_cannot_be_written_fails_the_checkpoint_and_names_its_type() -> None:
    def build(stream: tg.Stream[int]) -> tg.Stream[Any]:
        functions = stream.map(lambda number: lambda: number, name="functions")
        return functions.async_map(lambda value: value(), name="ask", type=tg.pickled(FunctionType))

    asking = Asking(build)
    asking.put(1)
    asking.bench.trigger(1)
    asking.come()
    failure = asking.bench.failure
    assert failure.kind is ErrorKind.INVALID
    assert "function" in failure.message
    assert "ask" in failure.where


def test_a_checkpoint_that_is_given_up_changes_nothing_for_calls() -> None:
    asking = Asking()
    asking.put(1, 2)
    asking.bench.trigger(1)
    asking.bench.step()
    asking.bench.abandon(1)
    asking.bench.finish()
    asking.bench.checkpoint(2)
    asking.answer_all()
    asking.bench.checkpoint(3)
    assert asking.sink.committed == [10, 20]


# ---- opening and closing -------------------------------------------------------------------------------------------


class Session(tg.AsyncFunction[int, int]):
    """Counts who opens and closes it, by object."""

    opened: list[int]

    def __init__(self, log: list[str], fails: str = "") -> None:
        self.log = log
        self.fails = fails

    def __deepcopy__(self, memo: object) -> "Session":
        return Session(self.log, self.fails)

    async def open(self, ctx: tg.Context) -> None:
        self.log.append(f"open {ctx.operator} {ctx.subtask} of {ctx.parallelism}")
        if self.fails == "open":
            raise OSError("no such host")

    async def call(self, value: int) -> int:
        return value * 10

    async def close(self) -> None:
        self.log.append("close")
        if self.fails == "close":
            raise OSError("gone")


def sessions(log: list[str], fails: str = "", **options: Any) -> Build:
    return lambda stream: stream.async_map(Session(log, fails), name="ask", type=int, **options)


def test_an_object_is_opened_before_the_first_call_and_closed_at_the_end_in_each_subtask() -> None:
    log: list[str] = []
    asking = Asking(sessions(log), 2)
    assert sorted(log) == ["open ask 0 of 2", "open ask 1 of 2"]
    asking.put(1)
    asking.answer_all()
    assert asking.out == [10]
    asking.bench.stop()
    assert log[2:] == ["close", "close"]


def test_nothing_is_called_and_the_task_is_not_running_before_that_is_open() -> None:
    calls, source, job = HandCalls(), HandSource(), tg.Job("asking")
    stream = job.source(source, name="src")
    sessions([])(stream).sink(CollectionSink(), name="out")
    bench = Bench(job, calls=calls).deploy()
    source.put("a", 1)
    bench.read(no_more=False)
    bench.finish()
    assert {running.task.vertex for running in bench.heard(TaskRunning)} == {"src"}
    assert calls.records == []
    calls.open()
    bench.step()
    bench.finish()
    assert {running.task.vertex for running in bench.heard(TaskRunning)} == {"src", "ask"}
    assert calls.records == [1]


def test_an_object_that_cannot_be_opened_fails_the_attempt_and_is_not_closed() -> None:
    log: list[str] = []
    asking = Asking(sessions(log, "open"))
    assert asking.bench.failure.message == "OSError in open: no such host"
    asking.bench.stop()
    assert log == ["open ask 0 of 1"]


def test_closing_cancels_the_calls_and_what_it_raises_is_told() -> None:
    asking = Asking(sessions([], "close"))
    asking.put(1)
    asking.bench.stop()
    (group,) = asking.calls.groups
    assert group.is_closed
    (failed,) = asking.bench.heard(TaskFailed)
    assert failed.failure.message == "OSError in close: gone"


def test_the_threads_of_plain_functions_are_those_that_were_asked_for_and_limit_the_calls() -> None:
    asking = Asking(lambda stream: stream.async_map(tenfold, name="ask", type=int, threads=2))
    asking.put(1, 2, 3)
    (group,) = asking.calls.groups
    assert (group.threads, group.records) == (2, [1, 2])
