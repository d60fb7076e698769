"""From a manifest to what is deployed: whether this program can go on from that checkpoint, and what each worker
restores. Pure."""

import msgspec

from tidegate.checkpoint.manifest import Manifest, OperatorRecord
from tidegate.checkpoint.protocol import StateHandle, StateInfo
from tidegate.errors import InvalidError
from tidegate.graph.logical import LogicalGraph, LogicalNode
from tidegate.graph.physical import PhysicalGraph
from tidegate.ids import OperatorName, SubtaskIndex, WorkerIndex
from tidegate.runtime.control import RestoredOperator
from tidegate.scheduling.settings import JobSettings
from tidegate.serializers import check_evolution
from tidegate.state.key_groups import groups_of, merge_key_types
from tidegate.state.key_types import ANY, KeyLayout, parse_layout

_GO_BACK = (
    "Run the program that wrote it, give --allow-non-restored-state to drop what it has no place for, or start with "
    "--fresh to begin without state."
)


def check_restorable(
    manifest: Manifest, graph: LogicalGraph, settings: JobSettings, what: str | None = None
) -> tuple[str, ...]:
    """What of `manifest` the program leaves behind, each in a sentence: nothing, unless `allow_non_restored_state`.

    Raises InvalidError when `graph` cannot go on from it: max parallelism, states or sources that are gone, states of
    another kind or of types that their values cannot be read under. Each message names the thing, what was stored and
    what the program has. what: how people call the manifest; None: 'checkpoint 7'.
    """
    what = what or f"checkpoint {manifest.checkpoint}"
    if manifest.max_parallelism != settings.max_parallelism:
        raise InvalidError(
            f"{what} was written with max_parallelism {manifest.max_parallelism}, the job now has "
            f"{settings.max_parallelism}",
            remedy=f"Set max_parallelism to {manifest.max_parallelism}: keys were given to groups by it.",
        )
    nodes = {node.name: node for node in graph.nodes}
    left = [text for record in manifest.operators for text in _left_behind(record, nodes.get(record.name), what)]
    if left and not settings.allow_non_restored_state:
        raise InvalidError("; ".join(left), remedy=_GO_BACK)
    for record in manifest.operators:
        if record.name in nodes:
            _check_operator(record, nodes[record.name], what)
            _check_keys(record, graph.key_types(nodes[record.name]), what)
    return tuple(f"{text}: dropped" for text in left)


def _left_behind(record: OperatorRecord, node: LogicalNode | None, what: str) -> list[str]:
    """What the program has no place for."""
    stored = _stored_states(record)
    if node is None:
        if not record.splits and not stored:
            return []
        kind = "source" if record.splits else "operator"
        return [f"{what} has state of the {kind} {record.name!r}, which the program does not have"]
    left = []
    if record.splits and node.source is None:
        left.append(f"{what} has {record.name!r} as a source, the program as {node.kind}")
    declared = {state.name for state in node.states}
    return left + [
        f"{what} has state {name!r} of operator {record.name!r}, which the program does not declare"
        for name in stored
        if name not in declared
    ]


def _stored_states(record: OperatorRecord) -> dict[str, StateInfo]:
    """Every state by name, with keys or without."""
    return {
        state.name: state for snapshot in record.snapshots for state in (*snapshot.states, *snapshot.operator_states)
    }


def _check_operator(record: OperatorRecord, node: LogicalNode, what: str) -> None:
    if node.source is not None and record.splits:
        _check_bounds(record, node.source.bounded, what)
    declared = {state.name: state for state in node.states}
    for name, stored in _stored_states(record).items():
        if name not in declared:
            continue
        if declared[name].kind != stored.kind:
            raise InvalidError(
                f"state {name!r} of operator {record.name!r} is a {stored.kind} state in {what}, "
                f"and a {declared[name].kind} state in the program",
                remedy="Declare it as it was, or give the new state another name.",
            )
        check_evolution(stored, declared[name], f"operator {record.name} in {what}")


