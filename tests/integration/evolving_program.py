"""A job whose state has another type in each version of the program: `EVOLUTIONS` says how the state `kept` is declared
in each step, what is written into it, and how what an earlier step wrote must read. Each record of the output shows all
that its key's state held before it, so bytes that are misread show; the expected answer is not computed here.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal, NamedTuple

import msgspec

import tidegate as tg
from tidegate.local import LocalSink, LocalSource

JOB = "evolving"
OPERATOR = "keep"
MAP_KEYS = 3
"""Each key's map has so many entries."""


class Order(msgspec.Struct, frozen=True):
    """One record of the input. `number` tells it from every other."""

    user: str
    number: int


class Seen(msgspec.Struct, frozen=True):
    """What the state of a user was before one order, and which version of the program saw it."""

    user: str
    number: int
    step: int
    kept: Any
    beside: int | None
    """How many orders the state `beside` has counted; None where the version does not declare it."""


class Version(NamedTuple):
    """One version of the program."""

    declare: Callable[[], Any]
    """The state `kept`."""
    make: Callable[[int], Any]
    """What is written for the order of that number."""
    reads: tuple[Callable[[int], Any], ...] = ()
    """For each earlier step, how what it wrote for an order reads here, as JSON."""
    key: type = str
    has_beside: bool = False


# ---- types, each as it was and as it became ------------------------------------------------------------------------


class Plain(msgspec.Struct, frozen=True):
    a: int


class WithDefault(msgspec.Struct, frozen=True):
    a: int
    b: str = "none"


class WithFactory(msgspec.Struct):
    a: int
    b: list[str] = msgspec.field(default_factory=list)


class WithoutDefault(msgspec.Struct, frozen=True):
    a: int
    b: str


class Two(msgspec.Struct, frozen=True):
    a: int
    b: str


class Swapped(msgspec.Struct, frozen=True):
    b: str
    a: int


class OnlyB(msgspec.Struct, frozen=True):
    b: str


class AgainA(msgspec.Struct, frozen=True):
    b: str
    a: str = ""


class Renamed(msgspec.Struct, frozen=True):
    amount: int = msgspec.field(name="a")


class Wide(msgspec.Struct, frozen=True):
    a: float


class Wider(msgspec.Struct, frozen=True):
    a: float | None


class Text(msgspec.Struct, frozen=True):
    a: str


class Outer(msgspec.Struct):
    inner: Plain
    rest: list[Plain]


class OuterWithDefault(msgspec.Struct):
    inner: WithDefault
    rest: list[WithDefault]


class Size(Enum):
    SMALL = 0
    LARGE = 1


class MoreSizes(Enum):
    SMALL = 0
    LARGE = 1
    HUGE = 2


@dataclass(frozen=True)
class Purse:
    coins: int


class Money:
    """A class that msgspec does not know."""

    def __init__(self, amount: int, currency: str = "EUR") -> None:
        self.amount = amount
        self.currency = currency

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Money) and (self.amount, self.currency) == (other.amount, other.currency)

    def __hash__(self) -> int:
        return hash((self.amount, self.currency))


class MoneySerializer:
    """Version 1 knows no currency. See `tg.TypeSerializer`."""

    id = "money"
    immutable = True

    def __init__(self, version: int) -> None:
        self.version = version

    def encode(self, value: Money) -> bytes:
        return str(value.amount).encode() if self.version == 1 else f"{value.amount} {value.currency}".encode()

    def decode(self, data: bytes, version: int) -> Money:
        if version == 1:
            return Money(int(data))
        amount, currency = data.decode().split(" ")
        return Money(int(amount), currency)


# ---- evolutions ----------------------------------------------------------------------------------------------------


def value(declared: Any, make: Callable[[int], Any], *reads: Callable[[int], Any], **more: Any) -> Version:
    return Version(lambda: tg.ValueState(declared), make, reads, **more)


def size(number: int) -> Any:
    return ("small", "large")[number % 2]


def more_sizes(number: int) -> Any:
    return ("small", "large", "huge")[number % 3]


def word(number: int) -> str:
    return f"w{number}"


