"""What a declared type may become, under every serializer, and what a reader is told where it may not."""

from typing import Annotated, Any, Literal

import msgspec
import pytest

from tests.unit.serializers.declared_rows import (
    ARRAY,
    LIST,
    MIGRATE,
    OLD,
    REFUSED,
    SAME,
    SPARSE,
    AllOptions,
    Colour,
    Created,
    Data,
    Deleted,
    Moved,
    Options,
    Pair,
    RedOnly,
    Tree,
    Triple,
    WiderTree,
    carried,
    form,
    outcome,
    row,
    why,
)
from tests.unit.serializers.earlier_spelling import earlier_spelling
from tests.unit.serializers.money import Money, MoneySerializer
from tidegate.checkpoint.protocol import StateInfo
from tidegate.errors import CorruptError, InvalidError
from tidegate.serializers import (
    check_evolution,
    explain_evolution,
    list_serializer,
    map_serializer,
    migration,
    pickled,
    serialized,
    serializer_for,
    type_spelling,
    unfit,
)

# ---- what may change -------------------------------------------------------------------------------------------------

KEPT: list[tuple[Any, Any]] = [
    (OLD, row(("b", str), ("a", int))),
    (OLD, msgspec.defstruct("Total", [("a", int), ("b", str)])),
    (OLD, row(("a", int), ("b", str, "x"))),
    (OLD, row(("a", int), ("b", str, "x"), omit_defaults=True)),
    (OLD, row(("a", int | None), ("b", str | int))),
    (OLD, Data),
    (OLD, row(("alpha", int), ("beta", str), rename={"alpha": "a", "beta": "b"})),
    (OLD, row(("alpha", int, msgspec.field(name="a")), ("b", str))),
    (OLD, row(("a", int), ("b", str), forbid_unknown_fields=True)),
    (row(("a", int), forbid_unknown_fields=True), row(("a", int))),
    (int, int | None),
    (int | None, None | int | str),
    (Colour, Colour | None),
    (RedOnly, Colour),
    (Literal["a"], Literal["a", "b"]),
    (Literal["a", None], str | None),  # noqa: PYI061 - None inside a literal
    (Literal["a", 1], str | Literal[1, 2]),
    (tuple[int, str], tuple[int | None, str]),
    (tuple[int, int], tuple[int, ...]),
    (list[int], list[int | str]),
    (dict[str, int], dict[str | int, int | None]),
    (set[int], set[int | str]),
    (Annotated[int, msgspec.Meta(ge=0, lt=9)], Annotated[int, msgspec.Meta(ge=0)]),
    (ARRAY, ARRAY),
    (SPARSE, SPARSE),
    (Pair, ARRAY),
    (AllOptions, Options),
    (Created | Deleted, Created | Deleted | Moved),
    (Created, Created | Deleted | None),
    (Tree, Tree),
]

MIGRATED: list[tuple[Any, Any]] = [
    (OLD, row(("a", int), ("b", str), ("c", int, 0))),
    (OLD, row(("a", int), ("b", str), ("c", list[int], msgspec.field(default_factory=list)))),
    (OLD, row(("a", int))),
    (OLD, row(("a", float), ("b", str))),
    (OLD, row(("a", int), ("b", str), tag=True)),
    (row(("a", int), ("b", str), tag=True), OLD),
    (ARRAY, row(("a", int), ("b", str), ("c", int, 0), array_like=True)),
    (ARRAY, row(("a", int), array_like=True)),
    (ARRAY, Triple),
    (Pair, Triple),
    (SPARSE, row(("a", int), ("b", str, "x"), ("c", int, 0), omit_defaults=True)),
    (SPARSE, row(("a", int))),
    (Options, row(("a", int), ("b", str, "x"))),
    (int, float),
    (int | None, float | str | None),
    (list[tuple[int, str]], list[tuple[float, str]]),
    (int, Annotated[int, msgspec.Meta(ge=0)]),
    (Annotated[int, msgspec.Meta(ge=0)], Annotated[int, msgspec.Meta(ge=1)]),
    (set[int], set[Annotated[int, msgspec.Meta(ge=0)]]),
    (Tree, WiderTree),
]


@pytest.mark.parametrize(("old", "new"), KEPT, ids=str)
def test_bytes_stay_where_the_new_type_would_write_the_same(old: Any, new: Any) -> None:
    assert why(old, new) == ""
    assert outcome(old, new) is SAME


@pytest.mark.parametrize(("old", "new"), MIGRATED, ids=str)
def test_bytes_are_written_again_where_they_say_more_or_less_than_the_new_type_would(old: Any, new: Any) -> None:
    assert why(old, new) == ""
    assert outcome(old, new) is MIGRATE


