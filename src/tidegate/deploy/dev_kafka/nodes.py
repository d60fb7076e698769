"""One node of Kafka as an operating-system process: its folder, its start, its signals, and what it wrote.

Only the process that was started here is ever signalled. The folder outlives it, and is started again with all data.
"""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from tidegate.deploy.dev_kafka.settings import (
    LOGGING_FILE,
    NodeAddress,
    format_arguments,
    java_command,
    logging_text,
    server_arguments,
)
from tidegate.deploy.processes import describe_exit
from tidegate.errors import UnavailableError

_LOG_LINES = 25


class JavaKafka(msgspec.Struct, frozen=True):
    """What is run."""

    java: str
    jars: Path
    version: str


class Node:
    """A folder, and the process that works in it, when one does."""

    def __init__(self, address: NodeAddress, folder: Path, kafka: JavaKafka) -> None:
        self.address = address
        self.log_file = folder / "server.log"
        self.data = folder / "data"
        self._folder = folder
        self._kafka = kafka
        self._properties = folder / "server.properties"
        self._formatted = folder / "formatted"
        self._process: subprocess.Popen[bytes] | None = None

    def configure(self, properties: str) -> None:
        """Write what the next start reads."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._properties.write_text(properties)
        (self._folder / LOGGING_FILE).write_text(logging_text(self._kafka.version))

    # ---- start -----------------------------------------------------------------------------------------------------

    def begin_format(self, cluster_id: str) -> None:
        """Make an empty data folder, unless there is one; `end_format` waits for it."""
        if not self._formatted.exists():
            # What an interrupted format has left is neither empty nor whole.
            shutil.rmtree(self.data, ignore_errors=True)
            self._spawn(format_arguments(self._properties, cluster_id))

    def end_format(self) -> None:
        """Raises UnavailableError when it failed."""
        if self._formatted.exists():
            return
        code = self._running().wait()
        self._process = None
        if code != 0:
            raise UnavailableError(f"the folder of Kafka node {self.address.id} could not be made: {self.tail()}")
        self._formatted.touch()

    def start(self) -> None:
        """Start the process, and do not wait until it answers."""
        self._spawn(server_arguments(self._properties))

    def _spawn(self, arguments: Sequence[str]) -> None:
        command = java_command(self._kafka.java, self._kafka.jars, self._kafka.version, self._folder / LOGGING_FILE)
        guard = [sys.executable, "-P", "-m", "tidegate.deploy.dev_kafka.node_process", str(os.getpid())]
        with self.log_file.open("ab") as log:
            # In a session of its own, so that Ctrl-C reaches it through whoever started it, in good order.
            self._process = subprocess.Popen(
                [*guard, *command, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    # ---- end -------------------------------------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        """Raises UnavailableError when it does not run."""
        return self._running().pid

    @property
    def is_started(self) -> bool:
        """Whether it should run: it was started, and neither stopped nor killed since."""
        return self._process is not None

    def stop(self, patience: float) -> None:
        """Ask it to end in good order, and kill it after `patience` seconds; it is gone when this returns."""
        if self._process is not None:
            # SIGTERM waits for as long as it is paused.
            self.resume()
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(patience)
            self.kill()

    def kill(self) -> None:
        """End it by SIGKILL; it is gone when this returns."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """It keeps its connections and answers nothing."""
        self._running().send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._running().send_signal(signal.SIGCONT)

    def _running(self) -> "subprocess.Popen[bytes]":
        if self._process is None:
            raise UnavailableError(f"Kafka node {self.address.id} does not run", remedy="Start it, or restart it.")
        return self._process

    # ---- what it says ----------------------------------------------------------------------------------------------

    def check_alive(self) -> None:
        """Raises UnavailableError, with the end of its log, when its process has ended."""
        code = self._running().poll()
        if code is not None:
            raise UnavailableError(f"Kafka node {self.address.id} {describe_exit(code)}: {self.tail()}")

    def tail(self) -> str:
        """Where its log is, and the end of it."""
        lines = self.log_file.read_text(errors="replace").splitlines()[-_LOG_LINES:]
        return "\n".join([str(self.log_file), *lines])
