"""Random declared types, changed versions of them, and values: what a program may declare today and tomorrow.

A type is drawn as a plan first, so that it can be changed in one place; `build` makes the type of a plan.
"""

import dataclasses
import enum
import typing
from typing import Any, NamedTuple

import msgspec
from hypothesis import assume
from hypothesis import strategies as st
from msgspec import inspect

from tidegate.errors import InvalidError
from tidegate.serializers import serializer_for

SCALARS: dict[str, Any] = {"int": int, "float": float, "str": str, "bool": bool, "none": None, "bytes": bytes}
DEFAULTS: dict[str, list[Any]] = {
    "int": [0, 1],
    "float": [0.5],
    "str": ["", "x"],
    "bool": [True],
    "none": [None],
    "bytes": [b""],
}
NAMES = ["a", "b", "c", "d"]
KINDS = ["struct", "struct", "struct", "array", "sparse", "dataclass", "namedtuple", "typeddict"]
NUMBERS = st.integers(-(2**53), 2**53)
"""Those that a float holds exactly."""


class Part(NamedTuple):
    """A field of a record."""

    name: str
    plan: "Plan"
    has_default: bool
    default: Any = None


class Plan(NamedTuple):
    """A type: a kind, its parts, and what else there is to it."""

    kind: str
    parts: tuple["Plan", ...] = ()
    """Of a container, a tuple, a union."""
    values: tuple[Any, ...] = ()
    fields: tuple[Part, ...] = ()
    tag: str | None = None
    is_closed: bool = False


@st.composite
def fields(draw: st.DrawFn, name: str, inner: st.SearchStrategy[Plan]) -> Part:
    plan = draw(inner)
    if plan.kind not in DEFAULTS or not draw(st.booleans()):
        return Part(name, plan, False)
    return Part(name, plan, True, draw(st.sampled_from(DEFAULTS[plan.kind])))


@st.composite
def records(draw: st.DrawFn, inner: st.SearchStrategy[Plan]) -> Plan:
    kind = draw(st.sampled_from(KINDS))
    names = draw(st.lists(st.sampled_from(NAMES), unique=True, min_size=1, max_size=3))
    drawn = [draw(fields(name, inner)) for name in names]
    is_struct = kind in ("struct", "array", "sparse")
    tag = draw(st.sampled_from([None, None, "t", "u"])) if is_struct else None
    return Plan(kind, fields=tuple(drawn), tag=tag, is_closed=is_struct and draw(st.booleans()))


