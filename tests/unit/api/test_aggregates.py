"""The ready aggregates: each is what it is called, whatever pieces a window is put together of, and changes nothing
that somebody else holds."""

import copy
import math
from collections.abc import Callable, Sequence
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from statistics import fmean
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import tidegate as tg
from tests.unit.operators.bench import context
from tests.unit.operators.rescaling import Subtasks
from tests.unit.runtime.harness import HandSource
from tidegate import aggregates
from tidegate.checkpoint.protocol import StateInfo
from tidegate.errors import InvalidError
from tidegate.ids import OperatorName, SubtaskIndex
from tidegate.serializers import Outcome, explain_evolution, serializer_for
from tidegate.state.object_backend import ObjectStateBackend

Row = tuple[int, int | None]
"""A time, and a value that may be missing."""
Summary = dict[str, Any]


def time_of(row: Row) -> int:
    return row[0]


def value_of(row: Row) -> int | None:
    return row[1]


def known(rows: Sequence[Row]) -> list[int]:
    return [value for _, value in rows if value is not None]


def first_by_time(rows: Sequence[Row]) -> int | None:
    return min(((at, i, v) for i, (at, v) in enumerate(rows) if v is not None), default=(0, 0, None))[2]


def last_by_time(rows: Sequence[Row]) -> int | None:
    return max(((at, i, v) for i, (at, v) in enumerate(rows) if v is not None), default=(0, 0, None))[2]


def best(rows: Sequence[Row], n: int) -> list[Row]:
    ranked = sorted(((-value, i) for i, (_, value) in enumerate(rows) if value is not None))
    return [rows[i] for _, i in ranked[:n]]


CASES: dict[str, tuple[Callable[[], tg.Aggregate[Any, Any, Any]], Callable[[Sequence[Row]], Any]]] = {
    "count": (aggregates.count, len),
    "sum": (lambda: aggregates.sum(value_of, type=int), lambda rows: sum(known(rows))),
    "min": (lambda: aggregates.min(value_of, type=int), lambda rows: min(known(rows), default=None)),
    "max": (lambda: aggregates.max(value_of, type=int), lambda rows: max(known(rows), default=None)),
    "mean": (lambda: aggregates.mean(value_of), lambda rows: fmean(known(rows)) if known(rows) else None),
    "mean of ints": (
        lambda: aggregates.mean(value_of, type=int),
        lambda rows: sum(known(rows)) / len(known(rows)) if known(rows) else None,
    ),
    "first record": (lambda: aggregates.first(type=Row), lambda rows: rows[0] if rows else None),
    "first value": (lambda: aggregates.first(value_of, type=int), lambda rows: [*known(rows), None][0]),
    "first by time": (lambda: aggregates.first(value_of, type=int, by=time_of), first_by_time),
    "last record": (lambda: aggregates.last(type=Row), lambda rows: rows[-1] if rows else None),
    "last value": (lambda: aggregates.last(value_of, type=int), lambda rows: [None, *known(rows)][-1]),
    "last by time": (lambda: aggregates.last(value_of, type=int, by=time_of), last_by_time),
    "collect records": (lambda: aggregates.collect(type=Row), list),
    "collect values": (lambda: aggregates.collect(value_of, type=int), known),
    "top 3": (lambda: aggregates.top_n(3, value_of, type=Row), lambda rows: best(rows, 3)),
    "top 1": (lambda: aggregates.top_n(1, value_of, type=Row), lambda rows: best(rows, 1)),
    "several": (
        lambda: aggregates.combine(
            all=aggregates.count(),
            highest=aggregates.max(value_of, type=int),
            top=aggregates.top_n(2, value_of, type=Row),
        ),
        lambda rows: {"all": len(rows), "highest": max(known(rows), default=None), "top": best(rows, 2)},
    ),
}

rows = st.tuples(st.integers(0, 5), st.one_of(st.none(), st.integers(-4, 4)))
pieces = st.lists(st.lists(rows, max_size=5), max_size=4)