def test_a_field_that_was_added_has_its_default_and_one_that_was_removed_is_gone_for_good() -> None:
    first, second, third = row(("a", int), ("b", int)), row(("a", int)), row(("a", int), ("b", str, "new"))
    data = serializer_for(first).encode(first(1, 2))
    data = migration(serializer_for(second), "msgpack/1")(data)
    assert msgspec.msgpack.decode(data) == {"a": 1}
    assert outcome(second, third) is MIGRATE
    assert serializer_for(third).decode(data) == third(1, "new")


def test_an_integer_that_became_a_float_is_one() -> None:
    value = carried(list[int], [1, 2**60 + 1], list[float])
    assert [type(part) for part in value] == [float, float]
    assert value == [1.0, float(2**60 + 1)]


def test_a_renamed_field_keeps_its_value_under_the_stored_name() -> None:
    new = row(("amount", int, msgspec.field(name="a")), ("b", str))
    assert carried(OLD, OLD(7, "x"), new).amount == 7


def test_limits_are_looked_at_value_by_value() -> None:
    limited = Annotated[int, msgspec.Meta(ge=0)]
    assert carried(int, 5, limited) == 5
    with pytest.raises(CorruptError, match=">= 0"):
        carried(int, -5, limited)


# ---- texts of earlier versions ---------------------------------------------------------------------------------------


def earlier(declared: Any) -> StateInfo:
    return StateInfo("total", "value", earlier_spelling(declared), "msgpack/1")


@pytest.mark.parametrize("declared", sorted({*(old for old, _ in KEPT), Pair, Options, Triple}, key=str), ids=str)
def test_what_an_earlier_version_stored_is_read_where_nothing_has_changed(declared: Any) -> None:
    assert explain_evolution(earlier(declared), form(declared)).why == ""


def test_what_an_earlier_version_stored_may_change_as_well() -> None:
    assert explain_evolution(earlier(OLD), form(row(("a", int), ("b", str), ("c", int, 0)))).outcome is MIGRATE
    assert explain_evolution(earlier(OLD), form(row(("a", str), ("b", str)))).outcome is REFUSED
    assert explain_evolution(earlier(LIST[OLD]), form(LIST[row(("a", int))])).outcome is MIGRATE


def test_where_an_earlier_text_does_not_say_how_fields_are_stored_none_may_come_or_go_or_move() -> None:
    for old, new in (
        (ARRAY, row(("a", int), array_like=True)),
        (ARRAY, row(("b", str), ("a", int), array_like=True)),
        (ARRAY, row(("a", int), ("b", int), array_like=True)),
        (SPARSE, row(("a", int), ("b", str, "y"), omit_defaults=True)),
        (SPARSE, row(("a", int), ("b", str, "x"))),
        (SPARSE, OLD),
        (SPARSE, row(("a", int), ("b", str, "x"), omit_defaults=True, tag=True)),
    ):
        assert explain_evolution(earlier(old), form(new)).outcome is REFUSED
    with_factory = row(("a", int, msgspec.field(default_factory=lambda: 1)), omit_defaults=True)
    assert explain_evolution(earlier(with_factory), form(with_factory)).outcome is MIGRATE


def test_where_an_earlier_text_does_not_say_which_keys_may_be_absent_each_value_is_read() -> None:
    assert explain_evolution(earlier(Options), form(AllOptions)).outcome is MIGRATE
    migrate = migration(serializer_for(AllOptions), "msgpack/1")
    assert msgspec.msgpack.decode(migrate(msgspec.msgpack.encode(Options(a=1, b="x")))) == {"a": 1, "b": "x"}
    with pytest.raises(CorruptError, match="missing required field `b`"):
        migrate(msgspec.msgpack.encode(Options(a=1)))


def test_a_stored_text_that_cannot_be_read_is_refused_and_shown() -> None:
    stored = StateInfo("total", "value", "int{", "msgpack/1")
    assert "'int{' cannot be read" in explain_evolution(stored, form(int)).why


# ---- serializers -----------------------------------------------------------------------------------------------------

MONEY = serialized(Money, MoneySerializer())


def test_values_are_read_only_by_the_serializer_that_wrote_them() -> None:
    for old, new in ((int, pickled(int)), (pickled(Money), MONEY), (MONEY, pickled(Money)), (MONEY, int)):
        assert "was written by the serializer" in why(old, new)


