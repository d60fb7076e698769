"""Job managers that appear, sleep, wake up and prune, over one checkpoint store: what really happens to a log.

`World` also keeps what the truth is, in terms that do not use `tidegate.checkpoint.log`: who took over last, which
completed checkpoints were won, and which of them somebody discarded or started afresh above.
"""

from dataclasses import dataclass, field

from tests.unit.checkpoint.records import INSTANCE, JOB, manifest
from tidegate.checkpoint.log import (
    Body,
    Completed,
    Created,
    Discarded,
    Entry,
    LogCursor,
    LogView,
    ProcessRecord,
    Takeover,
    prunable,
    view_log,
)
from tidegate.checkpoint.store import CheckpointStore, Won
from tidegate.ids import Attempt, LogPosition
from tidegate.storage.memory import MemoryStorage


@dataclass
class Manager:
    """One process that thinks that it may run the job."""

    cursor: LogCursor
    attempt: Attempt
    checkpoint: int
    options: dict[str, str]
    joined: bool = False
    """It won a takeover."""
    fenced: bool = False


@dataclass
class World:
    store: CheckpointStore = field(default_factory=lambda: CheckpointStore(MemoryStorage(), JOB))
    managers: list[Manager] = field(default_factory=list)
    leader: Manager | None = None
    """The one whose takeover is the newest."""
    history: list[Entry] = field(default_factory=list)
    """Every entry that was won, in order."""
    counting: list[LogPosition] = field(default_factory=list)
    """Positions of completed entries that count: neither discarded, nor below a fresh start, nor pruned."""

    def view(self) -> LogView:
        return view_log(self.store.read_log())

    def start(self) -> None:
        """A new process lists the log, and does nothing yet."""
        view = self.view()
        nonce, instance = f"nonce-{len(self.managers)}", view.instance or INSTANCE
        cursor = LogCursor(view.next_position, nonce, instance, previous=view.newest_nonce)
        checkpoint = max((each.checkpoint for each in view.manifests), default=0)
        self.managers.append(Manager(cursor, Attempt(view.attempt + 1), checkpoint, view.options))

    def take_over(self, manager: Manager, fresh: bool) -> None:
        """It creates the log if it found none, and then takes over; whatever happened in between."""
        if manager.cursor.next_position == 0:
            self._append(manager, Created(), Attempt(0))
        if manager.fenced:
            return
        options = {**manager.options, f"option-{manager.attempt}": "applied"}
        takeover = Takeover("host", ProcessRecord(1, 1), options=options, fresh=fresh)
        if self._append(manager, takeover, manager.attempt):
            manager.joined = True
            manager.options = options
            self.leader = manager
            self.counting = [] if fresh else self.counting

    def complete(self, manager: Manager) -> None:
        manager.checkpoint += 1
        body = Completed(manifest(manager.checkpoint, manager.attempt))
        if self._append(manager, body, manager.attempt):
            self.counting.append(self.history[-1].position)

    def discard_newest(self, manager: Manager) -> None:
        """An operator goes back by one checkpoint."""
        newest = self.view().completed[-1:]
        body = Discarded(tuple(each.position for each in newest), "asked for")
        if self._append(manager, body, manager.attempt):
            self.counting = [position for position in self.counting if position not in body.positions]

    def prune(self, manager: Manager, retained: int, limit: int) -> None:
        """It prunes after an append of its own; with a `limit` it is killed while it does."""
        if not manager.fenced:
            gone = prunable(self.view(), retained)[:limit]
            self.store.prune(gone)
            self.counting = [position for position in self.counting if position not in gone]

    def _append(self, manager: Manager, body: Body, attempt: Attempt) -> bool:
        entry = manager.cursor.begin(body, attempt, 0.0)
        if not isinstance(self.store.append(entry), Won):
            manager.fenced = True
            return False
        self.history.append(manager.cursor.won())
        return True