def _some_of(values: list[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.sampled_from(values), unique=True, min_size=1)


scalars = st.sampled_from([Plan(name) for name in SCALARS])
hashables = scalars | st.builds(lambda part: Plan("tuple", (part, Plan("int"))), scalars)
choices = st.builds(
    lambda kind, values: Plan(kind, values=tuple(values)),
    st.sampled_from(["literal", "enum"]),
    _some_of(["r", "s", "t"]) | _some_of([1, 2, 3]),
)
plans: st.SearchStrategy[Plan] = st.recursive(
    scalars | choices | st.builds(lambda part: Plan("set", (part,)), hashables),
    lambda inner: st.one_of(
        st.builds(lambda part: Plan("list", (part,)), inner),
        st.builds(lambda part: Plan("vartuple", (part,)), inner),
        st.builds(lambda *parts: Plan("tuple", parts), inner, inner),
        st.builds(lambda part: Plan("dict", (Plan("int"), part)), inner),
        st.builds(lambda *parts: Plan("union", parts), inner, inner),
        records(inner),
        records(inner),
    ),
    max_leaves=5,
)


@st.composite
def changed(draw: Any, plan: Plan) -> Any:
    """`plan`, with something changed somewhere in it, or nothing."""
    if plan.parts and draw(st.booleans()):
        index = draw(st.integers(0, len(plan.parts) - 1))
        parts = list(plan.parts)
        parts[index] = draw(changed(parts[index]))
        return plan._replace(parts=tuple(parts))
    if plan.fields:
        return draw(_changed_record(plan))
    if plan.values:
        more = [value for value in ("r", "s", "t", 1, 2, 3) if type(value) is type(plan.values[0])]
        return plan._replace(values=tuple(draw(st.lists(st.sampled_from(more), unique=True, min_size=1))))
    widened = [Plan("union", (plan, Plan("none"))), Plan("union", (plan, Plan("str"))), Plan("float"), plan]
    return draw(st.sampled_from(widened) | plans)


@st.composite
def _changed_record(draw: st.DrawFn, plan: Plan) -> Plan:
    kept = list(plan.fields)
    index = draw(st.integers(0, len(kept) - 1))
    match draw(st.sampled_from(["inside", "inside", "add", "remove", "move", "default", "kind", "tag", "closed"])):
        case "inside":
            kept[index] = kept[index]._replace(plan=draw(changed(kept[index].plan)), has_default=False)
        case "add" if len(kept) < len(NAMES):
            unused = [name for name in NAMES if name not in [field.name for field in kept]]
            kept.append(draw(fields(unused[0], scalars)))
        case "remove" if len(kept) > 1:
            del kept[index]
        case "move":
            kept = draw(st.permutations(kept))
        case "default":
            kept[index] = draw(fields(kept[index].name, st.just(kept[index].plan)))
        case "kind":
            return plan._replace(kind=draw(st.sampled_from(KINDS)), tag=None, is_closed=False)
        case "tag":
            return plan._replace(tag=draw(st.sampled_from([None, "t", "u"])))
        case "closed":
            return plan._replace(is_closed=not plan.is_closed)
    return plan._replace(fields=tuple(kept))


def build(plan: Plan) -> Any:
    """The type. Ends the example where msgspec or Python do not allow it."""
    try:
        declared = _build(plan)
        serializer_for(declared)
    except (TypeError, ValueError, InvalidError):
        assume(False)
    return declared


def _build(plan: Plan) -> Any:
    parts = tuple(map(_build, plan.parts))
    match plan.kind:
        case "list":
            return list[parts[0]]  # type: ignore[valid-type]
        case "set":
            return frozenset[parts[0]]  # type: ignore[valid-type]
        case "vartuple":
            return tuple[parts[0], ...]  # type: ignore[valid-type]
        case "tuple":
            return tuple[parts]  # type: ignore[valid-type]
        case "dict":
            return dict[parts[0], parts[1]]  # type: ignore[valid-type]
        case "union":
            return typing.Union[parts]  # noqa: UP007 - of types that are drawn
        case "literal":
            return typing.Literal[plan.values]
        case "enum":
            return enum.Enum("Choice", {f"M{value}": value for value in plan.values})
        case kind if kind in SCALARS:
            return SCALARS[kind]
    return _build_record(plan)


def _build_record(plan: Plan) -> Any:
    typed = [(field.name, _build(field.plan), field) for field in plan.fields]
    if plan.kind == "typeddict":
        wrapped = {name: typing.NotRequired[part] if field.has_default else part for name, part, field in typed}
        return typing.TypedDict("Row", wrapped)  # type: ignore[operator]
    if plan.kind == "namedtuple":
        cls: Any = NamedTuple("Row", [(name, part) for name, part, _ in typed])  # type: ignore[misc]
        defaults = [field.has_default for field in plan.fields]
        assume(defaults == sorted(defaults))
        cls.__new__.__defaults__ = tuple(field.default for field in plan.fields if field.has_default)
        cls._field_defaults = {field.name: field.default for field in plan.fields if field.has_default}
        return cls
    if plan.kind == "dataclass":
        members = [
            (name, part, dataclasses.field(default=field.default) if field.has_default else dataclasses.field())
            for name, part, field in typed
        ]
        return dataclasses.make_dataclass("Row", members, kw_only=True)
    return msgspec.defstruct(
        "Row",
        [(name, part, field.default) if field.has_default else (name, part) for name, part, field in typed],
        tag=plan.tag,
        array_like=plan.kind == "array",
        omit_defaults=plan.kind == "sparse",
        forbid_unknown_fields=plan.is_closed,
        kw_only=True,
    )


# ---- values ----------------------------------------------------------------------------------------------------------


def values_of(declared: Any) -> Any:
    return _values(inspect.type_info(declared))


def _values(node: Any) -> Any:
    match node:
        case inspect.IntType():
            return st.integers(-5, 5) | NUMBERS
        case inspect.FloatType():
            return st.floats(allow_nan=False) | st.integers(-5, 5)
        case inspect.StrType():
            return st.text(st.characters(codec="ascii"), max_size=3) | st.sampled_from(["r", "s", "t"])
        case inspect.BoolType():
            return st.booleans()
        case inspect.BytesType():
            return st.binary(max_size=3)
        case inspect.NoneType():
            return st.none()
        case inspect.LiteralType():
            return st.sampled_from(node.values)
        case inspect.EnumType():
            return st.sampled_from(list(node.cls))
        case inspect.UnionType():
            return st.one_of(*map(_values, node.types))
        case inspect.DictType():
            return st.dictionaries(_values(node.key_type), _values(node.value_type), max_size=2)
        case inspect.TupleType():
            return st.tuples(*map(_values, node.item_types))
        case inspect.FrozenSetType():
            return st.frozensets(_values(node.item_type), max_size=3)
        case inspect.VarTupleType():
            return st.lists(_values(node.item_type), max_size=2).map(tuple)
        case inspect.CollectionType():
            return st.lists(_values(node.item_type), max_size=2)
    required = {field.name: _values(field.type) for field in node.fields if field.required}
    optional = {field.name: _values(field.type) for field in node.fields if not field.required}
    return st.fixed_dictionaries(required, optional=optional).map(lambda given: node.cls(**given))


# ---- whether one value is what has become of another -----------------------------------------------------------------


class _Absent:
    """Of a field that has no default."""


def _fields_of(value: Any) -> dict[str, tuple[Any, Any]] | None:
    """Of a record, each field's value and default; None for what is no record. Keys of other dicts are integers."""
    if isinstance(value, msgspec.Struct):
        return {field.name: (getattr(value, field.name), field.default) for field in msgspec.structs.fields(value)}
    if dataclasses.is_dataclass(value):
        return {field.name: (getattr(value, field.name), field.default) for field in dataclasses.fields(value)}
    if hasattr(value, "_field_defaults"):
        return {name: (part, value._field_defaults.get(name)) for name, part in value._asdict().items()}
    if isinstance(value, dict) and all(isinstance(key, str) for key in value) and value:
        return {name: (part, _Absent) for name, part in value.items()}
    return None


def became(old: Any, new: Any) -> bool:
    """Whether `new` is what `old` has become: fields that both have agree, and those that were added have defaults."""
    olds, news = _fields_of(old), _fields_of(new)
    if news is not None and (olds is not None or old == {}):
        olds = olds or {}
        return all(
            became(olds[name][0], part) if name in olds else part == default for name, (part, default) in news.items()
        )
    if isinstance(old, dict) and isinstance(new, dict):
        return all(isinstance(key, str) or key in new for key in old) and all(
            key in old and became(old[key], part) for key, part in new.items()
        )
    if isinstance(old, list | tuple) and type(old) is type(new):
        return len(old) == len(new) and all(map(became, old, new))
    if isinstance(old, enum.Enum) and isinstance(new, enum.Enum):
        return bool(old.value == new.value)
    is_number = {type(old), type(new)} <= {int, float}
    return bool(old == new) and (is_number or type(old) is type(new))
