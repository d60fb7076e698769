"""The window join: a window operator of two inputs that keeps the rows of each and gives every pair.

It is what is put into and made of an accumulator, and nothing else: which rows belong together, when that is certain
and what is late is the business of the window operator. The rows of each input are a state of their own, so that each
is stored in its own way.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tidegate.operators.joins.base import JoinSpec
from tidegate.operators.windows import WindowSpec
from tidegate.state.backend import KeyedStateBackend
from tidegate.state.descriptors import InternalMapState
from tidegate.state.handles import MapHandle

Rows = tuple[list[Any], list[Any]]
"""By input, in the order in which they came."""
Lists = InternalMapState[Any, list[Any]]
"""Rows of one input by window or pane."""


@dataclass(frozen=True, kw_only=True)
class WindowJoinSpec(WindowSpec):
    """`state` has the rows of the left input."""

    right: Lists

    @property
    def states(self) -> tuple[Lists, Lists]:
        return super().states[0], self.right

    def accumulators(self, backend: KeyedStateBackend) -> "_RowsOfBoth":
        left, right = self.states
        return _RowsOfBoth(backend.register(left), backend.register(right))


def window_join_spec(spec: JoinSpec, left: Lists, right: Lists, lateness: int) -> WindowJoinSpec:
    """What makes a window operator a join. lateness: as there, in milliseconds."""
    return WindowJoinSpec(
        state=left,
        right=right,
        create=lambda: ([], []),
        adds=(lambda rows, row: _added(rows, 0, row), lambda rows, row: _added(rows, 1, row)),
        merge=_merged,
        emit=lambda key, window, rows: _joined(spec, rows),
        lateness=lateness,
        late_tag=spec.late_tag,
    )


class _RowsOfBoth:
    """Accumulators that are kept in two states. Those of a window are there when one of them is; empty lists are
    not kept."""

    def __init__(self, left: MapHandle[Any, list[Any]], right: MapHandle[Any, list[Any]]) -> None:
        self._handles = left, right

    def get(self, window: Any, /) -> Rows | None:
        left, right = (handle.get(window) for handle in self._handles)
        return None if left is None and right is None else (left or [], right or [])

    def put(self, window: Any, rows: Rows, /) -> None:
        for handle, own in zip(self._handles, rows, strict=True):
            if own:
                handle.put(window, own)

    def remove(self, window: Any, /) -> None:
        for handle in self._handles:
            handle.remove(window)

    def keys(self) -> list[Any]:
        left, right = (handle.keys() for handle in self._handles)
        return list(dict.fromkeys([*left, *right]))

    def items(self) -> list[tuple[Any, Rows]]:
        left, right = (dict(handle.items()) for handle in self._handles)
        return [(window, (left.get(window, []), right.get(window, []))) for window in {**left, **right}]


def _added(rows: Rows, input: int, row: Any) -> Rows:
    rows[input].append(row)
    return rows


def _merged(rows: Rows, others: Rows) -> Rows:
    for own, other in zip(rows, others, strict=True):
        own.extend(other)
    return rows


def _joined(spec: JoinSpec, rows: Rows) -> Iterator[Any]:
    left, right = rows
    keeps_left, keeps_right = spec.keeps
    if not right and keeps_left:
        yield from (spec.function(row, None) for row in left)
    if not left and keeps_right:
        yield from (spec.function(None, row) for row in right)
    yield from (spec.function(one, other) for one in left for other in right)
