"""`tidegate checkpoints verify`: whether everything that checkpoints and savepoints need is as it was written.

It only reads. What nobody names is told and never removed: it may belong to a checkpoint that is under way.
"""

from collections.abc import Iterable, Sequence
from typing import Annotated, Protocol

import msgspec
import typer

from tidegate.checkpoint.log import Completed, Entry, LogView, Unreadable
from tidegate.checkpoint.manifest import Manifest, files_of
from tidegate.checkpoint.protocol import StateHandle
from tidegate.checkpoint.store import CheckpointStore
from tidegate.cli.stored import (
    DirOption,
    JsonOption,
    PlaceArgument,
    find_savepoint,
    manifest_of,
    print_json,
    store_and_view,
)
from tidegate.cli.text import render_plural
from tidegate.errors import CorruptError
from tidegate.ids import CheckpointId
from tidegate.savepoints.places import is_stored, open_savepoint

_NAMED_AT_MOST = 10
"""Of what nobody names."""


class Damage(msgspec.Struct, frozen=True):
    """One thing that cannot be read as what it was."""

    checkpoint: CheckpointId | None
    """None for an entry of the log: nobody knows what it was."""
    what: str
    why: str

    def __str__(self) -> str:
        return f"{self.what}: {self.why}"


class Verified(msgspec.Struct, frozen=True):
    """What was looked at, and what was found."""

    location: str
    checked: tuple[CheckpointId, ...]
    damage: tuple[Damage, ...]
    unreferenced: tuple[str, ...]
    """Files that no checkpoint names, relative to the location."""


class CheckedFiles(Protocol):
    """A `CheckpointStore` or a `SavepointReader`."""

    def damage_of(self, handle: StateHandle) -> str | None: ...


def verify_job(store: CheckpointStore, view: LogView, manifests: Sequence[Manifest]) -> Verified:
    """The log, and the state of `manifests`."""
    # Listed before the log is read again: what completes meanwhile must not look as if nobody named it.
    stored = store.state_files()
    found = [
        Damage(None, f"log position {entry.position}", entry.why)
        for entry in view.entries
        if isinstance(entry, Unreadable) and entry.position not in view.discarded
    ]
    bodies = [entry.body for entry in (*view.entries, *store.read_log()) if isinstance(entry, Entry)]
    named = files_of(body.manifest for body in bodies if isinstance(body, Completed))
    damage = find_damage(store, manifests)
    # A job that runs removes checkpoints; what has become of one that nobody needs any more is no damage.
    removed = {one.checkpoint for one in manifests if damage and not is_stored(store, one)}
    return Verified(
        store.location,
        tuple(manifest.checkpoint for manifest in manifests if manifest.checkpoint not in removed),
        (*found, *(one for one in damage if one.checkpoint not in removed)),
        tuple(path for path in stored if path not in named),
    )


def verify_savepoint(place: str) -> Verified:
    """A savepoint's folder. Raises as `SavepointReader.manifest` does."""
    reader = open_savepoint(place)
    manifest = reader.manifest()
    damage = find_damage(reader, [manifest])
    return Verified(reader.location, (manifest.checkpoint,), tuple(damage), tuple(reader.unreferenced()))


def find_damage(files: CheckedFiles, manifests: Iterable[Manifest]) -> list[Damage]:
    """What of the state of `manifests` is missing, cut off or changed. A file that several name is read once."""
    known: dict[StateHandle, str | None] = {}
    found: list[Damage] = []
    for manifest in manifests:
        for record in manifest.operators:
            for subtask in record.subtasks:
                for handle in subtask.snapshot.all_handles:
                    content = msgspec.structs.replace(handle, first_group=0, last_group=0)
                    if content not in known:
                        known[content] = files.damage_of(handle)
                    why = known[content]
                    if why is not None:
                        place = f"checkpoint {manifest.checkpoint}, operator {record.name}, subtask {subtask.subtask}"
                        found.append(Damage(manifest.checkpoint, f"{place}, {handle.path or 'inline'}", why))
    return found


def render_unreferenced(paths: Sequence[str]) -> str:
    """One line; not all of many."""
    more = f" and {len(paths) - _NAMED_AT_MOST} more" if len(paths) > _NAMED_AT_MOST else ""
    return (
        f"{render_plural(len(paths), 'file')} that no completed checkpoint names (left over, or of one that is under "
        f"way): {', '.join(paths[:_NAMED_AT_MOST])}{more}"
    )


def verify_checkpoints(
    job: PlaceArgument,
    number: Annotated[int | None, typer.Argument(metavar="[N]", min=1, help="One checkpoint; all if left out.")] = None,
    checkpoint_dir: DirOption = None,
    json: JsonOption = False,
) -> None:
    """Read everything that completed checkpoints, or a savepoint, need; exit code 3 when something is damaged."""
    verified = _verified(job, number, checkpoint_dir)
    if json:
        print_json(verified)
    else:
        for damage in verified.damage:
            print(damage)
        if verified.unreferenced:
            print(render_unreferenced(verified.unreferenced))
    if verified.damage:
        raise CorruptError(
            f"{verified.location}: {render_plural(len(verified.damage), 'damaged thing')}",
            remedy="Bring the files back from a copy, or go back with --from-checkpoint N to a checkpoint that is "
            "whole: what came after it is then written again.",
        )
    if not json:
        checked = render_plural(len(verified.checked), "checkpoint")
        print(f"{verified.location}: {checked} checked, nothing is damaged")


def _verified(job: str, number: int | None, checkpoint_dir: str | None) -> Verified:
    savepoint = find_savepoint(job)
    if savepoint is not None:
        return verify_savepoint(savepoint)
    store, view = store_and_view(job, checkpoint_dir)
    return verify_job(store, view, view.manifests if number is None else (manifest_of(store, view, number),))
