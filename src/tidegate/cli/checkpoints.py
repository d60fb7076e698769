"""`tidegate checkpoints`: what is stored of a job, readable without running it.

It only reads: nothing stored is ever changed here, so it may be used while the job runs.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from tidegate.checkpoint.log import Completed, Entry, LogView, Unreadable, view_log
from tidegate.checkpoint.manifest import Manifest
from tidegate.checkpoint.store import CheckpointStore, list_jobs
from tidegate.cli.text import render_bytes, render_milliseconds, render_plural, render_table, render_time
from tidegate.config import ConfigLayers
from tidegate.errors import CorruptError, InvalidError
from tidegate.ids import CheckpointId, JobName, LogPosition, is_name
from tidegate.storage.resolve import open_storage

commands = typer.Typer(help="What is stored of a job: checkpoints, state, transactions.", no_args_is_help=True)

_Job = Annotated[str, typer.Argument(metavar="JOB|DIR", help="A job's name, its folder, or a checkpoint folder.")]
_Number = Annotated[int | None, typer.Argument(metavar="[N]", min=1, help="The checkpoint; the newest if left out.")]
_Dir = Annotated[str | None, typer.Option(metavar="DIR", help="Where JOB is looked up.")]
_Json = Annotated[bool, typer.Option("--json", help="For machines.")]

# ---- finding the job -----------------------------------------------------------------------------------------------


def find_store(job: str, folder: Path, checkpoint_dir: str) -> CheckpointStore:
    """The store that JOB|DIR means to somebody who stands in `folder`.

    A job in `checkpoint_dir`, or else the folder of a job, or a checkpoint folder with one job in it. Raises
    InvalidError that says which jobs there are.
    """
    path = folder / Path(job).expanduser()
    known = list_jobs(open_storage(checkpoint_dir))
    if is_name(job) and job in known:
        return CheckpointStore(open_storage(checkpoint_dir), JobName(job))
    if (path / "log").is_dir() and is_name(path.resolve().name):
        return CheckpointStore(open_storage(str(path.resolve().parent)), JobName(path.resolve().name))
    if not path.is_dir():
        message = f"there is no job {job!r} in {checkpoint_dir}, and no folder {path}"
        raise InvalidError(message, remedy=_there_are(known))
    jobs = list_jobs(open_storage(str(path)))
    if len(jobs) != 1:
        remedy = _there_are([f"{path}/{name}" for name in jobs])
        raise InvalidError(f"{path} holds {render_plural(len(jobs), 'job')}", remedy=remedy)
    return CheckpointStore(open_storage(str(path)), jobs[0])


def _there_are(jobs: Sequence[str]) -> str:
    if not jobs:
        return "Give --checkpoint-dir, or the folder that holds the checkpoints."
    return f"Name one of: {', '.join(jobs)}."


def _store_and_view(job: str, checkpoint_dir: str | None) -> tuple[CheckpointStore, LogView]:
    given = [("checkpoints.dir", checkpoint_dir, "--checkpoint-dir")] if checkpoint_dir is not None else []
    store = find_store(job, Path.cwd(), ConfigLayers.of_this_process(given).resolve().checkpoint_dir)
    return store, view_log(store.read_log())


def _manifest(store: CheckpointStore, view: LogView, number: int | None) -> Manifest:
    bodies = [entry.body for entry in view.entries if isinstance(entry, Entry)]
    completed = [body.manifest for body in bodies if isinstance(body, Completed)]
    if number is None and view.newest is not None:
        return view.newest
    wanted = [manifest for manifest in completed if manifest.checkpoint == number]
    if wanted:
        return wanted[-1]
    there = ", ".join(str(manifest.checkpoint) for manifest in completed) or "none"
    what = "completed checkpoint" if number is None else f"completed checkpoint {number}"
    raise InvalidError(f"{store.location} has no {what}", remedy=f"Completed and still stored: {there}.")


# ---- list ----------------------------------------------------------------------------------------------------------


class CheckpointRow(msgspec.Struct, frozen=True):
    """One line of `list`. Of what is not complete or not readable, only what is known."""

    checkpoint: CheckpointId | None
    attempt: int | None
    status: str
    """'newest', 'completed', 'discarded', 'before a fresh start', 'not completed', 'unreadable'."""
    position: LogPosition | None = None
    """In the log."""
    triggered_at: float | None = None
    duration: float | None = None
    state_bytes: int | None = None
    pending_transactions: int | None = None
    problem: str = ""


def checkpoint_rows(view: LogView, state_files: Sequence[str]) -> list[CheckpointRow]:
    """Every checkpoint of which something is stored, completed or not: by log, unfinished ones last."""
    rows: list[CheckpointRow] = []
    for entry in view.entries:
        if isinstance(entry, Unreadable):
            rows.append(CheckpointRow(None, None, "unreadable", entry.position, problem=entry.why))
        elif isinstance(entry.body, Completed):
            rows.append(_completed_row(view, entry, entry.body.manifest))
    known = {(row.attempt, row.checkpoint) for row in rows}
    folders = {tuple(map(int, path.split("/")[0].split("-")[1:])) for path in state_files if path.startswith("chk-")}
    rows += [
        CheckpointRow(CheckpointId(checkpoint), attempt, "not completed")
        for attempt, checkpoint in sorted(folders)
        if (attempt, checkpoint) not in known
    ]
    return rows


def _completed_row(view: LogView, entry: Entry, manifest: Manifest) -> CheckpointRow:
    return CheckpointRow(
        checkpoint=manifest.checkpoint,
        attempt=manifest.attempt,
        status=_status(view, entry, manifest),
        position=entry.position,
        triggered_at=manifest.triggered_at,
        duration=manifest.duration,
        state_bytes=manifest.state_bytes,
        pending_transactions=sum(len(operator.pending) for operator in manifest.operators),
    )


def _status(view: LogView, entry: Entry, manifest: Manifest) -> str:
    if entry.position in view.discarded:
        return "discarded"
    if entry not in view.completed:
        return "before a fresh start"
    return "newest" if manifest == view.newest else "completed"


def render_rows(rows: Sequence[CheckpointRow]) -> str:
    """The table of `list`."""
    headers = ("checkpoint", "attempt", "triggered", "duration", "state", "pending", "status")
    return render_table(headers, [_cells(row) for row in rows])


def _cells(row: CheckpointRow) -> tuple[str, ...]:
    return (
        "?" if row.checkpoint is None else str(row.checkpoint),
        "?" if row.attempt is None else str(row.attempt),
        "" if row.triggered_at is None else render_time(row.triggered_at),
        "" if row.duration is None else render_milliseconds(row.duration),
        "" if row.state_bytes is None else render_bytes(row.state_bytes),
        "" if row.pending_transactions is None else str(row.pending_transactions),
        f"{row.status}, log position {row.position}: {row.problem}" if row.problem else row.status,
    )


@commands.command("list")
def list_checkpoints(job: _Job, checkpoint_dir: _Dir = None, json: _Json = False) -> None:
    """Every checkpoint of which something is stored, completed or not."""
    store, view = _store_and_view(job, checkpoint_dir)
    rows = checkpoint_rows(view, store.state_files())
    if json:
        _print_json({"job": store.job, "location": store.location, "checkpoints": rows})
        return
    print(f"job {store.job} in {store.location}, attempt {view.attempt}{', finished' if view.finished else ''}")
    print(render_rows(rows) if rows else "no checkpoints")


# ---- show ----------------------------------------------------------------------------------------------------------


def render_manifest(manifest: Manifest) -> str:
    """One checkpoint: its operators, where their sources stand, their state, and what they have still to commit."""
    parts = [
        _headline(manifest),
        _titled("operators", ("name", "parallelism", "state", "ended"), _operator_rows(manifest)),
        _titled("states", ("operator", "name", "kind", "type", "serializer"), _state_rows(manifest)),
        _titled("splits", ("operator", "split", "position", "stop", "finished"), _split_rows(manifest)),
        _titled("pending transactions", ("operator", "checkpoint", "id"), _transaction_rows(manifest)),
    ]
    return "\n\n".join(part for part in parts if part)


def _headline(manifest: Manifest) -> str:
    return (
        f"checkpoint {manifest.checkpoint} of job {manifest.job}, attempt {manifest.attempt}, log {manifest.instance}\n"
        f"triggered {render_time(manifest.triggered_at)}, took {render_milliseconds(manifest.duration)}, "
        f"state {render_bytes(manifest.state_bytes)}, parallelism {manifest.parallelism} of {manifest.max_parallelism}"
    )


def _titled(title: str, headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return f"{title}\n{render_table(headers, rows)}" if rows else ""


def _operator_rows(manifest: Manifest) -> list[tuple[str, ...]]:
    return [
        (
            record.name,
            str(record.parallelism),
            render_bytes(sum(handle.size for snapshot in record.snapshots for handle in snapshot.handles)),
            "yes" if record.ended else "no",
        )
        for record in manifest.operators
    ]


def _state_rows(manifest: Manifest) -> list[tuple[str, ...]]:
    rows = (
        (record.name, state.name, state.kind, state.value_type, state.serializer)
        for record in manifest.operators
        for snapshot in record.snapshots
        for state in snapshot.states
    )
    return list(dict.fromkeys(rows))


def _split_rows(manifest: Manifest) -> list[tuple[str, ...]]:
    return [
        (
            record.name,
            split.id,
            str(split.position),
            "" if split.stop is None else str(split.stop),
            "yes" if split.finished else "no",
        )
        for record in manifest.operators
        for split in record.splits
    ]


def _transaction_rows(manifest: Manifest) -> list[tuple[str, ...]]:
    return [
        (record.name, str(pending.checkpoint), pending.committable.id)
        for record in manifest.operators
        for pending in record.pending
    ]


@commands.command("show")
def show_checkpoint(job: _Job, number: _Number = None, checkpoint_dir: _Dir = None, json: _Json = False) -> None:
    """One completed checkpoint: operators, positions of the sources, states, pending transactions."""
    store, view = _store_and_view(job, checkpoint_dir)
    manifest = _manifest(store, view, number)
    if json:
        _print_json(manifest)
    else:
        print(render_manifest(manifest))


# ---- verify --------------------------------------------------------------------------------------------------------


class Damage(msgspec.Struct, frozen=True):
    """One thing that cannot be read as what it was."""

    checkpoint: CheckpointId | None
    """None for an entry of the log: nobody knows what it was."""
    what: str
    why: str

    def __str__(self) -> str:
        return f"{self.what}: {self.why}"


def find_damage(store: CheckpointStore, view: LogView, manifests: Sequence[Manifest]) -> list[Damage]:
    """Everything damaged in the log and in the state of `manifests`."""
    found = [
        Damage(None, f"log position {entry.position}", entry.why)
        for entry in view.entries
        if isinstance(entry, Unreadable) and entry.position not in view.discarded
    ]
    for manifest in manifests:
        for problem in store.verify_manifest(manifest):
            place = f"checkpoint {manifest.checkpoint}, operator {problem.operator}, subtask {problem.subtask}"
            found.append(Damage(manifest.checkpoint, f"{place}, {problem.where}", problem.why))
    return found


@commands.command("verify")
def verify_checkpoints(job: _Job, number: _Number = None, checkpoint_dir: _Dir = None, json: _Json = False) -> None:
    """Read everything that completed checkpoints need; exit code 3 when something is damaged. All of them without N."""
    store, view = _store_and_view(job, checkpoint_dir)
    manifests = view.manifests if number is None else (_manifest(store, view, number),)
    found = find_damage(store, view, manifests)
    checked = [manifest.checkpoint for manifest in manifests]
    if json:
        _print_json({"job": store.job, "location": store.location, "checked": checked, "damage": found})
    else:
        for damage in found:
            print(damage)
    if found:
        raise CorruptError(
            f"{store.location}: {render_plural(len(found), 'damaged thing')}",
            remedy="Bring the files back from a copy, or go back with --from-checkpoint N to a checkpoint that is "
            "whole: what came after it is then written again.",
        )
    if not json:
        print(f"{store.location}: {render_plural(len(checked), 'checkpoint')} checked, nothing is damaged")


def _print_json(value: Any) -> None:
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n")
