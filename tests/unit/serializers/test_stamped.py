"""Values with a time: written with it and without, and read when time to live was switched on or off over them."""

import pickle
from typing import Any

import pytest

from tests.unit.serializers.money import Money, MoneySerializer
from tidegate.checkpoint.protocol import StateInfo
from tidegate.errors import CorruptError, InvalidError
from tidegate.serializers import (
    Outcome,
    Serializer,
    Stamped,
    explain_evolution,
    list_serializer,
    map_serializer,
    migration,
    pickled,
    serialized,
    serializer_for,
)
from tidegate.serializers.stamped import UNKNOWN_TIME

MONEY = Money(5, "EUR")
DECLARED: list[tuple[Any, Any]] = [
    (int, 7),
    (list[int], [1, 2]),
    (pickled(Money), MONEY),
    (serialized(Money, MoneySerializer()), MONEY),
]


def info(kind: str, declared: Any, serializer: Serializer[Any]) -> StateInfo:
    spelling = serializer_for(declared).type_spelling
    return StateInfo("total", kind, f"str -> {spelling}" if kind == "map" else spelling, serializer.id)


def forms(kind: str, declared: Any) -> Serializer[Any]:
    if kind == "value":
        return serializer_for(declared)
    return list_serializer(declared) if kind == "list" else map_serializer(str, declared)


def whole(kind: str, value: Any) -> Any:
    return {"value": value, "list": [value, value], "map": [("a", value), ("b", value)]}[kind]


@pytest.mark.parametrize("kind", ["value", "list", "map"])
@pytest.mark.parametrize(("declared", "value"), DECLARED, ids=str)
def test_time_to_live_is_switched_on_and_off_over_stored_values(kind: str, declared: Any, value: Any) -> None:
    plain, stamped = forms(kind, declared), forms(kind, Stamped(declared))
    without, with_time = info(kind, declared, plain), info(kind, declared, stamped)
    assert explain_evolution(without, with_time).outcome is Outcome.MIGRATE
    assert explain_evolution(with_time, without).outcome is Outcome.MIGRATE
    assert explain_evolution(with_time, with_time).outcome is Outcome.SAME
    on = migration(stamped, plain.id)(plain.encode(whole(kind, value)))
    assert stamped.decode(on) == whole(kind, (UNKNOWN_TIME, value))
    assert stamped.reader(stamped.id)(on) == whole(kind, (UNKNOWN_TIME, value))
    off = migration(plain, stamped.id)(stamped.encode(whole(kind, (1234, value))))
    assert off == plain.encode(whole(kind, value))


def test_the_type_of_values_with_a_time_changes_as_that_of_others() -> None:
    old, new = serializer_for(Stamped(int)), serializer_for(Stamped(float))
    assert explain_evolution(info("value", int, old), info("value", float, new)).outcome is Outcome.MIGRATE
    assert new.decode(migration(new, old.id)(old.encode((5, 1)))) == (5, 1.0)
    plain = serializer_for(float)
    assert plain.decode(migration(plain, old.id)(old.encode((5, 1)))) == 1.0
    assert explain_evolution(info("value", str, old), info("value", int, new)).why == "value was str and is int"
    money = StateInfo("total", "value", "serialized(app.Money)", "stamped[money/1]")
    today = info("value", DECLARED[3][0], serializer_for(DECLARED[3][0]))
    assert explain_evolution(money, today).outcome is Outcome.MIGRATE
    assert explain_evolution(today, money).why.startswith("it was written by version 2 of the serializer money")


def test_lists_and_maps_that_were_one_pickle_get_times() -> None:
    elements, entries = list_serializer(Stamped(pickled(Money))), map_serializer(str, Stamped(pickled(Money)))
    assert elements.reader("pickle/1")(pickle.dumps([MONEY])) == [(UNKNOWN_TIME, MONEY)]
    assert entries.reader("pickle/1")(pickle.dumps([("a", MONEY)])) == [("a", (UNKNOWN_TIME, MONEY))]
    old = StateInfo("total", "list", "pickled(app.Money)", "pickle/1")
    new = StateInfo("total", "list", "pickled(app.Money)", elements.id)
    assert explain_evolution(old, new).outcome is Outcome.MIGRATE
    with pytest.raises(CorruptError):
        elements.reader("pickle/1")(pickle.dumps([1]))


@pytest.mark.parametrize("declared", [declared for declared, _ in DECLARED], ids=str)
def test_bytes_too_short_for_a_time_are_corrupt(declared: Any) -> None:
    for read in (serializer_for(Stamped(declared)).decode, serializer_for(declared).reader(_stamped_id(declared))):
        with pytest.raises(CorruptError, match="too short"):
            read(b"\0" * 7)


def _stamped_id(declared: Any) -> str:
    return serializer_for(Stamped(declared)).id


def test_a_time_that_is_none_and_a_value_of_another_type_are_refused() -> None:
    serializer = serializer_for(Stamped(int), "state total")
    assert serializer.conforms((1, 2))
    assert not serializer.conforms((1, "2"))
    assert not serializer.conforms(2)
    assert serializer.admit((1, 2)) == (1, 2)
    assert serializer_for(Stamped(float)).admit((1, 2)) == (1, 2.0)
    with pytest.raises(InvalidError, match="no time in milliseconds"):
        serializer.encode((2**63, 1))
    with pytest.raises(InvalidError, match="state total"):
        serializer.encode((1, "2"))
    with pytest.raises(InvalidError, match=r"stamped\[pickle/1\]|pickle/1"):
        serializer_for(int).reader("stamped[pickle/1]")
