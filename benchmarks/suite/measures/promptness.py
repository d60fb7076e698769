"""For processes that send or read while something else is measured: they need little of a machine, but that at once,
and must never outlive who started them.
"""

import os
from contextlib import suppress

from tidegate.deploy.processes import die_with_parent

PRIORITY = -10


def be_prompt() -> None:
    """Ask to be run before others; who may not ask for it is measured all the same, and sees whether it came late."""
    die_with_parent(os.getppid())
    with suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, PRIORITY)
