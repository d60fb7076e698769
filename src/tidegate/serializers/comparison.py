"""Two schemas compared part by part: whether bytes of the old are read as what they were under the new.

A part is refused when some value of the old type could not be read, or could be read as something that it was not,
whether such a value is stored or not. Limits of msgspec.Meta are about values and not about form: these are looked at.
"""

import enum
import re
from collections.abc import Iterable
from typing import NamedTuple

from tidegate.serializers.schema import (
    HAS_DEFAULT,
    Around,
    Collection,
    Field,
    FixedTuple,
    Layout,
    Literal,
    Mapping,
    Members,
    Record,
    Scalar,
    Schema,
    Union,
    Value,
    resolve,
)


class Level(enum.IntEnum):
    """What has to be done with stored bytes, from the least."""

    SAME = 0
    """Nothing: they are what the new type would write, as far as reading tells."""
    CHECK = 1
    """Each must be read once: whether it fits does not show in the types."""
    REWRITE = 2
    """Each must be read and written again."""
    REFUSE = 3


class Verdict(NamedTuple):
    """What comparing came to; `why` and `remedy` are texts for people, where it is refused."""

    level: Level
    why: str = ""
    remedy: str = ""


_FACTORY = re.compile(r"[a-z_<][\w.<>]*\(\)")
"""What an earlier text had as the default of a field with a factory: its name."""

SAME = Verdict(Level.SAME)
CHECK = Verdict(Level.CHECK)
REWRITE = Verdict(Level.REWRITE)


def compare(old: Schema, new: Schema) -> Verdict:
    """What becomes of values of the type `old` that are to be read as `new`."""
    return _Comparison().compare(old, new, _Place("value", (), ()))


class _Place(NamedTuple):
    """Where in both types."""

    path: str
    old: Around
    new: Around

    def inside(self, part: str) -> "_Place":
        return self._replace(path=self.path + part)


def _worst(verdicts: Iterable[Verdict]) -> Verdict:
    return max(verdicts, key=lambda verdict: verdict.level, default=SAME)


def _refuse(place: _Place, why: str, remedy: str = "") -> Verdict:
    return Verdict(Level.REFUSE, f"{place.path} {why}", remedy)


def _changed(old: object, new: object, place: _Place) -> Verdict:
    return _refuse(place, f"was {old} and is {new}")


def _limits(old: tuple[str, ...], new: tuple[str, ...]) -> Verdict:
    return SAME if set(new) <= set(old) else CHECK


def _kept_apart(verdict: Verdict, place: _Place) -> Verdict:
    """The verdict on elements of a set or keys of a dict: rewritten, two that differ could become one."""
    if verdict.level is Level.REWRITE:
        return _refuse(place, "is an element of a set or a key, and two that differed could become equal")
    return verdict


