"""Ready aggregates for windows, and for states: `tg.aggregates.count()`, `sum`, `min`, `max`, `mean`, `first`, `last`,
`collect`, `top_n`, and `combine` for several at once. Each makes an `Aggregate`; nothing here runs anything.

`of` takes a value from a record, and None leaves the record out, as in SQL. `type` is that of what is kept: it says how
that is serialised. No accumulator is changed that somebody else may hold: a merge never gives back its second argument
where that could change.
"""

import builtins
import math
import operator
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from functools import reduce
from typing import Any, NamedTuple, TypeVar, overload

import msgspec

from tidegate.api.windowed import Aggregate, ValueAggregate
from tidegate.errors import InvalidError
from tidegate.operators.keyed import itself
from tidegate.operators.ranking import check_n, insert_ranked
from tidegate.serializers import Pickled, Serialized, list_of
from tidegate.serializers.wholes import ListOf

In = TypeVar("In")
Out = TypeVar("Out")
T = TypeVar("T")
Number = TypeVar("Number", int, float, Decimal, timedelta)
Stored = type[T] | Pickled[T] | Serialized[T]
"""How values are serialised."""


def count() -> Aggregate[Any, Any, int]:
    """How many records."""
    return Aggregate(int, int, lambda number, record: number + 1, operator.add, itself)


# ---- sums ----------------------------------------------------------------------------------------------------------


def sum(of: Callable[[In], Number | None], *, type: builtins.type[Number]) -> Aggregate[In, Any, Number]:
    """The sum of the values, 0 of none. `type`: int, float, Decimal or timedelta.

    Floats are added exactly and rounded once, at the end, as `math.fsum` does: the sum depends neither on the order of
    records nor on how windows are put together. NaN and infinities give what adding them gives.
    """
    _check_function("sum", of)
    summing = _summing("sum", type)

    def add(total: Any, record: In) -> Any:
        value = of(record)
        return total if value is None else summing.add(total, value)

    return ValueAggregate(summing.stored, summing.create, add, summing.merge, summing.total, of, summing.add)


@overload
def mean(of: Callable[[In], float | None]) -> Aggregate[In, Any, float | None]: ...
@overload
def mean(of: Callable[[In], int | None], *, type: type[int]) -> Aggregate[In, Any, float | None]: ...
@overload
def mean(of: Callable[[In], Number | None], *, type: builtins.type[Number]) -> Aggregate[In, Any, Number | None]: ...
def mean(of: Callable[[In], Any], *, type: builtins.type[Any] = float) -> Aggregate[In, Any, Any]:
    """The arithmetic mean of the values: their `sum`, which see, by their number. None of none."""
    _check_function("mean", of)
    summing = _summing("mean", type)

    def add(accumulator: tuple[int, Any], record: In) -> tuple[int, Any]:
        value = of(record)
        return accumulator if value is None else (accumulator[0] + 1, summing.add(accumulator[1], value))

    def merge(one: tuple[int, Any], other: tuple[int, Any]) -> tuple[int, Any]:
        return one[0] + other[0], summing.merge(one[1], other[1])

    def result(accumulator: tuple[int, Any]) -> Any:
        number, total = accumulator
        return summing.total(total) / number if number else None

    stored: Any = tuple[int, summing.stored]  # type: ignore[name-defined]
    return Aggregate(stored, lambda: (0, summing.create()), add, merge, result)


class _Summing(NamedTuple):
    """How values of one type are added. No accumulator is ever changed."""

    stored: Any
    create: Callable[[], Any]
    add: Callable[[Any, Any], Any]
    merge: Callable[[Any, Any], Any]
    total: Callable[[Any], Any]


def _summing(aggregate: str, type: Any) -> _Summing:
    if type is float:
        return _Summing(tuple[float, ...], tuple, _add_exactly, _merge_exactly, math.fsum)
    if type in (int, Decimal, timedelta):
        return _Summing(type, type, operator.add, operator.add, itself)
    raise InvalidError(
        f"aggregates.{aggregate} was given type={type!r}", remedy="Give int, float, Decimal or timedelta."
    )


def _add_exactly(parts: tuple[float, ...], value: float) -> tuple[float, ...]:
    """`parts`, floats whose exact sum is the total, with one value more (Shewchuk, 'Adaptive Precision Floating-Point
    Arithmetic', 1997: grow-expansion). A total that is not finite is one part."""
    total = float(value)
    if not math.isfinite(total) or (parts and not math.isfinite(parts[-1])):
        return (builtins.sum(parts) + total,)
    grown = []
    for part in parts:
        large, small = (total, part) if abs(total) >= abs(part) else (part, total)
        total = large + small
        if lost := small - (total - large):
            grown.append(lost)
    return (*grown, total) if math.isfinite(total) else (total,)


