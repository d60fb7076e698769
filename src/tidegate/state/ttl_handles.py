"""Time to live of keyed state: what was not used for long enough is as if it had never been there.

A state with a time to live is kept as pairs of a time and a value by whatever backend there is; the handles here stand
before the backend's own and take the pairs apart. Expired values go when they are met: by a read, or by `TtlCleaner`,
which walks over all keys a little with each batch, so that checkpoints lose them, too. Nothing here reads a clock.
(In Flink: StateTtlConfig, FLIP-25.)
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

from tidegate.errors import InvalidError
from tidegate.serializers.stamped import UNKNOWN_TIME, Stamped
from tidegate.state.backend import KeyedStateBackend
from tidegate.state.descriptors import (
    AggregatingState,
    ListState,
    MapState,
    ReducingState,
    StateDescriptor,
    ValueState,
)
from tidegate.state.ttl import TtlTime

T = TypeVar("T")
Pair = tuple[int, Any]
"""A time in milliseconds, and a value."""


# ---- registering ---------------------------------------------------------------------------------------------------


def register(backend: KeyedStateBackend, descriptor: StateDescriptor[Any], time: TtlTime) -> Any:
    """As `backend.register`, for states with and without a time to live."""
    if descriptor.ttl is None:
        return backend.register(descriptor)
    kept = backend.register(stamped(descriptor))
    return _HANDLES[type(descriptor)](descriptor, kept, time)


def stamped(descriptor: StateDescriptor[Any]) -> StateDescriptor[Any]:
    """The declaration under which a backend keeps a state with a time to live: of pairs."""
    name = descriptor.name
    match descriptor:
        case ValueState():
            return ValueState(Stamped(descriptor.declared), name=name)
        case ListState():
            return ListState(Stamped(descriptor.declared), name=name)
        case MapState():
            return MapState(descriptor.declared_key, Stamped(descriptor.declared), name=name)
        case ReducingState():
            reduce_two = descriptor.reduce_function
            pair = _pair(descriptor)
            return ReducingState(pair, lambda one, other: (other[0], reduce_two(one[1], other[1])), name=name)
        case AggregatingState():
            return _stamped_aggregate(descriptor)
        case _:
            raise InvalidError(f"state {name} of kind {descriptor.kind} cannot have a time to live")


def _pair(descriptor: ReducingState[Any] | AggregatingState[Any, Any]) -> Any:
    """The type of a value with its time; no type that a program could write."""
    return Stamped(descriptor.declared)


def _stamped_aggregate(descriptor: AggregatingState[Any, Any]) -> AggregatingState[Any, Any]:
    create, add = descriptor.create, descriptor.add_function
    return AggregatingState(
        _pair(descriptor),
        lambda: (UNKNOWN_TIME, create()),
        lambda pair, value: (value[0], add(pair[1], value[1])),
        lambda pair: pair,
        name=descriptor.name,
    )


# ---- handles -------------------------------------------------------------------------------------------------------


class TtlHandle:
    """What the handles of all kinds share. `kept` is the backend's own handle, of pairs."""

    __slots__ = ("_after", "_hides", "_is_event_time", "_kept", "_renews", "_time")

    def __init__(self, descriptor: StateDescriptor[Any], kept: Any, time: TtlTime) -> None:
        assert descriptor.ttl is not None
        self._after = descriptor.ttl.after
        self._renews = descriptor.ttl.update == "read-and-write"
        self._hides = descriptor.ttl.expired == "hidden"
        self._is_event_time = descriptor.ttl.clock == "event"
        self._kept = kept
        self._time = time

    def clear(self) -> None:
        self._kept.clear()

    def clean(self) -> None:
        """Remove what the current key has that has expired, and give a time to what has none. Leaves alone, and
        unchanged, what lives on."""
        raise NotImplementedError

    def _now(self) -> int:
        return self._time.event if self._is_event_time else self._time.wall

    def _is_expired(self, pair: Pair, now: int) -> bool:
        # The last moment of its life is the one before `after` has passed.
        return pair[0] != UNKNOWN_TIME and now - pair[0] >= self._after


