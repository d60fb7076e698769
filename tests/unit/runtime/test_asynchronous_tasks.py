"""Asynchronous operators in running tasks: calls in flight at barriers, restores, other parallelism, event time, ends
and failures."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidegate as tg
from tests.unit.runtime.asking import BOUNDED, Asking, Build, by_hand, tenfold, with_lateness
from tidegate.operators.asynchronous import AsyncOperator, Waiting
from tidegate.runtime.control import Drain, RuntimeOptions, TaskEnded


def test_barriers_do_not_wait_for_calls_and_what_waits_is_called_again_first_and_comes_out_once() -> None:
    before = Asking()
    before.put(1, 2, 3)
    before.answer(1, 3)
    before.checkpoint()
    assert before.out == [10]
    before.put(4)
    before.answer_all()
    assert before.out == [10, 20, 30, 40]
    after = Asking(before=before)
    assert after.calls.records == [2, 3, 4]
    after.answer(4)
    assert after.out == [10]
    after.answer_all()
    assert after.out == [10, 20, 30, 40]


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("parallelisms", [(1, 3), (3, 1), (2, 3), (2, 2)])
def test_what_waits_comes_out_once_at_any_parallelism(parallelisms: tuple[int, int], ordered: bool) -> None:
    def build(stream: tg.Stream[int]) -> tg.Stream[int]:
        return stream.async_map(tenfold, name="ask", type=int, capacity=64, ordered=ordered)

    before = Asking(build, parallelisms[0], splits=("a", "b", "c"))
    for split, first in (("a", 0), ("b", 100), ("c", 200)):
        before.put(*range(first, first + 10), split=split)
    for group in before.calls.groups:
        before.answer(*group.records[1:2], *group.records[:1])
    before.checkpoint()
    after = Asking(build, parallelisms[1], before)
    after.answer_all()
    assert sorted(after.out) == [10 * (first + n) for first in (0, 100, 200) for n in range(10)]


def test_no_more_calls_run_than_there_is_capacity_for_and_those_before_wait_too() -> None:
    asking = Asking(options=RuntimeOptions(linger=0.0, batch_size=3, channel_records=6), strategy=None)
    asking.put(*range(100))
    assert asking.calls.records == [0, 1, 2, 3]
    read = asking.bench.task("src").metrics()[0].records_out
    assert read <= 4 + 3 + 6 + 2 * 3
    asking.answer_all()
    assert asking.out == [10 * n for n in range(100)]


def test_a_batch_may_be_longer_than_the_capacity_and_a_barrier_behind_it_need_not_wait() -> None:
    def build(stream: tg.Stream[int]) -> tg.Stream[int]:
        three = stream.flat_map(lambda number: [number, number + 1, number + 2], name="three")
        return three.async_map(tenfold, name="ask", type=int, capacity=1)

    before = Asking(build)
    before.put(1)
    assert before.calls.records == [1]
    before.checkpoint()
    assert before.bench.snapshot(1, "ask").operator_handles
    assert before.out == []
    after = Asking(build, before=before)
    assert after.calls.records == [1]
    after.answer_all()
    assert after.out == [10, 20, 30]


def test_a_barrier_passes_an_operator_that_is_full_also_when_it_comes_from_another_worker() -> None:
    def build(stream: tg.Stream[int]) -> tg.Stream[int]:
        three = stream.flat_map(lambda number: [number, number + 1, number + 2], name="three", parallelism=1)
        return three.async_map(tenfold, name="ask", type=int, capacity=1)

    before = Asking(build, 2)
    before.put(1)
    before.put(4)
    assert sorted(before.calls.records) == [1, 4]
    before.bench.checkpoint(1)
    assert before.bench.acknowledged(1).keys() == {*before.bench.physical.tasks}
    after = Asking(build, 2, before)
    after.answer_all()
    assert sorted(after.out) == [10, 20, 30, 40, 50, 60]


@pytest.mark.parametrize("parallelism", [1, 2])
def test_little_piles_up_before_an_operator_that_has_little_room(parallelism: int) -> None:
    asking = Asking(by_hand, parallelism, options=RuntimeOptions(linger=0.0), strategy=None)
    asking.put(*range(1000))
    assert asking.bench.task("src").metrics()[0].records_out <= 4 * 4


def test_a_barrier_waits_behind_records_for_which_there_is_no_room() -> None:
    asking = Asking(lambda stream: stream.async_map(tenfold, name="ask", type=int, capacity=2))
    asking.put(1, 2)
    asking.put(3)
    asking.bench.trigger(1)
    asking.come()
    assert len(asking.bench.acknowledged(1)) == 1
    asking.answer(1)
    assert asking.calls.records == [2, 3]
    assert len(asking.bench.acknowledged(1)) == 2


def test_an_operator_that_follows_works_on_results_and_a_barrier_finds_them_in_its_state() -> None:
    class Sum(tg.KeyedProcessFunction[int, int, int]):
        total = tg.ValueState(int, default=0)

        def process_element(self, value: int, ctx: tg.KeyedContext[int]) -> Iterator[int]:
            self.total.update(self.total.value() + value)
            yield self.total.value()

    def build(stream: tg.Stream[int]) -> tg.Stream[int]:
        return by_hand(stream).key_by(lambda _: 0, name="key").process(Sum(), name="sum")

    before = Asking(build)
    before.put(1, 2)
    before.answer(1)
    before.checkpoint()
    before.answer(2)
    assert before.out == [10, 30]
    after = Asking(build, 2, before)
    after.answer_all()
    assert after.out == [10, 30]


# ---- event time ----------------------------------------------------------------------------------------------------


def test_a_watermark_does_not_overtake_a_call() -> None:
    asking = Asking(with_lateness, strategy=BOUNDED)
    asking.put(100)
    asking.put(200)
    assert asking.calls.records == [100, 200]
    asking.answer(200)
    asking.put(101)
    assert asking.out == []
    asking.answer(101, 100)
    assert asking.out == [(100, "in time"), (200, "in time"), (101, "late")]


@pytest.mark.parametrize("parallelism", [1, 3])
def test_W07_a_record_that_waits_for_its_call_is_as_late_after_a_restore_as_it_was(parallelism: int) -> None:
    before = Asking(with_lateness, 2, splits=("a", "b"), strategy=BOUNDED)
    before.put(100)
    before.put(200, split="b")
    # Event time has come to 94, and both subtasks know.
    before.put(94)
    before.put(95, split="b")
    before.checkpoint()
    assert before.out == []
    assert {snapshot.watermark for snapshot in before.bench.snapshots(1, "ask")} == {None}
    after = Asking(with_lateness, parallelism, before, strategy=BOUNDED)
    after.answer(100, 200)
    after.answer_all()
    assert dict(after.out) == {100: "in time", 200: "in time", 94: "late", 95: "in time"}
    after.put(94, 95, split="b")
    after.answer_all()
    assert after.out[-2:] == [(94, "late"), (95, "in time")]


def test_what_waits_in_several_subtasks_is_in_time_in_one_where_it_was_in_each() -> None:
    before = Asking(with_lateness, 2, splits=("a", "b"), strategy=BOUNDED)
    before.put(100)
    before.put(95)
    before.put(90, split="b")
    before.put(200, split="b")
    before.checkpoint()
    after = Asking(with_lateness, 1, before, strategy=BOUNDED)
    after.answer_all()
    assert dict(after.out) == dict.fromkeys((90, 95, 100, 200), "in time")


def test_the_watermark_of_a_checkpoint_is_that_which_went_on() -> None:
    before = Asking()
    before.put(100)
    before.answer(100)
    before.put(200)
    before.put(300)
    before.checkpoint()
    assert before.bench.snapshot(1, "src").watermark == 299
    assert before.bench.snapshot(1, "ask").watermark == 99
    assert before.bench.snapshot(1, "out").watermark == 99


# ---- ends ----------------------------------------------------------------------------------------------------------


def ended(asking: Asking) -> set[str]:
    return {end.task.vertex for end in asking.bench.heard(TaskEnded)}


def test_the_end_waits_for_the_last_call() -> None:
    asking = Asking()
    asking.put(1, 2)
    asking.end()
    assert ended(asking) == {"src"}
    asking.answer_all()
    assert ended(asking) == {"src", "ask"}
    asking.checkpoint()
    assert asking.sink.committed == [10, 20]


def test_a_checkpoint_between_the_end_and_the_last_call_is_no_end_of_the_operator() -> None:
    before = Asking()
    before.put(1, 2)
    before.end()
    before.checkpoint()
    assert before.bench.snapshot(1, "src").ended
    assert not before.bench.snapshot(1, "ask").ended
    after = Asking(before=before)
    after.end()
    assert "ask" not in ended(after)
    after.answer_all()
    assert ended(after) == {"src", "ask"}
    assert after.out == [10, 20]


@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_drain_waits_for_the_calls_and_a_later_start_reads_on(parallelism: int) -> None:
    before = Asking()
    before.put(100, 200)
    before.bench.tell(Drain())
    before.come()
    assert ended(before) == {"src"}
    before.answer_all()
    assert ended(before) == {"src", "ask"}
    before.checkpoint()
    assert before.bench.snapshot(1, "ask").watermark == 199
    after = Asking(parallelism=parallelism, before=before)
    after.put(300)
    after.answer_all()
    assert sorted(after.out) == [1000, 2000, 3000]


# ---- any order of things -------------------------------------------------------------------------------------------

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from("ab"), st.integers(1, 4)),
        st.tuples(st.just("answer"), st.integers(0, 5)),
        st.tuples(st.just("move"), st.integers(1, 3)),
    ),
    max_size=14,
)


def live(steps: list[tuple[Any, ...]], build: Build) -> tuple[list[Any], int]:
    """What comes out, and how many records were put. A move is a crash: what the checkpoint before it did not have is
    done again, at another parallelism."""
    asking, numbers = Asking(build, 2, splits=("a", "b")), 0
    for step in steps:
        match step:
            case ("put", split, count):
                asking.put(*(10 * n for n in range(numbers + 1, numbers + count + 1)), split=split)
                numbers += count
            case ("answer", which) if asking.calls.records:
                asking.answer(asking.calls.records[which % len(asking.calls.records)])
            case ("move", parallelism):
                asking.checkpoint()
                asking.answer(*asking.calls.records[:1])
                asking = Asking(build, parallelism, asking)
    asking.answer_all()
    asking.end()
    asking.checkpoint()
    return asking.sink.committed, numbers


def check(steps: list[tuple[Any, ...]]) -> None:
    out, numbers = live(steps, with_lateness)
    assert Counter(out) == Counter((10 * n, "in time") for n in range(1, numbers + 1))


@settings(max_examples=12, deadline=None)
@given(STEPS)
def test_each_record_comes_out_once_and_in_time_whatever_happens(steps: list[tuple[Any, ...]]) -> None:
    check(steps)


@pytest.mark.slow
@settings(max_examples=1000, deadline=None)
@given(STEPS)
def test_each_record_comes_out_once_and_in_time_whatever_happens_at_length(steps: list[tuple[Any, ...]]) -> None:
    check(steps)


def loses(waiting: list[Waiting]) -> list[Waiting]:
    return waiting[1:]


def doubles(waiting: list[Waiting]) -> list[Waiting]:
    return waiting[:1] + waiting


def changes(waiting: list[Waiting]) -> list[Waiting]:
    return [one._replace(record=-one.record) for one in waiting]


def hastens(waiting: list[Waiting]) -> list[Waiting]:
    return [one._replace(watermark=10_000) for one in waiting]


@pytest.mark.parametrize("change", [loses, doubles, changes, hastens])
def test_what_is_restored_wrongly_is_found(
    change: Callable[[list[Waiting]], list[Waiting]], monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[tuple[Any, ...]] = [("put", "a", 2), ("put", "b", 2), ("move", 1), ("put", "a", 1)]
    restored = AsyncOperator.restored
    check(steps)

    def wrongly(operator: AsyncOperator) -> tuple[list[Waiting], int]:
        waiting, reached = restored(operator)
        return change(waiting), reached

    monkeypatch.setattr(AsyncOperator, "restored", wrongly)
    with pytest.raises(AssertionError):
        check(steps)