def _merge_exactly(one: tuple[float, ...], other: tuple[float, ...]) -> tuple[float, ...]:
    return reduce(_add_exactly, other, one)


# ---- one of the values ---------------------------------------------------------------------------------------------


def min(of: Callable[[In], T | None], *, type: type[T]) -> Aggregate[In, Any, T | None]:
    """The smallest value; None of none. NaN is left out."""
    return _extreme("min", of, type, operator.lt)


def max(of: Callable[[In], T | None], *, type: type[T]) -> Aggregate[In, Any, T | None]:
    """The largest value; None of none. NaN is left out."""
    return _extreme("max", of, type, operator.gt)


def _extreme(
    name: str, of: Callable[[Any], Any], type: Any, is_better: Callable[[Any, Any], bool]
) -> Aggregate[Any, Any, Any]:
    _check_function(name, of)

    def add(kept: tuple[Any, ...], record: Any) -> tuple[Any, ...]:
        value = of(record)
        is_number = value is not None and value == value  # noqa: PLR0124 - NaN equals nothing
        return (value,) if is_number and (not kept or is_better(value, kept[0])) else kept

    def merge(one: tuple[Any, ...], other: tuple[Any, ...]) -> tuple[Any, ...]:
        return other if other and (not one or is_better(other[0], one[0])) else one

    return Aggregate(_kept(name, type), tuple, add, merge, lambda kept: kept[0] if kept else None)


@overload
def first(*, type: type[T], by: Callable[[T], int] | None = None) -> Aggregate[T, Any, T | None]: ...
@overload
def first(
    of: Callable[[In], T | None], *, type: type[T], by: Callable[[In], int] | None = None
) -> Aggregate[In, Any, T | None]: ...
def first(
    of: Callable[[Any], Any] | None = None, *, type: type[Any], by: Callable[[Any], int] | None = None
) -> Aggregate[Any, Any, Any]:
    """The first record, or `of` the first one for which that is not None; None of none.

    First is the one with the smallest whole number `by(record)`, such as its timestamp, and of equals the one that came
    first. Without `by` it is the one that came first; where a window is put together of pieces, as sliding windows and
    sessions are, that is the first of the earliest piece.
    """
    return _in_time("first", of, type, by, operator.lt)


@overload
def last(*, type: type[T], by: Callable[[T], int] | None = None) -> Aggregate[T, Any, T | None]: ...
@overload
def last(
    of: Callable[[In], T | None], *, type: type[T], by: Callable[[In], int] | None = None
) -> Aggregate[In, Any, T | None]: ...
def last(
    of: Callable[[Any], Any] | None = None, *, type: type[Any], by: Callable[[Any], int] | None = None
) -> Aggregate[Any, Any, Any]:
    """As `first`, the other way round: the largest `by(record)`, and of equals the one that came last."""
    return _in_time("last", of, type, by, operator.ge)


def _in_time(
    name: str,
    of: Callable[[Any], Any] | None,
    type: Any,
    by: Callable[[Any], int] | None,
    is_better: Callable[[int, int], bool],
) -> Aggregate[Any, Any, Any]:
    """Without `by` all are equal, and arrival decides."""
    value_of = itself if of is None else _check_function(name, of)
    time_of = _no_time if by is None else _check_function(name, by)

    def add(kept: tuple[tuple[int, Any], ...], record: Any) -> tuple[tuple[int, Any], ...]:
        value = value_of(record)
        return kept if value is None else merge(kept, ((time_of(record), value),))

    def merge(one: tuple[tuple[int, Any], ...], other: tuple[tuple[int, Any], ...]) -> tuple[tuple[int, Any], ...]:
        return other if other and (not one or is_better(other[0][0], one[0][0])) else one

    stored = _kept(name, tuple[int, _part(name, type)])  # type: ignore[misc]
    return Aggregate(stored, tuple, add, merge, lambda kept: kept[0][1] if kept else None)


# ---- many of the values --------------------------------------------------------------------------------------------


