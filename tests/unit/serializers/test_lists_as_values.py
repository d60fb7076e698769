"""Lists as the value of a state, of whatever type their elements are declared."""

from typing import Any

import pytest

import tidegate as tg
from tidegate.errors import CorruptError, InvalidError
from tidegate.serializers import Outcome, explain_evolution, list_of, map_serializer, pickle_warning, serializer_for
from tidegate.state.descriptors import InternalMapState


class Money:
    def __init__(self, cents: int) -> None:
        self.cents = cents

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Money) and other.cents == self.cents

    __hash__ = None  # type: ignore[assignment]


PICKLED: Any = tg.pickled(Money)


def info_of(declared: Any) -> Any:
    return InternalMapState(int, declared, name=".lists").info


def test_lists_of_what_msgpack_knows_are_msgpack() -> None:
    assert list_of(int) == list[int]
    assert serializer_for(list_of(int)).id == "msgpack/1"


def test_lists_of_pickled_values_come_back_also_as_the_values_of_a_map() -> None:
    whole = serializer_for(list_of(PICKLED))
    assert whole.decode(whole.encode([Money(1), Money(2)])) == [Money(1), Money(2)]
    entries = map_serializer(int, list_of(PICKLED))
    assert entries.decode(entries.encode([(7, [Money(1)]), (8, [])])) == [(7, [Money(1)]), (8, [])]
    assert entries.id == "map[list[pickle/1]]"


def test_an_element_of_another_class_is_neither_written_nor_read() -> None:
    whole = serializer_for(list_of(PICKLED))
    with pytest.raises(InvalidError, match="was given a int"):
        whole.encode([Money(1), 2])
    with pytest.raises(CorruptError):
        whole.decode(serializer_for(list_of(tg.pickled(dict))).encode([{}]))


def test_that_elements_are_pickled_is_said_wherever_they_stand() -> None:
    assert pickle_warning("state x", info_of(list_of(PICKLED)).serializer) is not None
    assert pickle_warning("state x", info_of(list_of(int)).serializer) is None


def test_what_the_elements_were_declared_decides_what_may_become_of_the_lists() -> None:
    pickled, numbers = info_of(list_of(PICKLED)), info_of(list_of(int))
    assert explain_evolution(pickled, pickled).outcome is Outcome.SAME
    assert explain_evolution(numbers, info_of(list_of(float))).outcome is Outcome.MIGRATE
    for one, other in ((pickled, numbers), (numbers, pickled), (pickled, info_of(list_of(tg.pickled(dict))))):
        assert explain_evolution(one, other).outcome is Outcome.REFUSED
