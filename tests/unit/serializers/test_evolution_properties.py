"""Whatever two types a program declares one after the other: what is not refused is read as what it was, always."""

from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, assume, event, given, note, settings
from hypothesis import strategies as st

from tests.unit.serializers.declared_types import Plan, became, build, changed, plans, values_of
from tests.unit.serializers.earlier_spelling import earlier_spelling
from tidegate.errors import CorruptError, InvalidError
from tidegate.serializers import Outcome, explain_evolution, migration, serializer_for, type_spelling
from tidegate.serializers.spelling import parse_schema, schema_of
from tidegate.serializers.types import describe

patient = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow]
)


class Form(NamedTuple):
    """A value state of a type."""

    value_type: str
    name: str = "total"
    kind: str = "value"
    serializer: str = "msgpack/1"


@st.composite
def versions(draw: st.DrawFn, count: int) -> list[Any]:
    """Types that a program declares one after the other."""
    plan: Plan = draw(plans)
    declared = [build(plan)]
    for _ in range(count - 1):
        plan = draw(changed(plan))
        declared.append(build(plan))
    return declared


def stored_as(declared: Any, draw: st.DataObject) -> tuple[Any, bytes]:
    """A value of the type, and its bytes."""
    serializer = serializer_for(declared)
    value = draw.draw(values_of(declared))
    try:
        return value, serializer.encode(value)
    except InvalidError:
        assume(False)
        raise


def restored(stored: bytes, old: Any, new: Any) -> bytes | None:
    """What a restore makes of stored bytes; None where it is refused."""
    outcome = explain_evolution(Form(type_spelling(old)), Form(type_spelling(new))).outcome
    if outcome is Outcome.REFUSED:
        return None
    return stored if outcome is Outcome.SAME else migration(serializer_for(new), "msgpack/1")(stored)


@patient
@given(versions(2), st.data())
def test_what_is_not_refused_is_read_as_what_it_was(declared: list[Any], data: st.DataObject) -> None:
    old, new = declared
    note(f"{type_spelling(old)} -> {type_spelling(new)}")
    evolution = explain_evolution(Form(type_spelling(old)), Form(type_spelling(new)))
    event(evolution.outcome.value)
    assert (evolution.outcome is Outcome.REFUSED) == bool(evolution.why)
    value, stored = stored_as(old, data)
    kept = restored(stored, old, new)
    assume(kept is not None)
    assert kept is not None
    assert became(value, serializer_for(new).decode(kept))


@patient
@given(versions(3), st.data())
def test_two_changes_one_after_the_other_are_each_read_as_what_was_before(
    declared: list[Any], data: st.DataObject
) -> None:
    first, second, third = declared
    note(" -> ".join(map(type_spelling, declared)))
    _, stored = stored_as(first, data)
    kept = restored(stored, first, second)
    assume(kept is not None)
    assert kept is not None
    value = serializer_for(second).decode(kept)
    last = restored(kept, second, third)
    assume(last is not None)
    assert last is not None
    assert became(value, serializer_for(third).decode(last))


@patient
@given(versions(2), st.data())
def test_what_an_earlier_version_stored_is_read_as_what_it_was_or_refused(
    declared: list[Any], data: st.DataObject
) -> None:
    old, new = declared
    note(f"{earlier_spelling(old)} -> {type_spelling(new)}")
    value, stored = stored_as(old, data)
    outcome = explain_evolution(Form(earlier_spelling(old)), Form(type_spelling(new))).outcome
    assume(outcome is not Outcome.REFUSED)
    try:
        kept = stored if outcome is Outcome.SAME else migration(serializer_for(new), "msgpack/1")(stored)
    except CorruptError:
        return
    assert became(value, serializer_for(new).decode(kept))


@patient
@given(plans)
def test_a_type_that_has_not_changed_is_never_refused_whatever_version_stored_it(plan: Plan) -> None:
    declared = build(plan)
    text = type_spelling(declared)
    assert explain_evolution(Form(text), Form(text)).outcome is Outcome.SAME
    assert explain_evolution(Form(earlier_spelling(declared)), Form(text)).why == ""


@patient
@given(plans)
def test_a_text_is_read_back_as_the_type_that_it_is_of(plan: Plan) -> None:
    declared = build(plan)
    schema = schema_of(describe(declared))
    assert parse_schema(str(schema)) == schema


@given(st.text(alphabet="ab{}[](),:=?|'^# .1Literaldictn", max_size=30))
def test_a_text_that_is_no_type_is_refused_and_nothing_else(text: str) -> None:
    try:
        schema = parse_schema(text)
    except InvalidError:
        return
    assert parse_schema(str(schema)) == schema


def test_the_check_of_values_shows_a_wrong_one() -> None:
    assert became({"a": 1}, {"a": 1})
    for old, new in (
        (1, "1"),
        (1, True),
        ([1], [2]),
        ([1], (1,)),
        ({1: 1}, {}),
        ({1: 1}, {1: 2}),
        ({"a": 1}, {"b": 1}),
    ):
        with pytest.raises(AssertionError):
            assert became(old, new)
