"""A harness has both times in its hand, shows what a job keeps, and finds what it only seems to keep."""

import asyncio
import subprocess
import sys
from typing import Any

import pytest

import tidegate as tg
from tests.unit.testing.jobs import Order, Silence, totals, user_of, windows
from tidegate.errors import InvalidError, UnavailableError
from tidegate.testing import CollectSink, JobHarness, Record, ScriptedSource

NO_WATERMARKS = tg.WatermarkStrategy[Order].no_watermarks()


# ---- event time ----------------------------------------------------------------------------------------------------


def test_the_strategy_of_the_job_makes_watermarks_behind_each_record() -> None:
    with JobHarness(windows()) as harness:
        harness.send("orders", Order("ann", 1, 5), Order("ann", 2, 11))
        assert harness.output("out") == []
        harness.send("orders", Order("bob", 4, 14))
        assert harness.output("out") == ["ann 0-10: 1"]
        harness.send("orders", Order("ann", 8, 9))
        assert harness.output("late") == [Order("ann", 8, 9)]
        assert harness.records_skipped("sum") == 0
        harness.finish()
        assert harness.committed("out") == ["ann 0-10: 1", "ann 10-20: 2", "bob 10-20: 4"]


def test_late_records_without_a_side_output_are_counted_until_the_next_start() -> None:
    job = tg.Job("windows")
    orders = job.source(ScriptedSource(), name="orders", watermarks=NO_WATERMARKS)
    orders.key_by(user_of).window(tg.TumblingEventTimeWindows("10ms")).reduce(max, name="max", type=Order).sink(
        CollectSink(), name="out"
    )
    with JobHarness(job) as harness:
        harness.advance_watermark(30)
        harness.send("orders", Order("ann", 1), timestamp=12)
        assert harness.records_skipped("max") == 1
        harness.restart()
        assert harness.records_skipped("max") == 0


def test_a_watermark_comes_when_the_test_says_so() -> None:
    with JobHarness(windows(NO_WATERMARKS)) as harness:
        harness.send("orders", Order("ann", 1), timestamp=5)
        harness.send("orders", Order("ann", 2), timestamp=500)
        harness.advance_watermark(8)
        assert harness.output("out") == []
        harness.advance_watermark(9)
        assert harness.output("out") == ["ann 0-10: 1"]
        harness.advance_watermark(7)
        harness.send("orders", Order("bob", 2), timestamp=9)
        assert harness.output("late") == [Order("bob", 2)]


def test_what_was_late_before_a_crash_is_late_after_it() -> None:
    for act in (JobHarness.crash, JobHarness.restart):
        with JobHarness(windows(NO_WATERMARKS)) as harness:
            harness.send("orders", Order("ann", 1), timestamp=5)
            harness.advance_watermark(9)
            harness.checkpoint()
            act(harness)
            harness.send("orders", Order("ann", 1), timestamp=6)
            assert harness.output("late") == [Order("ann", 1)]


def test_a_watermark_that_came_after_the_checkpoint_comes_again_in_its_place() -> None:
    with JobHarness(windows(NO_WATERMARKS)) as harness:
        harness.send("orders", Order("ann", 1), timestamp=5)
        harness.checkpoint()
        harness.send("orders", Order("ann", 2), timestamp=6)
        harness.advance_watermark(9)
        harness.send("orders", Order("ann", 3), timestamp=7)
        before = harness.output("out"), harness.output("late")
        harness.crash(parallelism=2)
        assert (harness.output("out"), harness.output("late")) == before == (["ann 0-10: 3"], [Order("ann", 3)])


def test_a_slow_split_holds_the_others_back_until_it_is_idle() -> None:
    strategy = NO_WATERMARKS.for_monotonous_timestamps().with_idleness("30s")
    with JobHarness(windows(strategy, splits=2), processing_time=1_764_000_000_123) as harness:
        harness.send("orders", Order("bob", 1), timestamp=3, split=1)
        harness.advance_processing_time("10s")
        harness.send("orders", Order("ann", 1), timestamp=50, split=0)
        harness.advance_processing_time("19.999s")
        assert harness.output("out") == []
        harness.advance_processing_time("1ms")
        assert harness.output("out") == ["bob 0-10: 1"]


