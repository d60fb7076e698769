"""What the commands about a stored job share: finding the job by name or folder, and how they take their options.

It only reads, so these commands may be used while the job runs.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from tidegate.checkpoint.log import LogView, view_log
from tidegate.checkpoint.manifest import Manifest
from tidegate.checkpoint.protocol import Committable
from tidegate.checkpoint.store import CheckpointStore, list_jobs
from tidegate.cli.text import render_plural
from tidegate.config import ConfigLayers
from tidegate.errors import InvalidError
from tidegate.ids import JobName, is_name
from tidegate.savepoints.format import is_savepoint
from tidegate.savepoints.places import StoredState, choose_manifest, open_checkpoint, open_stored
from tidegate.storage.resolve import open_storage
from tidegate.storage.urls import is_remote, parent_of, tidy_remote

JobArgument = Annotated[
    str, typer.Argument(metavar="JOB|DIR", help="A job's name, its folder, or a checkpoint folder; also as a URL.")
]
PlaceArgument = Annotated[
    str,
    typer.Argument(
        metavar="JOB|DIR", help="A job's name, its folder, a checkpoint folder, or a savepoint; also as a URL."
    ),
]
DirOption = Annotated[str | None, typer.Option(metavar="DIR", help="Where JOB is looked up.")]
JsonOption = Annotated[bool, typer.Option("--json", help="For machines.")]


def find_store(job: str, folder: Path, checkpoint_dir: str) -> CheckpointStore:
    """The store that JOB|DIR means to somebody who stands in `folder`.

    A job in `checkpoint_dir`, or else the folder of a job, or a checkpoint folder with one job in it, as a path or as a
    URL. Raises InvalidError that says which jobs there are.
    """
    if is_remote(job):
        return _store_at(job)
    path = folder / os.path.expanduser(job)
    known = list_jobs(open_storage(checkpoint_dir))
    if is_name(job) and job in known:
        return CheckpointStore(open_storage(checkpoint_dir), JobName(job))
    if os.path.isdir(path / "log") and is_name(path.resolve().name):
        return CheckpointStore(open_storage(str(path.resolve().parent)), JobName(path.resolve().name))
    if not os.path.isdir(path):
        message = f"there is no job {job!r} in {checkpoint_dir}, and no folder {path}"
        raise InvalidError(message, remedy=_there_are(known))
    return _only_job_in(str(path))


def _store_at(url: str) -> CheckpointStore:
    """The store of a job whose folder, or whose checkpoint folder, is `url`."""
    parent, name = parent_of(url)
    if is_name(name):
        storage = open_storage(parent)
        if storage.list(f"{name}/log/"):
            return CheckpointStore(storage, JobName(name))
    return _only_job_in(tidy_remote(url))


def _only_job_in(place: str) -> CheckpointStore:
    storage = open_storage(place)
    jobs = list_jobs(storage)
    if len(jobs) != 1:
        remedy = _there_are([f"{place}/{name}" for name in jobs])
        raise InvalidError(f"{place} holds {render_plural(len(jobs), 'job')}", remedy=remedy)
    return CheckpointStore(storage, jobs[0])


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
    return choose_manifest(store, view, number)


def find_state(job: str, checkpoint_dir: str | None, number: int | None) -> StoredState:
    """The savepoint in the folder or URL `job`, or a completed checkpoint of JOB|DIR. Raises as `open_stored` does."""
    savepoint = find_savepoint(job)
    if savepoint is not None:
        return open_stored(savepoint, number)
    store, _ = store_and_view(job, checkpoint_dir)
    return open_checkpoint(store, number)


def find_savepoint(job: str) -> str | None:
    """The folder or URL in which there is a savepoint, also an unfinished one; None where JOB|DIR means a job."""
    place = job if is_remote(job) else str(Path.cwd() / os.path.expanduser(job))
    if not is_remote(job) and not os.path.isdir(place):
        return None
    return place if is_savepoint(open_storage(place)) else None


def partitions_of(committable: Committable) -> str:
    """Where it wrote, if its sink says so in the payload."""
    partitions = committable.payload.get("partitions", ())
    return ", ".join(map(str, partitions)) if isinstance(partitions, list | tuple) else ""


def print_json(value: Any) -> None:
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n")
