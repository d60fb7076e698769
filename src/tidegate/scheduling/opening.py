"""What a new JobManager does with the log that it finds: go on, begin fresh, go back, say that the job is finished, or
refuse. Pure.

`--fresh`, `--from-checkpoint` and `--from-savepoint` count once for each new value (the log remembers the last), so
that a supervisor may repeat any command line for ever. A savepoint from which somebody began, and died before its state
was in the log, is begun from again, whatever the command line says, unless it asks for another beginning.
"""

from collections.abc import Sequence

import msgspec

from tidegate.checkpoint.log import (
    CleanStop,
    Completed,
    Entry,
    Finished,
    LogView,
    SavepointOrigin,
    Takeover,
    Unreadable,
)
from tidegate.checkpoint.manifest import Manifest
from tidegate.errors import CorruptError, InvalidError
from tidegate.graph.logical import LogicalGraph
from tidegate.ids import CheckpointId, LogPosition
from tidegate.scheduling.restore import check_restorable
from tidegate.scheduling.settings import JobSettings

FRESH = "fresh"
FROM_CHECKPOINT = "from-checkpoint"
FROM_SAVEPOINT = "from-savepoint"

_CARRIED_OUT = {
    FRESH: "--fresh={} was carried out before; give another value to begin anew again",
    FROM_CHECKPOINT: "--from-checkpoint {} was carried out before; going on from the newest",
    FROM_SAVEPOINT: "--from-savepoint {} was carried out before; going on from the newest checkpoint",
}


class Opening(msgspec.Struct, frozen=True):
    """The decision."""

    is_finished: bool = False
    is_fresh: bool = False
    """What the log has counts no more."""
    savepoint: str | None = None
    """To be read, checked, and begun from."""
    origin: SavepointOrigin | None = None
    """Which one it has to be: that of whoever began from it and came to nothing."""
    discards: tuple[LogPosition, ...] = ()
    options: dict[str, str] = {}
    """For the takeover entry."""
    highest: CheckpointId = CheckpointId(0)
    """The highest checkpoint id in the log."""
    notes: tuple[str, ...] = ()
    """For the person who watches."""


def decide_opening(view: LogView, settings: JobSettings, graph: LogicalGraph) -> Opening:
    """Raises CorruptError when the newest entries cannot be read, InvalidError when the program does not fit the
    checkpoint, the wanted checkpoint is not there, or two ways to begin are asked for at once."""
    _refuse_two_ways(settings)
    options = dict(view.options)
    wanted = {FRESH: settings.fresh, FROM_CHECKPOINT: _text(settings.from_checkpoint)}
    wanted[FROM_SAVEPOINT] = settings.from_savepoint
    asked = {name: value for name, value in wanted.items() if value is not None}
    new = {name for name, value in asked.items() if value != view.options.get(name)}
    notes = [_CARRIED_OUT[name].format(value) for name, value in asked.items() if name not in new]
    found = Opening(options=options | asked, highest=highest_checkpoint(view), notes=tuple(notes))
    if FRESH in new:
        return _noted(found, "beginning without state", is_fresh=True)
    if FROM_SAVEPOINT in new:
        return _noted(found, is_fresh=True, savepoint=settings.from_savepoint)
    if FROM_CHECKPOINT in new:
        return _going_back(found, view, settings, graph)
    if view.damage is not None:
        raise _damaged(view.damage, view)
    if view.unimported is not None:
        return _noted(found, savepoint=view.unimported.path, origin=view.unimported)
    if view.finished is not None:
        return Opening(is_finished=True, notes=(*notes, _finished_text(graph)))
    if view.newest is not None:
        return _noted(found, *check_restorable(view.newest, graph, settings))
    if view.beginning is not None and isinstance(view.beginning.body, CleanStop):
        return _noted(found, "the last stop kept no checkpoint: beginning without state")
    return found


def _refuse_two_ways(settings: JobSettings) -> None:
    ways = {
        "--fresh": settings.fresh,
        "--from-checkpoint": settings.from_checkpoint,
        "--from-savepoint": settings.from_savepoint,
    }
    given = [name for name, value in ways.items() if value is not None]
    if settings.from_savepoint is not None and len(given) > 1:
        raise InvalidError(
            f"{given[0]} and --from-savepoint cannot both be where the job begins", remedy="Give one of them."
        )


def _noted(opening: Opening, *notes: str, **changes: object) -> Opening:
    return msgspec.structs.replace(opening, notes=opening.notes + notes, **changes)


def _going_back(found: Opening, view: LogView, settings: JobSettings, graph: LogicalGraph) -> Opening:
    assert settings.from_checkpoint is not None
    manifest, discards = _back_to(view, settings.from_checkpoint)
    dropped = check_restorable(manifest, graph, settings)
    return _noted(found, _warning(manifest, view, discards), *dropped, discards=discards)


def highest_checkpoint(view: LogView) -> CheckpointId:
    """The highest checkpoint id that the log tells of, 0 for none."""
    bodies = [entry.body for entry in view.entries if isinstance(entry, Entry)]
    ids = [body.manifest.checkpoint for body in bodies if isinstance(body, Completed)]
    ids += [body.checkpoint for body in bodies if isinstance(body, CleanStop | Finished)]
    return max(ids, default=CheckpointId(0))


def _text(checkpoint: CheckpointId | None) -> str | None:
    return None if checkpoint is None else str(checkpoint)


def _back_to(view: LogView, wanted: CheckpointId) -> tuple[Manifest, tuple[LogPosition, ...]]:
    for entry in view.completed:
        if isinstance(entry.body, Completed) and entry.body.manifest.checkpoint == wanted:
            newer = [e for e in view.live if e.position > entry.position]
            return entry.body.manifest, tuple(e.position for e in newer if not _is_takeover(e))
    there = ", ".join(str(manifest.checkpoint) for manifest in view.manifests) or "none"
    raise InvalidError(
        f"checkpoint {wanted} is not in the log; there are: {there}",
        remedy="List them with 'tidegate checkpoints list'.",
    )


def _is_takeover(entry: Entry | Unreadable) -> bool:
    return isinstance(entry, Entry) and isinstance(entry.body, Takeover)


def _warning(manifest: Manifest, view: LogView, discards: Sequence[LogPosition]) -> str:
    discarded = [entry for entry in view.live if entry.position in discards]
    # A clean stop says only that nothing came after the checkpoint.
    if not any(isinstance(entry, Unreadable) or isinstance(entry.body, Completed) for entry in discarded):
        return f"going on from checkpoint {manifest.checkpoint}, which is the newest"
    return (
        f"going back to checkpoint {manifest.checkpoint}: everything that the job has put out since then will be put "
        "out again"
    )


def _damaged(damage: Unreadable, view: LogView) -> CorruptError:
    usable = f"--from-checkpoint {view.newest.checkpoint}" if view.newest else "--fresh"
    return CorruptError(
        f"entry {damage.position} of the checkpoint log (log/{damage.position:020d}.json) cannot be read: {damage.why}",
        remedy="It may be a completed checkpoint whose output is committed. Bring the file back from a copy, or start "
        f"with {usable}, knowing that what came after it will be put out again.",
    )


def _finished_text(graph: LogicalGraph) -> str:
    return f"job {graph.job} is finished: all its input was read and every result is committed (--fresh runs it again)"
