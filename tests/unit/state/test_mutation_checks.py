"""The object backend's mode for tests finds values that were changed without the state's knowledge."""

from typing import Any

import pytest

from tidegate.errors import InvalidError
from tidegate.ids import CheckpointId, OperatorName, SubtaskIndex
from tidegate.state.descriptors import ListState, MapState, StateDescriptor, ValueState
from tidegate.state.object_backend import ObjectStateBackend
from tidegate.testing.conformance.state_kit import Basket, KeptFiles, Taken, Total

ONE, TWO = CheckpointId(1), CheckpointId(2)


def checked() -> ObjectStateBackend:
    return ObjectStateBackend(OperatorName("totals"), SubtaskIndex(0), 1, 32, checks_mutation=True)


def change(total: Total) -> None:
    """What no program should do: a frozen struct gets another field."""
    Total.amount.__set__(total, total.amount + 1)  # type: ignore[attr-defined]


def test_a_value_that_was_read_before_a_barrier_and_changed_after_it_is_found_at_the_next() -> None:
    backend = checked()
    handle = backend.register(ValueState(Basket, name="basket"))
    backend.set_current_key("k")
    handle.update(Basket(["a"]))
    held = handle.value()
    backend.capture(ONE)
    held.items.append("late")
    with pytest.raises(InvalidError, match=r"state basket.*'k'.*since the last barrier"):
        backend.capture(TWO)


@pytest.mark.parametrize(
    ("descriptor", "write"),
    [
        (ValueState(Total, name="s"), lambda handle, total: handle.update(total)),
        (ListState(Total, name="s"), lambda handle, total: handle.add(total)),
        (MapState(str, Total, name="s"), lambda handle, total: handle.put("x", total)),
    ],
    ids=lambda value: getattr(value, "kind", ""),
)
def test_a_value_of_an_immutable_type_that_was_changed_is_found(descriptor: StateDescriptor[Any], write: Any) -> None:
    backend = checked()
    handle = backend.register(descriptor)
    backend.set_current_key("k")
    total = Total("a", 1)
    write(handle, total)
    backend.capture(ONE)
    change(total)
    with pytest.raises(InvalidError, match=r"state s.*'k'"):
        backend.capture(TWO)


def test_a_value_of_an_immutable_type_that_changes_after_the_barrier_is_found_when_it_is_stored() -> None:
    backend = checked()
    handle = backend.register(ValueState(Total, name="s"))
    backend.set_current_key("k")
    total = Total("a", 1)
    handle.update(total)
    taken = Taken(backend.capture(ONE), KeptFiles())
    change(total)
    with pytest.raises(InvalidError, match=r"state s.*'k'.*after the barrier"):
        _ = taken.handles


def test_nothing_is_found_where_values_are_changed_as_they_may_be() -> None:
    backend = checked()
    basket, recent = (
        backend.register(ValueState(Basket, name="basket")),
        backend.register(ListState(int, name="recent")),
    )
    for checkpoint in range(1, 5):
        for key in ("a", "b", "c")[: checkpoint % 3 + 1]:
            backend.set_current_key(key)
            basket.update(Basket())
            basket.value().items.append("x")
            recent.add(checkpoint)
        if checkpoint == 3:
            basket.clear()
            recent.clear()
        assert Taken(backend.capture(CheckpointId(checkpoint)), KeptFiles()).handles
