"""Savepoints made of rows instead of by a running job: so that a job begins with a history, or goes on with state that
was changed by hand.

What is written is what a job would have stored: keys and values go through the serializers of the program's own
declarations, which refuse what does not belong. Rows stream through; they may be more than memory holds.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from tidegate.checkpoint.manifest import FORMAT, Manifest, OperatorRecord, SubtaskRecord
from tidegate.checkpoint.protocol import OperatorSnapshot, StateHandle, StateInfo, least_watermark
from tidegate.checkpoint.store import checksum
from tidegate.clock import Clock, SystemClock
from tidegate.errors import InvalidError
from tidegate.ids import Attempt, CheckpointId, JobName, LogInstance, OperatorName, SubtaskIndex, is_name
from tidegate.savepoints.exporting import copy_snapshot, write_rows
from tidegate.savepoints.format import SavepointWriter, map_snapshots, writing
from tidegate.savepoints.operator_rows import OperatorRows, RowEncoder
from tidegate.savepoints.places import StoredState, open_stored
from tidegate.savepoints.rows import read_operator
from tidegate.savepoints.sorting import sort_by_group
from tidegate.state.key_groups import DEFAULT_MAX_PARALLELISM
from tidegate.state.operator_pieces import ELEMENTS, read_operator_piece, write_operator_piece
from tidegate.state.operator_state import NO_GROUPS
from tidegate.state.pieces import StoredRow
from tidegate.storage.resolve import open_storage


def write_savepoint(
    path: str | Path,
    *,
    operators: Mapping[str, OperatorRows],
    job: str = "",
    max_parallelism: int | None = None,
    base: str | Path | None = None,
    checkpoint: int | None = None,
    drop: Sequence[str] = (),
    clock: Clock | None = None,
) -> None:
    """Write a savepoint into the folder or URL `path`, which must not hold anything; begin a job from it with
    `--from-savepoint`.

    operators: by name. base: a savepoint or a job's checkpoint (`checkpoint`; the newest if left out) of which all else
    is taken over: the operators that are not named here, also the sources with their positions, and of those that are
    the states that are not declared here, in the groups that the type of their keys here gives to them. drop: operators
    of `base` that are left out. job, max_parallelism: of `base`, or else needed, and 128. It must be the job's: keys
    are given to groups by it.

    Raises InvalidError, naming operator and key, for rows that do not fit; the target then holds nothing again.
    """
    with TemporaryDirectory(prefix="tidegate-") as scratch:
        stored = None if base is None else open_stored(str(base), checkpoint)
        begun = _begin(stored, job, max_parallelism, (clock or SystemClock()).now().wall)
        if stored is not None:
            _check_base(stored, drop)
        storage = open_storage(str(path), writable=True)
        writing(storage, lambda writer: _Writing(begun, stored, writer, Path(scratch)).run(operators, drop))


def _begin(stored: StoredState | None, job: str, max_parallelism: int | None, now: float) -> Manifest:
    """The manifest without operators."""
    if stored is None:
        if not is_name(job):
            raise InvalidError(
                f"{job!r} cannot name a job", remedy="Give job=, the name of the job that begins from it."
            )
        count = DEFAULT_MAX_PARALLELISM if max_parallelism is None else max_parallelism
        numbers = (Attempt(0), CheckpointId(0), 1, count, now, 0.0)
        return Manifest(FORMAT, JobName(job), LogInstance("written"), *numbers, ())
    count = stored.manifest.max_parallelism
    if max_parallelism not in (None, count):
        raise InvalidError(
            f"{stored.location} has max_parallelism {count}, which cannot become {max_parallelism}",
            remedy="Leave it out: keys were given to groups by it.",
        )
    name = JobName(job) if job else stored.manifest.job
    return msgspec.structs.replace(stored.manifest, job=name, operators=(), triggered_at=now, duration=0.0)


def _check_base(stored: StoredState, drop: Sequence[str]) -> None:
    pending = [record.name for record in stored.manifest.operators if record.pending]
    if pending:
        raise InvalidError(
            f"{stored.location} names transactions of {', '.join(pending)} that are still to be committed",
            remedy="Take a savepoint of the job, and use that.",
        )
    there = [record.name for record in stored.manifest.operators]
    for name in drop:
        if name not in there:
            raise InvalidError(f"{stored.location} has no operator {name!r}", remedy=f"It has: {', '.join(there)}.")


class _Writing:
    """One savepoint in the making."""

    def __init__(self, begun: Manifest, stored: StoredState | None, writer: SavepointWriter, scratch: Path) -> None:
        self._begun = begun
        self._stored = stored
        self._writer = writer
        self._scratch = scratch

    def run(self, operators: Mapping[str, OperatorRows], drop: Sequence[str]) -> None:
        records = [
            self._operator(record, operators[record.name]) if record.name in operators else self._copied(record)
            for record in (self._stored.manifest.operators if self._stored else ())
            if record.name not in drop
        ]
        known = {record.name for record in records}
        records += [self._operator(_new_record(name), given) for name, given in operators.items() if name not in known]
        self._writer.finish(_identified(msgspec.structs.replace(self._begun, operators=tuple(records))))

    def _copied(self, record: OperatorRecord) -> OperatorRecord:
        assert self._stored is not None
        manifest, files = msgspec.structs.replace(self._stored.manifest, operators=(record,)), self._stored.files
        (copied,) = map_snapshots(
            manifest,
            lambda _, snapshot: copy_snapshot(
                snapshot, files, self._writer, self._begun.max_parallelism, self._scratch / "copy"
            ),
        )
        return copied

    def _operator(self, record: OperatorRecord, given: OperatorRows) -> OperatorRecord:
        encoder = RowEncoder(record, given, self._begun.max_parallelism)
        kept = tuple(info for info in _infos(record) if info.name not in given.descriptors)
        declared = tuple(one.info for one in given.descriptors.values() if one.is_keyed)
        states = (*kept, *declared)
        with TemporaryDirectory(prefix="rows-", dir=self._scratch) as folder:
            rows = chain(map(encoder.kept, self._kept(record, kept)), encoder.keyed())
            ordered = sort_by_group(rows, self._begun.max_parallelism, Path(folder))
            # The type of the keys is known when all rows have been seen, which sorting them does.
            first = next(ordered, None)
            handles = self._write(record.name, chain(() if first is None else (first,), ordered), states, encoder)
        # Which subtask had a key is not known any more: none of them may be taken to have come further than all.
        time = least_watermark(record.snapshots)
        subtasks = [self._without(subtask, given, encoder.key_type, states, time) for subtask in record.subtasks]
        own = subtasks[0].snapshot
        elements = self._write_elements(record.name, encoder.wholes)
        own = msgspec.structs.replace(own, handles=handles, operator_handles=(*own.operator_handles, *elements))
        subtasks[0] = msgspec.structs.replace(subtasks[0], snapshot=own)
        return msgspec.structs.replace(record, ended=False, subtasks=tuple(subtasks))

    def _kept(self, record: OperatorRecord, kept: tuple[StateInfo, ...]) -> Iterator[StoredRow]:
        if self._stored is None or not kept:
            return
        names = {info.name for info in kept}
        groups = range(self._begun.max_parallelism)
        for row in read_operator(record, self._stored.files, groups, self._scratch / "base"):
            if row.state in names:
                yield row

    def _write(
        self, operator: OperatorName, rows: Iterator[StoredRow], states: tuple[StateInfo, ...], encoder: RowEncoder
    ) -> tuple[StateHandle, ...]:
        count = self._begun.max_parallelism
        names = tuple(info.name for info in states)
        return write_rows(rows, self._writer, operator, range(count), count, encoder.key_type, names)

    def _write_elements(self, operator: OperatorName, wholes: Sequence[tuple[str, bytes]]) -> tuple[StateHandle, ...]:
        if not wholes:
            return ()
        return (self._writer.write_state(operator, write_operator_piece(wholes), NO_GROUPS, form=ELEMENTS),)

    def _without(
        self,
        subtask: SubtaskRecord,
        given: OperatorRows,
        key_type: str,
        states: tuple[StateInfo, ...],
        watermark: int | None,
    ) -> SubtaskRecord:
        """What is left of a subtask: its keyed state is written anew, for all subtasks together."""
        snapshot = subtask.snapshot
        kept = tuple(info for info in snapshot.operator_states if info.name not in given.descriptors)
        declared = tuple(one.info for one in given.descriptors.values() if not one.is_keyed)
        names = {info.name for info in kept}
        pieces = [] if self._stored is None else map(self._stored.files.read_state, snapshot.operator_handles)
        wholes = [(name, whole) for piece in pieces for name, whole in read_operator_piece(piece) if name in names]
        changed = msgspec.structs.replace(
            snapshot,
            ended=False,
            key_type=key_type,
            states=states,
            handles=(),
            operator_states=(*kept, *declared),
            operator_handles=self._write_elements(snapshot.name, wholes),
            watermark=watermark,
        )
        return msgspec.structs.replace(subtask, snapshot=changed)


def _identified(manifest: Manifest) -> Manifest:
    """With an instance of its own, by which a job knows this savepoint from any other that may lie in its place."""
    digest = checksum(msgspec.json.encode(manifest))
    return msgspec.structs.replace(manifest, instance=LogInstance(f"written-{digest[:16]}"))


def _infos(record: OperatorRecord) -> tuple[StateInfo, ...]:
    return tuple(dict.fromkeys(info for snapshot in record.snapshots for info in snapshot.states))


def _new_record(name: str) -> OperatorRecord:
    if not is_name(name):
        raise InvalidError(f"{name!r} cannot name an operator", remedy="Use 1 to 64 letters, digits, '_' and '-'.")
    snapshot = OperatorSnapshot(OperatorName(name))
    return OperatorRecord(OperatorName(name), 1, False, (SubtaskRecord(SubtaskIndex(0), snapshot),))
