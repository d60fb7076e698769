"""States are declared as class attributes; what is wrong with a declaration shows where it is written."""

from collections.abc import Callable
from typing import Any

import pytest

from tidegate.checkpoint.protocol import StateInfo
from tidegate.errors import InvalidError
from tidegate.ids import OperatorName, SubtaskIndex
from tidegate.serializers import pickled
from tidegate.state.descriptors import ListState, MapState, ReducingState, ValueState, collect_descriptors
from tidegate.state.object_backend import ObjectStateBackend
from tidegate.testing.conformance.state_kit import Basket, Total


class Base:
    total = ValueState(int, default=0)
    recent = ListState(Total)


class Derived(Base):
    counts = MapState(str, int | None)
    highest = ReducingState(int, max, name="max-so-far")
    total = ValueState(int, default=1)


def test_a_declaration_says_what_a_checkpoint_needs() -> None:
    infos = [descriptor.info for descriptor in collect_descriptors(Derived).values()]
    assert infos == [
        StateInfo("total", "value", "int", "msgpack/1"),
        StateInfo("recent", "list", "Total{user: str, amount: int}", "msgpack/1"),
        StateInfo("counts", "map", "str -> int | None", "msgpack/1"),
        StateInfo("max-so-far", "reducing", "int", "msgpack/1"),
    ]
    assert ValueState(pickled(Basket), name="a").info == StateInfo(
        "a", "value", f"pickled({Basket.__module__}.Basket)", "pickle/1"
    )


def test_states_are_found_by_attribute_base_classes_first_and_the_derived_class_wins() -> None:
    found = collect_descriptors(Derived())
    assert list(found) == ["total", "recent", "counts", "highest"]
    assert found["total"] is Derived.total


def test_an_attribute_that_hides_a_state_takes_it_away() -> None:
    class Without(Base):
        total = None  # type: ignore[assignment]

    assert list(collect_descriptors(Without)) == ["recent"]


def test_a_bound_handle_is_reached_through_the_instance() -> None:
    function = Derived()
    backend = ObjectStateBackend(OperatorName("totals"), SubtaskIndex(0), 1, 128)
    for attribute, descriptor in collect_descriptors(function).items():
        vars(function)[attribute] = backend.register(descriptor)
    backend.set_current_key("a")
    function.total.update(function.total.value() + 1)
    assert function.total.value() == 2
    assert Derived.total is collect_descriptors(Derived)["total"]


def test_a_state_that_is_used_too_early_says_so() -> None:
    with pytest.raises(InvalidError, match=r"state total of Derived.*\n.*process_element"):
        _ = Derived().total


def test_one_name_for_two_states_is_refused() -> None:
    class Twice:
        a = ValueState(int)
        b = ValueState(int, name="a")

    class Changed(Base):
        total = ValueState(str)  # type: ignore[assignment]

    class ChangedKind(Base):
        total = ListState(int)  # type: ignore[assignment]

    with pytest.raises(InvalidError, match="two states with the name 'a': a and b"):
        collect_descriptors(Twice)
    with pytest.raises(InvalidError, match="declares state total as value of str"):
        collect_descriptors(Changed)
    with pytest.raises(InvalidError, match="declares state total as list of int"):
        collect_descriptors(ChangedKind)


def test_one_declaration_under_two_names_is_refused() -> None:
    descriptor = ValueState(int)
    descriptor.__set_name__(Base, "one")
    descriptor.__set_name__(Derived, "one")
    with pytest.raises(InvalidError, match="as one and as two"):
        descriptor.__set_name__(Derived, "two")


@pytest.mark.parametrize(
    ("declare", "advice"),
    [
        (lambda: ValueState(list[int], default=[]), "default_factory"),
        (lambda: ValueState(Basket, default=Basket()), "default_factory"),
        (lambda: ValueState(int, default="0"), "declared int"),
        (lambda: ValueState(int, default=0, default_factory=int), "one of them"),
        (lambda: ValueState(complex), "pickled"),
        (lambda: ListState(dict), "dict\\[str, int\\]"),
        (lambda: MapState(list[int], int), "immutable type"),
        (lambda: MapState(pickled(str), int), "immutable type"),
        (lambda: ReducingState(object, lambda one, other: other), "pickled"),
        (lambda: ValueState(int, name="no name"), "cannot name a state"),
    ],
)
def test_a_declaration_that_cannot_work_is_refused_where_it_is_written(declare: Callable[[], Any], advice: str) -> None:
    with pytest.raises(InvalidError, match=advice):
        declare()


def test_a_state_without_a_name_cannot_be_registered() -> None:
    backend = ObjectStateBackend(OperatorName("totals"), SubtaskIndex(0), 1, 128)
    with pytest.raises(InvalidError, match="has no name"):
        backend.register(ValueState(int))
