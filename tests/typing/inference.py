"""What a type checker knows about a program: element types all along the chain. Checked by mypy --strict; never run."""

from collections.abc import Iterator
from typing import Any, assert_type

import msgspec

import tidegate as tg
from tidegate.operators.contracts import Sink, Source


class Order(msgspec.Struct):
    user: str
    amount: int


class Total(msgspec.Struct):
    user: str
    total: int


class RunningTotal(tg.KeyedProcessFunction[str, Order, Total]):
    total = tg.ValueState(int, default=0)
    late = tg.SideOutput[Order]("late")

    def process_element(self, value: Order, ctx: tg.KeyedContext[str]) -> Iterator[Total]:
        assert_type(ctx.key, str)
        assert_type(ctx.timestamp, int | None)
        assert_type(self.total.value(), int)
        self.total.update(self.total.value() + value.amount)
        ctx.output(self.late, value)
        yield Total(ctx.key, self.total.value())


class Words(tg.ProcessFunction[str, str]):
    def process_element(self, value: str, ctx: tg.Context) -> list[str] | None:
        return value.split() or None


def later(so_far: Total, total: Total) -> Total:
    return total if total.total > so_far.total else so_far


def amount_of(order: Order) -> int:
    return order.amount


def chain(orders: tg.Stream[Order], sink: Sink) -> None:
    assert_type(orders.filter(lambda order: order.amount > 0), tg.Stream[Order])
    assert_type(orders.map(lambda order: order.user), tg.Stream[str])
    assert_type(orders.flat_map(lambda order: [order.amount] * 2), tg.Stream[int])
    assert_type(orders.map(lambda order: order.user).process(Words()), tg.Stream[str])

    keyed = orders.key_by(lambda order: order.user)
    assert_type(keyed, tg.KeyedStream[str, Order])
    assert_type(orders.key_by(lambda order: (order.user, order.amount)), tg.KeyedStream[tuple[str, int], Order])
    assert_type(orders.key_by(lambda order: order.user, key_type=str), tg.KeyedStream[str, Order])

    totals = keyed.process(RunningTotal(), name="totals")
    assert_type(totals, tg.Stream[Total])
    assert_type(totals.side_output(RunningTotal.late), tg.Stream[Order])
    assert_type(totals.key_by(lambda total: total.user).reduce(later, name="last"), tg.Stream[Total])
    counts = keyed.aggregate(tg.aggregates.count(), name="counts")
    assert_type(counts, tg.Stream[int])
    spent = tg.aggregates.sum(amount_of, type=int)
    assert_type(keyed.aggregate(spent, Total, name="spent"), tg.Stream[Total])
    assert_type(keyed.aggregate(spent, lambda user, total: (user, total), name="spent"), tg.Stream[tuple[str, int]])
    assert_type(keyed.aggregate(tg.aggregates.mean(amount_of), name="mean"), tg.Stream[float | None])
    assert_type(totals.union(orders), tg.Stream[Total | Order])
    assert_type(totals.union(totals), tg.Stream[Total])
    totals.sink(sink, name="out")


class OrderDeserializer:
    def decode(self, raw: list[Any]) -> list[Any]:
        return [self.decode_one(one) for one in raw]

    def decode_one(self, raw: Any) -> Order:
        return msgspec.json.decode(raw, type=Order)


class OrderSource(Source):
    @property
    def deserializer(self) -> OrderDeserializer:
        return OrderDeserializer()


def sources(job: tg.Job, untyped: Source, typed: OrderSource) -> None:
    assert_type(job.source(typed, name="orders"), tg.Stream[Order])
    assert_type(job.source(untyped, name="anything"), tg.Stream[Any])
