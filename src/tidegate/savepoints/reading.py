"""Stored state as rows, without running the job: of a checkpoint or a savepoint, whatever backend wrote it.

One key group is held at a time, so state may be larger than memory; of co-partitioned keys that is what one partition
has. Nothing stored is changed.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, NotRequired, TypedDict

from tidegate.checkpoint.manifest import OperatorRecord
from tidegate.checkpoint.protocol import StateInfo
from tidegate.errors import CorruptError, InvalidError
from tidegate.ids import KeyGroup, OperatorName
from tidegate.savepoints.keys import plain_key, stored_key
from tidegate.savepoints.places import StoredState, open_stored
from tidegate.savepoints.rows import by_group, read_operator
from tidegate.savepoints.values import Decode, plain_value, typed_value
from tidegate.state.descriptors import StateDescriptor, collect_descriptors
from tidegate.state.key_groups import grouping_of, merge_key_types
from tidegate.state.key_types import ANY, KeyLayout, decode_keys, parse_layout
from tidegate.state.operator_pieces import read_operator_piece
from tidegate.state.pieces import StoredRow

Decoders = type | Mapping[str, StateDescriptor[Any] | Callable[[bytes], Any]]
"""The program's types for values: a function's class, or by state a declaration or a function of the stored bytes."""


class NoKey:
    """No key was given; None is a key like any other."""


NO_KEY = NoKey()


class StateRow(TypedDict):
    """What one key has in one state; of state without keys, what one subtask has."""

    state: str
    key: Any
    """None for state without keys."""
    value: Any
    """A list for a list state, a dict for a map state, the accumulator of an aggregating state."""
    subtask: NotRequired[int]
    """Of state without keys."""


class StateListing(NamedTuple):
    """One state of one operator, as far as it is known without reading it."""

    operator: str
    state: str
    kind: str
    type: str
    serializer: str
    key_type: str
    """'' for state without keys, and where there was no key yet."""


def list_states(where: str | Path, checkpoint: int | None = None) -> list[StateListing]:
    """Every state that the checkpoint or savepoint `where` holds, by operator. Places and errors: see `read_state`."""
    return listings_of(open_stored(str(where), checkpoint))


def listings_of(stored: StoredState) -> list[StateListing]:
    found: dict[StateListing, None] = {}
    for record in stored.manifest.operators:
        key_type = key_type_of(record)
        for snapshot in record.snapshots:
            for info in (*snapshot.states, *snapshot.operator_states):
                key = key_type if info in snapshot.states else ""
                found[StateListing(record.name, info.name, info.kind, info.value_type, info.serializer, key)] = None
    return list(found)


def read_state(
    where: str | Path,
    operator: str,
    *,
    state: str | None = None,
    key: Any = NO_KEY,
    checkpoint: int | None = None,
    decode: Decoders | None = None,
) -> "StateRows":
    """The state of one operator, as rows.

    where: the folder or URL of a savepoint, a job, or one that holds a single job. state: only this one; the engine's
    own (`.timers`) come only by name. key: only this key, plain (a dict for a record, a tuple for a tuple) or as the
    program has it. checkpoint: of a job, which completed checkpoint; the newest if left out. decode: what makes the
    program's objects of keys and values: the function's class (`decode=RunningTotal`); or of values alone, by state a
    declaration or a function of the bytes. Without it records are dicts, and what was pickled is bytes.

    Raises InvalidError, naming what there is, for an operator or a state that there is not, and as reading does:
    CorruptError, StorageUnavailable.
    """
    return StateRows(open_stored(str(where), checkpoint), operator, state, key, decode)


class StateRows:
    """Rows of one operator's state. Each iteration reads them anew."""

    def __init__(
        self,
        stored: StoredState,
        operator: str,
        state: str | None = None,
        key: Any = NO_KEY,
        decode: Decoders | None = None,
    ) -> None:
        self.stored = stored
        self.record = _operator(stored, operator)
        self.states = _states(stored, self.record, state)
        """With keys."""
        self.subtask_states = () if key is not NO_KEY else _subtask_states(self.record, state)
        """Without keys."""
        self.key_type = key_type_of(self.record)
        self.key_layout = parse_layout(self.key_type) if self.key_type else ANY
        self.max_parallelism = stored.manifest.max_parallelism
        self._key = None if key is NO_KEY else stored_key(key, self.key_layout)
        self._has_typed_keys = isinstance(decode, type)
        decoders = _decoders(self.record, decode)
        self._values = {info.name: _decoder(info, decoders) for info in (*self.states, *self.subtask_states)}

    def __repr__(self) -> str:
        names = ", ".join(info.name for info in (*self.states, *self.subtask_states))
        return f"StateRows({self.record.name}: {names}; {self.stored.location})"

    def __iter__(self) -> Iterator[StateRow]:
        for _, rows in self.groups():
            keys = self.decode_keys([row.key for row in rows])
            for row, key in zip(rows, keys, strict=True):
                yield {"state": row.state, "key": key, "value": self._values[row.state](row.value)}
        yield from self.subtask_rows()

    def arrow(self) -> Any:
        """All of it as a `pyarrow.Table`: one row a key, one column a state. Raises InvalidError without pyarrow."""
        from tidegate.savepoints.tables import table

        return table(self)

    def dataframe(self) -> Any:
        """All of it as a `pandas.DataFrame`, as `arrow`. Raises InvalidError without pyarrow or pandas."""
        from tidegate.savepoints.tables import dataframe

        return dataframe(self)

    def write(self, path: str | Path, file_format: str = "parquet") -> int:
        """Write a 'parquet' or 'arrow' file as `arrow` says, a batch at a time; returns its number of rows."""
        from tidegate.savepoints.tables import write_table

        return write_table(self, Path(path), file_format)

    def groups(self) -> Iterator[tuple[KeyGroup, list[StoredRow]]]:
        """The rows with keys, as they are stored, group by group."""
        wanted = {info.name for info in self.states}
        if not wanted:
            return
        groups = range(self.max_parallelism)
        if self._key is not None:
            group = grouping_of(self.key_type, self.max_parallelism).group_of(self._key)
            groups = range(group, group + 1)
        with TemporaryDirectory(prefix="tidegate-") as scratch:
            rows = read_operator(self.record, self.stored.files, groups, Path(scratch))
            with closing(rows):
                chosen = (row for row in rows if row.state in wanted and self._key in (None, row.key))
                yield from by_group(chosen)

    def subtask_rows(self) -> Iterator[StateRow]:
        """The rows without keys."""
        for subtask in self.record.subtasks:
            for handle in subtask.snapshot.operator_handles:
                for name, whole in read_operator_piece(self.stored.files.read_state(handle)):
                    if any(info.name == name for info in self.subtask_states):
                        value = self._values[name](whole)
                        yield {"state": name, "key": None, "value": value, "subtask": subtask.subtask}

    def decode_keys(self, encoded: list[bytes]) -> list[Any]:
        """Keys from their canonical bytes: plain ones, or as the program has them where its class was given."""
        if self._has_typed_keys:
            return decode_keys(encoded, self.key_layout)
        return [plain_key(data, self.key_layout) for data in encoded]


