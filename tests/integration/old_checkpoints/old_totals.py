"""The job whose checkpoints of earlier versions are kept: every kind of state that there was. It reads from and writes
to a log in the working folder, by a path that means the same wherever the folder is moved."""

from collections.abc import Iterator

import msgspec

import tidegate as tg
from tidegate.local import LocalSink, LocalSource

LOG = "/proc/self/cwd/log"


class Order(msgspec.Struct, frozen=True):
    user: str
    amount: int


class Basket(msgspec.Struct):
    amounts: list[int] = []


class Seen(msgspec.Struct, frozen=True):
    """What the state of a user was behind one order."""

    user: str
    total: int
    recent: list[int]
    by_size: dict[str, int]
    highest: int | None
    basket: list[int]


class Remembering(tg.KeyedProcessFunction[str, Order, Seen]):
    total = tg.ValueState(int, default=0)
    recent = tg.ListState(int)
    by_size = tg.MapState(str, int)
    highest = tg.ReducingState(int, max)
    basket = tg.ValueState(Basket, default_factory=Basket)

    def process_element(self, order: Order, ctx: tg.KeyedContext[str]) -> Iterator[Seen]:
        self.total.update(self.total.value() + order.amount)
        self.recent.update([*self.recent.get()[-3:], order.amount])
        size = "large" if order.amount > 5 else "small"
        self.by_size.put(size, (self.by_size.get(size) or 0) + 1)
        self.highest.add(order.amount)
        self.basket.value().amounts.append(order.amount)
        yield Seen(
            ctx.key,
            self.total.value(),
            self.recent.get(),
            dict(self.by_size.items()),
            self.highest.get(),
            list(self.basket.value().amounts),
        )


def build(argv: list[str]) -> tg.Job:
    job = tg.Job("old-totals", config=tg.Config(checkpoint_interval="200ms"))
    orders = job.source(LocalSource(LOG, "orders", value=tg.Json(Order)), name="orders")
    seen = orders.key_by(lambda order: order.user).process(Remembering(), name="totals")
    seen.sink(LocalSink(LOG, "seen", key=lambda one: one.user, value=tg.Json(Seen), partitions=2), name="out")
    return job


if __name__ == "__main__":
    tg.main(build)