def stored(aggregate: tg.Aggregate[Any, Any, Any], accumulator: Any) -> Any:
    """As it comes out of a checkpoint."""
    serializer = serializer_for(aggregate.type)
    return serializer.decode(serializer.encode(accumulator))


def accumulator_of(aggregate: tg.Aggregate[Any, Any, Any], rows: Sequence[Any]) -> Any:
    accumulator = aggregate.create()
    for row in rows:
        accumulator = stored(aggregate, aggregate.add(accumulator, row))
    return accumulator


def put_together(aggregate: tg.Aggregate[Any, Any, Any], pieces: Sequence[Sequence[Any]]) -> Any:
    """The result of a window of these pieces, none of which it may change."""
    parts = [accumulator_of(aggregate, piece) for piece in pieces]
    before = copy.deepcopy(parts)
    whole = aggregate.create()
    for part in parts:
        whole = aggregate.merge(whole, part)
    result = copy.deepcopy(aggregate.result(whole))
    given = aggregate.result(whole)
    aggregate.add(whole, (9, 9))
    assert given == result
    assert parts == before
    return result


@pytest.mark.parametrize("name", CASES)
@given(pieces=pieces)
@settings(max_examples=40, deadline=None)
def test_an_aggregate_is_what_it_is_called_for_whatever_pieces(name: str, pieces: list[list[Row]]) -> None:
    make, model = CASES[name]
    all_rows = [row for piece in pieces for row in piece]
    assert put_together(make(), pieces) == model(all_rows)
    assert put_together(make(), [all_rows]) == model(all_rows)


@pytest.mark.parametrize("name", CASES)
def test_a_record_lost_doubled_or_changed_is_noticed(name: str) -> None:
    """So that the comparison above can fail."""
    make, model = CASES[name]
    rows: list[Row] = [(3, 2), (1, 4), (5, 1)]
    changed = [[], [*rows, *rows], [(at, (value or 0) * 2 + 3) for at, value in rows]]
    assert put_together(make(), [rows]) == model(rows)
    assert any(put_together(make(), [other]) != model(rows) for other in changed)


finite = st.floats(allow_nan=False, allow_infinity=False, min_value=-1e300, max_value=1e300)


@given(values=st.lists(finite, max_size=30), data=st.data())
@example(values=[1e100, 1.0, -1e100, 1e-100], data=None)
@example(values=[0.1] * 10, data=None)
@settings(max_examples=100, deadline=None)
def test_a_sum_of_floats_is_exact_in_any_order_and_any_pieces(values: list[float], data: st.DataObject | None) -> None:
    exact = float(sum(map(Fraction, values), Fraction(0)))
    shuffled = values if data is None else data.draw(st.permutations(values))
    cut = 0 if data is None else data.draw(st.integers(0, len(values)))
    total: tg.Aggregate[float, Any, float] = aggregates.sum(lambda value: value, type=float)
    assert put_together_floats(total, [values]) == exact
    assert put_together_floats(total, [shuffled[:cut], shuffled[cut:]]) == exact == math.fsum(values)


def put_together_floats(aggregate: tg.Aggregate[float, Any, Any], pieces: Sequence[Sequence[float]]) -> Any:
    whole = aggregate.create()
    for piece in pieces:
        whole = aggregate.merge(whole, accumulator_of(aggregate, piece))
    return aggregate.result(whole)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([math.inf, 1.0], math.inf),
        ([1.0, -math.inf, 5.0], -math.inf),
        ([math.inf, -math.inf], math.nan),
        ([1.0, math.nan], math.nan),
        ([1e308, 1e308], math.inf),
        ([], 0.0),
    ],
)
def test_a_sum_with_what_is_not_finite_is_what_adding_gives(values: list[float], expected: float) -> None:
    total: tg.Aggregate[float, Any, float] = aggregates.sum(lambda value: value, type=float)
    for order in (values, values[::-1]):
        for pieces in ([order], [order[:1], order[1:]]):
            assert str(put_together_floats(total, pieces)) == str(expected)


