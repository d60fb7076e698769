"""`tidegate status`, `tidegate savepoint` and `tidegate stop`: what is asked of a job that runs.

The job is found by what it has put down on this machine; it does the work, and these commands wait for its answer.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from tidegate.checkpoint.log import view_log
from tidegate.cli.status import render_status, render_vertices
from tidegate.cli.stored import DirOption, find_store
from tidegate.config import ConfigLayers
from tidegate.deploy.requests import Request, RunningJob, Savepoint, Status, Stop, ask, running_jobs
from tidegate.errors import InvalidError
from tidegate.metrics import JobStatus
from tidegate.storage.urls import is_remote

RunningArgument = Annotated[str, typer.Argument(metavar="JOB|DIR", help="A running job's name, or its folder.")]
DEFAULT_PLACE = ""
"""Of a savepoint: where nobody gave one."""


def find_running(job: str, checkpoint_dir: str | None) -> RunningJob:
    """The job that JOB|DIR means, looked up in `checkpoint_dir` if given. Raises InvalidError that says which jobs
    run."""
    running = running_jobs()
    named = [one for one in running if one.job == job] if checkpoint_dir is None else []
    if len(named) == 1:
        return named[0]
    if len(named) > 1:
        places = ", ".join(one.location for one in named)
        raise InvalidError(f"{len(named)} jobs {job} run here: {places}", remedy="Give the folder of one of them.")
    return _at_place(job, checkpoint_dir, running)


def _at_place(job: str, checkpoint_dir: str | None, running: Sequence[RunningJob]) -> RunningJob:
    given = [("checkpoints.dir", checkpoint_dir, "--checkpoint-dir")] if checkpoint_dir is not None else []
    there = ", ".join(f"{one.job} ({one.location})" for one in running) or "none"
    try:
        store = find_store(job, Path.cwd(), ConfigLayers.of_this_process(given).resolve().checkpoint_dir)
    except InvalidError as error:
        raise InvalidError(f"no job {job} runs on this machine", remedy=f"Running jobs: {there}.") from error
    at_place = [one for one in running if one.location == store.location]
    if at_place:
        return at_place[0]
    takeover = view_log(store.read_log()).takeover
    where = f"; it was last started on {takeover.host}" if takeover is not None else ""
    raise InvalidError(
        f"job {store.job} in {store.location} does not run on this machine{where}",
        remedy=f"Run the command where the job runs, as the same user. Running here: {there}.",
    )


def absolute_place(path: str | None) -> str | None:
    """A path as the job's process understands it, which may stand in another folder."""
    if path is None or path == DEFAULT_PLACE:
        return None
    return path if is_remote(path) else str(Path(os.path.expanduser(path)).absolute())


def status(
    job: RunningArgument,
    as_json: Annotated[bool, typer.Option("--json", help="All of it, for machines.")] = False,
    checkpoint_dir: DirOption = None,
) -> None:
    """Say how a running job is, and what its operators do with their time: busy, idle, back-pressured."""
    text = ask(find_running(job, checkpoint_dir), Status())
    if as_json:
        print(text)
        return
    found = msgspec.json.decode(text, type=JobStatus)
    print(render_status(found))
    if found.vertices:
        print(f"\n{render_vertices(found.vertices)}")


def savepoint(
    job: RunningArgument,
    path: Annotated[
        str | None, typer.Argument(metavar="[PATH]", help="A new folder; left out, one in the job's own.")
    ] = None,
    checkpoint_dir: DirOption = None,
) -> None:
    """Write a savepoint of a running job: self-contained, movable, for any backend and parallelism. Prints its path."""
    print(_ask(find_running(job, checkpoint_dir), Savepoint(absolute_place(path)), "a savepoint"))


def stop(
    job: RunningArgument,
    savepoint: Annotated[
        str | None, typer.Option(metavar="[PATH]", help="Write the last checkpoint as a savepoint; prints its path.")
    ] = None,
    drain: Annotated[
        bool, typer.Option("--drain", help="End all input first, so that operators put out what they hold.")
    ] = False,
    checkpoint_dir: DirOption = None,
) -> None:
    """End a running job after a last checkpoint. Started again, it goes on from there."""
    found = find_running(job, checkpoint_dir)
    request = Stop(savepoint is not None, absolute_place(savepoint), drain)
    text = _ask(found, request, "its end", until_end=True)
    if text:
        print(text)


def _ask(job: RunningJob, request: Request, what: str, *, until_end: bool = False) -> str:
    sys.stderr.write(f"asked job {job.job} ({job.location}) for {what}; waiting\n")
    return ask(job, request, until_end=until_end)


def with_default_place(words: Sequence[str]) -> list[str]:
    """`--savepoint` without a path becomes `--savepoint=`: an option whose value may be left out."""
    following = [*words[1:], "--"][: len(words)]
    return [
        f"{word}={DEFAULT_PLACE}" if word == "--savepoint" and after.startswith("-") else word
        for word, after in zip(words, following, strict=True)
    ]
