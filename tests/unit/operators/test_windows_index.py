"""Windows without timers go on from whatever was restored: from checkpoints of versions that had timers, of programs
with another lateness, of subtasks that had come further than others."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidegate as tg
from tests.unit.operators.bench import HandClock, context
from tests.unit.operators.test_windows_model import ASSIGNERS, Model, Real, follow, node_of, steps
from tests.unit.runtime.harness import HandSource
from tidegate.checkpoint.protocol import OperatorSnapshot
from tidegate.elements import MAX_WATERMARK, Batch
from tidegate.event_time.windows import TimeWindow
from tidegate.ids import CheckpointId, OperatorName, SubtaskIndex
from tidegate.operators.timers import EVENT_TIMERS
from tidegate.operators.windows import WindowOperator
from tidegate.operators.windows import index as window_index
from tidegate.operators.windows.index import WindowIndex
from tidegate.operators.windows.panes import TimerWindowOperator
from tidegate.state.keys import encode_key
from tidegate.state.object_backend import ObjectStateBackend
from tidegate.state.rocksdb import RocksMemory, RocksStateBackend
from tidegate.testing.conformance.state_kit import KeptFiles

BY_EVENT_TIME = {name: assigner for name, assigner in ASSIGNERS.items() if name != "sessions"}


class InRocks(Real):
    """On the other backend: what was restored is read from a database."""

    def __init__(self, assigner: Any, lateness: int, folder: Path) -> None:
        self._folder, self._attempts = folder, 0
        self._memory = RocksMemory(RocksMemory.LIMIT_MIN)
        super().__init__(assigner, lateness)

    def _fresh(self) -> Any:
        self._attempts += 1
        folder = self._folder / str(self._attempts) / "1" / "it.0"
        return RocksStateBackend(OperatorName("it"), SubtaskIndex(0), 1, 8, folder, self._memory, cache_bytes=0)

    def move(self) -> None:
        former = self._backend
        super().move()
        former.close()

    def close(self) -> None:
        self._backend.close()


class Formerly(Real):
    """As earlier versions did it, until it moves: with timers in the state."""

    has_moved = False

    def _open(self) -> None:
        self._operator = self._node.factory()
        if not self.has_moved:
            self._operator = TimerWindowOperator(self._operator._assigner, self._operator._spec)
        self._operator.open(
            msgspec.structs.replace(context(batch_size=3, state=self._backend), watermark=self._watermark)
        )

    def move(self) -> None:
        self.has_moved = True
        super().move()

    @property
    def timers(self) -> list[Any]:
        return list(self._backend.keys(EVENT_TIMERS.name))


class FormerlyInRocks(Formerly, InRocks):
    """With timers in the database, until it moves."""


@pytest.mark.parametrize("make", [InRocks, FormerlyInRocks])
@pytest.mark.parametrize("lateness", [0, 6])
@pytest.mark.parametrize("kind", BY_EVENT_TIME)
def test_windows_in_a_database_are_what_the_model_says(
    kind: str, lateness: int, make: type[InRocks], tmp_path: Path
) -> None:
    assigner = BY_EVENT_TIME[kind]
    model, real = Model(assigner, lateness), make(assigner, lateness, tmp_path)
    steps: list[Any] = []
    for watermark, stamps in ((-5, [3, 1, 14, 8]), (7, [6, 12, 9, 21]), (14, [13, 30, 22]), (24, [25, 9, 23])):
        steps += watermark, [(key, stamp) for stamp in stamps for key in "ba"], "move"
    follow(model, real, [*steps, MAX_WATERMARK])
    assert real.open == 0
    real.close()


@pytest.mark.parametrize("lateness", [0, 6])
@pytest.mark.parametrize("kind", BY_EVENT_TIME)
@given(steps=steps)
@settings(max_examples=40, deadline=None)
def test_a_checkpoint_with_timers_is_gone_on_from_without_them(kind: str, lateness: int, steps: list[Any]) -> None:
    assigner = BY_EVENT_TIME[kind]
    model, real = Model(assigner, lateness), Formerly(assigner, lateness)

    def moved() -> None:
        assert real.timers == []

    follow(model, real, [*steps, MAX_WATERMARK], moved)
    assert (real.open, real.timers) == (0, [])


def test_a_window_has_no_timer_in_the_state() -> None:
    real = Real(ASSIGNERS["sliding"], 6)
    real.batch([("a", 3, 1)])
    assert list(real._backend.keys(EVENT_TIMERS.name)) == []


def moved(real: Real, lateness: int) -> Real:
    """Into a checkpoint, and out of it in a program with another lateness."""
    real._node = node_of(real._operator._assigner, lateness)
    real.move()
    return real


def test_windows_that_have_given_their_results_go_when_the_lateness_becomes_shorter() -> None:
    real = Real(ASSIGNERS["tumbling"], 100)
    real.batch([("a", 3, 1), ("a", 13, 2), ("b", 25, 3)])
    assert real.watermark(20) == [("a", 0, 10, [1]), ("a", 10, 20, [2])]
    assert real.open == 3
    moved(real, 0)
    assert real.open == 1
    assert real.batch([("a", 13, 4)]) == ([], [4])
    assert real.watermark(MAX_WATERMARK) == [("b", 20, 30, [3])]


def test_windows_that_are_open_take_late_records_when_the_lateness_becomes_longer() -> None:
    real = Real(ASSIGNERS["tumbling"], 0)
    real.batch([("a", 3, 1)])
    moved(real, 5)
    assert real.watermark(10) == [("a", 0, 10, [1])]
    assert real.batch([("a", 4, 2)])[0] == [("a", 0, 10, [1, 2])]
    assert (real.watermark(14), real.open) == ([], 0)


class OtherRules(tg.TumblingEventTimeWindows):
    """As the same windows are cut when the rules of their time zone have changed."""

    def pane_of(self, timestamp: int) -> TimeWindow:
        start, end = super().pane_of(timestamp)
        return TimeWindow(start + 2, end) if timestamp >= start + 2 else TimeWindow(start, start + 2)


def test_a_window_that_is_none_any_more_does_not_fire_as_another() -> None:
    real = Real(ASSIGNERS["tumbling"], 0)
    real.batch([("a", 3, 1), ("b", 13, 2)])
    real._node = node_of(OtherRules("10ms"), 0)
    real.move()
    real.batch([("b", 14, 3)])
    assert real.watermark(MAX_WATERMARK) == [("b", 12, 20, [3])]


@pytest.mark.parametrize("kind", ["sliding", "tumbling"])
def test_what_a_key_has_given_in_a_subtask_that_was_further_is_not_given_again(kind: str) -> None:
    """Subtasks of one operator need not be equally far: after a restore all are where the last one was."""
    real = Real(ASSIGNERS[kind], 20)
    real.batch([("a", 3, 1), ("b", 3, 2), ("b", 13, 3)])
    assert [one for one in real.watermark(9) if one[1:3] == (0, 10)] == [("a", 0, 10, [1]), ("b", 0, 10, [2])]
    files, backend = KeptFiles(), ObjectStateBackend(OperatorName("it"), SubtaskIndex(0), 1, 8)
    captured = real._backend.capture(CheckpointId(1))
    snapshot = OperatorSnapshot(
        OperatorName("it"), key_type=captured.key_type, states=captured.states, handles=captured.store(files)
    )
    backend.restore([snapshot], files)
    operator = node_of(ASSIGNERS[kind], 20).factory()
    reached = {"a": 9, "b": 5}.__getitem__
    operator.open(msgspec.structs.replace(context(batch_size=9, state=backend), watermark=5, reached=reached))
    outputs = [batch.values for batch in operator.advance_watermark(9, lambda: False) or ()]
    assert outputs == [[("b", 0, 10, [2])]]


@given(st.lists(st.integers(-300, 300)), st.integers(1, 4), st.integers(1, 40))
def test_keys_are_taken_in_the_order_of_their_bytes_whatever_they_are(
    numbers: list[int], most: int, at_once: int
) -> None:
    texts = [str(number) for number in numbers]
    all_keys: list[list[Any]] = [numbers, texts, [(number, None) for number in numbers], [None, *texts]]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(window_index, "_SORTED_AT_ONCE", at_once)
        for keys in all_keys:
            index = WindowIndex(lambda key: None)
            for key in keys:
                index.waiting_at(7)[key] = None
                index.waiting_at(9)[key] = None
            for time in (7, 9) if keys else ():
                taken = []
                while index.next == time:
                    at, some = index.take(most)
                    assert (at, len(some) <= most) == (time, True)
                    taken += some
                assert taken == sorted(dict.fromkeys(keys), key=encode_key)
            assert index.next is None
            assert not index.is_due(9)


def test_very_many_keys_are_sorted_a_part_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window_index, "_SORTED_AT_ONCE", 3)
    index = WindowIndex(lambda key: None)
    index.waiting_at(7).update(dict.fromkeys("gfedcba"))
    calls = [[key for _, key, _ in index.take_due(7, 2, lambda: True)] for _ in range(10)]
    assert calls == [[], [], ["a"], ["b"], ["c"], ["d"], ["e"], ["f"], ["g"], []]


@pytest.mark.parametrize("slide", [10, 5])
def test_windows_of_the_clock_go_on_between_two_keys_of_one_window(slide: int) -> None:
    """A barrier may come there. Panes of windows that overlap are still there when one of them has given its result."""
    job = tg.Job("windows")
    keyed = job.source(HandSource(), name="src").key_by(str, key_type=str)
    assigner = (
        tg.SlidingProcessingTimeWindows("10ms", "5ms") if slide == 5 else tg.TumblingProcessingTimeWindows("10ms")
    )
    keyed.window(assigner).process(
        lambda ctx, values: [(ctx.key, ctx.window.start, list(values))], name="windows", type=int
    )
    node: Any = job._builder.node(OperatorName("windows"))
    files, clock = KeptFiles(), HandClock(12)
    backend = ObjectStateBackend(OperatorName("it"), SubtaskIndex(0), 1, 8)
    operator = node.factory()
    operator.open(context(state=backend, clock=clock))
    assert list(operator.process(Batch([1, 2], ["a", "b"]))) == []
    clock.milliseconds = 20
    given = [value for batch in operator.fire_timers(20, lambda: True) for value in batch.values]
    for checkpoint in range(1, 9):
        captured = backend.capture(CheckpointId(checkpoint))
        backend = ObjectStateBackend(OperatorName("it"), SubtaskIndex(0), 1, 8)
        snapshot = OperatorSnapshot(
            OperatorName("it"), key_type=captured.key_type, states=captured.states, handles=captured.store(files)
        )
        if snapshot.handles:
            backend.restore([snapshot], files)
        operator = node.factory()
        operator.open(msgspec.structs.replace(context(state=backend, clock=clock), watermark=10**6))
        clock.milliseconds += 1
        due = operator.next_timer
        if due is not None and due <= clock.milliseconds:
            given += [
                value for batch in operator.fire_timers(clock.milliseconds, lambda: True) for value in batch.values
            ]
    both = [("a", 5, [1]), ("b", 5, [2])] if slide == 5 else []
    assert given == [*both, ("a", 10, [1]), ("b", 10, [2])]
    assert operator.next_timer is None


def test_the_operators_of_windows_by_event_time_have_no_timers() -> None:
    for assigner in BY_EVENT_TIME.values():
        operator = node_of(assigner, 0).factory()
        assert isinstance(operator, WindowOperator)
        assert not isinstance(operator, TimerWindowOperator)
