"""The disk of a chaos run's checkpoints, which can be full: a small file system of its own where that is permitted.

Elsewhere the kernel is told to refuse what the job's processes write (RLIMIT_FSIZE); that hits all their files. Either
way only processes of this run ever see it.
"""

import ctypes
import os
import resource
import shutil
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Literal, Protocol

SIZE = 128 * 1024 * 1024
_CLONE_NEWNS = 0x00020000


class Disk(Protocol):
    """Where checkpoints, savepoints and, in some runs, local files are."""

    name: str
    """How it becomes full, for the screen."""
    path: Path

    def fill(self, pids: Iterable[int]) -> None:
        """Nothing more can be written by the processes of these pids and those that they start."""
        ...

    def free(self, pids: Iterable[int]) -> None: ...

    def started(self, pid: int) -> None:
        """A new process of the job: as the others."""
        ...

    def close(self) -> None:
        """Nobody uses it any more; what is on it may go."""
        ...


class SmallDisk:
    """A file system in memory, seen by this process and its children alone; it goes with the last of them."""

    name = "a file system of 128 MB"

    def __init__(self, path: Path) -> None:
        """Raises OSError where it is not permitted. Before any thread is started."""
        libc = ctypes.CDLL(None, use_errno=True)
        path.mkdir()
        if libc.unshare(_CLONE_NEWNS) != 0:
            raise OSError(ctypes.get_errno(), "a mount namespace is not permitted")
        _mount("--make-rprivate", "/")
        _mount("-t", "tmpfs", "-o", f"size={SIZE}", "chaos", str(path))
        self.path = path
        self._ballast = path / "ballast"

    def fill(self, pids: Iterable[int]) -> None:
        with self._ballast.open("wb") as file:
            # By halves down to the last page: others write meanwhile.
            size = SIZE
            while size >= 512:
                with suppress(OSError):
                    os.posix_fallocate(file.fileno(), file.seek(0, os.SEEK_END), size)
                    continue
                size //= 2

    def free(self, pids: Iterable[int]) -> None:
        self._ballast.unlink(missing_ok=True)

    def started(self, pid: int) -> None: ...

    def close(self) -> None:
        subprocess.run(["umount", "--lazy", str(self.path)], capture_output=True, check=False)


def _mount(*words: str) -> None:
    done = subprocess.run(["mount", *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(done.returncode, done.stderr.strip())


class LimitedDisk:
    """An ordinary folder; writes that would make a file longer are refused to processes."""

    name = "RLIMIT_FSIZE of 0"

    def __init__(self, path: Path) -> None:
        path.mkdir(exist_ok=True)
        self.path = path
        self._is_full = False

    def fill(self, pids: Iterable[int]) -> None:
        self._is_full = True
        _limit(pids, 0)

    def free(self, pids: Iterable[int]) -> None:
        self._is_full = False
        _limit(pids, None)

    def started(self, pid: int) -> None:
        if self._is_full:
            _limit([pid], 0)

    def close(self) -> None: ...


def _limit(pids: Iterable[int], size: int | None) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)[1]
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard if size is None else size, hard))


def make_disk(path: Path, kind: Literal["auto", "mount", "limit"]) -> Disk:
    """`auto`: the best that is permitted here. Raises OSError for `mount` where that is not."""
    if kind != "limit":
        try:
            return SmallDisk(path)
        except (OSError, AttributeError):
            if kind == "mount":
                raise
            shutil.rmtree(path, ignore_errors=True)
    return LimitedDisk(path)
