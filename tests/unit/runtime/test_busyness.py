"""What a task does with its time, by a clock that moves only when a test says so: busy, idle, back-pressured."""

import dataclasses
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidegate as tg
from tests.unit.runtime.asking import Asking
from tests.unit.runtime.harness import AT_ONCE, Bench, HandClock, HandSource, task
from tests.unit.runtime.test_task_and_outside import NarrowSink
from tidegate.connectors.collections import CollectionSink
from tidegate.elements import Batch
from tidegate.ids import OperatorName
from tidegate.operators.contracts import OperatorContext
from tidegate.runtime.busyness import LOOK_EVERY, Busyness, Condition
from tidegate.runtime.chain import Chain
from tidegate.runtime.control import RuntimeOptions, TaskTimes, WorkerMetrics

TASK = task("totals")
NONE_SKIPPED = {OperatorName("first"): 0, OperatorName("second"): 0}


class Slow:
    """An operator that takes `seconds` for each batch, and passes it on."""

    def __init__(self, clock: HandClock, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds

    def open(self, context: OperatorContext) -> None: ...

    def process(self, batch: Batch) -> list[Batch]:
        self._clock.time += self._seconds
        return [batch]

    def end_of_input(self) -> tuple[Batch, ...]:
        return ()

    def close(self) -> None: ...


def slow_chain(clock: HandClock, *seconds: float) -> Chain:
    return Chain([(name, Slow(clock, each)) for name, each in zip(NONE_SKIPPED, seconds, strict=True)])


def seconds(times: TaskTimes) -> tuple[float, float, float]:
    return times.busy_time, times.idle_time, times.back_pressured_time


def rates(times: TaskTimes) -> tuple[int, int, int]:
    return (
        times.busy_time_ms_per_second,
        times.idle_time_ms_per_second,
        times.back_pressured_time_ms_per_second,
    )


def busyness() -> Busyness:
    clock = HandClock()
    return Busyness(TASK, slow_chain(clock, 0.0, 0.0), clock)


# ---- one task's account ----------------------------------------------------------------------------------------------


def test_work_is_busy_and_what_follows_it_is_what_the_step_left_behind() -> None:
    found = busyness()
    found.stepped(100.0, 100.25, True, Condition.IDLE)
    found.stepped(101.0, 101.5, True, Condition.BACK_PRESSURED)
    found.stepped(103.0, 103.0, False, Condition.BACK_PRESSURED)
    assert seconds(found.times()) == (0.75, 0.75, 1.5)


def test_a_wait_for_another_turn_is_what_that_turn_finds() -> None:
    held, going_on = busyness(), busyness()
    for one in (held, going_on):
        one.stepped(100.0, 101.0, True, None)
    held.stepped(103.0, 103.0, False, Condition.BACK_PRESSURED)
    going_on.stepped(103.0, 104.0, True, Condition.IDLE)
    assert seconds(held.times()) == (1.0, 0.0, 2.0)
    assert seconds(going_on.times()) == (4.0, 0.0, 0.0)


def test_rates_are_of_the_time_since_the_report_before_and_of_that_if_it_is_too_short() -> None:
    found = busyness()
    found.stepped(100.0, 100.25, True, Condition.IDLE)
    found.stepped(101.0, 101.0, False, Condition.IDLE)
    assert rates(found.times()) == (250, 750, 0)
    found.stepped(101.001, 101.001, False, Condition.BACK_PRESSURED)
    assert rates(found.times()) == (250, 750, 0)
    found.stepped(102.0, 102.0, False, Condition.IDLE)
    assert rates(found.times()) == (0, 1, 999)


steps = st.tuples(
    st.floats(0.0, 10.0), st.floats(0.0, 10.0), st.booleans(), st.sampled_from([None, *Condition]), st.booleans()
)


@settings(deadline=None)
@given(st.lists(steps, min_size=1))
def test_the_three_add_up_to_the_time_and_to_a_thousand(made: list[tuple[Any, ...]]) -> None:
    found, now, told = busyness(), 100.0, []
    for wait, work, worked, condition, is_reported in made:
        began = now if not told and now == 100.0 else now + wait
        now = began + work
        found.stepped(began, now, worked, condition)
        told += [found.times()] if is_reported else []
    assert sum(seconds(found.times())) == pytest.approx(now - 100.0, abs=0.002)
    assert all(sum(rates(times)) == 1000 and min(rates(times)) >= 0 for times in told)


# ---- tasks -----------------------------------------------------------------------------------------------------------


def two_tasks() -> tuple[Bench, HandSource]:
    """A source's task and, in another worker too, those behind it that take what there is room for."""
    source, job = HandSource(), tg.Job("two")
    stream = job.source(source, name="src", parallelism=1).map(lambda number: number, name="next")
    stream.sink(CollectionSink(), name="out")
    return Bench(job, 2, options=RuntimeOptions(linger=0.0, channel_records=64, channel_bytes=256)), source


def test_a_task_that_its_output_holds_back_is_back_pressured_and_the_one_that_is_not_asked_is_idle() -> None:
    bench, source = two_tasks()
    source.put("a", *range(20_000))
    bench.deploy().read(no_more=False)
    before = seconds(bench.task("src").busyness.times())
    for _ in range(100):
        # The other worker stands still and takes nothing.
        bench.workers[0].step()
        bench.clock.time += 0.1
    after = bench.task("src").busyness.times()
    assert after.back_pressured_time - before[2] > 9.5
    assert after.busy_time == before[0]
    assert bench.task("next").busyness.times().idle_time > 9.5


def test_a_source_that_has_nothing_is_idle_and_so_are_those_behind_it() -> None:
    bench, source = two_tasks()
    source.put("a", 1)
    bench.deploy().read(no_more=False)
    for _ in range(20):
        bench.clock.time += 0.5
        bench.settle()
    assert [rates(bench.task(name).busyness.times()) for name in ("src", "next")] == [(0, 1000, 0)] * 2


def test_slow_user_code_is_busy() -> None:
    benches: list[Bench] = []

    def slowly(number: int) -> int:
        benches[0].clock.time += 0.01
        return number

    source, job = HandSource(), tg.Job("slow")
    job.source(source, name="src").map(slowly, name="slow").sink(CollectionSink(), name="out")
    bench = Bench(job, options=AT_ONCE)
    benches.append(bench)
    source.put("a", *range(300))
    bench.deploy().read(no_more=False)
    bench.settle()
    (row,) = [row for row in bench.heard(WorkerMetrics)[-1].tasks if row.task == task("src")]
    assert row.busy_time_ms_per_second == 1000
    assert seconds(bench.task("src").busyness.times())[0] == pytest.approx(3.0)
    shares = {row.operator: row.busy_share for row in bench.task("src").metrics()}
    assert shares == {"src": 0, "slow": 1000, "out": 0}


def test_a_task_whose_sink_has_no_room_is_back_pressured() -> None:
    source, sink, job = HandSource(), NarrowSink(), tg.Job("full")
    job.source(source, name="src").sink(sink, name="out")
    source.put("a", *range(10))
    bench = Bench(job, options=AT_ONCE).deploy()
    sink.has_room = False
    bench.read(no_more=False)
    # What a source is told stands before what it reads, and needs no room.
    bench.step()
    for _ in range(10):
        bench.clock.time += 1.0
        bench.step()
    assert rates(bench.task("src").busyness.times()) == (0, 0, 1000)
    sink.has_room = True
    bench.settle()
    bench.clock.time += 1.0
    bench.settle()
    bench.task("src").busyness.times()
    bench.clock.time += 1.0
    bench.settle()
    assert rates(bench.task("src").busyness.times()) == (0, 1000, 0)


def test_a_task_whose_sink_has_no_room_is_idle_while_nothing_comes() -> None:
    source, sink, job = HandSource(), NarrowSink(), tg.Job("full")
    job.source(source, name="src", parallelism=1).map(lambda number: number, name="next").sink(sink, name="out")
    bench = Bench(job, 2, options=AT_ONCE).deploy()
    source.put("a")
    bench.read(no_more=False)
    sink.has_room = False
    for _ in range(10):
        bench.clock.time += 1.0
        bench.step()
    assert seconds(bench.task("next").busyness.times())[1:] == (10.0, 0.0)


def test_a_task_that_waits_for_answers_and_takes_nothing_in_for_that_is_busy() -> None:
    asking = Asking()
    asking.put(*range(10))
    asking.bench.task("ask").busyness.times()
    for _ in range(10):
        asking.bench.clock.time += 1.0
        asking.bench.settle()
    assert rates(asking.bench.task("ask").busyness.times())[0] == 1000


def test_time_before_a_task_is_ready_does_not_count() -> None:
    source, job = HandSource(), tg.Job("late")
    job.source(source, name="src").sink(CollectionSink(), name="out")
    bench = Bench(job, options=AT_ONCE)
    bench.begin_deploying()
    for _ in range(5):
        bench.step()
        bench.clock.time += 1.0
    bench.executor.run_all()
    bench.settle()
    bench.clock.time += 2.0
    bench.settle()
    assert sum(seconds(bench.task("src").busyness.times())) == pytest.approx(2.0)


# ---- operators of one chain ------------------------------------------------------------------------------------------


def test_each_operator_of_a_chain_has_its_share_of_the_steps_that_are_looked_at() -> None:
    clock = HandClock()
    chain = slow_chain(clock, 0.003, 0.006)
    found = Busyness(TASK, chain, clock)
    for _ in range(2 * LOOK_EVERY):
        found.begins()
        began = clock.time
        found.goes_on(began)
        chain.push(Batch([1]))
        while chain.next_output() is not None:
            pass
        clock.time += 0.003
        found.stepped(began, clock.time, True, None)
    assert [row.busy_share for row in found.operators(NONE_SKIPPED)] == [250, 500]


def test_only_one_step_of_several_reads_the_clock_for_operators() -> None:
    chain = slow_chain(HandClock(), 0.0, 0.0)
    found = Busyness(TASK, chain, HandClock())
    watched = []
    for _ in range(2 * LOOK_EVERY + 1):
        for worked in (False, True):
            found.begins()
            found.stepped(0.0, 0.0, worked, Condition.IDLE)
        watched.append(chain.watch is not None)
    assert [step for step, is_watched in enumerate(watched) if is_watched] == [0, LOOK_EVERY, 2 * LOOK_EVERY]


def test_the_chain_says_which_operator_is_at_work() -> None:
    seen: list[OperatorName] = []

    class Seeing(Slow):
        def process(self, batch: Batch) -> list[Batch]:
            seen.append(chain.at_work)
            return super().process(batch)

    chain = Chain([(name, Seeing(HandClock(), 0.0)) for name in NONE_SKIPPED])
    chain.push(Batch([1]))
    while chain.next_output() is not None:
        pass
    assert seen == list(NONE_SKIPPED)


# ---- reports ---------------------------------------------------------------------------------------------------------


def test_a_task_that_is_held_back_is_told_although_no_record_moves_and_then_nothing_more() -> None:
    bench, source = two_tasks()
    source.put("a", *range(20_000))
    bench.deploy().read(no_more=False)
    told = []
    for _ in range(20):
        bench.workers[0].step()
        bench.clock.time += 0.5
        told.append(len(bench.heard(WorkerMetrics)))
    assert told[5] == told[-1] > told[0]
    (row,) = [row for row in bench.heard(WorkerMetrics)[-1].tasks if row.task == task("src")]
    assert rates(row) == (0, 0, 1000)


def test_without_a_stopwatch_nobody_is_told_of_times(monkeypatch: pytest.MonkeyPatch) -> None:
    bench, source = two_tasks()
    for worker in bench.workers:
        monkeypatch.setattr(worker, "_ports", dataclasses.replace(worker._ports, stopwatch=None))
    source.put("a", *range(100))
    bench.deploy().read(no_more=False)
    bench.settle()
    bench.clock.time += 1.0
    bench.settle()
    told = bench.heard(WorkerMetrics)[-1]
    assert told.tasks == ()
    assert {row.busy_share for row in told.operators} == {0}
