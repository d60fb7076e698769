"""What a type checker knows behind the ready operators. Checked by mypy --strict; never run."""

from typing import Any, assert_type

import msgspec

import tidegate as tg
from tidegate import aggregates


class Order(msgspec.Struct, frozen=True):
    user: str
    amount: int


class Totals(msgspec.Struct, frozen=True):
    orders: int
    mean: float | None


class Score(tg.BatchFunction[list[Order], list[float]]):
    def __call__(self, records: list[Order]) -> list[float]:
        return [float(order.amount) for order in records]


def amount_of(order: Order) -> int:
    return order.amount


def share_of(order: Order) -> float | None:
    return order.amount / 100


def name_of(order: Order) -> str:
    return order.user


def batches(orders: tg.Stream[Order]) -> None:
    assert_type(orders.map_batch(lambda records: [record.user for record in records]), tg.Stream[str])
    assert_type(orders.map_batch(Score(), size=10), tg.Stream[float])
    assert_type(orders.process_batch(lambda records: (record.amount for record in records)), tg.Stream[int])
    assert_type(orders.map_batch(len, format="arrow", types=(Order, Totals)), tg.Stream[Totals])
    assert_type(orders.sample(0.1, by=name_of), tg.Stream[Order])
    orders.map_batch(lambda records: [record.price for record in records])  # error: no such attribute
    orders.map_batch(amount_of)  # error: not of a list


def rankings(keyed: tg.KeyedStream[str, Order]) -> None:
    assert_type(keyed.deduplicate("10m", name="once"), tg.Stream[Order])
    assert_type(keyed.top_n(3, amount_of, name="best", type=Order), tg.Stream[list[Order]])
    best = keyed.top_n(3, amount_of, lambda key, records: len(records), name="best-2", type=Order)
    assert_type(best, tg.Stream[int])
    keyed.top_n(3, len, name="best-3", type=Order)  # error: not of an order


def windows(keyed: tg.KeyedStream[str, Order]) -> None:
    hours = keyed.window(tg.TumblingEventTimeWindows("1h"))
    assert_type(hours.aggregate(aggregates.count(), name="a"), tg.Stream[int])
    assert_type(hours.aggregate(aggregates.sum(amount_of, type=int), name="b"), tg.Stream[int])
    assert_type(hours.aggregate(aggregates.sum(share_of, type=float), name="c"), tg.Stream[float])
    assert_type(hours.aggregate(aggregates.mean(share_of), name="d"), tg.Stream[float | None])
    assert_type(hours.aggregate(aggregates.max(name_of, type=str), name="e"), tg.Stream[str | None])
    assert_type(hours.aggregate(aggregates.first(type=Order), name="f"), tg.Stream[Order | None])
    assert_type(hours.aggregate(aggregates.last(name_of, type=str, by=amount_of), name="g"), tg.Stream[str | None])
    assert_type(hours.aggregate(aggregates.collect(amount_of, type=int), name="h"), tg.Stream[list[int]])
    assert_type(hours.aggregate(aggregates.top_n(2, amount_of, type=Order), name="i"), tg.Stream[list[Order]])
    both = aggregates.combine(Totals, orders=aggregates.count(), mean=aggregates.mean(share_of))
    assert_type(hours.aggregate(both, name="j"), tg.Stream[Totals])
    assert_type(hours.aggregate(aggregates.combine(all=aggregates.count()), name="k"), tg.Stream[dict[str, Any]])
    hours.aggregate(aggregates.sum(name_of, type=int), name="l")  # error: text is no number
    hours.aggregate(aggregates.first(type=Totals), name="m")  # error: records of another type