def test_watermarks_can_be_said_in_the_middle_of_a_job() -> None:
    job = tg.Job("middle")
    orders = job.source(ScriptedSource(), name="orders")
    stamped = orders.assign_timestamps_and_watermarks(
        NO_WATERMARKS.with_timestamp_assigner(lambda order: order.at), name="stamp"
    )
    stamped.key_by(user_of).window(tg.TumblingEventTimeWindows("10ms")).reduce(max, name="max", type=Order).sink(
        CollectSink(), name="out"
    )
    with JobHarness(job) as harness:
        harness.send("orders", Order("ann", 1, 5))
        with pytest.raises(InvalidError, match="source 'orders' has no watermarks"):
            harness.advance_watermark(20, "orders")
        harness.advance_watermark(20, "stamp")
        assert harness.output() == [Order("ann", 1, 5)]
        harness.crash()
        assert harness.output() == [Order("ann", 1, 5)]


def test_aligned_sources_wait_for_each_other_by_the_clock_of_the_harness() -> None:
    strategy = NO_WATERMARKS.for_monotonous_timestamps().with_watermark_alignment("all", "10ms", "1s")
    job = tg.Job("aligned")
    fast, slow = (job.source(ScriptedSource(), name=name, watermarks=strategy) for name in ("fast", "slow"))
    fast.union(slow, name="both").sink(CollectSink(), name="out")
    with JobHarness(job) as harness:
        harness.send("slow", 0, timestamp=1)
        harness.send("fast", 100, timestamp=100)
        harness.advance_processing_time("2s")
        harness.send("fast", 101, timestamp=101)
        harness.advance_processing_time("1m")
        assert harness.output() == [0, 100]
        harness.send("slow", 95, timestamp=95)
        harness.advance_processing_time("2s")
        assert harness.output() == [0, 100, 95, 101]
        harness.send("fast", 200, timestamp=200)
        harness.send("fast", 201, timestamp=201)
        harness.advance_processing_time("2s")
        harness.end_input("slow")
        harness.crash()
        harness.advance_processing_time("4s")
        harness.finish()
        assert harness.committed() == [0, 100, 95, 101, 200, 201]


def test_a_watermark_for_all_passes_over_sources_that_have_ended() -> None:
    job = tg.Job("union")
    one, two = (job.source(ScriptedSource(), name=name, watermarks=NO_WATERMARKS) for name in ("one", "two"))
    both = one.union(two, name="both").key_by(user_of)
    both.window(tg.TumblingEventTimeWindows("10ms")).reduce(max, name="max", type=Order).sink(CollectSink(), name="out")
    with JobHarness(job) as harness:
        harness.send("one", Order("ann", 1), timestamp=5)
        harness.end_input("one")
        harness.advance_watermark(9)
        assert harness.output() == [Order("ann", 1)]
        with pytest.raises(InvalidError, match="source one has ended"):
            harness.advance_watermark(9, "one")


def test_a_job_without_watermarks_says_so() -> None:
    with JobHarness(totals()) as harness, pytest.raises(InvalidError, match="no source has watermarks"):
        harness.advance_watermark(5)


# ---- processing time -----------------------------------------------------------------------------------------------


def test_timers_fire_at_their_own_moments_in_one_long_leap() -> None:
    with JobHarness(totals(Silence()), processing_time=1_764_000_000_123) as harness:
        harness.send("orders", Order("ann", 1))
        harness.advance_processing_time("20s")
        harness.send("orders", Order("bob", 1))
        harness.advance_processing_time("50s")
        harness.advance_processing_time("2h")
        assert harness.output() == [
            f"{user} is silent at {at}, {at}" for user, at in (("ann", 1764000060123), ("bob", 1764000080123))
        ]
        assert harness.processing_time == 1764000070123 + 7_200_000


def test_timers_outlive_a_crash_and_those_that_were_missed_fire_at_once() -> None:
    with JobHarness(totals(Silence())) as harness:
        harness.send("orders", Order("ann", 1))
        harness.checkpoint()
        harness.advance_processing_time("2m")
        assert harness.output() == ["ann is silent at 60000, 60000"]
        harness.crash(parallelism=2)
        assert harness.output() == ["ann is silent at 60000, 120000"]


@pytest.mark.parametrize("wrong", ["0s", "soon", -1])
def test_time_never_goes_back_or_stands(wrong: Any) -> None:
    with JobHarness(totals()) as harness, pytest.raises(InvalidError, match="advance_processing_time"):
        harness.advance_processing_time(wrong)


# ---- state ---------------------------------------------------------------------------------------------------------


