"""The folder of one log of a job on this machine, in which workers keep files: which logs' folders are of the past.

    <local folder>/<job>/<log instance>/storage     where the log is, as text

A job of the same name whose log is elsewhere may be running beside this one: its folder is left alone.
"""

import shutil
from contextlib import suppress
from pathlib import Path

_STORAGE = "storage"


def remove_earlier_logs(folder: Path, storage: str) -> None:
    """Remove what earlier logs of the job left beside `folder`, in which `storage` is noted for later ones. Blocks;
    raises nothing."""
    with suppress(OSError):
        for log in sorted(folder.parent.iterdir()):
            if log != folder and _text(log / _STORAGE) == storage:
                shutil.rmtree(log, ignore_errors=True)
    with suppress(OSError):
        (folder / _STORAGE).write_text(storage)


def _text(path: Path) -> str | None:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return None