class _OnePairHandle(TtlHandle):
    """A key has one pair."""

    __slots__ = ()

    def clean(self) -> None:
        pair = self._kept.peek()
        if pair is None:
            return
        now = self._now()
        if self._is_expired(pair, now):
            self._kept.clear()
        elif pair[0] == UNKNOWN_TIME != now:
            self._put((now, pair[1]))

    def _put(self, pair: Pair) -> None:
        """Keep this pair in place of what there is."""
        raise NotImplementedError

    def _living(self, pair: Pair | None) -> Pair | None:
        """`pair`, which was read just now, as far as user code may see it."""
        if pair is None:
            return None
        now = self._now()
        if self._is_expired(pair, now):
            self._kept.clear()
            return None if self._hides else pair
        if pair[0] == UNKNOWN_TIME != now or (self._renews and pair[0] != now):
            self._put((now, pair[1]))
        return pair


class TtlValueHandle(_OnePairHandle, Generic[T]):
    """See `ValueHandle`."""

    __slots__ = ("_default", "_factory")

    def __init__(self, descriptor: ValueState[T], kept: Any, time: TtlTime) -> None:
        super().__init__(descriptor, kept, time)
        self._default: Any = descriptor.default
        self._factory: Callable[[], Any] | None = descriptor.default_factory

    def value(self) -> T:
        pair = self._living(self._kept.value())
        value: T
        if pair is not None:
            value = pair[1]
        elif self._factory is None:
            value = self._default
        else:
            self.update(self._factory())
            value = self._kept.value()[1]
        return value

    def update(self, value: T) -> None:
        self._kept.update((self._now(), value))

    def _put(self, pair: Pair) -> None:
        self._kept.update(pair)


class TtlReducingHandle(_OnePairHandle, Generic[T]):
    """See `ReducingHandle`. Reading never makes what was reduced live longer than its last value where only writing
    counts."""

    __slots__ = ()

    def get(self) -> T | None:
        pair = self._living(self._kept.get())
        return None if pair is None else pair[1]

    def add(self, value: T) -> None:
        self.clean()
        self._kept.add((self._now(), value))

    def _put(self, pair: Pair) -> None:
        self._kept.replace(pair)


class TtlAggregatingHandle(_OnePairHandle):
    """See `AggregatingHandle`."""

    __slots__ = ("_result",)

    def __init__(self, descriptor: AggregatingState[Any, Any], kept: Any, time: TtlTime) -> None:
        super().__init__(descriptor, kept, time)
        self._result = descriptor.result_function

    def get(self) -> Any:
        pair = self._living(self._kept.get())
        return None if pair is None else self._result(pair[1])

    def add(self, value: Any) -> None:
        self.clean()
        self._kept.add((self._now(), value))

    def _put(self, pair: Pair) -> None:
        self._kept.replace(pair)


class TtlListHandle(TtlHandle, Generic[T]):
    """See `ListHandle`: each element lives for itself."""

    __slots__ = ()

    def get(self) -> list[T]:
        pairs: list[Pair] = self._kept.get()
        now = self._now()
        living = [pair for pair in pairs if not self._is_expired(pair, now)]
        seen = [pair[1] for pair in (living if self._hides else pairs)]
        if self._renews or len(living) < len(pairs) or any(pair[0] == UNKNOWN_TIME for pair in living):
            self._replace(living, pairs, now)
        return seen

    def _replace(self, living: list[Pair], pairs: list[Pair], now: int) -> None:
        renewed = [(now, value) if self._renews or stamp == UNKNOWN_TIME else (stamp, value) for stamp, value in living]
        if renewed != pairs:
            self._kept.update(renewed)

    def __iter__(self) -> Iterator[T]:
        return iter(self.get())

    def add(self, value: T) -> None:
        self._kept.add((self._now(), value))

    def extend(self, values: Iterable[T]) -> None:
        now = self._now()
        self._kept.extend([(now, value) for value in values])

    def update(self, values: Iterable[T]) -> None:
        now = self._now()
        self._kept.update([(now, value) for value in values])

    def clean(self) -> None:
        pairs = self._kept.peek() or ()
        now = self._now()
        if any(self._is_expired(pair, now) or pair[0] == UNKNOWN_TIME != now for pair in pairs):
            living = [pair for pair in pairs if not self._is_expired(pair, now)]
            self._kept.update([(now if stamp == UNKNOWN_TIME else stamp, value) for stamp, value in living])