def test_ints_may_stand_where_floats_are_summed() -> None:
    total: tg.Aggregate[float, Any, float] = aggregates.sum(lambda value: value, type=float)
    assert put_together_floats(total, [[1, 2.5]]) == 3.5
    assert type(put_together_floats(total, [[1, 2]])) is float


def test_decimals_and_durations_are_summed_and_averaged_as_what_they_are() -> None:
    amounts = [Decimal("0.10"), Decimal("0.20")]
    money: tg.Aggregate[Decimal, Any, Decimal] = aggregates.sum(lambda value: value, type=Decimal)
    assert accumulator_of(money, amounts) == Decimal("0.30")
    waits = [timedelta(seconds=1), timedelta(seconds=4)]
    wait: tg.Aggregate[timedelta, Any, timedelta | None] = aggregates.mean(lambda value: value, type=timedelta)
    assert wait.result(accumulator_of(wait, waits)) == timedelta(seconds=2.5)


def test_the_smallest_and_the_largest_leave_nan_out_wherever_it_stands() -> None:
    for values in ([math.nan, 2.0, 1.0], [2.0, 1.0, math.nan]):
        lowest: tg.Aggregate[float, Any, float | None] = aggregates.min(lambda value: value, type=float)
        highest: tg.Aggregate[float, Any, float | None] = aggregates.max(lambda value: value, type=float)
        assert lowest.result(accumulator_of(lowest, values)) == 1.0
        assert highest.result(accumulator_of(highest, values)) == 2.0


class Delays(msgspec.Struct, frozen=True):
    flights: int
    mean: float | None


def test_several_aggregates_become_what_the_program_wants() -> None:
    both = aggregates.combine(Delays, flights=aggregates.count(), mean=aggregates.mean(value_of))
    assert both.result(accumulator_of(both, [(0, 4), (0, None), (0, 5)])) == Delays(3, 4.5)


def test_an_aggregate_may_be_called_into() -> None:
    assert aggregates.combine(into=aggregates.count()).create() is not None


def test_what_several_aggregates_keep_cannot_change_where_its_parts_cannot() -> None:
    flat = aggregates.combine(all=aggregates.count(), mean=aggregates.mean(value_of))
    assert serializer_for(flat.type).immutable
    assert not serializer_for(aggregates.combine(all=aggregates.collect(type=Row)).type).immutable


def form(aggregate: tg.Aggregate[Any, Any, Any]) -> StateInfo:
    serializer = serializer_for(aggregate.type)
    return StateInfo("it", "value", serializer.type_spelling, serializer.id)


def test_an_aggregate_that_is_added_later_begins_with_what_comes_then() -> None:
    before = aggregates.combine(highest=aggregates.max(value_of, type=int), all=aggregates.count())
    after = aggregates.combine(
        all=aggregates.count(), seen=aggregates.count(), highest=aggregates.max(value_of, type=int)
    )
    assert explain_evolution(form(before), form(after)).outcome is not Outcome.REFUSED
    assert explain_evolution(form(after), form(before)).outcome is not Outcome.REFUSED
    kept = serializer_for(before.type).encode(accumulator_of(before, [(0, 7), (1, 5)]))
    accumulator = serializer_for(after.type).decode(kept)
    assert after.result(after.add(accumulator, (2, 1))) == {"all": 3, "seen": 1, "highest": 7}


def windows(aggregate: tg.Aggregate[Any, Any, Any]) -> Subtasks:
    job = tg.Job("shop")
    keyed = job.source(HandSource(), name="src").key_by(lambda row: "k")
    keyed.window(tg.SlidingEventTimeWindows("4ms", "2ms"), allowed_lateness="10ms").aggregate(aggregate, name="it")
    return Subtasks(job._builder.node(OperatorName("it")))