def key_type_of(record: OperatorRecord) -> str:
    """The type of the keys of an operator, '' where it had none. Raises CorruptError when its subtasks disagree."""
    merged = ""
    for snapshot in record.snapshots:
        both = merge_key_types(merged, snapshot.key_type)
        if both is None:
            raise CorruptError(f"operator {record.name} has keys of type {merged} and of type {snapshot.key_type}")
        merged = both
    return merged


def key_layout_of(stored: StoredState, operator: str) -> KeyLayout:
    """The type of the keys of `operator`. Raises InvalidError where there is no such operator with state."""
    key_type = key_type_of(_operator(stored, operator))
    return parse_layout(key_type) if key_type else ANY


def _operator(stored: StoredState, name: str) -> OperatorRecord:
    record = stored.manifest.operator(OperatorName(name))
    if record is not None and any(snapshot.states or snapshot.operator_states for snapshot in record.snapshots):
        return record
    what = f"no operator {name!r}" if record is None else f"no state of operator {name!r}"
    there = dict.fromkeys(listing.operator for listing in listings_of(stored))
    remedy = f"With state there are: {', '.join(there)}." if there else "It holds no state at all."
    raise InvalidError(f"{stored.location} has {what}", remedy=remedy)


def _states(stored: StoredState, record: OperatorRecord, name: str | None) -> tuple[StateInfo, ...]:
    all_infos = dict.fromkeys(info for snapshot in record.snapshots for info in snapshot.states)
    others = dict.fromkeys(info for snapshot in record.snapshots for info in snapshot.operator_states)
    names = dict.fromkeys(info.name for info in (*all_infos, *others))
    if name is not None and name not in names:
        raise InvalidError(
            f"operator {record.name} has no state {name!r} in {stored.location}",
            remedy=f"It has: {', '.join(names)}.",
        )
    return tuple(info for info in all_infos if info.name == name or (name is None and not is_internal(info)))


def _subtask_states(record: OperatorRecord, name: str | None) -> tuple[StateInfo, ...]:
    infos = dict.fromkeys(info for snapshot in record.snapshots for info in snapshot.operator_states)
    return tuple(info for info in infos if info.name == name or (name is None and not is_internal(info)))


def is_internal(info: StateInfo) -> bool:
    """Whether it is the engine's own, such as timers: shown only to those who ask for it by name."""
    return info.name.startswith(".")


def _decoders(
    record: OperatorRecord, decode: Decoders | None
) -> Mapping[str, StateDescriptor[Any] | Callable[[bytes], Any]]:
    if isinstance(decode, type):
        return {descriptor.name: descriptor for descriptor in collect_descriptors(decode).values()}
    names = {info.name for snapshot in record.snapshots for info in (*snapshot.states, *snapshot.operator_states)}
    for name in decode or ():
        if name not in names:
            raise InvalidError(
                f"decode= names state {name!r}, which operator {record.name} does not have",
                remedy=f"It has: {', '.join(sorted(names))}.",
            )
    return decode or {}


def _decoder(info: StateInfo, decoders: Mapping[str, StateDescriptor[Any] | Callable[[bytes], Any]]) -> Decode:
    given = decoders.get(info.name)
    if given is None:
        return plain_value(info)
    return typed_value(info, given) if isinstance(given, StateDescriptor) else given
