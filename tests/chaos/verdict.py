"""What must hold of a log while the job runs, and what must be left when it has ended: files, processes."""

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

from tests.chaos.checker import Violation
from tests.chaos.supervisor import Scene, Start
from tests.integration.programs import log_of
from tidegate.checkpoint.log import Completed, Entry, LogView
from tidegate.checkpoint.manifest import files_of
from tidegate.checkpoint.store import CheckpointStore
from tidegate.errors import TidegateError
from tidegate.ids import JobName
from tidegate.storage.resolve import open_storage

MARKERS_PATIENCE = 15.0
"""Seconds in which brokers finish what was decided."""


class Progress:
    """How many attempts and checkpoints there were, savepoints that were begun from included."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._newest: dict[str, tuple[int, int]] = {}
        """Attempt and next position by instance of the log: neither ever becomes smaller."""
        self._checkpoint = 0
        self.checkpoints = 0

    def look(self) -> None:
        """Raises Violation when the log has gone back."""
        # What is deleted while it is read is looked for again next time.
        with suppress(OSError, TidegateError):
            view = log_of(self._scene.checkpoints, self._scene.job)
            if view.instance is not None:
                self._take(str(view.instance), view)

    def _take(self, instance: str, view: LogView) -> None:
        attempt, position = self._newest.get(instance, (0, 0))
        if view.attempt < attempt or view.next_position < position:
            was = f"attempt {attempt}, position {position}"
            now = f"attempt {view.attempt}, position {view.next_position}"
            raise Violation("log", f"log {instance} went back from {was} to {now}")
        self._newest[instance] = view.attempt, view.next_position
        if view.newest is not None:
            # Where a savepoint begins, checkpoints may be counted anew.
            count = view.newest.checkpoint
            self.checkpoints += count - self._checkpoint if count >= self._checkpoint else count
            self._checkpoint = count

    @property
    def attempts(self) -> int:
        return sum(attempt for attempt, _ in self._newest.values())


class Transactions(Protocol):
    """Whoever can list them."""

    def transactions(self, prefix: str, *states: str) -> list[str]:
        """The ids that begin with `prefix` and are in one of `states`, as Kafka names them."""
        ...


def check_processes(scene: Scene, starts: Sequence[Start]) -> None:
    """None of `starts` has left one, nor what only living ones need. Raises Violation."""
    for start in starts:
        left = start.started.living()
        if left:
            raise Violation("left over", f"processes {sorted(left)} of {start.name} live after its end")
    sockets = sorted(path.name for path in scene.sockets.iterdir())
    if sockets:
        raise Violation("left over", f"folders of sockets: {sockets}")


def check_transactions(scene: Scene, brokers: Transactions) -> None:
    """None of the job is open, and those that are decided are soon completed. Raises Violation."""
    prefix = f"{scene.job}:"
    ongoing = brokers.transactions(prefix, "Ongoing")
    if ongoing:
        raise Violation("left over", f"transactions are ongoing after a good end: {ongoing}")
    deadline = time.monotonic() + MARKERS_PATIENCE
    while prepared := brokers.transactions(prefix, "PrepareCommit", "PrepareAbort"):
        if time.monotonic() > deadline:
            raise Violation("left over", f"transactions are not completed by the brokers: {prepared}")


def check_files(scene: Scene) -> None:
    """There are exactly the files that the manifests name. Raises Violation."""
    view = log_of(scene.checkpoints, scene.job)
    bodies = [entry.body for entry in view.entries if isinstance(entry, Entry)]
    named = files_of([body.manifest for body in bodies if isinstance(body, Completed)])
    store = CheckpointStore(open_storage(str(scene.checkpoints)), JobName(scene.job))
    stored = set(store.state_files())
    if stored != named:
        raise Violation("left over", f"files {sorted(stored - named)}; missing: {sorted(named - stored)}")