def _check_keys(record: OperatorRecord, declared: tuple[str, ...], what: str) -> None:
    """A key's type decides where its state is, so it never changes as long as there is any. One that is not declared
    shows with the first key."""
    for stored in dict.fromkeys(one.key_type for one in record.snapshots if one.key_type and one.handles):
        for key_type in declared or ("",):
            _check_partitions(record, stored, key_type, what)
            if merge_key_types(stored, key_type) is None:
                raise InvalidError(
                    f"operator {record.name!r} has keys of type {stored} in {what}, and of type {key_type} in the "
                    "program",
                    remedy="A key can never change its type: convert it in key_by, or give the operator another name.",
                )


def _check_partitions(record: OperatorRecord, stored: str, declared: str, what: str) -> None:
    """Partitions decide where a key's state is, as its type does; what is not declared is not co-partitioned."""
    then, now = parse_layout(stored), parse_layout(declared) if declared else ANY
    if then.partitions != now.partitions:
        raise InvalidError(
            f"operator {record.name!r} has {_partitions(then)} in {what}, and {_partitions(now)} in the program",
            remedy=f"{_as_before(then)}, give the operator another name, or write the state anew: write_savepoint with "
            f"{_written_anew(then, now)} gives all its keys to other groups.",
        )


def _partitions(layout: KeyLayout) -> str:
    return "keys without partitions" if layout.partitions is None else f"keys in {layout.partitions}"


def _as_before(layout: KeyLayout) -> str:
    if layout.partitions is None:
        return "Leave partitions= out of key_by"
    return f"Give key_by partitions={layout.partitions.count} and partitioner={layout.partitions.partitioner!r} again"


def _written_anew(stored: KeyLayout, declared: KeyLayout) -> str:
    now = declared.partitions
    arguments = "" if now is None else f", partitions={now.count}, partitioner={now.partitioner!r}"
    return f"OperatorRows({{}}, (), key={stored.name}{arguments})"


def _check_bounds(record: OperatorRecord, is_bounded: bool, what: str) -> None:
    """Where splits stop was settled when they were found. Gone on with otherwise, a job would wait for ever at the old
    ends, or never end."""
    was_bounded = any(split.stop is not None for split in record.splits)
    if was_bounded != is_bounded:
        then, now = ("bounded", "unbounded") if was_bounded else ("unbounded", "bounded")
        raise InvalidError(
            f"source {record.name!r} was {then} in {what}, and the program has it {now}",
            remedy=f"Leave it {then}, or start with --fresh to begin without state.",
        )


def restored_for(manifest: Manifest, physical: PhysicalGraph, worker: WorkerIndex) -> tuple[RestoredOperator, ...]:
    """What the tasks of one worker restore: of each operator, all subtasks' snapshots in order, with the handles of its
    own key groups, each of which then stands for these groups alone."""
    return tuple(
        _restored(record, physical.vertex(vertex.name).parallelism, physical.max_parallelism, worker)
        for vertex in physical.vertices
        if worker < vertex.parallelism
        for record in manifest.operators
        if record.name in vertex.operators
    )


def _restored(record: OperatorRecord, parallelism: int, max_parallelism: int, worker: WorkerIndex) -> RestoredOperator:
    groups = groups_of(SubtaskIndex(worker), parallelism, max_parallelism)
    kept = tuple(
        msgspec.structs.replace(snapshot, handles=_clipped(snapshot.handles, groups), splits=(), pending=())
        for snapshot in record.snapshots
    )
    return RestoredOperator(OperatorName(record.name), record.ended, kept)


def _clipped(handles: tuple[StateHandle, ...], groups: range) -> tuple[StateHandle, ...]:
    clipped = (
        msgspec.structs.replace(
            handle,
            first_group=max(handle.first_group, groups.start),
            last_group=min(handle.last_group, groups.stop - 1),
        )
        for handle in handles
    )
    return tuple(handle for handle in clipped if handle.first_group <= handle.last_group)