def test_a_pickled_type_can_never_change() -> None:
    assert outcome(pickled(Money), pickled(Money)) is SAME
    assert "a pickled type can never change" in why(pickled(Money), pickled(MoneySerializer))


def test_a_serializer_of_the_programs_own_reads_its_earlier_versions_and_no_later_one() -> None:
    today = form(MONEY)
    assert (today.serializer, today.value_type) == ("money/2", "serialized(tests.unit.serializers.money.Money)")
    first = StateInfo("total", "value", "serialized(app.OldMoney)", "money/1")
    later = StateInfo("total", "value", today.value_type, "money/3")
    assert explain_evolution(first, today).outcome is MIGRATE
    assert explain_evolution(today, today).outcome is SAME
    assert explain_evolution(later, today).why == (
        "it was written by version 3 of the serializer money, and the program has 2"
    )
    assert (
        "money/2 and is declared with cash/2"
        in explain_evolution(today, StateInfo("total", "value", today.value_type, "cash/2")).why
    )
    for theirs, ours in ((form(int), "msgpack"), (form(pickled(Money)), "pickle")):
        earlier_form = StateInfo("total", "value", theirs.value_type, f"{ours}/0")
        assert "was written by the serializer" in explain_evolution(earlier_form, theirs).why
    for unknown in ("money/x", "money", "msgpack/2", ""):
        stored = StateInfo("total", "value", today.value_type, unknown)
        assert explain_evolution(stored, today).why.startswith(f"it was written by the serializer {unknown} and is")
    assert migration(serializer_for(MONEY), "money/1")(b"5") == b"5 EUR"


def test_lists_and_maps_with_elements_of_the_programs_own_change_as_these_do() -> None:
    for kind, whole in (("list", list_serializer(MONEY)), ("map", map_serializer(str, MONEY))):
        text = f"{'str -> ' if kind == 'map' else ''}serialized(app.Money)"
        old, new = (StateInfo("purse", kind, text, id) for id in (f"{kind}[money/1]", whole.id))
        assert explain_evolution(old, new).outcome is MIGRATE
        assert explain_evolution(new, old).outcome is REFUSED
    stored = msgspec.msgpack.encode([b"5", b"6"])
    assert migration(list_serializer(MONEY), "list[money/1]")(stored) == msgspec.msgpack.encode([b"5 EUR", b"6 EUR"])
    stored = msgspec.msgpack.encode([("a", b"5")])
    assert migration(map_serializer(str, MONEY), "map[money/1]")(stored) == msgspec.msgpack.encode([("a", b"5 EUR")])


def test_lists_and_maps_that_were_one_pickle_are_taken_apart() -> None:
    for kind in ("list", "map"):
        text = f"{'str -> ' if kind == 'map' else ''}pickled(app.Money)"
        old, new = (StateInfo("purse", kind, text, id) for id in ("pickle/1", f"{kind}[pickle/1]"))
        assert explain_evolution(old, new).outcome is MIGRATE
        assert explain_evolution(new, new).outcome is SAME


# ---- maps, kinds, messages -------------------------------------------------------------------------------------------


def map_form(key: Any, value: Any) -> StateInfo:
    return StateInfo("by_device", "map", f"{type_spelling(key)} -> {type_spelling(value)}", "msgpack/1")


def test_the_values_of_a_map_change_as_others_do() -> None:
    assert explain_evolution(map_form(str, OLD), map_form(str, row(("a", int)))).outcome is MIGRATE
    assert explain_evolution(map_form(str, int), map_form(str, int | None)).outcome is SAME
    assert explain_evolution(map_form(str, int), map_form(str, str)).why == "value was int and is str"


def test_another_kind_of_state_is_refused() -> None:
    other = StateInfo("total", "list", "int", "msgpack/1")
    assert explain_evolution(form(int), other).why == "a value state cannot become a list state"


def test_the_error_names_state_place_both_types_the_part_and_the_remedy() -> None:
    new = row(("a", int), ("b", str), ("c", int))
    with pytest.raises(InvalidError) as caught:
        check_evolution(form(OLD), form(new), "operator totals")
    failure = caught.value.failure
    assert failure.message == (
        "state total was stored as value of Row{a: int, b: str} (msgpack/1) and is declared as "
        "value of Row{a: int, b: str, c: int} (msgpack/1): value.c of type int was added without a default"
    )
    assert (failure.where, failure.remedy) == ("operator totals", "Give the field c a default.")
    assert check_evolution(form(OLD), form(OLD)).outcome is SAME
    general = unfit(form(int), form(str), "value was int and is str").failure
    assert general.remedy == "Declare it as it was, or give the new state another name (name=...)."
