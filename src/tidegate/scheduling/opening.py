"""What a new JobManager does with the log that it finds: go on, begin fresh, go back, say that the job is finished, or
refuse. Pure.

`--fresh` and `--from-checkpoint` count once for each new value (the log remembers the last), so that a supervisor may
repeat any command line for ever.
"""

from collections.abc import Sequence

import msgspec

from tidegate.checkpoint.log import Completed, Entry, LogView, Takeover, Unreadable
from tidegate.checkpoint.manifest import Manifest
from tidegate.errors import CorruptError, InvalidError
from tidegate.graph.logical import LogicalGraph
from tidegate.ids import CheckpointId, LogPosition
from tidegate.scheduling.restore import check_restorable, highest_checkpoint
from tidegate.scheduling.settings import JobSettings

FRESH = "fresh"
FROM_CHECKPOINT = "from-checkpoint"


class Opening(msgspec.Struct, frozen=True):
    """The decision."""

    is_finished: bool = False
    is_fresh: bool = False
    discards: tuple[LogPosition, ...] = ()
    options: dict[str, str] = {}
    """For the takeover entry."""
    highest: CheckpointId = CheckpointId(0)
    """The highest checkpoint id in the log."""
    notes: tuple[str, ...] = ()
    """For the person who watches."""


def decide_opening(view: LogView, settings: JobSettings, graph: LogicalGraph) -> Opening:
    """Raises CorruptError when the newest entries cannot be read, InvalidError when the program does not fit the
    checkpoint or the wanted checkpoint is not there."""
    options = dict(view.options)
    notes: list[str] = []
    is_fresh = _is_new(settings.fresh, options.get(FRESH))
    goes_back = _is_new(_text(settings.from_checkpoint), options.get(FROM_CHECKPOINT))
    if settings.fresh is not None:
        options[FRESH] = settings.fresh
        if not is_fresh:
            notes.append(f"--fresh={settings.fresh} was carried out before; give another value to begin anew again")
    if settings.from_checkpoint is not None:
        options[FROM_CHECKPOINT] = str(settings.from_checkpoint)
        if not goes_back:
            notes.append(
                f"--from-checkpoint {settings.from_checkpoint} was carried out before; going on from the newest"
            )
    highest = CheckpointId(highest_checkpoint(_all_manifests(view)))
    if is_fresh:
        return Opening(is_fresh=True, options=options, highest=highest, notes=(*notes, "beginning without state"))
    if goes_back:
        assert settings.from_checkpoint is not None
        manifest, discards = _back_to(view, settings.from_checkpoint)
        check_restorable(manifest, graph, settings.max_parallelism)
        notes.append(_warning(manifest, view, discards))
        return Opening(discards=discards, options=options, highest=highest, notes=tuple(notes))
    if view.damage is not None:
        raise _damaged(view.damage, view)
    if view.finished is not None:
        return Opening(is_finished=True, notes=(*notes, _finished_text(graph)))
    if view.newest is not None:
        check_restorable(view.newest, graph, settings.max_parallelism)
    return Opening(options=options, highest=highest, notes=tuple(notes))


def _is_new(wanted: str | None, applied: str | None) -> bool:
    return wanted is not None and wanted != applied


def _text(checkpoint: CheckpointId | None) -> str | None:
    return None if checkpoint is None else str(checkpoint)


def _all_manifests(view: LogView) -> tuple[Manifest, ...]:
    return tuple(e.body.manifest for e in view.entries if isinstance(e, Entry) and isinstance(e.body, Completed))


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
