"""Maps that are folded and taken from are like maps into which every value was put, and out of which it was removed: in
what they have, in which order, in every capture and after every restore."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.checkpoint.protocol import OperatorSnapshot
from tidegate.errors import InvalidError
from tidegate.ids import CheckpointId, OperatorName, SubtaskIndex
from tidegate.state.descriptors import FoldedMapState, InternalMapState
from tidegate.state.handles import FoldingHandle
from tidegate.state.object_backend import ObjectStateBackend
from tidegate.testing.conformance.state_kit import KeptFiles

NAME = OperatorName("it")
PANES = [(0, 10), (10, 20), (20, 30)]
OWNERS = ["a", "b", "c", "d"]


class Kept:
    """One backend with one map, of numbers or of lists that are changed in place."""

    def __init__(self, descriptor: type[InternalMapState[Any, Any]], value_type: Any) -> None:
        self._types = descriptor, value_type
        self.is_list = value_type is not int
        self.files = KeptFiles()
        self.checkpoint = CheckpointId(0)
        self.backend = ObjectStateBackend(NAME, SubtaskIndex(0), 1, 8, checks_mutation=True)
        self.handle: Any = self.backend.register(self._make())

    def _make(self) -> InternalMapState[Any, Any]:
        descriptor, value_type = self._types
        return descriptor(tuple[int, int], value_type, name=".map")

    def value(self, number: int) -> Any:
        return [number] if self.is_list else number

    def add(self, so_far: Any, number: int) -> Any:
        if not self.is_list:
            return so_far + number
        so_far.append(number)
        return so_far

    def fold(self, pane: Any, owners: list[str], numbers: list[int]) -> list[str]:
        begun: list[str] = []
        self.backend.cursor_over(owners)

        def begin(owner: str) -> Any:
            begun.append(owner)
            return self.value(0)

        if isinstance(self.handle, FoldingHandle):
            self.handle.fold(pane, owners, numbers, self.add, begin)
            return begun
        for owner, number in zip(owners, numbers, strict=True):
            self.backend.set_current_key(owner)
            so_far = self.handle.get(pane)
            self.handle.put(pane, self.add(begin(owner) if so_far is None else so_far, number))
        return begun

    def take(self, pane: Any, owners: list[str]) -> list[Any]:
        there = [owner for owner in dict.fromkeys(owners) if owner in self.having(pane)]
        if isinstance(self.handle, FoldingHandle):
            return list(self.handle.take(pane, there))
        taken = []
        for owner in there:
            self.backend.set_current_key(owner)
            taken.append(self.handle.get(pane))
            self.handle.remove(pane)
        return taken

    def having(self, pane: Any) -> list[str]:
        """Looks at one entry of each owner, not at all of them: nothing is settled by that."""
        having = []
        for owner in OWNERS:
            self.backend.set_current_key(owner)
            if pane in self.handle:
                having.append(owner)
        return having

    def one(self, what: str, owner: str, pane: Any, number: int) -> Any:
        """An access to entries of one owner."""
        handle = self.handle
        self.backend.set_current_key(owner)
        match what:
            case "put":
                return handle.put(pane, self.value(number))
            case "change" if self.is_list:
                return (handle.get(pane) or []).append(number)
            case "get":
                found = handle.get(pane, "nothing")
                return list(found) if self.is_list else found
            case "peek":
                return list((handle.peek() or {}).items())
            case "remove" | "clear" | "keys" | "values" | "items" | "is_empty":
                return getattr(handle, what)(*([pane] if what == "remove" else []))
            case "all keys":
                return sorted(self.backend.keys(".map"))
            case "sweep":
                return sorted(self.backend.sweep(".map", 10))
        return None

    def capture(self) -> tuple[Any, ...]:
        """What is stored: nothing of it is told apart by how it came about."""
        self.checkpoint = CheckpointId(self.checkpoint + 1)
        captured = self.backend.capture(self.checkpoint)
        self.snapshot = OperatorSnapshot(
            NAME, key_type=captured.key_type, states=captured.states, handles=captured.store(self.files)
        )
        self.backend.completed(self.checkpoint)
        restored = ObjectStateBackend(NAME, SubtaskIndex(0), 1, 8, checks_mutation=True)
        if self.snapshot.handles:
            restored.restore([self.snapshot], self.files)
        handle: Any = restored.register(self._make())
        rows = []
        for owner in OWNERS:
            restored.set_current_key(owner)
            rows.append((owner, handle.items()))
        self._restored = restored, handle
        return tuple(rows)

    def restore(self) -> None:
        """Go on from the last capture."""
        self.capture()
        self.backend, self.handle = self._restored


pane, owners = st.sampled_from(PANES), st.lists(st.sampled_from(OWNERS), min_size=1, max_size=6)
ONE = ["put", "change", "get", "peek", "remove", "clear", "keys", "values", "items", "is_empty", "all keys", "sweep"]
steps = st.lists(
    st.one_of(
        st.tuples(st.just("fold"), pane, owners),
        st.tuples(st.just("fold"), pane, owners),
        st.tuples(st.just("take"), pane, owners),
        st.tuples(st.sampled_from(["put", "get", "remove"]), pane, st.sampled_from(OWNERS)),
        st.tuples(st.sampled_from(ONE), pane, st.sampled_from(OWNERS)),
        st.tuples(st.sampled_from(["capture", "restore"])),
    ),
    max_size=20,
)


@pytest.mark.parametrize("value_type", [int, list[int]], ids=str)
@given(steps=steps)
@settings(max_examples=150, deadline=None)
def test_a_folded_map_is_like_one_that_was_put_into(value_type: Any, steps: list[Any]) -> None:
    folded, plain = Kept(FoldedMapState, value_type), Kept(InternalMapState, value_type)
    for number, (what, *how) in enumerate([*steps, ("capture",)]):
        seen = list[Any]()
        for kept in (folded, plain):
            if what == "fold":
                numbers = [10 * number + i for i in range(len(how[1]))]
                seen.append(kept.fold(how[0], how[1], numbers))
            elif what == "take":
                seen.append(kept.take(*how))
            elif what == "capture":
                seen.append(kept.capture())
            elif what == "restore":
                kept.restore()
            else:
                seen.append(kept.one(what, how[1], how[0], number))
        assert seen[:1] == seen[1:], what


def test_what_comes_and_is_taken_between_two_barriers_is_in_no_capture() -> None:
    kept = Kept(FoldedMapState, int)
    kept.fold(PANES[0], ["a", "b"], [1, 2])
    assert kept.handle.take(PANES[0], ["b", "a"]) == [2, 1]
    assert list(kept.handle.changed_keys) == []
    kept.fold(PANES[1], ["a"], [3])
    kept.capture()
    kept.fold(PANES[1], ["a"], [4])
    assert kept.handle.take(PANES[1], ["a"]) == [7]
    assert list(kept.handle.changed_keys) == ["a"]
    assert kept.capture() == tuple((owner, []) for owner in OWNERS)


def test_a_value_of_another_type_is_refused_by_the_fold_that_brings_it() -> None:
    kept = Kept(FoldedMapState, int)
    with pytest.raises(InvalidError):
        kept.handle.fold(PANES[0], ["a"], ["text"], lambda _, value: value, lambda owner: 0)
    with pytest.raises(InvalidError):
        kept.handle.fold("no pane", ["a"], [1], lambda _, value: value, lambda owner: 0)


def test_nothing_is_taken_of_an_owner_that_has_nothing() -> None:
    kept = Kept(FoldedMapState, int)
    kept.fold(PANES[0], ["a"], [1])
    with pytest.raises(KeyError):
        kept.handle.take(PANES[0], ["b"])
    kept.capture()
    with pytest.raises(KeyError):
        kept.handle.take(PANES[1], ["a"])
