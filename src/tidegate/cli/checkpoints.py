"""`tidegate checkpoints`: what is stored of a job, readable without running it.

It only reads: nothing stored is ever changed here, so it may be used while the job runs.
"""

from collections.abc import Sequence
from contextlib import closing
from typing import Annotated

import msgspec
import typer

from tidegate.checkpoint.log import Completed, Entry, LogView, Unreadable
from tidegate.checkpoint.manifest import Manifest, OperatorRecord
from tidegate.cli.damage import verify_checkpoints
from tidegate.cli.differences import diff_checkpoints
from tidegate.cli.stored import (
    DirOption,
    JobArgument,
    JsonOption,
    PlaceArgument,
    find_savepoint,
    find_state,
    manifest_of,
    partitions_of,
    print_json,
    store_and_view,
)
from tidegate.cli.text import render_bytes, render_milliseconds, render_plural, render_table, render_time
from tidegate.ids import CheckpointId, LogPosition, OperatorName
from tidegate.operators.reaching import open_inspection

commands = typer.Typer(help="What is stored of a job: checkpoints, state, transactions.", no_args_is_help=True)

_Number = Annotated[int | None, typer.Argument(metavar="[N]", min=1, help="The checkpoint; the newest if left out.")]

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
def list_checkpoints(job: JobArgument, checkpoint_dir: DirOption = None, json: JsonOption = False) -> None:
    """Every checkpoint of which something is stored, completed or not."""
    store, view = store_and_view(job, checkpoint_dir)
    rows = checkpoint_rows(view, store.state_files())
    if json:
        print_json({"job": store.job, "location": store.location, "checkpoints": rows})
        return
    print(f"job {store.job} in {store.location}, attempt {view.attempt}{', finished' if view.finished else ''}")
    print(render_rows(rows) if rows else "no checkpoints")


# ---- show ----------------------------------------------------------------------------------------------------------


class LagRow(msgspec.Struct, frozen=True):
    """How far one split was behind its end, which has moved on since."""

    operator: OperatorName
    split: str
    position: int
    end: int | None
    """None when the split is gone, or nobody can ask for it."""
    lag: int | None


def lag_rows(manifest: Manifest) -> list[LagRow]:
    """Of every split, by asking each source's system now. Raises what that raises."""
    rows: list[LagRow] = []
    for record in manifest.operators:
        if not record.splits:
            continue
        ends = _end_positions(record)
        for split in record.splits:
            end = ends.get(split.id)
            lag = None if end is None else max(0, end - split.position)
            rows.append(LagRow(record.name, split.id, split.position, end, lag))
    return rows


def _end_positions(record: OperatorRecord) -> dict[str, int]:
    if record.source is None:
        return {}
    with closing(open_inspection(record.source)) as inspection:
        return inspection.end_positions([split.id for split in record.splits])


def render_manifest(manifest: Manifest, lag: Sequence[LagRow] | None = None, previous: Manifest | None = None) -> str:
    """One checkpoint: its operators, where their sources stand, their state, and what they have still to commit.
    `previous`: the checkpoint before it, of which it may share files."""
    splits = _titled("splits", ("operator", "split", "position", "stop", "finished"), _split_rows(manifest))
    if lag is not None:
        headers = ("operator", "split", "position", "end now", "lag", "finished")
        splits = _titled("splits", headers, _split_rows_with_lag(manifest, lag))
    parts = [
        _headline(manifest, previous),
        _titled(
            "operators", ("name", "parallelism", "state", "files", "new", "ended"), _operator_rows(manifest, previous)
        ),
        _titled("states", ("operator", "name", "kind", "type", "serializer"), _state_rows(manifest)),
        splits,
        _transactions(manifest),
    ]
    return "\n\n".join(part for part in parts if part)


def _headline(manifest: Manifest, previous: Manifest | None) -> str:
    parallelism = f"parallelism {manifest.parallelism} of {manifest.max_parallelism}"
    return (
        f"checkpoint {manifest.checkpoint} of job {manifest.job}, attempt {manifest.attempt}, log {manifest.instance}\n"
        f"triggered {render_time(manifest.triggered_at)}, took {render_milliseconds(manifest.duration)}, "
        f"state {render_bytes(manifest.state_bytes)}, {parallelism}\n"
        f"{_sharing(manifest, previous)}"
    )


