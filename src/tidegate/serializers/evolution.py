"""Whether what is stored of a state may be read under what a program declares: decided from texts alone, before
anything is deployed, and the same in every backend.

What is not refused, decoding reads as what it was. Where values must be rewritten, whoever restores rewrites all of
them before the first record: a later evolution looks at the newest type only.
"""

import enum
from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeVar

from tidegate.errors import InvalidError
from tidegate.serializers.comparison import Level, compare
from tidegate.serializers.containers import LIST, element_id, is_container
from tidegate.serializers.port import MSGPACK, PICKLE, Serializer, version_in
from tidegate.serializers.schema import is_opaque
from tidegate.serializers.spelling import parse_schema, split_map_type
from tidegate.serializers.stamped import unstamped

T = TypeVar("T")

ANOTHER_NAME = "Declare it as it was, or give the new state another name (name=...)."


class StateForm(Protocol):
    """What a checkpoint says of a state, and what a program declares: a `StateInfo` is one."""

    @property
    def name(self) -> str: ...

    @property
    def kind(self) -> str: ...

    @property
    def value_type(self) -> str: ...

    @property
    def serializer(self) -> str: ...


class Outcome(enum.Enum):
    """What follows for stored bytes."""

    SAME = "same"
    """They stay as they are."""
    MIGRATE = "migrate"
    """All of them are read and written again, with `migration`, before the first record."""
    REFUSED = "refused"


class Evolution(NamedTuple):
    """From what is stored to what is declared. `why` names the part, the old and the new; `remedy` what helps."""

    outcome: Outcome
    why: str = ""
    remedy: str = ""


_SAME = Evolution(Outcome.SAME)
_MIGRATE = Evolution(Outcome.MIGRATE)


def explain_evolution(stored: StateForm, declared: StateForm) -> Evolution:
    """What becomes of the values of a state that was stored as `stored` and is declared as `declared`."""
    if stored.kind != declared.kind:
        return _refused(f"a {stored.kind} state cannot become a {declared.kind} state")
    if (stored.value_type, stored.serializer) == (declared.value_type, declared.serializer):
        return _SAME
    try:
        (old_key, old), (new_key, new) = split_map_type(stored.value_type), split_map_type(declared.value_type)
        keys = _keys(old_key, new_key)
        if keys is Level.REFUSE:
            return _refused(f"the type of a map's keys can never change: it was {old_key} and is {new_key}")
        evolution = _values(old, stored.serializer, new, declared.serializer)
    except InvalidError as error:
        return _refused(error.failure.message)
    return _MIGRATE if evolution.outcome is Outcome.SAME and keys is not Level.SAME else evolution


def check_evolution(stored: StateForm, declared: StateForm, where: str = "") -> Evolution:
    """`explain_evolution`. Raises InvalidError where it is refused, naming the state, both types, the part and the
    remedy."""
    evolution = explain_evolution(stored, declared)
    if evolution.outcome is Outcome.REFUSED:
        raise unfit(stored, declared, evolution.why, evolution.remedy, where)
    return evolution


def unfit(stored: StateForm, declared: StateForm, why: str, remedy: str = "", where: str = "") -> InvalidError:
    """The error that stored values do not fit what is declared. Also for one that `migration` could not read."""
    old, new = (f"{form.kind} of {form.value_type} ({form.serializer})" for form in (stored, declared))
    message = f"state {stored.name} was stored as {old} and is declared as {new}: {why}"
    return InvalidError(message, remedy=remedy or ANOTHER_NAME, where=where)


def migration(serializer: Serializer[T], stored: str) -> Callable[[bytes], bytes]:
    """From bytes written by the serializer with the id `stored` to those that `serializer` writes: values, elements or
    wholes alike. What it returns raises CorruptError for a value that does not fit."""
    read = serializer.reader(stored)
    return lambda data: serializer.encode(read(data))


def _refused(why: str, remedy: str = "") -> Evolution:
    return Evolution(Outcome.REFUSED, why, remedy)


def _keys(old: str, new: str) -> Level:
    """Whether every key of a map is stored as it was; the texts may differ in what does not matter for that."""
    if old == new:
        return Level.SAME
    if not old or not new:
        return Level.REFUSE
    one, other = parse_schema(old), parse_schema(new)
    there, back = compare(one, other).level, compare(other, one).level
    # An earlier form of the text says less, and never allows more than what has not changed at all.
    is_same = there <= Level.CHECK and (back <= Level.CHECK or "fixed " in old)
    return there if is_same else Level.REFUSE


def _values(old: str, old_serializer: str, new: str, new_serializer: str) -> Evolution:
    old_element, new_element = element_id(old_serializer), element_id(new_serializer)
    while is_container(old_element, LIST) and is_container(new_element, LIST):
        # Lists as values, of what is not msgpack: what matters are their elements.
        old, new = (text.removeprefix("list[").removesuffix("]") for text in (old, new))
        old_element, new_element = element_id(old_element), element_id(new_element)
    old_id, new_id = unstamped(old_element), unstamped(new_element)
    if old_id == new_id == MSGPACK:
        evolution = _schemas(old, new)
    elif old_id == new_id == PICKLE:
        is_same = old == new
        evolution = _SAME if is_same else _refused(f"a pickled type can never change: it was {old} and is {new}")
    else:
        evolution = _versions(old_id, new_id, is_opaque(old) and is_opaque(new))
    # Whole lists and maps once were one pickle; values may have begun or ceased to carry a time.
    is_of_another_form = (old_serializer == PICKLE) != (new_serializer == PICKLE) or (
        (old_element == old_id) != (new_element == new_id)
    )
    return _MIGRATE if evolution.outcome is Outcome.SAME and is_of_another_form else evolution


def _versions(old: str, new: str, is_custom: bool) -> Evolution:
    """From one version of a serializer of the program's own to another."""
    (name, _, old_text), (new_name, _, new_text) = old.rpartition("/"), new.rpartition("/")
    old_version, new_version = version_in(old_text), version_in(new_text)
    if not is_custom or name != new_name or PICKLE in (old, new) or old_version is None or new_version is None:
        return _refused(f"it was written by the serializer {old} and is declared with {new}")
    if old_version > new_version:
        return _refused(
            f"it was written by version {old_version} of the serializer {name}, and the program has {new_version}",
            f"Run a program whose serializer {name} has version {old_version} or later.",
        )
    return _SAME if old_version == new_version else _MIGRATE


def _schemas(old: str, new: str) -> Evolution:
    level, why, remedy = compare(parse_schema(old), parse_schema(new))
    if level is Level.REFUSE:
        return _refused(why, remedy)
    return _SAME if level is Level.SAME else _MIGRATE
