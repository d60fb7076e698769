"""The handle of the object backend for maps that are filled by `fold` and emptied by `take`: accumulators by window.

What is folded is kept by entry and owner, not by owner and entry: the owners of one window are one dict, and an owner
that comes again is one look-up in it. It goes to where all other entries are only when somebody looks at all entries of
an owner, and at a barrier. What comes and is taken between two barriers never does, and no checkpoint hears of it.
Whoever looks from outside must never see the difference: neither in what there is, nor in its order.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, TypeVar

from tidegate.state.descriptors import MapState
from tidegate.state.handles import NOTHING
from tidegate.state.increments import REMOVED
from tidegate.state.object_handles import Cursor
from tidegate.state.object_maps import MutableMapHandle, ObjectMapHandle

K = TypeVar("K")
V = TypeVar("V")


class FoldedMapHandle(ObjectMapHandle[K, V]):
    """See the module, `MapHandle` and `FoldingHandle`."""

    __slots__ = ("_folded", "_only_class")

    def __init__(self, descriptor: MapState[K, V], cursor: Cursor, limit: int, where: str) -> None:
        super().__init__(descriptor, cursor, limit, where)
        self._folded: dict[K, dict[Any, V]] = {}
        """By entry and owner. It hides what `_entries` has there."""
        self._only_class = next(iter(self._classes)) if len(self._classes) == 1 else None

    def fold(
        self,
        key: K,
        owners: Iterable[Any],
        values: Iterable[Any],
        add: Callable[[Any, Any], V],
        begin: Callable[[Any], V],
        left_out: Any = NOTHING,
    ) -> None:
        """To look whether a value is of the right type may mean to look through it: that is done once for each owner,
        behind the last value."""
        if not self._conforms(key):
            key = self._admit_key(key)
        folded, only, unsure = self._folded.setdefault(key, {}), self._only_class, dict[Any, None]()
        for owner, value in zip(owners, values, strict=True):
            so_far: Any = folded.get(owner, REMOVED)
            if so_far is REMOVED:
                so_far = self._first(key, owner, begin)
            if value is not left_out:
                so_far = add(so_far, value)
            folded[owner] = so_far
            if type(so_far) is not only:
                unsure[owner] = None
        for owner in unsure:
            if type(folded[owner]) not in self._classes:
                folded[owner] = self._admit(folded[owner])

    def _first(self, key: K, owner: Any, begin: Callable[[Any], V]) -> V:
        """What is at `key` of an owner of whom nothing was folded there."""
        entries = self._entries.get(owner)
        if entries is not None and key in entries:
            found: V = entries[key]
            return found
        # What was folded of an owner is settled in the order of the keys here, which must be that in which it came.
        for later in reversed(self._folded):
            if later == key:
                break
            if owner in self._folded[later]:
                self._settle_one(owner)
                break
        self._cursor.key = owner
        return begin(owner)

    def take(self, key: K, owners: Iterable[Any]) -> list[V]:
        everybodys, folded = self._entries, self._folded.get(key, {})
        if not everybodys:
            taken = list(map(folded.pop, owners))
        else:
            taken = [self._taken(key, owner, folded.pop(owner, REMOVED), everybodys) for owner in owners]
        if not folded:
            self._folded.pop(key, None)
        return taken

    def _taken(self, key: K, owner: Any, folded: Any, everybodys: dict[Any, Any]) -> V:
        """What an owner had there, which was `folded` or is still among its entries."""
        entries = everybodys.get(owner)
        if entries is not None and key in entries:
            kept = entries.pop(key)
            if entries:
                self._changes[owner] = entries
            else:
                del everybodys[owner]
                self._changes[owner] = REMOVED
            folded = kept if folded is REMOVED else folded
        if folded is REMOVED:
            raise KeyError(owner)
        value: V = folded
        return value

    # ---- one entry of one owner ------------------------------------------------------------------------------------

    def get(self, key: K, default: Any = None) -> Any:
        if key is not self._fitting:
            self._check(key)
        folded = self._folded.get(key)
        if folded:
            found = folded.get(self._cursor.key, REMOVED)
            if found is not REMOVED:
                return found
        return super().get(key, default)

    def __contains__(self, key: K) -> bool:
        return self._cursor.key in self._folded.get(key, ()) or super().__contains__(key)

    def put(self, key: K, value: V) -> None:
        folded, owner = self._folded.get(key), self._cursor.key
        if folded is not None and owner in folded:
            folded[owner] = value if type(value) in self._classes else self._admit(value)
            return
        if self._folded and key not in self._entries.get(owner, ()):
            self._settle_one(owner)
        super().put(key, value)

    def remove(self, key: K) -> None:
        folded = self._folded.get(key)
        if folded is not None:
            folded.pop(self._cursor.key, None)
            if not folded:
                del self._folded[key]
        super().remove(key)

    def _settle_one(self, owner: Any) -> None:
        """As `_settle`, of one owner: what is put now follows that."""
        for key, folded in self._folded.items():
            if owner in folded:
                self._put_folded(key, owner, folded.pop(owner))

    # ---- everything else -------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Put all that was folded to the entries of its owners."""
        for key, folded in self._folded.items():
            for owner, value in folded.items():
                self._put_folded(key, owner, value)
        self._folded = {}

    def _put_folded(self, key: K, owner: Any, value: V) -> None:
        entries = self._entries.get(owner)
        if entries is None:
            entries = self._entries[owner] = {}
        entries[key] = value
        self._changes[owner] = entries

    def keys(self) -> list[K]:
        self._settle()
        return super().keys()

    def values(self) -> list[V]:
        self._settle()
        return super().values()

    def items(self) -> list[tuple[K, V]]:
        self._settle()
        return super().items()

    def is_empty(self) -> bool:
        self._settle()
        return super().is_empty()

    def clear(self) -> None:
        self._settle()
        super().clear()

    def peek(self) -> Any:
        self._settle()
        return super().peek()

    @property
    def kept(self) -> Mapping[Any, Any]:
        self._settle()
        return super().kept

    @property
    def changed_keys(self) -> Collection[Any]:
        self._settle()
        return super().changed_keys

    @property
    def keys_with_state(self) -> Collection[Any]:
        self._settle()
        return super().keys_with_state

    def sweep(self, limit: int) -> list[Any]:
        self._settle()
        return super().sweep(limit)

    def take_changes(self) -> dict[Any, Any]:
        self._settle()
        return super().take_changes()

    def take_all(self) -> dict[Any, Any]:
        self._settle()
        return super().take_all()


class MutableFoldedMapHandle(FoldedMapHandle[K, V], MutableMapHandle[K, V]):
    """With values that may be changed by whoever reads them. What was folded counts as changed until it is settled."""

    __slots__ = ()
