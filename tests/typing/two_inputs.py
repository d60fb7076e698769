"""What a type checker knows of connected streams, broadcasts, state without keys and timers, and the mistakes that it
must find: each line with `# error` has one, the others have none. Never run."""

from collections.abc import Iterator
from typing import assert_type

import msgspec

import tidegate as tg


class Order(msgspec.Struct):
    user: str
    amount: int


class Rule(msgspec.Struct):
    name: str


class Mean(msgspec.Struct, frozen=True):
    count: int = 0


def with_order(so_far: Mean, order: Order) -> Mean:
    return Mean(so_far.count + 1)


def mean_of(so_far: Mean) -> float:
    return float(so_far.count)


class Both(tg.CoProcessFunction[Order, Rule, str]):
    held = tg.OperatorListState(Order, redistribution="union")

    def process_element1(self, value: Order, ctx: tg.Context) -> Iterator[str]:
        self.held.add(value)
        self.held.add("order")  # error: not what the list holds
        assert_type(self.held.get(), list[Order])
        yield value.user

    def process_element2(self, value: Rule, ctx: tg.Context) -> Iterator[str]:
        yield value.name


class KeyedBoth(tg.KeyedCoProcessFunction[str, Order, Rule, int]):
    mean = tg.AggregatingState(Mean, Mean, with_order, mean_of)

    def process_element1(self, value: Order, ctx: tg.KeyedContext[str]) -> Iterator[int]:
        self.mean.add(value)
        assert_type(self.mean.get(), float | None)
        yield value.amount

    def process_element2(self, value: Rule, ctx: tg.KeyedContext[str]) -> Iterator[int]:
        yield len(ctx.key)


class Rules(tg.BroadcastProcessFunction[Order, Rule, str]):
    rules = tg.BroadcastState(str, Rule)

    def process_element(self, value: Order, ctx: tg.Context) -> Iterator[str]:
        assert_type(self.rules.get("a"), Rule | None)
        yield value.user

    def process_broadcast_element(self, value: Rule, ctx: tg.Context) -> None:
        self.rules.put(value.name, value)
        self.rules.put(value.name, 7)  # error: not what the map holds


class KeyedRules(tg.KeyedBroadcastProcessFunction[str, Order, Rule, str]):
    rules = tg.BroadcastState(str, Rule)

    def process_element(self, value: Order, ctx: tg.KeyedContext[str]) -> Iterator[str]:
        now = ctx.timer_service.current_processing_time()
        ctx.timer_service.register_processing_time_timer(now + 0.5)  # error: whole milliseconds
        ctx.timer_service.register_processing_time_timer(now + 500)
        yield value.user

    def process_broadcast_element(self, value: Rule, ctx: tg.Context) -> None:
        print(ctx.key)  # error: what is broadcast has no key
        self.rules.put(value.name, value)

    def on_timer(self, timestamp: int, ctx: tg.KeyedContext[str]) -> Iterator[str]:
        assert_type(ctx.key, str)
        yield ctx.key


def chain(orders: tg.Stream[Order], rules: tg.Stream[Rule]) -> None:
    by_user = orders.key_by(lambda order: order.user)
    by_name = rules.key_by(lambda rule: rule.name)
    assert_type(rules.broadcast(), tg.BroadcastStream[Rule])
    assert_type(orders.connect(rules).process(Both()), tg.Stream[str])
    assert_type(by_user.connect(by_name).process(KeyedBoth(), name="both"), tg.Stream[int])
    assert_type(orders.connect(rules.broadcast()).process(Rules(), name="rules"), tg.Stream[str])
    assert_type(by_user.connect(rules.broadcast()).process(KeyedRules(), name="keyed"), tg.Stream[str])

    rules.connect(orders).process(Both())  # error: the other way round
    orders.connect(rules.broadcast()).process(Both(), name="both")  # error: nothing is broadcast to it
    orders.connect(rules.broadcast()).process(Rules())  # error: state needs a name
    by_user.connect(rules.broadcast()).process(Rules(), name="rules")  # error: needs no key
    by_user.connect(rules)  # error: has no keys
    orders.connect(by_name)  # error: has keys
    by_user.connect(rules.key_by(lambda rule: 7)).process(KeyedBoth(), name="both")  # error: keys of another type


def priced(order: Order, rule: Rule) -> int:
    return order.amount * len(rule.name)


def priced_if_ruled(order: Order, rule: Rule | None) -> str:
    return order.user if rule is None else rule.name


def either(order: Order | None, rule: Rule | None) -> float:
    return 0.5


def joins(orders: tg.Stream[Order], rules: tg.Stream[Rule]) -> None:
    by_user = orders.key_by(lambda order: order.user)
    by_name = rules.key_by(lambda rule: rule.name)
    both, hours = (Order, Rule), tg.TumblingEventTimeWindows("1h")
    left, full = by_user.temporal_join, by_user.interval_join
    assert_type(by_user.temporal_join(by_name, priced, name="a", types=both, within="1h"), tg.Stream[int])
    assert_type(left(by_name, priced_if_ruled, name="b", types=both, how="left"), tg.Stream[str])
    assert_type(full(by_name, either, name="c", types=both, how="full", lower="-5s", upper="5s"), tg.Stream[float])
    assert_type(by_user.window_join(by_name, hours, priced, name="d", types=both), tg.Stream[int])
    assert_type(by_user.window_join(by_name, hours, either, name="e", types=both, how="right"), tg.Stream[float])

    left(by_name, priced, name="f", types=both, how="left")  # error: there may be no rule
    left(by_name, either, name="g", types=both, how="full")  # error: a version alone gives nothing
    left(by_name, lambda order, rule: rule.nothing, name="h", types=both)  # error: no such attribute
    left(by_name, priced, name="i", types=(Rule, Order))  # error: the other way round
    left(rules, priced, name="j", types=both)  # error: has no keys
    by_user.window_join(by_name, hours, priced_if_ruled, name="k", types=both, how="full")  # error: may be no order
