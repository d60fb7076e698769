"""What is different between two checkpoints or savepoints: keys of each state, and positions of the sources.

Both are read side by side, a key group at a time. Values are compared as they are stored: one that was written anew
under another schema is another value.
"""

from collections.abc import Generator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from tidegate.checkpoint.manifest import Manifest, OperatorRecord
from tidegate.errors import InvalidError
from tidegate.ids import KeyGroup, OperatorName
from tidegate.savepoints.keys import plain_key
from tidegate.savepoints.places import StoredState
from tidegate.savepoints.reading import key_type_of
from tidegate.savepoints.rows import by_group, read_operator
from tidegate.state.key_types import ANY, KeyLayout, parse_layout
from tidegate.state.operator_pieces import read_operator_piece
from tidegate.state.pieces import StoredRow

ADDED = "added"
REMOVED = "removed"
CHANGED = "changed"


class KeyChange(NamedTuple):
    """A key of which a state has something else than before; of state without keys, a subtask."""

    operator: str
    state: str
    key: Any
    """Plain; the number of the subtask for state without keys."""
    how: str
    """'added', 'removed', 'changed'."""


class SplitChange(NamedTuple):
    """A split of a source. `before` is None where it was not there, `after` where it is not there any more."""

    operator: str
    split: str
    before: int | None
    after: int | None


def split_changes(before: Manifest, after: Manifest) -> list[SplitChange]:
    """Every split of both, moved or not."""
    positions = [
        {(record.name, split.id): split.position for record in manifest.operators for split in record.splits}
        for manifest in (before, after)
    ]
    both = sorted(positions[0].keys() | positions[1].keys())
    return [SplitChange(*split, positions[0].get(split), positions[1].get(split)) for split in both]


def key_changes(before: StoredState, after: StoredState, scratch: Path) -> Iterator[KeyChange]:
    """Every key that is not as it was, operator by operator. scratch: see `read_rows`.

    Raises InvalidError when keys were given to groups differently, and as reading does.
    """
    counts = (before.manifest.max_parallelism, after.manifest.max_parallelism)
    if counts[0] != counts[1]:
        raise InvalidError(
            f"{before.location} has max_parallelism {counts[0]} and {after.location} {counts[1]}",
            remedy="Only what was written with the same can be compared.",
        )
    names = dict.fromkeys(record.name for one in (before, after) for record in one.manifest.operators)
    for name in names:
        old, new = (one.manifest.operator(name) for one in (before, after))
        if _has_same_handles(old, new):
            continue
        layout = _layout(new) if new is not None and key_type_of(new) else _layout(old)
        _check_partitions(name, before, old, after, new)
        yield from _keyed(
            name, layout, _groups(before, old, scratch / "before"), _groups(after, new, scratch / "after")
        )
        yield from _compare(name, _by_subtask(before, old), _by_subtask(after, new))


def _has_same_handles(old: OperatorRecord | None, new: OperatorRecord | None) -> bool:
    """What has the same handles has the same content, and need not be read."""
    if old is None or new is None:
        return False
    return [snapshot.all_handles for snapshot in old.snapshots] == [snapshot.all_handles for snapshot in new.snapshots]


def _layout(record: OperatorRecord | None) -> KeyLayout:
    key_type = "" if record is None else key_type_of(record)
    return parse_layout(key_type) if key_type else ANY


def _check_partitions(
    name: OperatorName,
    before: StoredState,
    old: OperatorRecord | None,
    after: StoredState,
    new: OperatorRecord | None,
) -> None:
    types = [key_type_of(record) for record in (old, new) if record is not None]
    if all(types) and len({parse_layout(key_type).partitions for key_type in types}) > 1:
        raise InvalidError(
            f"operator {name!r} has keys of type {types[0]} in {before.location} and of type {types[1]} in "
            f"{after.location}",
            remedy="Keys can be compared only where they were given to groups alike.",
        )


Values = dict[tuple[str, Any], bytes]
"""By state and key."""
Groups = Generator[tuple[KeyGroup, list[StoredRow]], None, None]


def _groups(stored: StoredState, record: OperatorRecord | None, scratch: Path) -> Groups:
    if record is not None:
        rows = read_operator(record, stored.files, range(stored.manifest.max_parallelism), scratch)
        with closing(rows):
            yield from by_group(rows)


def _keyed(operator: OperatorName, layout: KeyLayout, before: Groups, after: Groups) -> Iterator[KeyChange]:
    with closing(before), closing(after):
        old, new = next(before, None), next(after, None)
        while old is not None or new is not None:
            group = min(one[0] for one in (old, new) if one is not None)
            olds = _values(old[1]) if old is not None and old[0] == group else {}
            news = _values(new[1]) if new is not None and new[0] == group else {}
            for change in _compare(operator, olds, news):
                yield change._replace(key=plain_key(change.key, layout))
            old = next(before, None) if old is not None and old[0] == group else old
            new = next(after, None) if new is not None and new[0] == group else new


def _values(rows: list[StoredRow]) -> Values:
    return {(row.state, row.key): row.value for row in rows}


def _by_subtask(stored: StoredState, record: OperatorRecord | None) -> Values:
    return {
        (name, subtask.subtask): whole
        for subtask in (record.subtasks if record is not None else ())
        for handle in subtask.snapshot.operator_handles
        for name, whole in read_operator_piece(stored.files.read_state(handle))
    }


def _compare(operator: OperatorName, before: Values, after: Values) -> Iterator[KeyChange]:
    for (state, key), value in before.items():
        if (state, key) not in after:
            yield KeyChange(operator, state, key, REMOVED)
        elif after[state, key] != value:
            yield KeyChange(operator, state, key, CHANGED)
    for state, key in after:
        if (state, key) not in before:
            yield KeyChange(operator, state, key, ADDED)
