"""What the commands about a stored job share: finding the job by name or folder, and how they take their options.

It only reads, so these commands may be used while the job runs.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from tidegate.checkpoint.log import Completed, Entry, LogView, view_log
from tidegate.checkpoint.manifest import Manifest
from tidegate.checkpoint.protocol import Committable
from tidegate.checkpoint.store import CheckpointStore, list_jobs
from tidegate.cli.text import render_plural
from tidegate.config import ConfigLayers
from tidegate.errors import InvalidError
from tidegate.ids import JobName, is_name
from tidegate.storage.resolve import open_storage

JobArgument = Annotated[
    str, typer.Argument(metavar="JOB|DIR", help="A job's name, its folder, or a checkpoint folder.")
]
DirOption = Annotated[str | None, typer.Option(metavar="DIR", help="Where JOB is looked up.")]
JsonOption = Annotated[bool, typer.Option("--json", help="For machines.")]


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


def store_and_view(job: str, checkpoint_dir: str | None) -> tuple[CheckpointStore, LogView]:
    """The store of JOB|DIR, looked up in `--checkpoint-dir` if given, and its log."""
    given = [("checkpoints.dir", checkpoint_dir, "--checkpoint-dir")] if checkpoint_dir is not None else []
    store = find_store(job, Path.cwd(), ConfigLayers.of_this_process(given).resolve().checkpoint_dir)
    return store, view_log(store.read_log())


def manifest_of(store: CheckpointStore, view: LogView, number: int | None) -> Manifest:
    """Completed checkpoint `number`, also one that counts no more; None: the newest. Raises InvalidError."""
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


def partitions_of(committable: Committable) -> str:
    """Where it wrote, if its sink says so in the payload."""
    partitions = committable.payload.get("partitions", ())
    return ", ".join(map(str, partitions)) if isinstance(partitions, list | tuple) else ""


def print_json(value: Any) -> None:
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n")
