"""Asynchronous calls in a harness: answers come when the clock comes to them, in an order that is always the same."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import tidegate as tg
from tidegate.errors import UserCodeError
from tidegate.testing import CollectSink, JobHarness, ScriptedSource


async def after(seconds: float) -> float:
    """Answers after so many seconds, with ten times as many."""
    await asyncio.sleep(seconds)
    return seconds * 10


def asking(function: Callable[[float], Any], **options: Any) -> tg.Job:
    job = tg.Job("asks")
    source = job.source(ScriptedSource(), name="in")
    source.async_map(function, name="ask", type=float, **options).sink(CollectSink(), name="out")
    return job


def test_answers_of_coroutines_come_when_their_time_has_come() -> None:
    with JobHarness(asking(after, ordered=False), processing_time=1_764_000_000_123) as harness:
        harness.send("in", 0.3, 0.1, 0.0, 0.2)
        assert harness.output() == [0.0]
        harness.advance_processing_time("199ms")
        assert harness.output() == [0.0, 1.0]
        harness.advance_processing_time("1h")
        assert harness.output() == [0.0, 1.0, 2.0, 3.0]


def test_answers_keep_the_order_of_the_records() -> None:
    with JobHarness(asking(after)) as harness:
        harness.send("in", 0.3, 0.1)
        harness.advance_processing_time("200ms")
        assert harness.output() == []
        harness.advance_processing_time("100ms")
        assert harness.output() == [3.0, 1.0]


def test_plain_functions_answer_at_once() -> None:
    with JobHarness(asking(lambda value: value + 1)) as harness:
        harness.send("in", 1.0, 2.0)
        assert harness.output() == [2.0, 3.0]


@pytest.mark.parametrize("parallelism", [1, 2])
def test_what_was_under_way_at_a_crash_is_asked_again_and_answered_once(parallelism: int) -> None:
    asked: list[float] = []

    async def ask(seconds: float) -> float:
        asked.append(seconds)
        return await after(seconds)

    with JobHarness(asking(ask)) as harness:
        harness.send("in", 3.0, 1.0)
        harness.checkpoint()
        harness.advance_processing_time("2s")
        harness.crash(parallelism=parallelism)
        assert sorted(asked) == [1.0, 1.0, 3.0, 3.0]
        assert harness.output() == []
        harness.advance_processing_time("3s")
        harness.finish()
        assert sorted(harness.committed()) == [10.0, 30.0]


def test_a_call_that_takes_too_long_is_tried_again_by_the_clock_of_the_harness() -> None:
    tries: list[float] = []

    async def slow_at_first(seconds: float) -> float:
        tries.append(seconds)
        return await after(seconds if len(tries) == 1 else 0.0)

    options = {"timeout": "10s", "retries": tg.Retries(attempts=2, delay="5s")}
    with JobHarness(asking(slow_at_first, **options)) as harness:
        harness.send("in", 20.0)
        harness.advance_processing_time("14.999s")
        assert (tries, harness.output()) == ([20.0], [])
        harness.advance_processing_time("1ms")
        assert (tries, harness.output()) == ([20.0, 20.0], [0.0])
        assert harness.processing_time == 15_000


def test_what_a_call_raises_fails_the_job() -> None:
    async def failing(seconds: float) -> float:
        await after(seconds)
        raise ConnectionError("no answer")

    with JobHarness(asking(failing)) as harness:
        harness.send("in", 2.0)
        with pytest.raises(UserCodeError, match="no answer"):
            harness.advance_processing_time("2s")


def test_a_session_is_opened_and_closed_on_the_loop() -> None:
    events: list[str] = []

    class Session(tg.AsyncFunction[float, float]):
        async def open(self, ctx: tg.Context) -> None:
            await asyncio.sleep(0)
            events.append("open")

        async def close(self) -> None:
            await asyncio.sleep(0)
            events.append("close")

        async def call(self, value: float) -> float:
            return await after(value)

    with JobHarness(asking(Session())) as harness:  # type: ignore[arg-type]
        harness.send("in", 1.0)
        harness.crash()
        assert events == ["open", "open"]
        harness.advance_processing_time("1s")
        harness.finish()
        assert harness.committed() == [10.0]
    assert events == ["open", "open", "close"]


def test_a_crash_leaves_no_coroutine_behind() -> None:
    ended: list[str] = []

    async def waiting(seconds: float) -> float:
        try:
            return await after(seconds)
        finally:
            ended.append("ended")

    with JobHarness(asking(waiting)) as harness:
        harness.send("in", 60.0)
        harness.rewind()
        assert ended == ["ended"]
        harness.finish()
