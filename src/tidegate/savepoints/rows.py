"""Rows of keyed state from what any backend stored, without the program: the one place that knows every form.

Rows come in ascending order of key groups, so that whoever compares, joins or writes them needs to hold one group at a
time. Within a group their order says nothing.
"""

from collections.abc import Generator, Iterable, Iterator
from itertools import groupby
from pathlib import Path

from tidegate.checkpoint.manifest import OperatorRecord
from tidegate.checkpoint.protocol import OperatorSnapshot
from tidegate.errors import CorruptError
from tidegate.ids import KeyGroup
from tidegate.state.backend import PIECE, StoredFiles
from tidegate.state.chain import read_rows as read_pieces
from tidegate.state.pieces import StoredRow
from tidegate.state.rocksdb import ROCKSDB
from tidegate.state.rocksdb import read_rows as read_database

Rows = Generator[StoredRow, None, None]
"""Closed when not read to the end."""


def read_rows(snapshot: OperatorSnapshot, files: StoredFiles, groups: range, scratch: Path) -> Rows:
    """The keyed state of one subtask, as far as it is of `groups`, in ascending order of groups. Blocks.

    scratch: a folder of its own, not there yet, for what must lie on a disk to be read; it is gone when the rows are
    read or closed.
    Raises CorruptError, InvalidError when a form needs a package that is not installed, StorageUnavailable.
    """
    forms = {handle.form for handle in snapshot.handles}
    if not forms:
        return
    if forms == {PIECE}:
        yield from read_pieces(snapshot, files, groups)
    elif forms == {ROCKSDB}:
        scratch.parent.mkdir(parents=True, exist_ok=True)
        yield from read_database(snapshot, files, groups, scratch)
    else:
        raise CorruptError(
            f"state of operator {snapshot.name} is stored in the forms {', '.join(sorted(forms))}, "
            "which cannot be read together",
            remedy="Read it with the version of Tidegate that wrote it, or a later one.",
        )


def read_operator(record: OperatorRecord, files: StoredFiles, groups: range, scratch: Path) -> Rows:
    """The keyed state of an operator, all its subtasks together. As `read_rows`."""
    with_state = [subtask for subtask in record.subtasks if _overlaps(subtask.snapshot, groups)]
    for subtask in sorted(with_state, key=lambda subtask: min(h.first_group for h in subtask.snapshot.handles)):
        yield from read_rows(subtask.snapshot, files, groups, scratch / f"{record.name}.{subtask.subtask}")


def _overlaps(snapshot: OperatorSnapshot, groups: range) -> bool:
    return any(handle.first_group < groups.stop and groups.start <= handle.last_group for handle in snapshot.handles)


def by_group(rows: Iterable[StoredRow]) -> Iterator[tuple[KeyGroup, list[StoredRow]]]:
    """`rows`, which are in ascending order of groups, group by group."""
    for group, found in groupby(rows, key=lambda row: row.group):
        yield group, list(found)
