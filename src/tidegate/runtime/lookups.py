"""Calls whose answers are kept for a while: a lookup asks once for records of the same key, while the answer is young
or still under way.

What is kept is in memory only, and gone after a restart: it never decides more than how often the outside is asked.
Errors are told to all who wait for them and never kept.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any

from tidegate.clock import Clock
from tidegate.operators.asynchronous import CachePolicy
from tidegate.runtime.ports import Answered, CallGroup


class _Asked:
    """One call that is under way, for all of `calls`, which wait for its answer."""

    __slots__ = ("calls", "key")

    def __init__(self, key: Hashable, call: int) -> None:
        self.key = key
        self.calls: dict[int, None] = {call: None}


class CachedCalls:
    """`group` makes the calls and answers to `heard`; `answered` gets the answer of everything that was asked."""

    def __init__(
        self,
        make_group: Callable[[Answered], CallGroup],
        cache: CachePolicy,
        call: Callable[[Any], Any],
        clock: Clock,
        answered: Answered,
    ) -> None:
        self._group = make_group(self._heard)
        self._cache = cache
        self._call = call
        self._clock = clock
        self._answered = answered
        self._kept: OrderedDict[Hashable, tuple[Any, float]] = OrderedDict()
        """Rows, and when they came; the one that was used last stands last."""
        self._under_way: dict[int, _Asked] = {}
        self._newest: dict[Hashable, int] = {}
        """By key, the call that a further record may wait for."""
        self._number_of: dict[int, int] = {}
        self._next = 0

    def ask(self, call: int, record: Any) -> None:
        """Begin call `call` for this record. Its answer may come at once."""
        try:
            key = self._cache.key(record)
            kept = self._find(key)
        except Exception as error:
            self._answered(call, None, error)
            return
        if kept is not None:
            self._answered(call, kept[0], None)
        elif key in self._newest:
            self._number_of[call] = self._newest[key]
            self._under_way[self._newest[key]].calls[call] = None
        else:
            self._begin(call, key, record)

    def cancel(self, call: int) -> None:
        """As `CallGroup.cancel`. What others wait for goes on."""
        number = self._number_of.pop(call)
        asked = self._under_way[number]
        if len(asked.calls) > 1:
            del asked.calls[call]
            self._answered(call, None, None)
            return
        self._number_of[call] = number
        self._forget(asked.key, number)
        self._group.cancel(number)

    def start(self, call: int, function: Callable[[], Any]) -> None:
        """One that is no lookup; its number is negative."""
        self._group.start(call, function)

    def close(self, farewell: Callable[[], Any] | None) -> None:
        self._group.close(farewell)

    def _begin(self, call: int, key: Hashable, record: Any) -> None:
        number, self._next = self._next, self._next + 1
        self._under_way[number] = _Asked(key, call)
        self._newest[key] = number
        self._number_of[call] = number
        self._group.start(number, partial(self._call, record))

    def _heard(self, number: int, row: Any, error: BaseException | None) -> None:
        asked = self._under_way.pop(number, None)
        if asked is None:
            self._answered(number, row, error)
            return
        self._forget(asked.key, number)
        if error is None:
            self._keep(asked.key, row)
        for call in asked.calls:
            del self._number_of[call]
            self._answered(call, row, error)

    def _forget(self, key: Hashable, number: int) -> None:
        if self._newest.get(key) == number:
            del self._newest[key]

    def _find(self, key: Hashable) -> tuple[Any, float] | None:
        kept = self._kept.get(key)
        if kept is None:
            return None
        if self._cache.ttl is not None and self._clock.now().monotonic >= kept[1] + self._cache.ttl:
            del self._kept[key]
            return None
        self._kept.move_to_end(key)
        return kept

    def _keep(self, key: Hashable, row: Any) -> None:
        self._kept[key] = (row, self._clock.now().monotonic)
        self._kept.move_to_end(key)
        while len(self._kept) > self._cache.size:
            self._kept.popitem(last=False)