class _Comparison:
    """One comparison. What becomes of a record inside itself is what becomes of it: assumed, then found or assumed
    again."""

    def __init__(self) -> None:
        self._assumed: dict[tuple[Record, Around, Record, Around], Verdict] = {}
        self._used: set[tuple[Record, Around, Record, Around]] = set()

    def compare(self, old: Schema, new: Schema, place: _Place) -> Verdict:
        old, old_around = resolve(old, place.old)
        new, new_around = resolve(new, place.new)
        place = _Place(place.path, old_around, new_around)
        if isinstance(old, Union | Literal) or isinstance(new, Union | Literal):
            return self._unions(old, new, place)
        return self._parts(old, new, place)

    # ---- one of several ---------------------------------------------------------------------------------------------

    def _unions(self, old: Schema, new: Schema, place: _Place) -> Verdict:
        olds, values = _members(old)
        news, allowed = _members(new)
        verdicts = [self._member(member, news, place) for member in olds]
        old_records, new_records = _records_by_name(olds, place.old), _records_by_name(news, place.new)
        if len(old_records) > 1 or len(new_records) > 1:
            verdicts.append(_same_tags(old_records, new_records, place))
        apart = _numbers_apart(news, allowed)
        if apart and not _numbers_apart(olds, values) and {"int", "float"} & _scalar_names(olds):
            # A float may be stored as an integer, and would be read as the literal or the member of that number.
            apart_text = ", ".join(map(str, apart))
            verdicts.append(_refuse(place, f"holds numbers, which could not be told from the values {apart_text}"))
        return _worst([*verdicts, *(_value(value, news, allowed, place) for value in values)])

    def _member(self, old: Schema, news: list[Schema], place: _Place) -> Verdict:
        """The best that the new members offer to one of the old; of refusals, that of the nearest."""
        old, old_around = resolve(old, place.old)
        tries = []
        for member in news:
            candidate, around = resolve(member, place.new)
            verdict = self._parts(old, candidate, _Place(place.path, old_around, around))
            tries.append((verdict, _is_akin(old, candidate)))
        verdict, is_akin = min(tries, key=lambda one: (one[0].level, not one[1]), default=(SAME, False))
        if tries and (is_akin or verdict.level is not Level.REFUSE):
            return verdict
        return _refuse(place, f"could be {old}, and no longer can")

    # ---- one type ---------------------------------------------------------------------------------------------------

    def _parts(self, old: Schema, new: Schema, place: _Place) -> Verdict:
        if isinstance(old, Scalar) and isinstance(new, Scalar):
            return _scalars(old, new, place)
        if isinstance(old, Members) and isinstance(new, Members):
            gone = [value for value in old.values if value not in new.values]
            return _refuse(place, f"no longer has {', '.join(map(repr, gone))} among its values") if gone else SAME
        if isinstance(old, FixedTuple) and isinstance(new, FixedTuple) and len(old.items) == len(new.items):
            pairs = enumerate(zip(old.items, new.items, strict=True))
            return _worst(self.compare(one, other, place.inside(f"[{index}]")) for index, (one, other) in pairs)
        if isinstance(old, FixedTuple) and isinstance(new, Collection) and new.name == "tuple":
            parts = [self.compare(item, new.item, place.inside(f"[{index}]")) for index, item in enumerate(old.items)]
            return _worst([*parts, _limits((), new.limits)])
        if isinstance(old, Collection) and isinstance(new, Collection) and old.name == new.name:
            return self._collections(old, new, place)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            at_key = place.inside("{key}")
            key = _kept_apart(self.compare(old.key, new.key, at_key), at_key)
            return _worst(
                [key, self.compare(old.value, new.value, place.inside("{}")), _limits(old.limits, new.limits)]
            )
        if isinstance(old, Record) and isinstance(new, Record):
            return self._records(old, new, place)
        return _changed(old, new, place)

    def _collections(self, old: Collection, new: Collection, place: _Place) -> Verdict:
        inside = place.inside("[]")
        items = self.compare(old.item, new.item, inside)
        if new.name in ("set", "frozenset"):
            items = _kept_apart(items, inside)
        return _worst([items, _limits(old.limits, new.limits)])

    # ---- records ----------------------------------------------------------------------------------------------------

    def _records(self, old: Record, new: Record, place: _Place) -> Verdict:
        pair = (old, place.old, new, place.new)
        if pair in self._assumed:
            self._used.add(pair)
            return self._assumed[pair]
        self._assumed[pair] = SAME
        verdict = self._record(old, new, place)
        while pair in self._used and self._assumed[pair].level < verdict.level < Level.REFUSE:
            self._assumed[pair] = Verdict(verdict.level)
            verdict = self._record(old, new, place)
        del self._assumed[pair]
        self._used.discard(pair)
        return verdict

    def _record(self, old: Record, new: Record, place: _Place) -> Verdict:
        inside = _Place(place.path, (*place.old, old), (*place.new, new))
        if old.layout is Layout.FIXED:
            return self._earlier(old, new, inside)
        if old.is_by_position != new.is_by_position:
            ways = ("by name", "by position")
            stored, declared = ways[old.is_by_position], ways[new.is_by_position]
            return _refuse(place, f"was stored with its fields {stored} and is declared with them {declared}")
        fields = self._by_position(old, new, inside) if old.is_by_position else self._by_name(old, new, inside)
        return _worst([_tags(old, new, place), fields])

    def _by_name(self, old: Record, new: Record, place: _Place) -> Verdict:
        stored = {field.name: field for field in old.fields}
        verdicts = [
            self._field(stored[field.name], field, place) if field.name in stored else _added(field, place)
            for field in new.fields
        ]
        kept = {field.name: field for field in new.fields}
        if kept and stored and not kept.keys() & stored.keys():
            return _refuse(
                place,
                f"had the fields {', '.join(stored)} and has {', '.join(kept)}: nothing of what is stored would remain",
                "Keep the stored names (msgspec.field(name=...), rename=...), or give the new state another name.",
            )
        verdicts += [_removed(field, new, place) for field in old.fields if field.name not in kept]
        if new.layout is Layout.TYPED_DICT and old.layout is not Layout.TYPED_DICT:
            # An earlier form of the text did not say of a TypedDict that it is one, nor what may be absent from it.
            verdicts.append(CHECK)
        return _worst(verdicts)

    def _field(self, old: Field, new: Field, place: _Place) -> Verdict:
        inside = place.inside(f".{new.name}")
        verdict = self.compare(old.type, new.type, inside)
        if not old.may_be_missing or verdict.level is Level.REFUSE:
            return verdict
        if not old.is_optional and old.default != new.default:
            now = f"is now {new.default}" if new.may_be_missing else "is not known to be the same"
            return _refuse(
                inside,
                f"was not written where it was {old.default}, its default, which {now}",
                "Keep the default and omit_defaults as they were, or give the new state another name.",
            )
        if new.is_required:
            return _refuse(inside, "could be absent and is now required")
        return _worst([verdict, SAME if old.is_optional == new.is_optional else REWRITE])

    def _by_position(self, old: Record, new: Record, place: _Place) -> Verdict:
        verdicts: list[Verdict] = []
        for index, (one, other) in enumerate(zip(old.fields, new.fields, strict=False)):
            if one.name != other.name:
                return _refuse(
                    place.inside(f"[{index}]"),
                    f"was {one.name} and is {other.name}, and fields of {new.name} are stored by position",
                    "Add fields behind the last and leave the others where they are, or give the new state another "
                    "name.",
                )
            verdicts.append(self.compare(one.type, other.type, place.inside(f".{other.name}")))
        verdicts += [_added(field, place) for field in new.fields[len(old.fields) :]]
        for field in old.fields[len(new.fields) :]:
            if new.layout is Layout.NAMED_TUPLE:
                why = "was removed, and a NamedTuple with more fields than it has cannot be read"
                return _refuse(place.inside(f".{field.name}"), why, f"Keep the field {field.name}.")
            verdicts.append(_removed(field, new, place))
        return _worst(verdicts)

    def _earlier(self, old: Record, new: Record, place: _Place) -> Verdict:
        """A record whose text does not tell how its fields are stored: no field may come, go, or move."""
        is_same = (
            [field.name for field in old.fields] == [field.name for field in new.fields]
            and old.tag == new.tag
            and all(_is_same_default(*pair, new) for pair in zip(old.fields, new.fields, strict=True))
            and all(
                self.compare(one.type, other.type, place).level <= Level.CHECK
                for one, other in zip(old.fields, new.fields, strict=True)
            )
        )
        return CHECK if is_same else _changed(old, new, place)


