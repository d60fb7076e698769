"""What a type checker knows about asynchronous operators, and which mistakes it finds: one on each line that says
so. Checked by mypy --strict; never run."""

from typing import assert_type

import msgspec

import tidegate as tg


class Order(msgspec.Struct):
    user: int
    amount: int


class Priced(tg.AsyncFunction[Order, float]):
    async def open(self, ctx: tg.Context) -> None:
        self.rate = float(ctx.subtask)

    async def call(self, value: Order) -> float:
        return value.amount * self.rate


async def ask(order: Order) -> str:
    return str(order.user)


def ask_plainly(order: Order) -> bytes:
    return bytes(order.user)


async def name_of(user: int) -> str | None:
    return None if user == 0 else str(user)


def join(order: Order, name: str | None) -> tuple[Order, str]:
    return order, name or "nobody"


def calls(orders: tg.Stream[Order]) -> None:
    assert_type(orders.async_map(ask, name="ask", type=Order), tg.Stream[str])
    assert_type(orders.async_map(ask_plainly, name="plain", type=Order, threads=3), tg.Stream[bytes])
    assert_type(orders.async_map(Priced(), name="priced", type=Order, timeout=None), tg.Stream[float])
    retries = tg.Retries(attempts=3, delay="1s", on=(OSError, ValueError))
    assert_type(orders.async_map(ask, name="again", type=Order, retries=retries, ordered=False), tg.Stream[str])
    assert_type(
        orders.lookup_join(
            name_of, join, by=lambda order: order.user, name="name", type=Order, how="left", cache=tg.LookupCache()
        ),
        tg.Stream[tuple[Order, str]],
    )


def mistakes(orders: tg.Stream[Order]) -> None:
    orders.async_map(ask, type=Order)  # error: no name
    orders.async_map(ask, name="ask")  # error: no type
    orders.async_map(name_of, name="name", type=Order)  # error: the function takes no Order
    orders.async_map(ask, name="ask", type=Order, on_error="ignore")  # error: no such policy
    orders.lookup_join(name_of, join, by=ask_plainly, name="n", type=Order)  # error: bytes are no int
    orders.lookup_join(name_of, join, by=lambda order: 1, name="n", type=Order, how="full")  # error: no such join
