"""From a completed checkpoint to a savepoint: the same state in the canonical form, whatever backend wrote it.

Rows stream through, a key group at a time. The checkpoint's own files are only read, and must stay until this is done.
"""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from tidegate.checkpoint.manifest import Manifest, OperatorRecord
from tidegate.checkpoint.protocol import OperatorSnapshot, StateHandle
from tidegate.errors import InternalError
from tidegate.ids import OperatorName
from tidegate.savepoints.format import SavepointWriter, map_snapshots, writing
from tidegate.savepoints.rows import by_group, read_rows
from tidegate.state.backend import PIECE, StoredFiles
from tidegate.state.pieces import StoredRow
from tidegate.state.runs import RunWriter
from tidegate.storage.port import Storage


def export_savepoint(manifest: Manifest, files: StoredFiles, target: Storage, scratch: Path) -> None:
    """Write `manifest`, everything of which is committed, as a savepoint into `target`, which holds nothing.

    scratch: a folder for what must lie on a disk to be read. Raises InvalidError when the target holds something,
    CorruptError when the checkpoint cannot be read, StorageUnavailable; the target then holds nothing again.
    """

    def write(writer: SavepointWriter) -> None:
        def copy(record: OperatorRecord, snapshot: OperatorSnapshot) -> OperatorSnapshot:
            return copy_snapshot(snapshot, files, writer, manifest.max_parallelism, scratch / record.name)

        writer.finish(msgspec.structs.replace(manifest, operators=tuple(map_snapshots(manifest, copy))))

    writing(target, write)


def copy_snapshot(
    snapshot: OperatorSnapshot, files: StoredFiles, writer: SavepointWriter, max_parallelism: int, scratch: Path
) -> OperatorSnapshot:
    """`snapshot` with its state written as files of a savepoint, and nothing left to commit."""
    rows = read_rows(snapshot, files, range(max_parallelism), scratch)
    states = tuple(state.name for state in snapshot.states)

    def copied(handle: StateHandle) -> StateHandle:
        groups = range(handle.first_group, handle.last_group + 1)
        data = files.read_state(handle)
        return handle if handle.path is None else writer.write_state(snapshot.name, data, groups, form=handle.form)

    return msgspec.structs.replace(
        snapshot,
        pending=(),
        handles=write_rows(
            rows, writer, snapshot.name, groups_of(snapshot), max_parallelism, snapshot.key_type, states
        ),
        operator_handles=tuple(map(copied, snapshot.operator_handles)),
    )


def groups_of(snapshot: OperatorSnapshot) -> range:
    """The groups from the first to the last for which its handles stand."""
    first = min((handle.first_group for handle in snapshot.handles), default=0)
    return range(first, max((handle.last_group for handle in snapshot.handles), default=0) + 1)


def write_rows(
    rows: Iterable[StoredRow],
    writer: SavepointWriter,
    operator: OperatorName,
    groups: range,
    max_parallelism: int,
    key_type: str,
    states: tuple[str, ...],
) -> tuple[StateHandle, ...]:
    """Write `rows`, which are in order of groups, as full pieces that together stand for `groups`. () without rows."""
    files = _Files(writer, operator)
    run = RunWriter(files, "", groups, max_parallelism, key_type, states, is_full=True)
    for group, found in by_group(rows):
        for state in states:
            run.add(group, state, ((row.key, row.value) for row in found if row.state == state))
    written = run.finish()
    return () if written is None else written.pieces


class _Files:
    """The files of one operator in a savepoint. See `SnapshotFiles`."""

    def __init__(self, writer: SavepointWriter, operator: OperatorName) -> None:
        self._writer = writer
        self._operator = operator

    def write(self, part: str, data: bytes, groups: range, *, form: str = PIECE, name: str = "") -> StateHandle:
        """`part` says nothing here: files are numbered."""
        return self._writer.write_state(self._operator, data, groups, form=form, name=name)

    def read_state(self, handle: StateHandle) -> bytes:
        raise InternalError(f"{handle.path} of a savepoint is read while it is written")
