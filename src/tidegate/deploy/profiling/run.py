"""Holds the profiler around a job: finds out first whether the result can be written, gives workers a place for their
parts, and writes the file and tells the summary however the job ends.
"""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path

import msgspec

from tidegate.deploy.logs import JSON
from tidegate.deploy.profiling.recording import Recording, read_parts, write_part
from tidegate.deploy.profiling.sampler import Sampler
from tidegate.deploy.profiling.speedscope import speedscope_file
from tidegate.deploy.profiling.summary import render_summary, summary_of
from tidegate.deploy.runtime_folder import RuntimeFolder
from tidegate.errors import InvalidError, TidegateError
from tidegate.ids import JobName
from tidegate.metrics import Reporter

ENDING = ".speedscope.json"
_OWN_PART = "here"


@contextmanager
def profiling(wanted: str, job: JobName, reporter: Reporter, log_format: str) -> Iterator[Path]:
    """Within, parts of the profile are put into the folder that it gives. `wanted`: a file, a folder, or '' for the
    working folder. Raises InvalidError when nothing can be written there."""
    target = target_of(wanted, job)
    with closing(RuntimeFolder()) as folder:
        try:
            yield folder.path
        finally:
            _write(folder.path, target, job, reporter, log_format)


def target_of(wanted: str, job: JobName) -> Path:
    """The file that is meant. It is made by another name and removed again, to find out whether that can be done."""
    path = Path(wanted).expanduser().absolute() if wanted else Path.cwd()
    target = path / f"{job}{ENDING}" if path.is_dir() or wanted.endswith(os.sep) else path
    try:
        new = _beside(target)
        new.touch()
        new.unlink()
    except OSError as error:
        raise InvalidError(
            f"the profile cannot be written to {target}: {error.strerror or error}",
            remedy="Give --profile=FILE, in a folder that is there and may be written to.",
        ) from error
    return target


def _beside(target: Path) -> Path:
    return target.with_name(f"{target.name}.new")


def _write(folder: Path, target: Path, job: JobName, reporter: Reporter, log_format: str) -> None:
    """An end of the job is worth more than its profile: what goes wrong here is told, and not raised."""
    try:
        profile = read_parts(folder)
        _beside(target).write_bytes(speedscope_file(profile, f"{job}, by Tidegate"))
        _beside(target).replace(target)
    except (OSError, TidegateError) as error:
        reporter.event("error", f"the profile could not be written to {target}: {error}")
        return
    summary = summary_of(profile)
    if log_format == JSON:
        reporter.event("info", "profile", file=str(target), **msgspec.to_builtins(summary))
    else:
        reporter.event("info", render_summary(summary, str(target)))


@contextmanager
def sampling(folder: Path, part: str, worker: int | None) -> Iterator[None]:
    """Within, this thread, the main one, and the others of this process are looked at, for the part of this name."""

    def hand_over(recording: Recording) -> None:
        # What does not fit on the disk now may do so the next time.
        with suppress(OSError):
            write_part(recording.profile(), folder / f"{part}.part")

    sampler = Sampler(worker, hand_over)
    sampler.start()
    try:
        yield
    finally:
        sampler.stop()


def sampling_here(folder: Path) -> AbstractContextManager[None]:
    """Of a job that runs in this process."""
    return sampling(folder, _OWN_PART, None)
