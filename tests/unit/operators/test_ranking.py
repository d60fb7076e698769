"""A rolling ranking puts out what a short model says that sorts all records anew each time, when it changes."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidegate as tg
from tests.unit.operators.rescaling import Given, Subtasks
from tests.unit.runtime.harness import HandSource
from tidegate.errors import InvalidError, UserCodeError
from tidegate.ids import OperatorName


class Goal(msgspec.Struct, frozen=True):
    player: str
    points: int | None
    number: int


class Table(msgspec.Struct):
    rows: list[int]


Step = list[tuple[str, int | None]] | str
"""Records as key and points, or 'move' and the parallelism to go on at."""

steps: st.SearchStrategy[list[Step]] = st.lists(
    st.one_of(
        st.lists(
            st.tuples(st.sampled_from(["a", "b", ""]), st.one_of(st.none(), st.integers(0, 8))), min_size=1, max_size=6
        ),
        st.sampled_from(["move 1", "move 2", "move 3"]),
    ),
    max_size=12,
)


class Model:
    """All records that ever came."""

    def __init__(self, n: int) -> None:
        self._n = n
        self._goals: dict[str, list[Goal]] = {}

    def record(self, key: str, stamp: int, goal: Goal) -> list[Given]:
        if goal.points is None:
            return []
        before = self._best(key)
        self._goals.setdefault(key, []).append(goal)
        after = self._best(key)
        return [] if before == after else [(None, stamp, (key, after))]

    def _best(self, key: str) -> list[Goal]:
        return sorted(self._goals.get(key, []), key=lambda goal: (-(goal.points or 0), goal.number))[: self._n]

    @property
    def kept(self) -> int:
        return sum(len(self._best(key)) for key in self._goals)


def points_of(goal: Goal) -> int | None:
    return goal.points


def subtasks(n: int, *arguments: Any, by: Callable[[Any], Any] = points_of, **more: Any) -> Subtasks:
    job = tg.Job("league")
    stream = job.source(HandSource(), name="src").key_by(lambda goal: goal.player)
    stream.top_n(n, by, *arguments, name="best", **{"type": Goal, **more})
    return Subtasks(job._builder.node(OperatorName("best")))


def check(n: int, steps: list[Step], tamper: Callable[[list[Given]], list[Given]] = lambda rows: rows) -> None:
    real, model, number = subtasks(n, lambda key, goals: (key, goals)), Model(n), 0
    for step in steps:
        if isinstance(step, str):
            real.move(int(step[-1]))
            continue
        goals = [Goal(key, points, number + i) for i, (key, points) in enumerate(step)]
        number += len(goals)
        rows = [(goal.player, goal.number, goal) for goal in goals]
        expected = [given for row in rows for given in model.record(*row)]
        given = tamper(real.batch(rows))
        for key in ("a", "b", ""):
            assert [row for row in given if row[2][0] == key] == [row for row in expected if row[2][0] == key]
        assert real.left() == model.kept


@given(n=st.integers(1, 4), steps=steps)
@settings(max_examples=150, deadline=None)
def test_it_is_what_the_model_says_and_keeps_no_more(n: int, steps: list[Step]) -> None:
    check(n, steps)


@pytest.mark.slow
@given(n=st.integers(1, 4), steps=steps)
@settings(max_examples=3000, deadline=None)
def test_it_is_what_the_model_says_in_many_examples(n: int, steps: list[Step]) -> None:
    check(n, steps)


@pytest.mark.parametrize(
    "tamper",
    [
        pytest.param(lambda rows: rows[1:], id="lost"),
        pytest.param(lambda rows: [*rows[:1], *rows], id="doubled"),
        pytest.param(lambda rows: [(tag, at, (key, goals[::-1])) for tag, at, (key, goals) in rows], id="turned round"),
    ],
)
def test_the_comparison_finds_what_is_wrong(tamper: Callable[[list[Given]], list[Given]]) -> None:
    changes: list[Step] = [[("a", 1), ("a", 3)], "move 2", [("a", 2), ("a", 0)]]
    check(2, changes)
    with pytest.raises(AssertionError):
        check(2, changes, tamper)


def test_without_a_function_the_records_come_out_best_first() -> None:
    goals = [Goal("a", points, number) for number, points in enumerate([1, 3, 1, 2])]
    given = subtasks(2).batch([("a", goal.number, goal) for goal in goals])
    assert [(at, [goal.number for goal in best]) for _, at, best in given] == [(0, [0]), (1, [1, 0]), (3, [1, 3])]


def test_records_whose_type_can_change_are_kept_as_they_were() -> None:
    real = subtasks(1, by=lambda table: table.rows[0], type=Table)
    real.batch([("a", 0, Table([1, 5]))])
    real.move(2)
    assert real.batch([("a", 1, Table([1, 9]))]) == []
    ((_, _, best),) = real.batch([("a", 2, Table([2]))])
    assert best == [Table([2])]


def test_a_smaller_ranking_holds_from_the_next_change_on() -> None:
    real = subtasks(3)
    real.batch([("a", 0, Goal("a", points, points)) for points in (1, 2, 3)])
    real._node = subtasks(1)._node
    real.move()
    ((_, _, best),) = real.batch([("a", 0, Goal("a", 4, 4))])
    assert [goal.points for goal in best] == [4]


def test_what_cannot_be_compared_fails_with_the_record() -> None:
    real = subtasks(2, by=lambda goal: goal.number or "none")
    real.batch([("a", 0, Goal("a", 1, 1))])
    with pytest.raises(UserCodeError, match=r"TypeError on record Goal\(.*number=0\)"):
        real.batch([("a", 0, Goal("a", 1, 0))])


def test_a_record_of_another_type_is_refused() -> None:
    with pytest.raises(InvalidError, match="state ranking"):
        subtasks(2, by=len).batch([("a", 0, "text")])


@pytest.mark.parametrize("n", [0, -1, True, 1.5, "3", None])
def test_a_ranking_has_a_whole_number_of_records(n: Any) -> None:
    with pytest.raises(InvalidError, match="operator best was given n="):
        subtasks(n)