# ---- what needs no place inside --------------------------------------------------------------------------------------


def _members(schema: Schema) -> tuple[list[Schema], tuple[Value, ...]]:
    """The members of a union that are types, and those that are values."""
    members = schema.members if isinstance(schema, Union) else (schema,)
    values = tuple(value for member in members if isinstance(member, Literal) for value in member.values)
    return [member for member in members if not isinstance(member, Literal)], values


def _is_akin(old: Schema, new: Schema) -> bool:
    """Whether `new` is so near to `old` that what is wrong between them is what a reader wants to know."""
    if isinstance(old, Record) and isinstance(new, Record):
        return old.tag == new.tag and old.is_by_position == new.is_by_position
    if isinstance(old, Collection) and isinstance(new, Collection):
        return old.name == new.name
    return type(old) is type(new) and not isinstance(old, Scalar)


def _value(value: Value, news: list[Schema], allowed: tuple[Value, ...], place: _Place) -> Verdict:
    if value in allowed:
        return SAME
    for member in news:
        if isinstance(member, Scalar) and member.name == type(value).__name__:
            return _limits((), member.limits)
    return _refuse(place, f"no longer has {value!r} among its values")


def _scalars(old: Scalar, new: Scalar, place: _Place) -> Verdict:
    if old.name == new.name:
        return _limits(old.limits, new.limits)
    if (old.name, new.name) == ("int", "float"):
        return _worst([REWRITE, _limits(old.limits, new.limits)])
    return _changed(old, new, place)


