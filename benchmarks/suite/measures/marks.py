"""What the processes of a job have noted about themselves (see `hook/sitecustomize.py`), read and put in order.

Nothing is concluded here: a mark is a place and a time.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

HOOK = Path(__file__).parent / "hook"
FOLDER_VARIABLE = "BENCH_MARKS"
JOB_MANAGER = "job manager"


class Mark(NamedTuple):
    at: float
    """Seconds of the monotonic clock."""
    pid: int
    who: str
    """`JOB_MANAGER`, or 'worker 0'."""
    what: str
    about: str

    @property
    def is_worker(self) -> bool:
        return self.who != JOB_MANAGER

    @property
    def text(self) -> str:
        return f"{self.what} {self.about}".rstrip()


def environment(folder: Path, given: Mapping[str, str] = {}) -> dict[str, str]:
    """`given`, and what makes the processes of a job write their marks into `folder`."""
    path = given.get("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    folder.mkdir(parents=True, exist_ok=True)
    return {**given, "PYTHONPATH": os.pathsep.join(filter(None, (str(HOOK), path))), FOLDER_VARIABLE: str(folder)}


def read(folder: Path) -> list[Mark]:
    """All that were written until now, in the order of their times. A line that a killed process has not finished is
    left out."""
    decode = msgspec.json.Decoder(Mark).decode
    lines = [line for path in sorted(folder.glob("*.marks")) for line in path.read_bytes().split(b"\n")[:-1]]
    return sorted(map(decode, lines))


def first(marks: Sequence[Mark], *texts: str, after: float = 0.0) -> Mark | None:
    """The first of these places that was reached not before `after`; None when none was."""
    return next((mark for mark in marks if mark.at >= after and mark.text in texts), None)


def living_workers(marks: Sequence[Mark]) -> dict[str, int]:
    """By 'worker 0', the pid of its newest process, killed or not."""
    return {mark.who: mark.pid for mark in marks if mark.is_worker}
