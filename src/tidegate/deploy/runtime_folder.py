"""A private folder for the sockets of one JobManager process, with a short path: an address holds about 100 bytes.

Its owner holds a lock on it for as long as it lives, in whatever container: what nobody holds was left by a process
that was killed, and is removed by the next one that starts. Nothing that is needed after a crash may be kept here.
"""

import fcntl
import os
import shutil
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from tidegate.errors import InvalidError

_PREFIX = "tidegate-run-"
_LOCK = "lock"
_LONGEST_PATH = 60
"""Bytes of a parent's path that leave room for the names in it."""


class RuntimeFolder:
    """Mode 0700. Making one removes what killed processes of this user left beside it."""

    def __init__(self, parent: Path | None = None) -> None:
        """`parent`: where to make it; by default $XDG_RUNTIME_DIR or /tmp, whichever will do. Raises InvalidError when
        none will."""
        parent = _parent() if parent is None else parent
        remove_abandoned(parent)
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
        # Locked before it has its name, so that nobody ever finds it free.
        self._lock = os.open(self.path / "new", os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        (self.path / "new").rename(self.path / _LOCK)

    def address(self, name: str) -> str:
        """Of a ZeroMQ socket."""
        return f"ipc://{self.path}/{name}"

    def close(self) -> None:
        """Remove it."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def runtime_folders() -> list[Path]:
    """Those of this user's processes that live, wherever they may have been made."""
    folders = (folder for parent in dict.fromkeys(_candidates()) for folder in sorted(parent.glob(f"{_PREFIX}*")))
    found = []
    for folder in folders:
        with suppress(OSError):
            if _is_own(folder) and (folder / _LOCK).exists() and _is_held(folder / _LOCK):
                found.append(folder)
    return found


def _candidates() -> list[Path]:
    paths = (os.environ.get("XDG_RUNTIME_DIR", ""), "/tmp", os.environ.get("TMPDIR", ""))
    return [Path(path).absolute() for path in paths if path]


def _parent() -> Path:
    for path in _candidates():
        if _is_usable(str(path)):
            return path
    raise InvalidError(
        "there is no folder for the sockets of a job: /tmp cannot be written",
        remedy=f"Set TMPDIR to a folder that can be, with a path of at most {_LONGEST_PATH} bytes.",
    )


def _is_usable(path: str) -> bool:
    # What is below /run/user goes when the user logs out, and a job may stay.
    is_lasting = not path.startswith("/run/user/")
    return is_lasting and len(os.fsencode(path)) <= _LONGEST_PATH and os.access(path, os.W_OK | os.X_OK)


def remove_abandoned(parent: Path) -> None:
    """Remove the folders in `parent` that are this user's and that no living process holds."""
    for folder in parent.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            if _is_own(folder) and not _is_held(folder / _LOCK):
                shutil.rmtree(folder, ignore_errors=True)


def _is_own(folder: Path) -> bool:
    """Whether it is a folder of this user. Where everybody may write, somebody else's link may lead to one that is."""
    found = folder.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()


def _is_held(lock: Path) -> bool:
    """A folder without a lock is being made, or was left by a process killed in that moment; it is left alone."""
    try:
        descriptor = os.open(lock, os.O_RDWR)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(descriptor)