def _scalar_names(members: list[Schema]) -> set[str]:
    return {member.name for member in members if isinstance(member, Scalar)}


def _numbers_apart(members: list[Schema], values: tuple[Value, ...]) -> list[int]:
    """The integers that are of a union as literals or members of an enum only, where floats are of it, too."""
    names = _scalar_names(members)
    if "float" not in names or "int" in names:
        return []
    of_enums = [value for member in members if isinstance(member, Members) for value in member.values]
    return [value for value in (*values, *of_enums) if isinstance(value, int)]


def _records_by_name(members: list[Schema], around: Around) -> list[Record]:
    """The records of a union that only a tag tells apart. One by position is no other: it is stored as an array."""
    found = (resolve(member, around)[0] for member in members)
    by_name = (Layout.MAP, Layout.TYPED_DICT)
    return [record for record in found if isinstance(record, Record) and record.layout in by_name]


def _same_tags(olds: list[Record], news: list[Record], place: _Place) -> Verdict:
    """Whether each record of a union is found by its tag: without one, several would be read as one."""
    tags = [record.tag for record in news]
    for record in olds:
        if record.tag is None or record.tag not in tags:
            return _refuse(place, f"could be {record.name} stored with {_tag_text(record)}, and no longer can")
    return SAME


def _added(field: Field, place: _Place) -> Verdict:
    if not field.is_required:
        return REWRITE
    remedy = f"Give the field {field.name} a default."
    return _refuse(place.inside(f".{field.name}"), f"of type {field.type} was added without a default", remedy)


def _removed(field: Field, new: Record, place: _Place) -> Verdict:
    if not new.is_closed:
        return REWRITE
    remedy = f"Keep the field {field.name}, or declare {new.name} without forbid_unknown_fields."
    return _refuse(place.inside(f".{field.name}"), f"was removed, and {new.name} forbids unknown fields", remedy)


def _tags(old: Record, new: Record, place: _Place) -> Verdict:
    if old.tag == new.tag:
        return SAME
    if (old.tag and new.tag) or new.is_by_position:
        return _refuse(place, f"was stored with {_tag_text(old)} and is declared with {_tag_text(new)}")
    # Without a tag on one side, a field of the tag's name would be read as the tag, or the tag as that field.
    name = (old.tag or new.tag or ("",))[0]
    other = old if new.tag else new
    if any(field.name == name for field in other.fields):
        return _refuse(place, f"has {name} as the name of a field on one side and of the tag on the other")
    if old.tag and new.is_closed:
        return _refuse(place, f"was stored with {_tag_text(old)}, and {new.name} forbids unknown fields")
    return REWRITE


def _tag_text(record: Record) -> str:
    return f"the tag {record.tag[0]}={record.tag[1]!r}" if record.tag else "no tag"


def _is_same_default(old: Field, new: Field, record: Record) -> bool:
    """Whether the default of an earlier text is that of today, as far as stored bytes depend on it."""
    if not old.default:
        return True
    if new.default != HAS_DEFAULT:
        return old.default == new.default
    # Now of a field that is always written, as every field by position was and one with a factory of the program's.
    is_of_a_factory = _FACTORY.fullmatch(old.default) is not None and old.default not in ("list()", "dict()", "set()")
    return record.is_by_position or is_of_a_factory
