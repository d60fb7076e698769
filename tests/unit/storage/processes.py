"""Processes for the conformance kit: real ones, ended by a real SIGKILL."""

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

_RUN = "import pickle, sys; function, arguments = pickle.loads(bytes.fromhex(sys.argv[1])); function(*arguments)"


class Process:
    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        work = pickle.dumps((function, arguments)).hex()
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        self._process = subprocess.Popen([sys.executable, "-c", _RUN, work], env=environment)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def join(self) -> None:
        status = self._process.wait()
        if status != 0:
            raise RuntimeError(f"the process ended with {status}")

    def is_running(self) -> bool:
        return self._process.poll() is None