class TtlMapHandle(TtlHandle):
    """See `MapHandle`: each entry lives for itself."""

    __slots__ = ()

    def get(self, key: Any, default: Any = None) -> Any:
        pair = self._kept.get(key)
        if pair is None:
            return default
        now = self._now()
        if self._is_expired(pair, now):
            self._kept.remove(key)
            return default if self._hides else pair[1]
        if pair[0] == UNKNOWN_TIME != now or (self._renews and pair[0] != now):
            self._kept.put(key, (now, pair[1]))
        return pair[1]

    def __contains__(self, key: Any) -> bool:
        pair = self._kept.get(key)
        return pair is not None and not (self._hides and self._is_expired(pair, self._now()))

    def put(self, key: Any, value: Any) -> None:
        self._kept.put(key, (self._now(), value))

    def remove(self, key: Any) -> None:
        self._kept.remove(key)

    def keys(self) -> list[Any]:
        return [key for key, _ in self.items()]

    def values(self) -> list[Any]:
        return [value for _, value in self.items()]

    def items(self) -> list[tuple[Any, Any]]:
        now = self._now()
        seen = []
        for key, pair in self._kept.items():
            is_expired = self._is_expired(pair, now)
            if not (is_expired and self._hides):
                seen.append((key, pair[1]))
            if is_expired:
                self._kept.remove(key)
            elif pair[0] == UNKNOWN_TIME != now or (self._renews and pair[0] != now):
                self._kept.put(key, (now, pair[1]))
        return seen

    def is_empty(self) -> bool:
        if not self._hides:
            return bool(self._kept.is_empty())
        now = self._now()
        return all(self._is_expired(pair, now) for pair in (self._kept.peek() or {}).values())

    def clean(self) -> None:
        now = self._now()
        for key, pair in list((self._kept.peek() or {}).items()):
            if self._is_expired(pair, now):
                self._kept.remove(key)
            elif pair[0] == UNKNOWN_TIME != now:
                self._kept.put(key, (now, pair[1]))


_HANDLES: dict[type[StateDescriptor[Any]], Callable[[Any, Any, TtlTime], TtlHandle]] = {
    ValueState: TtlValueHandle,
    ListState: TtlListHandle,
    MapState: TtlMapHandle,
    ReducingState: TtlReducingHandle,
    AggregatingState: TtlAggregatingHandle,
}


# ---- cleaning ------------------------------------------------------------------------------------------------------


class TtlCleaner:
    """Walks over the keys of states with a time to live, a few after each batch, so that what nobody asks for any more
    goes, too. A whole round takes as many batches as there are keys for each `share` records."""

    def __init__(self, backend: KeyedStateBackend, handles: dict[str, TtlHandle], *, least: int, share: int) -> None:
        self._backend = backend
        self._handles = handles
        """By name of the state."""
        self._least = least
        self._share = share

    def after_batch(self, records: int) -> None:
        """Changes the current key."""
        limit = max(self._least, records // self._share)
        for name, handle in self._handles.items():
            for key in self._backend.sweep(name, limit):
                self._backend.set_current_key(key)
                handle.clean()
