"""Windows whose results are made many at once give what they give one by one: the same batches, the same state, the
same errors of the same key."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidegate as tg
from tests.unit.operators.bench import HandClock, context
from tests.unit.runtime.harness import HandSource
from tidegate.elements import MAX_WATERMARK, Batch
from tidegate.errors import UserCodeError
from tidegate.ids import OperatorName, SubtaskIndex
from tidegate.operators.windows import panes
from tidegate.state.object_backend import ObjectStateBackend

Output = tuple[list[Any], list[int] | None]
WRONG = 13
"""A record that makes a window's result fail."""
COLLECTED: Any = tg.Aggregate(
    type=tuple[int, ...], create=tuple, add=lambda kept, value: (*kept, value), merge=lambda a, b: a + b, result=list
)
LISTED: Any = tg.Aggregate(
    type=list[int], create=list, add=lambda kept, value: [*kept, value], merge=lambda a, b: a + b, result=tuple
)
ASSIGNERS: dict[str, Any] = {
    "event": tg.TumblingEventTimeWindows("10ms", offset="3ms"),
    "clock": tg.TumblingProcessingTimeWindows("10ms"),
    "global": tg.GlobalWindows(),
}


def told(error: Exception) -> Any:
    def told(key: Any, window: Any, values: Any) -> Any:
        if WRONG in values:
            raise error
        return key, tuple(window), values

    return told


class One:
    """An operator and its state. `plainly`: one window after the other."""

    def __init__(self, kind: str, aggregate: Any, function: Any, size: int, *, plainly: bool) -> None:
        job = tg.Job("windows")
        windows = job.source(HandSource(), name="src").key_by(str).window(ASSIGNERS[kind])
        windows.aggregate(aggregate, *([] if function is None else [function]), name="windows")
        node: Any = job._builder.node(OperatorName("windows"))
        self.operator = node.factory()
        assert self.operator._can_close_at_once
        self.operator._can_close_at_once = not plainly
        self.backend = ObjectStateBackend(OperatorName("it"), SubtaskIndex(0), 1, 8, checks_mutation=True)
        self.clock = HandClock()
        self.operator.open(context(size, self.backend, clock=self.clock))

    def process(self, rows: list[tuple[Any, int]], number: int) -> None:
        values = [number + i for i in range(len(rows))]
        assert list(self.operator.process(Batch(values, [key for key, _ in rows], [stamp for _, stamp in rows]))) == []

    def advance(self, time: int, stops: Iterator[bool]) -> Iterator[Output]:
        if isinstance(self.operator, panes.ProcessingTimeWindowOperator) and time < MAX_WATERMARK:
            self.clock.milliseconds = time
            while (due := self.operator.next_timer) is not None and due <= time:
                yield from self._listed(self.operator.fire_timers(time, lambda: next(stops)))
        while (outputs := self.operator.advance_watermark(time, lambda: next(stops))) is not None:
            yield from self._listed(outputs)

    def _listed(self, outputs: Any) -> Iterator[Output]:
        for batch in outputs:
            yield batch.values, batch.timestamps

    @property
    def state(self) -> dict[str, Any]:
        return {name: dict(handle.kept) for name, handle in self.backend._handles.items()}


def outcome(outputs: Iterator[Output]) -> tuple[list[Output], str | None]:
    given = []
    try:
        for output in outputs:
            given.append(output)  # noqa: PERF402 - what came before an error counts
    except UserCodeError as error:
        return given, error.failure.message
    return given, None


def stopping(answers: list[bool]) -> Iterator[bool]:
    while True:
        yield from answers or [False]


keys = st.sampled_from([None, *"abcdefgh"]) | st.sampled_from(["ä", "", "😀", "￿"])
steps = st.lists(
    st.lists(st.tuples(keys, st.integers(0, 30)), min_size=1, max_size=15) | st.integers(0, 50), max_size=6
)


@pytest.mark.parametrize("kind", ASSIGNERS)
@given(
    steps=steps,
    size=st.integers(1, 6),
    at_once=st.integers(1, 4),
    error=st.sampled_from([ValueError("no"), StopIteration()]),
    with_function=st.booleans(),
    aggregate=st.sampled_from([COLLECTED, LISTED]),
    answers=st.just([]) | st.lists(st.booleans(), max_size=5),
)
@settings(max_examples=80, deadline=None)
def test_results_are_the_same_made_at_once_and_one_by_one(
    kind: str,
    steps: list[Any],
    size: int,
    at_once: int,
    error: Exception,
    with_function: bool,
    aggregate: Any,
    answers: list[bool],
) -> None:
    function = told(error) if with_function else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(panes, "_AT_ONCE", at_once)
        quick, plain = (One(kind, aggregate, function, size, plainly=plainly) for plainly in (False, True))
        number, time = 0, 0
        for step in [*steps, MAX_WATERMARK]:
            if isinstance(step, list):
                late = [(key, max(stamp, time + 1)) for key, stamp in step]
                for one in (quick, plain):
                    one.process(late, number)
                number += len(step)
                continue
            time = max(time, step)
            seen, expected = (outcome(one.advance(time, stopping(answers))) for one in (quick, plain))
            if not answers:
                assert seen == expected
            else:
                assert joined(seen) == joined(expected)
            if expected[1] is not None:
                return
            assert quick.state == plain.state


def joined(outcome: tuple[list[Output], str | None]) -> Any:
    """However they were cut into batches; of what is before an error, how much came out depends on that."""
    given, error = outcome
    if error is not None:
        return error
    return [value for values, _ in given for value in values], [stamp for _, stamps in given for stamp in stamps or ()]


def test_somebody_is_asked_whether_to_stop_after_so_many_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(panes, "_AT_ONCE", 2)
    one = One("event", COLLECTED, None, 100, plainly=False)
    one.process([(key, 5) for key in "abcde"], 0)
    assert [len(values) for values, _ in one.advance(100, stopping([True]))] == [2, 2, 1]
    assert one.state == {one.operator._spec.state.name: {}, ".event-timers": {}}
