"""Places by name at which a test can kill the process, to show that a crash exactly there loses and doubles nothing.

Shells call `reach("log-append:before")` once per checkpoint or recovery step, never per record. Nothing happens unless
`arm` was called; `deploy/` arms from the environment. A fail point is never used to decide anything.
"""

from collections.abc import Callable

_hook: Callable[[str], None] | None = None


def arm(hook: Callable[[str], None] | None) -> None:
    """From now on `reach(name)` calls `hook(name)`; None disarms."""
    global _hook
    _hook = hook


def reach(name: str) -> None:
    """The process stands at the place called `name`."""
    if _hook is not None:
        _hook(name)


NAMES = (
    "trigger:after",
    "capture:before",
    "capture:after",
    "upload:before",
    "upload:after",
    "acknowledge:before",
    "acknowledge:after",
    "log-append:before",
    "log-append:after",
    "commit:before",
    "commit:after",
    "recovery-commit:before",
    "recovery-commit:after",
    "recovery-abort:before",
    "recovery-abort:after",
    "savepoint-export:before",
    "savepoint-export:after",
    "savepoint-import:before",
    "savepoint-import:after",
)
"""Every fail point there is; a test holds this list and the calls together."""
