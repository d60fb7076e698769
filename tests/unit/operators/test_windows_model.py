"""Every kind of window gives what a short model gives that is written for clarity: records out of order, late and too
late, watermarks in between, cut into batches anyhow, put into a checkpoint and taken out again anywhere."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidegate as tg
from tests.unit.operators.bench import context
from tests.unit.runtime.harness import HandSource
from tidegate.checkpoint.protocol import OperatorSnapshot
from tidegate.elements import MAX_WATERMARK, MIN_WATERMARK, Batch
from tidegate.event_time.windows import TimeWindow
from tidegate.ids import CheckpointId, OperatorName, SubtaskIndex
from tidegate.operators.contracts import OperatorContext
from tidegate.state.keys import encode_key
from tidegate.state.object_backend import ObjectStateBackend
from tidegate.testing.conformance.state_kit import KeptFiles

Key = str
Record = tuple[Key, int]
"""Key and timestamp; the value is its number in the stream."""
Result = tuple[Key, int, int, list[int]]
"""Key, window, and the numbers of its records, sorted."""


class Model:
    """Windows of `assigner`, one record at a time."""

    def __init__(self, assigner: Any, lateness: int) -> None:
        self._assigner = assigner
        self._lateness = lateness
        self._watermark = MIN_WATERMARK
        self._windows: dict[tuple[Key, TimeWindow], list[int]] = {}
        self.too_late: list[int] = []

    def record(self, key: Key, timestamp: int, number: int) -> list[Result]:
        """What it gives at once, because it is late and not too late."""
        given = []
        windows = [window for window in self._of(key, timestamp) if not self._is_gone(window)]
        for window in windows:
            self._windows.setdefault((key, window), []).append(number)
            if window.max_timestamp <= self._watermark:
                given.append(self._result(key, window))
        if not windows:
            self.too_late.append(number)
        return given

    def _of(self, key: Key, timestamp: int) -> list[TimeWindow]:
        if isinstance(self._assigner, tg.EventTimeSessionWindows):
            return [self._session(key, TimeWindow(timestamp, timestamp + self._assigner.gap))]
        if isinstance(self._assigner, tg.TumblingEventTimeWindows):
            size = slide = self._assigner.size
        else:
            size, slide = self._assigner.size, self._assigner.slide
        starts = range(-10 * size, 20 * size)
        fitting = [s for s in starts if (s - self._assigner.offset) % slide == 0 and s <= timestamp < s + size]
        return [TimeWindow(start, start + size) for start in fitting]

    def _session(self, key: Key, window: TimeWindow) -> TimeWindow:
        met = [w for k, w in self._windows if k == key and w.start <= window.end and window.start <= w.end]
        whole = TimeWindow(min(w.start for w in (window, *met)), max(w.end for w in (window, *met)))
        if not self._is_gone(whole):
            self._windows[key, whole] = [number for w in met for number in self._windows.pop((key, w))]
        return whole

    def _is_gone(self, window: TimeWindow) -> bool:
        return window.max_timestamp + self._lateness <= self._watermark

    def _result(self, key: Key, window: TimeWindow) -> Result:
        return key, window.start, window.end, sorted(self._windows[key, window])

    def watermark(self, watermark: int) -> list[Result]:
        """What is complete now, in the order of time."""
        due = [one for one in self._windows if self._watermark < one[1].max_timestamp <= watermark]
        self._watermark = max(self._watermark, watermark)
        given = [self._result(*one) for one in sorted(due, key=lambda one: (one[1].max_timestamp, encode_key(one[0])))]
        self._windows = {one: numbers for one, numbers in self._windows.items() if not self._is_gone(one[1])}
        return given

    @property
    def open(self) -> int:
        return len(self._windows)


ASSIGNERS = {
    "tumbling": tg.TumblingEventTimeWindows("10ms"),
    "tumbling with an offset": tg.TumblingEventTimeWindows("10ms", offset="3ms"),
    "sliding": tg.SlidingEventTimeWindows("10ms", "5ms"),
    "sliding over panes that are smaller than both": tg.SlidingEventTimeWindows("10ms", "4ms", offset="1ms"),
    "sessions": tg.EventTimeSessionWindows("7ms"),
}
records = st.tuples(st.sampled_from(["a", "b", ""]), st.integers(0, 60))
steps = st.lists(
    st.one_of(st.lists(records, min_size=1, max_size=6), st.integers(-5, 70), st.just("move")), max_size=14
)


def node_of(assigner: Any, lateness: int) -> Any:
    job = tg.Job("windows")
    stream = job.source(HandSource(), name="src").key_by(lambda record: record[0])
    late = tg.SideOutput[Any]("late")
    windows = stream.window(assigner, allowed_lateness=f"{lateness}ms", late=late)
    windows.process(rows_of, name="windows", type=int)
    return job._builder.node(OperatorName("windows"))


def rows_of(ctx: tg.WindowContext[Key], numbers: list[int]) -> Iterator[Result]:
    yield ctx.key, ctx.window.start, ctx.window.end, sorted(numbers)


class Real:
    """The operator, on a state backend that can be changed for a restored one."""

    def __init__(self, assigner: Any, lateness: int) -> None:
        self._node = node_of(assigner, lateness)
        self._backend = self._fresh()
        self._files = KeptFiles()
        self._checkpoint = CheckpointId(0)
        self._watermark = MIN_WATERMARK
        self._open()

    def _fresh(self) -> Any:
        return ObjectStateBackend(OperatorName("it"), SubtaskIndex(0), 1, 8)

    def _open(self) -> None:
        self._operator = self._node.factory()
        opened: OperatorContext = context(batch_size=3, state=self._backend)
        self._operator.open(msgspec.structs.replace(opened, watermark=self._watermark))

    def move(self) -> None:
        """Into a checkpoint, and out of it again."""
        self._checkpoint = CheckpointId(self._checkpoint + 1)
        captured = self._backend.capture(self._checkpoint)
        handles = captured.store(self._files)
        snapshot = OperatorSnapshot(
            OperatorName("it"), key_type=captured.key_type, states=captured.states, handles=handles
        )
        self._backend = self._fresh()
        if handles:
            self._backend.restore([snapshot], self._files)
        self._open()

    def batch(self, rows: list[tuple[Key, int, int]]) -> tuple[list[Result], list[int]]:
        """What it gives, and what was too late."""
        batch = Batch([number for _, _, number in rows], [key for key, _, _ in rows], [stamp for _, stamp, _ in rows])
        outputs = list(self._operator.process(batch))
        given = [value for output in outputs if output.tag is None for value in output.values]
        return given, [value for output in outputs if output.tag == "late" for value in output.values]

    def watermark(self, watermark: int) -> list[Result]:
        self._watermark = max(self._watermark, watermark)
        given: list[Result] = []
        while (outputs := self._operator.advance_watermark(watermark, lambda: False)) is not None:
            for output in outputs:
                assert output.timestamps == [row[2] - 1 for row in output.values]
                given += output.values
        return given

    @property
    def open(self) -> int:
        left = 0
        for key in self._backend.keys(self._operator._spec.state.name):
            self._backend.set_current_key(key)
            left += len(self._operator._accumulators.keys())
        return left


def follow(model: Model, real: Real, steps: Sequence[Any], moved: Callable[[], None] = lambda: None) -> None:
    """Whether both give the same at each step: a watermark, records with their stamps, or a "move", after which `moved`
    looks at the real ones."""
    number, highest = 0, MIN_WATERMARK
    for step in steps:
        if step == "move":
            real.move()
            moved()
        elif isinstance(step, int):
            highest = max(highest, step)
            assert real.watermark(highest) == model.watermark(highest)
        else:
            rows = [(key, stamp, number + i) for i, (key, stamp) in enumerate(step)]
            number += len(rows)
            expected = [result for row in rows for result in model.record(*row)]
            given, too_late = real.batch(rows)
            assert sorted(given) == sorted(expected)
            assert too_late == model.too_late
            model.too_late.clear()


@pytest.mark.parametrize("lateness", [0, 6])
@pytest.mark.parametrize("kind", ASSIGNERS)
@given(steps=steps)
@settings(max_examples=60, deadline=None)
def test_W05_W09_windows_are_what_the_model_says_and_leave_nothing(kind: str, lateness: int, steps: list[Any]) -> None:
    assigner = ASSIGNERS[kind]
    model, real = Model(assigner, lateness), Real(assigner, lateness)
    follow(model, real, [*steps, MAX_WATERMARK])
    assert (real.open, model.open) == (0, 0)