def test_state_is_told_by_key_or_by_subtask() -> None:
    class Seen(tg.KeyedProcessFunction[str, Order, Any]):
        amounts = tg.ListState(int, ttl=tg.Ttl("1h"))
        by_time = tg.MapState(int, int, ttl=tg.Ttl("1h"))
        last = tg.ValueState(Order, ttl=tg.Ttl("1h"))
        plain = tg.MapState(int, int)
        unkeyed = tg.OperatorListState(int)

        def process_element(self, value: Order, ctx: tg.KeyedContext[str]) -> None:
            self.amounts.add(value.amount)
            self.by_time.put(value.at, value.amount)
            self.plain.put(value.at, value.amount)
            self.last.update(value)
            self.unkeyed.add(value.amount)

    with JobHarness(totals(Seen())) as harness:
        harness.send("orders", Order("ann", 5, 1), Order("bob", 2, 3), Order("ann", 7, 4))
        for _ in range(2):
            assert harness.states("total") == {
                "amounts": {"ann": [5, 7], "bob": [2]},
                "by_time": {"ann": {1: 5, 4: 7}, "bob": {3: 2}},
                "plain": {"ann": {1: 5, 4: 7}, "bob": {3: 2}},
                "last": {"ann": Order("ann", 7, 4), "bob": Order("bob", 2, 3)},
                "unkeyed": {0: [5, 2, 7]},
            }
            harness.restart()
        harness.state("total", "plain")["ann"].clear()
        assert harness.state("total", "plain")["ann"] == {1: 5, 4: 7}


def test_the_state_of_windows_that_are_done_is_gone() -> None:
    with JobHarness(windows(), parallelism=2) as harness:
        harness.send("orders", *(Order(user, 1, at) for at in range(100) for user in "abc"))
        waiting = [values for name, values in harness.states("sum").items() if name.startswith(".windows")]
        assert sum(len(by_window) for (values,) in [waiting] for by_window in values.values()) == 3
        harness.advance_watermark(10_000)
        assert [values for values in harness.states("sum").values() if values] == []


# ---- every element -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_job_whose_memory_is_in_its_state_does_not_notice_snapshots(parallelism: int) -> None:
    orders = [Order("abc"[at % 3], at, (at * 7) % 23) for at in range(23)]
    results = []
    for snapshots in (False, True):
        with JobHarness(windows(), parallelism=parallelism, snapshot_every_element=snapshots) as harness:
            harness.send("orders", *orders)
            harness.finish()
            results.append((sorted(harness.committed("out")), harness.committed("late")))
    assert results[0] == results[1]


def test_a_memory_that_is_no_state_is_found_by_snapshots() -> None:
    class Forgetful(tg.KeyedProcessFunction[str, Order, str]):
        def __init__(self) -> None:
            self.totals: dict[str, int] = {}

        def process_element(self, value: Order, ctx: tg.KeyedContext[str]) -> list[str]:
            self.totals[ctx.key] = self.totals.get(ctx.key, 0) + value.amount
            return [f"{ctx.key} {self.totals[ctx.key]}"]

    results = []
    for snapshots in (False, True):
        with JobHarness(totals(Forgetful()), snapshot_every_element=snapshots) as harness:
            harness.send("orders", Order("ann", 5), Order("ann", 7))
            harness.finish()
            results.append(harness.committed())
    assert results == [["ann 5", "ann 12"], ["ann 5", "ann 7"]]


def test_records_are_read_in_batches_of_the_size_that_is_asked_for() -> None:
    class Watermarks(tg.KeyedProcessFunction[str, Order, int]):
        def process_element(self, value: Order, ctx: tg.KeyedContext[str]) -> list[int]:
            return [ctx.timer_service.current_watermark()]

        def on_timer(self, timestamp: int, ctx: tg.KeyedContext[str]) -> None:
            """So that it hears of watermarks."""

    job = tg.Job("batches")
    strategy = NO_WATERMARKS.for_monotonous_timestamps()
    source = job.source(ScriptedSource(), name="orders", watermarks=strategy)
    source.key_by(user_of).process(Watermarks(), name="it").sink(CollectSink(), name="out")
    with JobHarness(job, batch_size=3) as harness:
        harness.send("orders", *(Record(Order("ann", 1), at) for at in range(1, 8)))
        least = harness.output()[0]
        assert harness.output() == [least, least, least, 2, 2, 2, 5]


def test_a_job_that_waits_for_time_cannot_finish_without_it() -> None:
    async def ask(order: Order) -> int:
        await asyncio.sleep(5)
        return order.amount

    job = tg.Job("asks")
    job.source(ScriptedSource(), name="orders").async_map(ask, name="ask", type=Order).sink(CollectSink(), name="out")
    with JobHarness(job) as harness:
        harness.send("orders", Order("ann", 5))
        with pytest.raises(UnavailableError, match="waits for processing time"):
            harness.finish()
        harness.advance_processing_time("5s")
        assert harness.committed() == [5]
        assert harness.is_finished


def test_importing_it_imports_no_test_framework() -> None:
    program = "import sys, tidegate.testing; print([m for m in ('pytest', 'hypothesis') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