def _sharing(manifest: Manifest, previous: Manifest | None) -> str:
    """Which part of it was written for it, and which it has in common with the one before."""
    own = render_plural(len(manifest.files), "file")
    if previous is None:
        return f"{own}; no earlier checkpoint is stored to compare with"
    sizes = {handle.path: handle.size for handle in manifest.handles if handle.path is not None}
    shared = manifest.files & previous.files
    shared_bytes = sum(sizes[path] for path in shared)
    return (
        f"{own}: {len(sizes) - len(shared)} new, {len(shared)} shared with checkpoint {previous.checkpoint}; "
        f"{render_bytes(manifest.state_bytes - shared_bytes)} new, {render_bytes(shared_bytes)} shared"
    )


def _titled(title: str, headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return f"{title}\n{render_table(headers, rows)}" if rows else ""


_OPERATOR_HEADERS = ("name", "parallelism", "state", "files", "new", "ended")


def _operator_rows(manifest: Manifest, previous: Manifest | None) -> list[tuple[str, ...]]:
    known = previous.files if previous is not None else frozenset()
    rows: list[tuple[str, ...]] = []
    for record in manifest.operators:
        handles = [handle for snapshot in record.snapshots for handle in snapshot.all_handles]
        files = {handle.path for handle in handles if handle.path is not None}
        size = sum(handle.size for handle in handles)
        new = size - sum(handle.size for handle in handles if handle.path in known)
        ended = "yes" if record.ended else "no"
        rows.append(
            (record.name, str(record.parallelism), render_bytes(size), str(len(files)), render_bytes(new), ended)
        )
    return rows


def _state_rows(manifest: Manifest) -> list[tuple[str, ...]]:
    rows = (
        (record.name, state.name, state.kind, state.value_type, state.serializer)
        for record in manifest.operators
        for snapshot in record.snapshots
        for state in (*snapshot.states, *snapshot.operator_states)
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


def _split_rows_with_lag(manifest: Manifest, lag: Sequence[LagRow]) -> list[tuple[str, ...]]:
    finished = {(record.name, split.id) for record in manifest.operators for split in record.splits if split.finished}
    return [
        (
            row.operator,
            row.split,
            str(row.position),
            "not known" if row.end is None else str(row.end),
            "not known" if row.lag is None else str(row.lag),
            "yes" if (row.operator, row.split) in finished else "no",
        )
        for row in lag
    ]


def _transactions(manifest: Manifest) -> str:
    """Where nobody said what was written to, there is no column for it."""
    headers, rows = ("operator", "checkpoint", "id", "partitions"), _transaction_rows(manifest)
    columns = 4 if any(row[3] for row in rows) else 3
    return _titled("pending transactions", headers[:columns], [row[:columns] for row in rows])


def _transaction_rows(manifest: Manifest) -> list[tuple[str, str, str, str]]:
    return [
        (record.name, str(pending.checkpoint), pending.committable.id, partitions_of(pending.committable))
        for record in manifest.operators
        for pending in record.pending
    ]


@commands.command("show")
def show_checkpoint(
    job: PlaceArgument,
    number: _Number = None,
    checkpoint_dir: DirOption = None,
    lag: Annotated[bool, typer.Option("--lag", help="Ask the sources where their splits end now.")] = False,
    json: JsonOption = False,
) -> None:
    """One completed checkpoint, or a savepoint: operators, positions of the sources, states, files."""
    manifest, previous = _shown(job, number, checkpoint_dir)
    behind = lag_rows(manifest) if lag else None
    if not json:
        print(render_manifest(manifest, behind, previous))
    elif behind is None:
        print_json(manifest)
    else:
        print_json({"manifest": manifest, "lag": behind})


def _shown(job: str, number: int | None, checkpoint_dir: str | None) -> tuple[Manifest, Manifest | None]:
    """The checkpoint, and the one that had completed before it, if that is stored."""
    if find_savepoint(job) is not None:
        return find_state(job, checkpoint_dir, number).manifest, None
    store, view = store_and_view(job, checkpoint_dir)
    manifest = manifest_of(store, view, number)
    bodies = [entry.body for entry in view.entries if isinstance(entry, Entry)]
    completed = [body.manifest for body in bodies if isinstance(body, Completed)]
    place = len(completed) - 1 - completed[::-1].index(manifest)
    return manifest, completed[place - 1] if place else None


commands.command("verify")(verify_checkpoints)
commands.command("diff")(diff_checkpoints)
