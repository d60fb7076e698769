"""What every keyed state backend must do, as tests: derive a class from `StateBackendConformance`, let pytest run it.

    class TestMyBackend(StateBackendConformance):
        def backend(self, subtask, parallelism, max_parallelism): ...
        def limited(self, max_value_bytes): ...

The kit asks for the promises of `tidegate.state.backend` and `tidegate.state.handles` and never looks inside.
"""

from typing import Any

import pytest

from tidegate.errors import CorruptError, InvalidError
from tidegate.ids import SubtaskIndex
from tidegate.serializers import pickled
from tidegate.state.descriptors import FoldedMapState, ListState, MapState, ReducingState, StateDescriptor, ValueState
from tidegate.state.handles import FoldingHandle
from tidegate.testing.conformance.state_checkpoints import StateCheckpointConformance
from tidegate.testing.conformance.state_handles import StateHandleConformance
from tidegate.testing.conformance.state_kit import KEYS, MAX_PARALLELISM, USERS, Basket, Total


class StateBackendConformance(StateHandleConformance, StateCheckpointConformance):
    """The suite: each test is one promise."""

    # ---- captures --------------------------------------------------------------------------------------------------

    def test_a_capture_without_state_has_no_pieces_and_still_says_what_is_declared(self) -> None:
        backend = self.one()
        total = backend.register(ValueState(int, default=0, name="total"))
        capture = self.take(backend)
        assert [(state.name, state.kind, state.value_type) for state in capture.states] == [("total", "value", "int")]
        assert capture.key_type == ""
        backend.set_current_key("a")
        total.value()
        assert self.take(backend).handles == ()
        assert self.take(backend).key_type == "str"

    def test_cleared_keys_leave_nothing_behind(self) -> None:
        backend = self.one()
        value = backend.register(ValueState(int, name="a"))
        elements = backend.register(ListState(int, name="b"))
        entries = backend.register(MapState(str, int, name="c"))
        reduced = backend.register(ReducingState(int, max, name="d"))
        backend.set_current_key("k")
        for _ in range(2):
            value.update(1)
            elements.add(1)
            entries.put("x", 1)
            reduced.add(1)
            value.clear()
            elements.update([])
            entries.remove("x")
            reduced.clear()
            entries.clear()
            elements.clear()
            elements.extend([])
        assert self.take(backend).handles == ()

    def test_what_happens_after_the_barrier_is_not_in_the_capture(self) -> None:
        descriptors = (
            ValueState(int, name="a"),
            ListState(int, name="b"),
            MapState(str, int, name="c"),
            ReducingState(int, max, name="d"),
        )
        before = self.one()
        value, elements, entries, reduced = (before.register(descriptor) for descriptor in descriptors)

        def write(number: int) -> None:
            value.update(number)
            elements.add(number)
            entries.put(str(number), number)
            reduced.add(number)

        before.set_current_key("k")
        write(1)
        capture = self.take(before)
        write(2)
        before.set_current_key("other")
        write(3)
        after = self.restored(capture)
        value, elements, entries, reduced = (after.register(descriptor) for descriptor in descriptors)
        after.set_current_key("k")
        assert (value.value(), elements.get(), entries.items(), reduced.get()) == (1, [1], [("1", 1)], 1)
        after.set_current_key("other")
        assert (value.value(), elements.get(), entries.items(), reduced.get()) == (None, [], [], None)

    @pytest.mark.parametrize("declared", [Basket, pickled(Basket)])
    def test_a_capture_is_a_cut_also_through_objects_that_user_code_holds(self, declared: Any) -> None:
        descriptors: list[StateDescriptor[Any]] = [
            ValueState(declared, name="a"),
            ListState(declared, name="b"),
            MapState(str, declared, name="c"),
            ReducingState[Any](declared, lambda one, other: other, name="d"),
        ]
        before = self.one()
        value, elements, entries, reduced = (before.register(descriptor) for descriptor in descriptors)
        before.set_current_key("k")
        value.update(Basket())
        elements.add(Basket())
        entries.put("x", Basket())
        reduced.add(Basket())
        captures = []
        for item in ("before", "between", "after"):
            for basket in (value.value(), elements.get()[0], entries.get("x"), reduced.get()):
                basket.items.append(item)
            captures.append(self.take(before))
        for capture, expected in zip(captures, (["before"], ["before", "between"]), strict=False):
            after = self.restored(capture)
            value, elements, entries, reduced = (after.register(descriptor) for descriptor in descriptors)
            after.set_current_key("k")
            for basket in (value.value(), elements.get()[0], entries.get("x"), reduced.get()):
                assert basket.items == expected

    def test_a_cursor_over_keys_makes_each_the_current_one_and_refuses_what_cannot_be_one(self) -> None:
        backend = self.one()
        total = backend.register(ValueState(int, default=0, name="total"))
        keys = ["a", "b", "a", None, "b", "a"]
        cursor = backend.cursor_over(keys)
        for number, key in enumerate(keys):
            cursor.key = key
            total.update(total.value() + number)
        backend.set_current_key("a")
        assert total.value() == 0 + 2 + 5
        backend.set_current_key(None)
        assert total.value() == 3
        for wrong in (["a", 7], [1.5], [["a"]]):
            with pytest.raises(InvalidError):
                backend.cursor_over(wrong)

    @pytest.mark.parametrize("first", [0, []], ids=["immutable", "mutable"])
    def test_folding_into_a_map_is_putting_what_was_got_and_added_to(self, first: Any) -> None:
        declared = type(first) if first == 0 else list[int]
        before = self.one()
        folded: Any = before.register(FoldedMapState(str, declared, name=".folded"))
        can_fold = isinstance(folded, FoldingHandle)
        if not can_fold:
            pytest.skip("its handles do not fold")
        owners, begun = ["a", "b", "a", "c", "a"], []

        def begin(owner: str) -> Any:
            begun.append(owner)
            return 0 if first == 0 else []

        def add(so_far: Any, value: int) -> Any:
            return so_far + value if first == 0 else [*so_far, value]

        before.set_current_key("b")
        folded.put("other", add(first, 100))
        folded.fold("x", owners, [1, 2, 3, 4, 5], add, begin)
        first_capture = self.take(before)
        folded.fold("x", iter(["a", "d"]), iter([6, 7]), add, begin)
        assert begun == ["a", "b", "c", "d"]
        expected = {"a": [1, 3, 5], "b": [2], "c": [4], "d": []}
        for capture, last in ((first_capture, {}), (self.take(before), {"a": 6, "d": 7})):
            after = self.restored(capture)
            handle = after.register(FoldedMapState(str, declared, name=".folded"))
            for owner, values in expected.items():
                added = values + [number for other, number in last.items() if other == owner]
                after.set_current_key(owner)
                assert handle.get("x") == (None if not added else sum(added) if first == 0 else added)
        with pytest.raises(InvalidError):
            folded.fold("x", ["a"], ["no number"], lambda _, value: value, begin)

    def test_the_keys_of_a_map_come_in_their_order_also_when_nothing_else_was_read(self) -> None:
        descriptor: Any = FoldedMapState(tuple[int, int], int, name=".folded")
        before = self.one()
        written = before.register(descriptor)
        for owner, keys in (("a", [(5, 6), (1, 2), (3, 4)]), ("b", [(3, 4)])):
            before.set_current_key(owner)
            for key in keys:
                written.put(key, key[0])
        before.set_current_key("a")
        written.remove((1, 2))
        after = self.restored(self.take(before))
        handle = after.register(descriptor)
        found = {}
        for owner in sorted(after.keys(".folded")):
            after.set_current_key(owner)
            found[owner] = handle.keys()
        assert found == {"a": [(5, 6), (3, 4)], "b": [(3, 4)]}
        after.set_current_key("a")
        handle.put((1, 2), 7)
        assert handle.keys() == [(5, 6), (3, 4), (1, 2)]
        assert handle.items() == [((5, 6), 5), ((3, 4), 3), ((1, 2), 7)]

    @pytest.mark.parametrize("first", [0, []], ids=["immutable", "mutable"])
    def test_what_was_folded_and_is_taken_is_gone(self, first: Any) -> None:
        descriptor: Any = FoldedMapState(str, type(first) if first == 0 else list[int], name=".folded")
        before = self.one()
        folded: Any = before.register(descriptor)
        if not isinstance(folded, FoldingHandle):
            pytest.skip("its handles do not fold")

        def add(so_far: Any, value: int) -> Any:
            return so_far + value if first == 0 else [*so_far, value]

        def fold(key: str, owners: list[str]) -> None:
            before.cursor_over(owners)
            folded.fold(key, owners, range(len(owners)), add, lambda owner: 0 if first == 0 else [])

        fold("x", ["a", "b", "a"])
        self.take(before)
        fold("x", ["a", "c"])
        fold("y", ["b", "d"])
        expected = {"b": 1, "a": 2, "c": 1} if first == 0 else {"b": [1], "a": [0, 2, 0], "c": [1]}
        assert folded.take("x", iter(["b", "a", "c"])) == list(expected.values())
        fold("x", ["a"])
        after = self.restored(self.take(before))
        handle = after.register(descriptor)
        left = {}
        for owner in "abcd":
            after.set_current_key(owner)
            left[owner] = dict(handle.items())
        zero, one = (0, 1) if first == 0 else ([0], [1])
        assert left == {"a": {"x": zero}, "b": {"y": zero}, "c": {}, "d": {"y": one}}

    @pytest.mark.parametrize("keys", KEYS, ids=repr)
    def test_keys_come_back_with_their_type(self, keys: list[Any]) -> None:
        descriptor = ValueState(int, name="number")
        before = self.one()
        number = before.register(descriptor)
        for position, key in enumerate(keys):
            before.set_current_key(key)
            number.update(position)
        capture = self.take(before)
        after = self.restored(capture)
        number = after.register(descriptor)
        assert self.take(after).key_type == capture.key_type
        for position, key in enumerate(keys):
            after.set_current_key(key)
            assert number.value() == position

    def test_keys_of_another_type_are_refused_also_after_a_restore(self) -> None:
        backend = self.one()
        total = backend.register(ValueState(int, name="total"))
        backend.set_current_key(1)
        total.update(1)
        for wrong in (True, 1.0, "1", (1,)):
            with pytest.raises(InvalidError):
                backend.set_current_key(wrong)
        after = self.restored(self.take(backend))
        with pytest.raises(InvalidError, match="int"):
            after.set_current_key("1")

    # ---- restores --------------------------------------------------------------------------------------------------

    def test_a_key_in_two_pieces_is_corrupt(self) -> None:
        capture = self.take(self.filled(ValueState(int, name="number"))[0])
        with pytest.raises(CorruptError):
            self.restored(capture, capture)

    def test_a_damaged_file_is_corrupt(self) -> None:
        capture = self.take(self.filled(ValueState(int, name="number"))[0])
        for handle in capture.handles:
            whole = self.files.contents[str(handle.path)]
            self.files.contents[str(handle.path)] = whole[:-1] + bytes([whole[-1] ^ 1])
            with pytest.raises(CorruptError):
                self.restored(capture)
            self.files.contents[str(handle.path)] = whole
        self.restored(capture)

    def test_another_max_parallelism_is_refused(self) -> None:
        capture = self.take(self.filled(ValueState(int, name="number"))[0])
        other = self.backend(SubtaskIndex(0), 1, MAX_PARALLELISM * 2)
        with pytest.raises(InvalidError, match="max_parallelism"):
            other.restore([capture.snapshot()], self.files)

    @pytest.mark.parametrize(
        "changed",
        [
            ValueState(str, name="number"),
            ListState(int, name="number"),
            ReducingState(int, max, name="number"),
            ValueState(pickled(int), name="number"),
            ValueState(Total, name="number"),
        ],
        ids=repr,
    )
    def test_data_that_does_not_fit_the_declaration_is_refused(self, changed: StateDescriptor[Any]) -> None:
        after = self.restored(self.take(self.filled(ValueState(int, name="number"))[0]))
        with pytest.raises(InvalidError, match=r"state number.*value of int"):
            after.register(changed)

    def test_a_wider_type_takes_what_was_stored(self) -> None:
        after = self.restored(self.take(self.filled(ValueState(int, name="number"))[0]))
        number = after.register(ValueState(int | str, name="number"))
        after.set_current_key(USERS[3])
        assert number.value() == 3

    def test_a_state_that_is_new_begins_empty_beside_a_restored_one(self) -> None:
        after = self.restored(self.take(self.filled(ValueState(int, name="number"))[0]))
        fresh = after.register(ValueState(int, default=7, name="fresh"))
        number = after.register(ValueState(int, name="number"))
        after.set_current_key(USERS[1])
        assert (fresh.value(), number.value()) == (7, 1)