PLAIN = value(Plain, Plain)
TWO = value(Two, lambda n: Two(n, word(n)))
OLD_MONEY = value(tg.serialized(Money, MoneySerializer(1)), Money)
NEW_MONEY = value(tg.serialized(Money, MoneySerializer(2)), lambda n: Money(n, "USD"))
BESIDE = value(int, int, int, int, has_beside=True)
ALONE = value(int, int, int, int)

ACCEPTED: dict[str, tuple[Version, ...]] = {
    "a field is added with a default": (
        PLAIN,
        value(WithDefault, lambda n: WithDefault(n, word(n)), lambda n: {"a": n, "b": "none"}),
    ),
    "a field is added with a default factory": (
        PLAIN,
        value(WithFactory, lambda n: WithFactory(n, [word(n)]), lambda n: {"a": n, "b": []}),
    ),
    "a field is removed": (TWO, value(Plain, Plain, lambda n: {"a": n})),
    "a field is removed, and comes back with another type": (
        TWO,
        value(OnlyB, lambda n: OnlyB(word(n)), lambda n: {"b": word(n)}),
        value(
            AgainA,
            lambda n: AgainA(word(n), "again"),
            lambda n: {"b": word(n), "a": ""},
            lambda n: {"b": word(n), "a": ""},
        ),
    ),
    "a field is widened twice": (
        PLAIN,
        value(Wide, lambda n: Wide(n / 4), lambda n: {"a": float(n)}),
        value(Wider, lambda n: Wider(None), lambda n: {"a": float(n)}, lambda n: {"a": n / 4}),
    ),
    "int becomes float": (value(int, int), value(float, lambda n: n + 0.5, float)),
    "int becomes int or None": (value(int, int), value(int | None, int, int)),
    "a Literal gets a member": (
        value(Literal["small", "large"], size),
        value(Literal["small", "large", "huge"], more_sizes, size),
    ),
    "an enum gets a member": (
        value(Size, lambda n: Size(n % 2)),
        value(MoreSizes, lambda n: MoreSizes(n % 3), lambda n: n % 2),
    ),
    "a field is renamed by its mapping": (PLAIN, value(Renamed, Renamed, lambda n: {"a": n})),
    "fields change places": (
        TWO,
        value(Swapped, lambda n: Swapped(word(n), n), lambda n: {"a": n, "b": word(n)}),
    ),
    "a struct inside changes": (
        value(Outer, lambda n: Outer(Plain(n), [Plain(n + 1)])),
        value(
            OuterWithDefault,
            lambda n: OuterWithDefault(WithDefault(n, word(n)), []),
            lambda n: {"inner": {"a": n, "b": "none"}, "rest": [{"a": n + 1, "b": "none"}]},
        ),
    ),
    "the elements of a list change": (
        Version(lambda: tg.ListState(Plain), Plain),
        Version(
            lambda: tg.ListState(WithDefault), lambda n: WithDefault(n, word(n)), (lambda n: {"a": n, "b": "none"},)
        ),
    ),
    "the values of a map change": (
        Version(lambda: tg.MapState(str, int), int),
        Version(lambda: tg.MapState(str, float), lambda n: n / 2, (float,)),
    ),
    "what is reduced is widened": (
        Version(lambda: tg.ReducingState(int, lambda one, other: one + other), int),
        Version(lambda: tg.ReducingState(float, lambda one, other: one + other), lambda n: n / 2, (float,)),
    ),
    "a serializer gets a higher version": (
        OLD_MONEY,
        NEW_MONEY._replace(reads=(lambda n: f"{n} EUR",)),
    ),
    "a state is added": (ALONE, BESIDE),
    "a state is dropped, and comes back empty": (BESIDE, ALONE, BESIDE),
}
"""What goes on with what was stored; a state that is gone, with --allow-non-restored-state."""

