"""A job whose state lives for a while: every kind of keyed state, each with the same time to live, or without one.

A record either looks or adds; its result shows all that its key's state held before. The expected answer is not
computed here.
"""

import argparse
import time
from collections.abc import Iterator
from typing import Any

import msgspec

import tidegate as tg
from tidegate.local import LocalSink, LocalSource

JOB = "living"
OPERATOR = "remember"
STATES = ("total", "recent", "marks", "highest", "count")
LOOK, ADD = "look", "add"


class Order(msgspec.Struct, frozen=True):
    """One record of the input. `number` tells it from every other."""

    user: str
    number: int
    what: str = ADD


class Seen(msgspec.Struct, frozen=True):
    """What was alive of a user's state at one order."""

    user: str
    number: int
    total: int
    recent: list[int]
    marks: dict[str, int]
    highest: int | None
    count: int | None


class Remembering(tg.KeyedProcessFunction[str, Order, Seen]):
    """One record for each order."""

    total: Any
    recent: Any
    marks: Any
    highest: Any
    count: Any

    def process_element(self, value: Order, ctx: tg.KeyedContext[str]) -> Iterator[Seen]:
        total = self.total.value()
        seen = (list(self.recent.get()), dict(self.marks.items()), self.highest.get(), self.count.get())
        if value.what == ADD:
            self.total.update(total + value.number)
            self.recent.add(value.number)
            self.marks.put(mark(value.number), value.number)
            self.highest.add(value.number)
            self.count.add(value.number)
        yield Seen(ctx.key, value.number, total, *seen)


def mark(number: int) -> str:
    return f"m{number % 3}"


def remembering(ttl: tg.Ttl | None) -> Remembering:
    """With states of that time to live."""
    states = {
        "total": tg.ValueState(int, 0, ttl=ttl),
        "recent": tg.ListState(int, ttl=ttl),
        "marks": tg.MapState(str, int, ttl=ttl),
        "highest": tg.ReducingState(int, max, ttl=ttl),
        "count": tg.AggregatingState(int, int, lambda count, _: count + 1, lambda count: count, ttl=ttl),
    }
    made: Remembering = type("Remembering", (Remembering,), states)()
    return made


def job_of(log: str, ttl: tg.Ttl | None, pause: float = 0.0) -> tg.Job:
    """On a log in folder `log`. pause: seconds that each order takes."""

    def take_time(order: Order) -> Order:
        if pause:
            time.sleep(pause)
        return order

    job = tg.Job(JOB)
    orders = job.source(LocalSource(log, "orders", value=tg.Json(Order)), name="orders").map(take_time, name="pace")
    seen = orders.key_by(lambda order: order.user, key_type=str).process(remembering(ttl), name=OPERATOR)
    seen.sink(LocalSink(log, "seen", key=lambda one: one.user, value=tg.Json(Seen)), name="out")
    return job


def build(argv: list[str]) -> tg.Job:
    """The job that the arguments describe."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--log", required=True)
    parser.add_argument("--after", required=True)
    parser.add_argument("--update", required=True, choices=["write", "read-and-write"])
    parser.add_argument("--pause", type=float, default=0.0)
    arguments = parser.parse_args(argv)
    ttl = tg.Ttl(arguments.after, update=arguments.update, clock="event")
    return job_of(arguments.log, ttl, arguments.pause)


if __name__ == "__main__":
    tg.main(build)
