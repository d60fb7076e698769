"""For programs that use two cores as two processes: starts copies of a program, and ends with them.

Runs in the peers' own environments, and needs nothing but Python.
"""

import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from types import FrameType

_LOOK = 0.1


def run(commands: Sequence[Sequence[str]]) -> None:
    """Run the programs `commands` to their ends. SIGTERM ends them all, and so does one that fails. Leaves this program
    with 0 when all went well, and with 1 otherwise."""
    is_asked_to_end = False

    def end(number: int, frame: FrameType | None) -> None:
        nonlocal is_asked_to_end
        is_asked_to_end = True

    signal.signal(signal.SIGTERM, end)
    processes = [subprocess.Popen([sys.executable, *command]) for command in commands]
    codes = [process.poll() for process in processes]
    while None in codes and not any(codes) and not is_asked_to_end:
        time.sleep(_LOOK)
        codes = [process.poll() for process in processes]
    for process in processes:
        process.terminate()
    codes = [process.wait() for process in processes]
    sys.exit(int(any(codes)))