OTHER_KEYS = "the type of keys changes"
REFUSED: dict[str, tuple[Version, Version]] = {
    "a field is added without a default": (PLAIN, value(WithoutDefault, lambda n: WithoutDefault(n, ""))),
    "a type changes": (value(int, int), value(str, str)),
    "the type of a field changes": (PLAIN, value(Text, lambda n: Text(str(n)))),
    "a type becomes narrower": (value(float, float), value(int, int)),
    "a value becomes a list": (value(int, int), Version(lambda: tg.ListState(int), int)),
    "a list becomes a value": (Version(lambda: tg.ListState(int), int), value(int, int)),
    OTHER_KEYS: (value(int, int), value(int, int, key=int)),
    "the type of a map's keys changes": (
        Version(lambda: tg.MapState(str, int), int),
        Version(lambda: tg.MapState(int, int), int),
    ),
    "what was pickled is not": (value(tg.pickled(Purse), Purse), value(Purse, Purse)),
    "what was not is pickled": (value(Purse, Purse), value(tg.pickled(Purse), Purse)),
    "a serializer gets a lower version": (NEW_MONEY, OLD_MONEY),
    "a state is not declared any more": (BESIDE, ALONE),
}
"""What must not start."""

EVOLUTIONS: dict[str, tuple[Version, ...]] = {**ACCEPTED, **REFUSED}


# ---- the job -------------------------------------------------------------------------------------------------------


def plain(found: Any) -> Any:
    """As JSON."""
    return msgspec.to_builtins(found, str_keys=True, enc_hook=lambda money: f"{money.amount} {money.currency}")


def contents(kind: str, handle: Any) -> Any:
    """All that the current key has; None for nothing."""
    match kind:
        case "value":
            return handle.value()
        case "map":
            return dict(handle.items()) or None
        case "list":
            return handle.get() or None
        case _:
            return handle.get()


def put(kind: str, handle: Any, number: int, made: Any) -> None:
    match kind:
        case "value":
            handle.update(made)
        case "map":
            handle.put(map_key(number), made)
        case _:
            handle.add(made)


def map_key(number: int) -> Any:
    return f"m{number % MAP_KEYS}"


class Keeping(tg.KeyedProcessFunction[Any, Order, Seen]):
    """One record for each order."""

    kept: Any
    beside: Any

    def __init__(self, version: Version, step: int) -> None:
        self._version = version
        self._step = step
        self._kind = type(self).kept.kind

    def process_element(self, value: Order, ctx: tg.KeyedContext[Any]):  # type: ignore[no-untyped-def]
        kept = plain(contents(self._kind, self.kept))
        put(self._kind, self.kept, value.number, self._version.make(value.number))
        beside = None
        if self._version.has_beside:
            beside = self.beside.value()
            self.beside.update(beside + 1)
        yield Seen(value.user, value.number, self._step, kept, beside)


def keeping(version: Version, step: int) -> Keeping:
    """With the states that the version declares."""
    states = {"kept": version.declare()}
    if version.has_beside:
        states["beside"] = tg.ValueState(int, default=0)
    made: Keeping = type("Keeping", (Keeping,), states)(version, step)
    return made


def job_of(log: str, evolution: str, step: int, pause: float = 0.0) -> tg.Job:
    """Step `step` of an evolution, from 0, on a log in folder `log`."""
    version = EVOLUTIONS[evolution][step]

    def take_time(order: Order) -> Order:
        if pause:
            time.sleep(pause)
        return order

    job = tg.Job(JOB)
    orders = job.source(LocalSource(log, "orders", value=tg.Json(Order)), name="orders").map(take_time, name="pace")
    keyed = orders.key_by(lambda order: version.key(order.user), key_type=version.key)
    seen = keyed.process(keeping(version, step), name=OPERATOR)
    seen.sink(LocalSink(log, "seen", key=lambda one: one.user, value=tg.Json(Seen), partitions=2), name="out")
    return job


def build(argv: list[str]) -> tg.Job:
    """The job that the arguments describe."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--log", required=True)
    parser.add_argument("--evolution", required=True, choices=EVOLUTIONS)
    parser.add_argument("--step", required=True, type=int)
    parser.add_argument("--pause", type=float, default=0.0, help="seconds that each order takes")
    arguments = parser.parse_args(argv)
    return job_of(arguments.log, arguments.evolution, arguments.step, arguments.pause)


if __name__ == "__main__":
    tg.main(build)
