"""What user code holds: the state of the current record's key, one handle a declared state. The same in every backend.
State without keys is reached by the same handles, and means the subtask's.

The contract, for all kinds alike:

* A value must be of the declared type, exactly. What is not is refused with InvalidError when it is written, or, where
  only a part of it is wrong, when it is captured at the latest; it is never stored.
* None is a value like any other where the declared type includes it (`int | None`), and refused where it does not. A
  None that was written is there: it is an element of a list, an entry of a map, and wins over a default.
* What a handle returns may be kept. Lists of keys, values and elements are copies. A value of a mutable type is the
  stored object itself, or as good as it: it may be changed while the key under which it was read is the current one,
  and the change is part of the state, with or without `update`. A change that comes later may be lost: read it again.
* A key of which everything was cleared or removed leaves nothing behind.
* Handles work while a record is processed; without a current key they raise InvalidError.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, Protocol, TypeVar, overload, runtime_checkable

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")
In = TypeVar("In", contravariant=True)
Out = TypeVar("Out", covariant=True)


NOTHING: Any = object()
"""No value is this."""


class ValueHandle(Protocol[T]):
    """One value for each key."""

    def value(self) -> T:
        """The value; the declared default where there is none. What a `default_factory` makes is stored as it is read,
        so that changing it is not lost."""
        ...

    def update(self, value: T) -> None: ...

    def clear(self) -> None: ...


class ListHandle(Protocol[T]):
    """A list for each key, empty where nothing was added."""

    def get(self) -> list[T]:
        """A copy."""
        ...

    def __iter__(self) -> Iterator[T]:
        """The elements as they are now; adding meanwhile does not disturb it."""
        ...

    def add(self, value: T) -> None: ...

    def extend(self, values: Iterable[T]) -> None:
        """Add all of them, or none when one is refused."""
        ...

    def update(self, values: Iterable[T]) -> None:
        """Replace the whole list."""
        ...

    def clear(self) -> None: ...


class MapHandle(Protocol[K, V]):
    """A map for each key, in the order in which entries were first put. Its keys are checked as values are."""

    @overload
    def get(self, key: K) -> V | None: ...
    @overload
    def get(self, key: K, default: D) -> V | D: ...

    def __contains__(self, key: K) -> bool: ...

    def put(self, key: K, value: V) -> None: ...

    def remove(self, key: K) -> None:
        """Nothing happens when it is not there."""
        ...

    def keys(self) -> list[K]: ...

    def values(self) -> list[V]: ...

    def items(self) -> list[tuple[K, V]]: ...

    def is_empty(self) -> bool: ...

    def clear(self) -> None: ...


@runtime_checkable
class FoldingHandle(Protocol):
    """What a `MapHandle` can do besides, where that is quicker than one record after the other."""

    def fold(
        self,
        key: Any,
        owners: Iterable[Any],
        values: Iterable[Any],
        add: Callable[[Any, Any], Any],
        begin: Callable[[Any], Any],
        left_out: Any = NOTHING,
    ) -> None:
        """For each of `values`, in order, with its owner as the current key: what is at `key` becomes
        `add(it, value)`, and where nothing is, `add(begin(owner), value)`; for the value `left_out`, this object
        itself, no `add`. Owners were checked before. Neither function may look at this state."""
        ...

    def take(self, key: Any, owners: Iterable[Any]) -> list[Any]:
        """Remove what is at `key` of each of these owners, and return it, in order: each has something there."""
        ...


class ReducingHandle(Protocol[T]):
    """All values added for a key, reduced to one."""

    def get(self) -> T | None:
        """None where nothing was added."""
        ...

    def add(self, value: T) -> None:
        """The first value is kept as it is, then `reduce_function(so far, value)`."""
        ...

    def clear(self) -> None: ...


class AggregatingHandle(Protocol[In, Out]):
    """All values added for a key, aggregated."""

    def get(self) -> Out | None:
        """`result` of the accumulator; None where nothing was added."""
        ...

    def add(self, value: In) -> None:
        """`add(accumulator, value)`; the accumulator of the first value comes from `create`."""
        ...

    def clear(self) -> None: ...


class Running(NamedTuple):
    """What a rolling aggregate does with each value of a key."""

    create: Callable[[], Any]
    add: Callable[[Any, Any], Any]
    """Accumulator and value to accumulator; may change the first."""
    left_out: Any
    """A value that is not added: this object itself."""
    result: Callable[[Any], Any] | None
    """From the accumulator to what it stands for, made before the next value is added; None: itself."""
    emit: Callable[[Any, Any], Any] | None
    """From key and result to the output; None: the result."""


@runtime_checkable
class RunningHandle(Protocol):
    """What an `AggregatingHandle` can do besides, where that is quicker than one value after the other."""

    def run(self, how: Running, owners: Iterable[Any], values: Iterable[Any], outputs: list[Any]) -> None:
        """For each of `values`, in order, with its owner as the key: add it, and append to `outputs` what comes of it.
        Owners were checked before. When something raises, `outputs` has what came before."""
        ...
