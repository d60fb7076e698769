"""The rows that somebody gives for one operator, and how they become what a job would have stored.

Keys and values go through the program's own declarations, which refuse what does not belong. Errors name the operator
and the key.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tidegate.checkpoint.manifest import OperatorRecord
from tidegate.errors import InvalidError, place
from tidegate.savepoints.reading import key_type_of
from tidegate.savepoints.values import LISTS, MAPS
from tidegate.serializers import join_elements, split_elements
from tidegate.state.descriptors import MapState, StateDescriptor, collect_descriptors
from tidegate.state.key_groups import KeyChecker, group_of_bytes
from tidegate.state.keys import encode_key
from tidegate.state.pieces import StoredRow


class OperatorRows:
    """The state that one operator is to begin with.

    states: the class of its function, or declarations by name. rows: what `read_state` gives, `{"key": "ann", "state":
    "total", "value": 12}`, one for each key and state: a list for a list state, a dict for a map state, the accumulator
    for an aggregating state; of state without keys, without a key. key: the type of its keys; that of the first key if
    left out. Raises InvalidError for what declares no state.
    """

    def __init__(
        self, states: type | Mapping[str, StateDescriptor[Any]], rows: Iterable[Mapping[str, Any]], *, key: Any = None
    ) -> None:
        found = collect_descriptors(states).values() if isinstance(states, type) else _named(states)
        self.descriptors = {descriptor.name: descriptor for descriptor in found}
        if not self.descriptors:
            raise InvalidError(f"{states} declares no state", remedy="Give the class of the operator's function.")
        self.rows = rows
        self.key = key


def _named(states: Mapping[str, StateDescriptor[Any]]) -> Iterator[StateDescriptor[Any]]:
    for name, descriptor in states.items():
        if descriptor.name not in ("", name):
            raise InvalidError(
                f"the declaration of state {descriptor.name} is given under the name {name}",
                remedy="Give it under its own name.",
            )
        if not descriptor.name:
            descriptor.__set_name__(OperatorRows, name)
        yield descriptor


class RowEncoder:
    """The rows that were given for one operator, as bytes."""

    def __init__(self, record: OperatorRecord, given: OperatorRows, max_parallelism: int) -> None:
        self._operator = record.name
        self._given = given
        self._max_parallelism = max_parallelism
        self._checker = KeyChecker(record.name, given.key)
        self._checker.expect(key_type_of(record))
        self._wholes: dict[str, bytes] = {}

    @property
    def key_type(self) -> str:
        return self._checker.key_type

    def keyed(self) -> Iterator[StoredRow]:
        """Those with keys; the others are kept for `wholes`."""
        for row in self._given.rows:
            descriptor = self._descriptor(row)
            if not descriptor.is_keyed:
                self._keep_whole(descriptor, row)
                continue
            key = row["key"]
            self._checker.check([key])
            encoded = encode_key(key)
            value = self._value(descriptor, row)
            if value is not None:
                yield StoredRow(descriptor.name, group_of_bytes(encoded, self._max_parallelism), encoded, value)

    @property
    def wholes(self) -> list[tuple[str, bytes]]:
        """State without keys, when all rows have been seen."""
        return list(self._wholes.items())

    def _descriptor(self, row: Mapping[str, Any]) -> StateDescriptor[Any]:
        try:
            descriptor = self._given.descriptors[row["state"]]
            _ = row["value"], row["key"] if descriptor.is_keyed else None
        except (KeyError, TypeError) as error:
            known = ", ".join(self._given.descriptors)
            raise InvalidError(
                f"the row {row!r} is not one of operator {self._operator}",
                remedy=f'Write {{"key": …, "state": …, "value": …}}, with one of these states: {known}.',
            ) from error
        return descriptor

    def _keep_whole(self, descriptor: StateDescriptor[Any], row: Mapping[str, Any]) -> None:
        """Lists of several subtasks become one; the maps of all are alike."""
        name, whole = descriptor.name, self._value(descriptor, row)
        before = self._wholes.get(name)
        if whole is None or (whole == before and descriptor.kind in MAPS):
            return
        if before is not None and descriptor.kind in MAPS:
            raise InvalidError(
                f"two rows give broadcast state {name} of operator {self._operator}, and not the same",
                remedy="Give one row with the whole map.",
            )
        form = descriptor.stored.id
        elements = [] if before is None else split_elements(before, form)
        self._wholes[name] = whole if before is None else join_elements(elements + split_elements(whole, form), form)

    def _value(self, descriptor: StateDescriptor[Any], row: Mapping[str, Any]) -> bytes | None:
        """None for what leaves nothing behind."""
        try:
            return _encode(descriptor, row["value"])
        except InvalidError as error:
            where = place(self._operator) + (f", key {row['key']!r}" if descriptor.is_keyed else "")
            raise InvalidError(error.failure.message, remedy=error.failure.remedy, where=where) from error


def _encode(descriptor: StateDescriptor[Any], value: Any) -> bytes | None:
    admit = descriptor.element.admit
    if descriptor.kind in LISTS:
        if not isinstance(value, list | tuple):
            raise InvalidError(f"state {descriptor.name} is a list and was given a {type(value).__name__}")
        return descriptor.stored.encode(list(map(admit, value))) if value else None
    if descriptor.kind in MAPS:
        assert isinstance(descriptor, MapState), f"{descriptor} is of kind {descriptor.kind}"
        if not isinstance(value, Mapping):
            raise InvalidError(f"state {descriptor.name} is a map and was given a {type(value).__name__}")
        pairs = [(descriptor.key.admit(key), admit(part)) for key, part in value.items()]
        return descriptor.stored.encode(pairs) if pairs else None
    return descriptor.stored.encode(admit(value))
