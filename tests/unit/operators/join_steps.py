"""What the models of joins have in common: programs of two streams, steps in which their rows come, and the comparison
of what a join gives with what its model gives."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import tidegate as tg
from tests.unit.operators.rescaling import Given, Subtasks
from tests.unit.runtime.harness import HandSource
from tidegate.elements import MAX_WATERMARK
from tidegate.graph.logical import LogicalNode

LEFT, RIGHT = 0, 1
LATE = tg.SideOutput[Any]("late")
Join = Callable[[tg.KeyedStream[str, int], tg.KeyedStream[str, int]], tg.Stream[Any]]
Step = list[tuple[int, str, int]] | int | str
"""Rows as input, key and timestamp; a watermark; or 'move' and the parallelism to go on at."""

_rows = st.tuples(st.sampled_from([LEFT, RIGHT]), st.sampled_from(["a", "b", ""]), st.integers(0, 30))
steps: st.SearchStrategy[list[Step]] = st.lists(
    st.one_of(
        st.lists(_rows, min_size=1, max_size=6),
        st.integers(-5, 40),
        st.sampled_from(["move 1", "move 2", "move 3"]),
    ),
    max_size=14,
)


class Model(Protocol):
    """What a join is, one row at a time."""

    watermark: int

    def row(self, input: int, key: str, timestamp: int, value: int) -> list[Given]: ...

    def advance(self, watermark: int) -> list[Given]: ...

    def kept(self) -> dict[str, int]:
        """How many entries each state has, by name; those with none are left out."""
        ...


def keyed_streams(job: tg.Job) -> tuple[tg.KeyedStream[str, int], tg.KeyedStream[str, int]]:
    """The values are numbers; keys come with them from the bench."""
    left, right = (job.source(HandSource(), name=name) for name in ("left", "right"))
    return left.key_by(str, key_type=str), right.key_by(str, key_type=str)


def node_of(join: Join) -> LogicalNode:
    """The operator called 'join'."""
    job = tg.Job("joins")
    join(*keyed_streams(job))
    node: LogicalNode = job._builder.node("join")  # type: ignore[arg-type]
    return node


def changed(node: LogicalNode, change: Callable[[Any], None]) -> LogicalNode:
    """The same with operators that are not as they should be."""
    make = node.factory
    assert make is not None

    def changed_operator() -> Any:
        operator = make()
        change(operator)
        return operator

    return replace(node, factory=changed_operator)


def is_refuted(node: LogicalNode, make_model: Callable[[], Model], *, ordered: Sequence[type] = (int, list)) -> bool:
    """Whether some steps show that the operator is not what the model says."""

    @given(steps=steps)
    @settings(max_examples=300, deadline=None, database=None, derandomize=True, phases=[Phase.generate])
    def search(steps: list[Step]) -> None:
        compare(node, make_model(), steps, ordered=ordered)

    try:
        search()
    except AssertionError:
        return True
    return False


Pairs = list[tuple[Any, Any, int]]


def spoiled(spoil: Callable[[Pairs], Pairs]) -> Callable[[Any], None]:
    """What gives the pairs of each row and of each timer in another way."""

    def change(operator: Any) -> None:
        emit = operator._emit
        operator._emit = lambda waiting, pairs: emit(waiting, spoil(list(pairs)))

    return change


SPOILED = {
    "one is missing": spoiled(lambda pairs: pairs[:-1]),
    "one is there twice": spoiled(lambda pairs: [*pairs, *pairs[:1]]),
    "one is another": spoiled(lambda pairs: [(left, 7, at) for left, _, at in pairs]),
    "one has another timestamp": spoiled(lambda pairs: [(left, right, at + 1) for left, right, at in pairs]),
    "they come in another order": spoiled(lambda pairs: pairs[::-1]),
}
"""Errors that a comparison must find, whatever the join."""


def compare(node: LogicalNode, model: Model, steps: list[Step], *, ordered: Sequence[type] = (int, list)) -> Subtasks:
    """Whether the operator gives what the model gives, and keeps what it keeps, step by step and until event time
    ends. ordered: for which kinds of steps in this order, too, in each output of a single subtask."""
    real = Subtasks(node, parallelism=2)
    number = 0
    for step in [*steps, MAX_WATERMARK]:
        given: list[Given] = []
        expected: list[Given] = []
        if isinstance(step, str):
            real.move(int(step.removeprefix("move ")))
        elif isinstance(step, int):
            watermark = max(step, model.watermark)
            given, expected = real.watermark(watermark), model.advance(watermark)
        else:
            rows = [(*row, number + place) for place, row in enumerate(step)]
            number += len(rows)
            for input, key, timestamp, value in rows:
                expected += model.row(input, key, timestamp, value)
            for input, batch in _batches(rows):
                given += real.batch(batch, input)
        if isinstance(step, tuple(ordered)) and real.parallelism == 1:
            assert (_of(given, None), _of(given, LATE.name)) == (_of(expected, None), _of(expected, LATE.name))
        assert sorted(given, key=repr) == sorted(expected, key=repr)
        kept = {name: count for name, count in real.left_of().items() if name != ".event-timers"}
        assert kept == model.kept()
    assert ".event-timers" not in real.left_of()
    return real


def _of(given: list[Given], tag: str | None) -> list[Given]:
    return [one for one in given if one[0] == tag]


def _batches(rows: list[tuple[int, str, int, int]]) -> list[tuple[int, list[tuple[str, int, int]]]]:
    """As few as the inputs allow, in the order of the rows."""
    batches: list[tuple[int, list[tuple[str, int, int]]]] = []
    for input, key, timestamp, value in rows:
        if not batches or batches[-1][0] != input:
            batches.append((input, []))
        batches[-1][1].append((key, timestamp, value))
    return batches
