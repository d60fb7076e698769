"""From a manifest to what is deployed: whether this program can go on from that checkpoint, and what each worker
restores. Pure."""

from tidegate.checkpoint.manifest import Manifest, OperatorRecord
from tidegate.checkpoint.protocol import OperatorSnapshot
from tidegate.errors import InvalidError
from tidegate.graph.logical import LogicalGraph, LogicalNode
from tidegate.graph.physical import PhysicalGraph
from tidegate.ids import OperatorName, SubtaskIndex, WorkerIndex
from tidegate.runtime.control import RestoredOperator
from tidegate.state.key_groups import groups_of

_GO_BACK = "Run the program that wrote the checkpoint, or start with --fresh to begin without state."


def check_restorable(manifest: Manifest, graph: LogicalGraph, max_parallelism: int) -> None:
    """Raise InvalidError when `graph` cannot go on from `manifest`: max parallelism, states or sources that are gone,
    states of another kind. Whether values fit is found where they are restored, before the first record. Each message
    names the thing, what was stored and what the program has."""
    what = f"checkpoint {manifest.checkpoint}"
    if manifest.max_parallelism != max_parallelism:
        raise InvalidError(
            f"{what} was written with max_parallelism {manifest.max_parallelism}, the job now has {max_parallelism}",
            remedy=f"Set max_parallelism to {manifest.max_parallelism}: keys were given to groups by it.",
        )
    nodes = {node.name: node for node in graph.nodes}
    for record in manifest.operators:
        node = nodes.get(record.name)
        if node is None:
            _check_nothing_is_left(record, what)
        else:
            _check_operator(record, node, what)


def _check_nothing_is_left(record: OperatorRecord, what: str) -> None:
    if record.splits or any(snapshot.states for snapshot in record.snapshots):
        kind = "source" if record.splits else "operator"
        raise InvalidError(
            f"{what} has state of the {kind} {record.name!r}, which the program does not have", remedy=_GO_BACK
        )


def _check_operator(record: OperatorRecord, node: LogicalNode, what: str) -> None:
    if record.splits and node.source is None:
        raise InvalidError(f"{what} has {record.name!r} as a source, the program as {node.kind}", remedy=_GO_BACK)
    if node.source is not None and record.splits:
        _check_bounds(record, node.source.bounded, what)
    now = {state.name: state for state in node.states}
    for snapshot in record.snapshots:
        for state in snapshot.states:
            declared = now.get(state.name)
            if declared is None:
                raise InvalidError(
                    f"{what} has state {state.name!r} of operator {record.name!r}, which the program does not declare",
                    remedy=_GO_BACK,
                )
            if declared.kind != state.kind:
                raise InvalidError(
                    f"state {state.name!r} of operator {record.name!r} is a {state.kind} state in {what}, "
                    f"and a {declared.kind} state in the program",
                    remedy=_GO_BACK,
                )


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
    """What the tasks of one worker restore: of each operator, the snapshots with handles that touch its key groups."""
    return tuple(
        _restored(record, physical.vertex(vertex.name).parallelism, physical.max_parallelism, worker)
        for vertex in physical.vertices
        if worker < vertex.parallelism
        for record in manifest.operators
        if record.name in vertex.operators
    )


def _restored(record: OperatorRecord, parallelism: int, max_parallelism: int, worker: WorkerIndex) -> RestoredOperator:
    groups = groups_of(SubtaskIndex(worker), parallelism, max_parallelism)
    kept = []
    for snapshot in record.snapshots:
        handles = tuple(h for h in snapshot.handles if h.first_group < groups.stop and h.last_group >= groups.start)
        if handles:
            kept.append(OperatorSnapshot(record.name, snapshot.ended, snapshot.key_type, snapshot.states, handles))
    return RestoredOperator(OperatorName(record.name), record.ended, tuple(kept))


def highest_checkpoint(manifests: tuple[Manifest, ...]) -> int:
    """The highest checkpoint id among them, 0 for none."""
    return max((manifest.checkpoint for manifest in manifests), default=0)