@pytest.mark.parametrize("name", CASES)
def test_windows_that_overlap_share_pieces_and_late_records_come_into_both(name: str) -> None:
    make, model = CASES[name]
    real, by_window = windows(make()), [[(1, 4)], [(1, 4), (3, 2)], [(3, 2)]]
    real.batch([("k", 1, (1, 4)), ("k", 3, (3, 2))])
    real.move(2)
    assert [value for _, _, value in real.watermark(6)] == [model(rows) for rows in by_window]
    late = (2, 3)
    given = real.batch([("k", 2, late)])
    assert [value for _, _, value in given] == [model([(1, 4), (3, 2), late]), model([(3, 2), late])]
    real.end()
    assert real.left() == 0


def test_an_aggregate_can_be_the_state_of_a_function() -> None:
    mean = aggregates.mean(value_of)
    state = tg.AggregatingState[Any, Any](mean.type, mean.create, mean.add, mean.result, name="mean")
    backend = ObjectStateBackend(OperatorName("it"), SubtaskIndex(0), 1, 8)
    handle = backend.register(state)
    backend.set_current_key(context().operator)
    for row in [(0, 1), (0, 2)]:
        handle.add(row)
    assert handle.get() == 1.5


@pytest.mark.parametrize("make", [aggregates.sum, aggregates.mean, aggregates.min, aggregates.max, aggregates.first])
def test_what_is_no_function_is_refused_at_once(make: Any) -> None:
    with pytest.raises(InvalidError, match=rf"aggregates\.{make.__name__} was given 'amount' where a function"):
        make("amount", type=int)


@pytest.mark.parametrize("n", [0, True, 2.0])
def test_a_ranking_has_a_whole_number_of_records(n: Any) -> None:
    with pytest.raises(InvalidError, match=r"aggregates\.top_n was given n="):
        aggregates.top_n(n, value_of, type=Row)


def test_only_numbers_and_durations_are_summed() -> None:
    with pytest.raises(InvalidError, match=r"(?s)aggregates\.sum was given type=<class 'str'>.*timedelta"):
        aggregates.sum(lambda text: text, type=str)


@pytest.mark.parametrize(
    "make",
    [
        lambda: aggregates.min(value_of, type=tg.pickled(Delays)),  # type: ignore[arg-type]
        lambda: aggregates.last(type=tg.pickled(Delays)),  # type: ignore[call-overload]
        lambda: aggregates.combine(all=aggregates.collect(type=tg.pickled(Delays))),
        lambda: aggregates.combine(
            one=tg.Aggregate(tg.pickled(list), list, lambda one, row: one, lambda one, other: one, len)
        ),
    ],
)
def test_what_msgspec_does_not_write_is_refused_as_a_part_with_what_to_do(make: Callable[[], object]) -> None:
    with pytest.raises(InvalidError, match=r"(?s)cannot be a part of an accumulator.*Aggregate of your own"):
        make()


class Opaque:
    """What msgspec does not write."""

    def __init__(self, weight: int) -> None:
        self.weight = weight


def test_records_that_are_pickled_can_be_collected_and_ranked() -> None:
    weights = [3, 1, 2]
    for aggregate, expected in (
        (aggregates.collect(type=tg.pickled(Opaque)), [3, 1, 2]),
        (aggregates.top_n(2, lambda opaque: opaque.weight, type=tg.pickled(Opaque)), [3, 2]),
    ):
        accumulator = accumulator_of(aggregate, list(map(Opaque, weights)))
        assert [opaque.weight for opaque in aggregate.result(accumulator)] == expected


def test_several_aggregates_are_aggregates_and_at_least_one() -> None:
    with pytest.raises(InvalidError, match="no aggregate"):
        aggregates.combine()
    with pytest.raises(InvalidError, match="total=3"):
        aggregates.combine(total=3)  # type: ignore[arg-type]


def test_a_value_of_another_type_than_declared_fails_where_it_is_added() -> None:
    real = windows(aggregates.sum(lambda row: row[1] / 2, type=int))
    with pytest.raises(InvalidError, match="declared int and was given a float"):
        real.batch([("k", 1, (1, 5))])