@overload
def collect(*, type: Stored[T]) -> Aggregate[T, Any, list[T]]: ...
@overload
def collect(of: Callable[[In], T | None], *, type: Stored[T]) -> Aggregate[In, Any, list[T]]: ...
def collect(of: Callable[[Any], Any] | None = None, *, type: Any) -> Aggregate[Any, Any, list[Any]]:
    """All records, or all values `of` them, in the order in which they came; piece by piece where a window is put
    together of pieces. It keeps them all: any other aggregate needs far less."""
    value_of = itself if of is None else _check_function("collect", of)

    def add(values: list[Any], record: Any) -> list[Any]:
        value = value_of(record)
        if value is not None:
            values.append(value)
        return values

    def merge(one: list[Any], other: list[Any]) -> list[Any]:
        one.extend(other)
        return one

    return Aggregate(list_of(type), list, add, merge, list)


def top_n(n: int, by: Callable[[T], Any], *, type: Stored[T]) -> Aggregate[T, Any, list[T]]:
    """The `n` records with the largest `by(record)`, best first; of equals the one that came first is the better one.
    What `by` gives is compared; None leaves the record out. It keeps at most `n` records."""
    _check_function("top_n", by)
    check_n("aggregates.top_n", n)

    def merge(one: list[T], other: list[T]) -> list[T]:
        for record in reversed(other):
            insert_ranked(one, record, n, by)
        return one

    def add(ranking: list[T], record: T) -> list[T]:
        insert_ranked(ranking, record, n, by)
        return ranking

    return Aggregate(list_of(type), list, add, merge, lambda ranking: ranking[::-1])


# ---- several aggregates --------------------------------------------------------------------------------------------


@overload
def combine(**aggregates: Aggregate[In, Any, Any]) -> Aggregate[In, Any, dict[str, Any]]: ...
@overload
def combine(into: Callable[..., Out], /, **aggregates: Aggregate[In, Any, Any]) -> Aggregate[In, Any, Out]: ...
def combine(into: Callable[..., Any] = dict, /, **aggregates: Aggregate[Any, Any, Any]) -> Aggregate[Any, Any, Any]:
    """Several aggregates of the same records: `combine(Delays, flights=count(), mean=mean(delay_of))`.

    The result is `into(flights=..., mean=...)`, a struct of yours for example, or else a dict. Accumulators are kept by
    these names: they may change places, and one that is added later begins with what comes then.
    """
    _check_function("combine", into)
    for name, aggregate in aggregates.items():
        if not isinstance(aggregate, Aggregate):
            raise InvalidError(f"aggregates.combine was given {name}={aggregate!r}", remedy="Give aggregates.")
        _part("combine", aggregate.type)
    if not aggregates:
        raise InvalidError("aggregates.combine was given no aggregate", remedy="combine(flights=aggregates.count())")
    parts = list(aggregates.values())
    stored = _accumulators(aggregates)

    def add(accumulators: Any, record: Any) -> Any:
        each = zip(parts, msgspec.structs.astuple(accumulators), strict=True)
        return stored(*[part.add(accumulator, record) for part, accumulator in each])

    def merge(one: Any, other: Any) -> Any:
        each = zip(parts, msgspec.structs.astuple(one), msgspec.structs.astuple(other), strict=True)
        return stored(*[part.merge(mine, theirs) for part, mine, theirs in each])

    def result(accumulators: Any) -> Any:
        each = zip(aggregates.items(), msgspec.structs.astuple(accumulators), strict=True)
        return into(**{name: part.result(accumulator) for (name, part), accumulator in each})

    return Aggregate(stored, stored, add, merge, result)


def _accumulators(aggregates: dict[str, Aggregate[Any, Any, Any]]) -> type[Any]:
    """A class for the accumulators of several aggregates, by name. Frozen: where the parts cannot change, it cannot."""
    fields = [(name, part.type, msgspec.field(default_factory=part.create)) for name, part in aggregates.items()]
    return msgspec.defstruct("Accumulators", fields, frozen=True)


# ---- what they share -----------------------------------------------------------------------------------------------


def _no_time(record: Any) -> int:
    return 0


def _check_function(aggregate: str, function: Callable[..., Any]) -> Callable[..., Any]:
    if not callable(function):
        raise InvalidError(
            f"aggregates.{aggregate} was given {function!r} where a function is needed",
            remedy="Give a function of one record: lambda order: order.amount.",
        )
    return function


def _kept(aggregate: str, type: Any) -> Any:
    """None or one value of the type, which may include None."""
    return tuple[_part(aggregate, type), ...]  # type: ignore[misc]


def _part(aggregate: str, type: Any) -> Any:
    """`type`, which becomes a part of the accumulator's."""
    if isinstance(type, Pickled | Serialized | ListOf):
        raise InvalidError(
            f"aggregates.{aggregate} was given {type!r}, which cannot be a part of an accumulator",
            remedy="Give a type that msgspec supports, or write an Aggregate of your own with such an accumulator.",
        )
    return type
