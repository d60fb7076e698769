"""What every keyed state backend promises user code: the contract of `tidegate.state.handles`, as tests.

Nothing here looks inside a backend; what is kept shows in the handles and, after a capture, in what a restore gives.
"""

from collections.abc import Callable
from typing import Any

import pytest

from tidegate.errors import InvalidError
from tidegate.state.descriptors import (
    AggregatingState,
    ListState,
    MapState,
    ReducingState,
    StateDescriptor,
    ValueState,
)
from tidegate.testing.conformance.state_kit import StateBackendKit


def _added(accumulator: list[str], value: str) -> list[str]:
    accumulator.append(value)
    return accumulator


class StateHandleConformance(StateBackendKit):
    """The suite of the handles: each test is one promise."""

    # ---- value state -----------------------------------------------------------------------------------------------

    def test_each_key_has_its_own_value(self) -> None:
        backend = self.one()
        total = backend.register(ValueState(int, default=0, name="total"))
        for key, value in (("a", 1), ("b", 2)):
            backend.set_current_key(key)
            assert total.value() == 0
            total.update(value)
        backend.set_current_key("a")
        assert total.value() == 1
        total.clear()
        assert total.value() == 0
        backend.set_current_key("b")
        assert total.value() == 2

    def test_without_a_default_a_value_is_none_at_first(self) -> None:
        backend = self.one()
        total = backend.register(ValueState(int, name="total"))
        backend.set_current_key("a")
        assert total.value() is None

    def test_a_default_that_was_made_is_kept_when_it_is_changed(self) -> None:
        descriptor = ValueState(list[int], default_factory=list, name="seen")
        backend = self.one()
        seen = backend.register(descriptor)
        backend.set_current_key("a")
        seen.value().append(1)
        seen.value().append(2)
        backend.set_current_key("b")
        assert seen.value() == []
        after = self.restored(self.take(backend))
        seen = after.register(descriptor)
        after.set_current_key("a")
        assert seen.value() == [1, 2]

    def test_an_int_where_a_float_is_declared_becomes_the_float_that_a_restore_would_give(self) -> None:
        backend = self.one()
        price = backend.register(ValueState(float, name="price"))
        backend.set_current_key("a")
        price.update(1)
        assert type(price.value()) is float

    # ---- list state ------------------------------------------------------------------------------------------------

    def test_a_list_keeps_its_order_and_gives_copies(self) -> None:
        backend = self.one()
        recent = backend.register(ListState(int, name="recent"))
        backend.set_current_key("a")
        assert recent.get() == []
        recent.add(1)
        recent.extend([2, 3])
        copy = recent.get()
        copy.append(4)
        assert recent.get() == [1, 2, 3]
        for element in recent:
            recent.add(element + 10)
        assert recent.get() == [1, 2, 3, 11, 12, 13]
        recent.update([7])
        assert list(recent) == [7]
        recent.clear()
        assert recent.get() == []

    def test_a_list_takes_all_of_what_extends_it_or_nothing(self) -> None:
        backend = self.one()
        recent = backend.register(ListState(int, name="recent"))
        backend.set_current_key("a")
        with pytest.raises(InvalidError):
            recent.extend([1, "2", 3])
        assert recent.get() == []

    def test_a_list_that_was_given_is_not_shared(self) -> None:
        backend = self.one()
        recent = backend.register(ListState(int, name="recent"))
        backend.set_current_key("a")
        mine = [1]
        recent.update(mine)
        mine.append(2)
        assert recent.get() == [1]

    # ---- map state -------------------------------------------------------------------------------------------------

    def test_a_map_keeps_the_order_in_which_entries_came(self) -> None:
        backend = self.one()
        counts = backend.register(MapState(str, int, name="counts"))
        backend.set_current_key("a")
        assert counts.is_empty()
        for key, value in (("x", 1), ("b", 2), ("x", 3)):
            counts.put(key, value)
        assert counts.items() == [("x", 3), ("b", 2)]
        assert counts.keys() == ["x", "b"]
        assert counts.values() == [3, 2]
        assert "x" in counts
        assert "y" not in counts
        assert counts.get("y") is None
        assert counts.get("y", 0) == 0
        for key in counts.keys():  # noqa: SIM118 - the handle is no mapping
            counts.remove(key)
        counts.remove("y")
        assert counts.is_empty()

    def test_a_map_takes_true_and_one_for_no_equals(self) -> None:
        backend = self.one()
        counts = backend.register(MapState(int, int, name="counts"))
        backend.set_current_key("a")
        counts.put(1, 1)
        for call in (counts.get, counts.remove, lambda key: counts.put(key, 2), lambda key: key in counts):
            with pytest.raises(InvalidError, match="counts"):
                call(True)
        assert counts.items() == [(1, 1)]

    # ---- reducing state --------------------------------------------------------------------------------------------

    def test_values_are_reduced_in_order(self) -> None:
        backend = self.one()
        joined = backend.register(ReducingState(str, lambda one, other: one + other, name="joined"))
        backend.set_current_key("a")
        assert joined.get() is None
        for part in "xyz":
            joined.add(part)
        assert joined.get() == "xyz"
        joined.clear()
        assert joined.get() is None

    # ---- aggregating state -----------------------------------------------------------------------------------------

    def test_values_are_aggregated_in_order(self) -> None:
        descriptor = AggregatingState(list[str], list, _added, "".join, name="joined")
        backend = self.one()
        joined = backend.register(descriptor)
        backend.set_current_key("a")
        assert joined.get() is None
        for part in "xyz":
            joined.add(part)
        assert joined.get() == "xyz"
        backend.set_current_key("b")
        assert joined.get() is None
        after = self.restored(self.take(backend))
        joined = after.register(descriptor)
        after.set_current_key("a")
        joined.add("!")
        assert joined.get() == "xyz!"
        joined.clear()
        assert joined.get() is None
        joined.add("n")
        assert joined.get() == "n"

    def test_an_accumulator_of_another_type_is_refused_when_it_is_written(self) -> None:
        backend = self.one()
        total = backend.register(AggregatingState(int, int, lambda so_far, value: value, str, name="total"))
        backend.set_current_key("a")
        with pytest.raises(InvalidError, match=r"state total.*int"):
            total.add("1")
        assert total.get() is None

    # ---- what the engine asks of handles ---------------------------------------------------------------------------

    def test_a_look_shows_what_is_kept_and_nothing_where_nothing_is(self) -> None:
        backend = self.one()
        value = backend.register(ValueState(int, default=7, name="a"))
        made = backend.register(ValueState(list[int], default_factory=list, name="b"))
        elements = backend.register(ListState(int, name="c"))
        entries = backend.register(MapState(str, int, name="d"))
        reduced = backend.register(ReducingState(int, max, name="e"))
        joined = backend.register(AggregatingState(list[str], list, _added, "".join, name="f"))
        handles = (value, made, elements, entries, reduced, joined)
        backend.set_current_key("k")
        assert [handle.peek() for handle in handles] == [None] * 6
        assert self.take(backend).handles == ()
        value.update(1)
        made.value().append(2)
        elements.add(3)
        entries.put("x", 4)
        reduced.add(5)
        joined.add("6")
        assert [handle.peek() for handle in handles] == [1, [2], [3], {"x": 4}, 5, ["6"]]

    def test_what_is_put_in_place_of_a_reduced_or_aggregated_value_is_gone_on_with(self) -> None:
        reducing = ReducingState(int, lambda one, other: one * 10 + other, name="e")
        aggregating = AggregatingState(list[str], list, _added, "".join, name="f")
        backend = self.one()
        reduced, joined = backend.register(reducing), backend.register(aggregating)
        backend.set_current_key("k")
        reduced.add(1)
        reduced.replace(4)
        joined.replace(["a"])
        after = self.restored(self.take(backend))
        reduced, joined = after.register(reducing), after.register(aggregating)
        after.set_current_key("k")
        reduced.add(5)
        joined.add("b")
        assert (reduced.get(), joined.get()) == (45, "ab")

    # ---- what may be written ---------------------------------------------------------------------------------------

    def test_none_is_refused_in_every_kind_where_it_is_not_declared(self) -> None:
        backend = self.one()
        entries = backend.register(MapState(str, int, name="c"))
        writes: list[Callable[[Any], None]] = [
            backend.register(ValueState(int, name="a")).update,
            backend.register(ListState(int, name="b")).add,
            lambda value: entries.put("k", value),
            backend.register(ReducingState(int, max, name="d")).add,
        ]
        backend.set_current_key("a")
        for write in writes:
            with pytest.raises(InvalidError, match=r"state [abcd] "):
                write(None)
        assert self.take(backend).handles == ()

    def test_none_is_a_value_in_every_kind_where_it_is_declared(self) -> None:
        descriptors: list[StateDescriptor[Any]] = [
            ValueState(int | None, default=5, name="a"),
            ListState(int | None, name="b"),
            MapState(str, int | None, name="c"),
            ReducingState[Any](int | None, lambda one, other: one or other, name="d"),  # type: ignore[arg-type]
        ]
        before = self.one()
        value, elements, entries, reduced = (before.register(descriptor) for descriptor in descriptors)
        before.set_current_key("k")
        value.update(None)
        elements.add(None)
        entries.put("x", None)
        reduced.add(None)
        after = self.restored(self.take(before))
        for backend, handles in ((before, (value, elements, entries, reduced)), (after, None)):
            value, elements, entries, reduced = handles or tuple(after.register(each) for each in descriptors)
            backend.set_current_key("k")
            assert value.value() is None
            assert elements.get() == [None]
            assert entries.items() == [("x", None)]
            assert not entries.is_empty()
            assert "x" in entries
            assert reduced.get() is None
        reduced.add(3)
        assert reduced.get() == 3

    @pytest.mark.parametrize("wrong", ["1", 1.0, True, b"1", [1]])
    def test_a_value_of_another_type_is_refused_when_it_is_written(self, wrong: Any) -> None:
        backend = self.one()
        total = backend.register(ValueState(int, default=0, name="total"))
        backend.set_current_key("a")
        with pytest.raises(InvalidError, match=r"state total.*int"):
            total.update(wrong)
        assert total.value() == 0

    @pytest.mark.parametrize(
        ("declared", "wrong"), [(list[int], ["1"]), (tuple[int, str], (1, 2)), (dict[str, int], {"a": None})]
    )
    def test_a_value_with_a_part_of_another_type_is_never_stored(self, declared: Any, wrong: Any) -> None:
        backend = self.one()
        total = backend.register(ValueState(declared, name="total"))
        backend.set_current_key("a")

        def write_and_capture() -> None:
            total.update(wrong)
            _ = self.take(backend).handles

        with pytest.raises(InvalidError, match="state total"):
            write_and_capture()

    def test_state_without_a_current_key_is_refused(self) -> None:
        total = self.one().register(ValueState(int, default=0, name="total"))
        with pytest.raises(InvalidError, match="current key"):
            total.value()

    def test_two_states_of_one_name_are_refused(self) -> None:
        backend = self.one()
        backend.register(ValueState(int, name="total"))
        with pytest.raises(InvalidError, match="total"):
            backend.register(ValueState(int, name="total"))
