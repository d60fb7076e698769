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
from tidegate.state.key_groups import KeyChecker, grouping_of
from tidegate.state.key_partitions import MURMUR2, KeyPartitions
from tidegate.state.key_types import parse_layout
from tidegate.state.keys import NONE, encode_key
from tidegate.state.pieces import StoredRow


class OperatorRows:
    """The state that one operator is to begin with.

    states: the class of its function, or declarations by name. rows: what `read_state` gives, `{"key": "ann", "state":
    "total", "value": 12}`, one for each key and state: a list for a list state, a dict for a map state, the accumulator
    for an aggregating state; of state without keys, without a key. key: the type of its keys; if left out, that of the
    savepoint that is taken over, or of the first key. partitions, partitioner: as `key_by` has them; together with
    `key` they say how keys are given to groups, also those of states that are taken over. With `key` there need be no
    state: `OperatorRows({}, (), key=str, partitions=8)` takes over all states for an input of 8 partitions.
    Raises InvalidError for what declares nothing, or partitions without a number and a partitioner that are known.
    """

    def __init__(
        self,
        states: type | Mapping[str, StateDescriptor[Any]],
        rows: Iterable[Mapping[str, Any]],
        *,
        key: Any = None,
        partitions: int | None = None,
        partitioner: str = MURMUR2,
    ) -> None:
        found = collect_descriptors(states).values() if isinstance(states, type) else _named(states)
        self.descriptors = {descriptor.name: descriptor for descriptor in found}
        if not self.descriptors and key is None:
            raise InvalidError(f"{states} declares no state", remedy="Give the class of the operator's function.")
        self.rows = rows
        self.key = key
        self.partitions = None if partitions is None else KeyPartitions.declared(partitions, partitioner)


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
        self._checker = _checker(record, given, max_parallelism)
        self._grouping = grouping_of(self._checker.key_type, max_parallelism)
        self._takes_none = given.partitions is None
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
                yield StoredRow(descriptor.name, self._grouping.group_of(encoded), encoded, value)

    def kept(self, row: StoredRow) -> StoredRow:
        """A row that is taken over, in the group that its key has here. Raises InvalidError for one that has none."""
        if row.key == NONE and not self._takes_none:
            raise InvalidError(
                f"state {row.state} has something for the key None, which is in no partition",
                remedy="Leave partitions= out, or give the state's rows without that one.",
                where=place(self._operator),
            )
        return row._replace(group=self._grouping.group_of(row.key))

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


def _checker(record: OperatorRecord, given: OperatorRows, max_parallelism: int) -> KeyChecker:
    """Of the keys of an operator: what was given of their type holds, and what is taken over fits into it."""
    base = key_type_of(record)
    if given.key is None and given.partitions is None:
        return KeyChecker.of_type(record.name, base)
    if given.partitions is not None:
        given.partitions.require_groups(max_parallelism, place(record.name))
    checker = KeyChecker(record.name, given.key, given.partitions)
    if base:
        # Rows that are taken over get the groups that their keys have here.
        checker.expect_layout(parse_layout(base)._replace(partitions=given.partitions))
    return checker


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
