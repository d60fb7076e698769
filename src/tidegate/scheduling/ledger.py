"""The JobManager's view of the checkpoint log: what is stored as far as it knows, and the one append that may be
undecided. Pure."""

from collections.abc import Sequence

from tidegate.checkpoint.log import (
    Body,
    CleanStop,
    Completed,
    Created,
    Entry,
    LogCursor,
    LogView,
    StoredEntry,
    Takeover,
    Unreadable,
    view_log,
)
from tidegate.checkpoint.manifest import Manifest
from tidegate.clock import Now
from tidegate.errors import ErrorKind, Failure
from tidegate.ids import Attempt, CheckpointId, JobName, LogInstance, LogPosition
from tidegate.scheduling.protocol import Append, Tell, WakeAt

APPEND_RETRY = 0.5
"""Seconds between two tries of an append whose outcome is unknown."""
TELL_EVERY = 20
"""Of so many tries without an answer one is told."""


class Ledger:
    """Nothing can be appended while an append is undecided; it is repeated, the same bytes, until it is."""

    def __init__(self, stored: Sequence[StoredEntry], job: JobName, nonce: str, new_instance: LogInstance) -> None:
        self._job = job
        self._stored = list(stored)
        self.view: LogView = view_log(self._stored)
        self._cursor = LogCursor(
            self.view.next_position, nonce, self.view.instance or new_instance, previous=self.view.newest_nonce
        )
        self._again_at: float | None = None
        self._unanswered = 0
        """How often the append that is undecided got no answer."""

    @property
    def instance(self) -> LogInstance:
        return self._cursor.instance

    @property
    def is_undecided(self) -> bool:
        return self._cursor.pending is not None

    @property
    def restorable(self) -> Manifest | None:
        """The checkpoint from which the next attempt goes on."""
        return self.view.newest

    @property
    def own_attempt(self) -> Attempt | None:
        """The newest attempt whose takeover this process has won; None before the first."""
        nonce = self._cursor.nonce
        own = [e for e in self._stored if isinstance(e, Entry) and e.nonce == nonce and isinstance(e.body, Takeover)]
        return own[-1].attempt if own else None

    def clean_stop(self, *, keeps: bool) -> CleanStop:
        """What a stop records that leaves nothing uncommitted and nothing open."""
        return CleanStop(self.restorable.checkpoint if self.restorable else CheckpointId(0), keeps)

    @property
    def begins_fresh(self) -> bool:
        """Whether the newest fresh start has completed nothing yet. Until then whoever takes over aborts what other
        logs left open: the process that was asked to may have died before it did. Who begins from a savepoint was not
        asked to: the job that wrote it may still run."""
        body = self.view.beginning.body if self.view.beginning else None
        return not self.view.completed and isinstance(body, Takeover) and body.savepoint is None

    def successor(self, stored: Sequence[StoredEntry]) -> StoredEntry | None:
        """The newest entry of `stored`, read just now, if it is another process's: then that one runs the job."""
        newest = max(stored, key=lambda entry: entry.position, default=None)
        return None if isinstance(newest, Entry) and newest.nonce == self._cursor.nonce else newest

    def fencing(self, stored: Sequence[StoredEntry]) -> Failure | None:
        """What is said when `stored`, the log as it is now, shows that somebody else has taken over."""
        other = self.successor(stored)
        return None if other is None else self.refused(other.position, other)

    def overtaking(self, stored: Sequence[StoredEntry]) -> Failure | None:
        """What is said when `stored`, the log as it is now, has more than was read at first."""
        newer = next((e for e in stored if e.position >= self.view.next_position), None)
        return None if newer is None else self.refused(newer.position, newer)

    def refused(self, position: LogPosition, by: StoredEntry | None) -> Failure:
        """What is said when another process has written where this one wanted to."""
        who = f"attempt {by.attempt}" if isinstance(by, Entry) else "somebody else"
        where = f"position {position} of its checkpoint log"
        if self.own_attempt is None:
            # Its entries come quickly, or somebody else starts at this very moment. Trying the next position is for
            # nobody who has not read what is at this one.
            text = f"job {self._job} could not be taken over: {where} was written meanwhile by {who}"
            return Failure(
                ErrorKind.FENCED, text, "Another JobManager runs this job. Start again to take over from it."
            )
        return Failure(
            ErrorKind.FENCED,
            f"job {self._job} was taken over: {where} belongs to {who}",
            "Another JobManager runs this job; nothing of this one's will be committed any more.",
        )

    def append(self, body: Body, attempt: Attempt, now: Now) -> Append:
        return Append(self._cursor.begin(body, Attempt(0) if isinstance(body, Created) else attempt, now.wall))

    def won(self) -> Entry:
        """The append is in the log."""
        entry = self._cursor.won()
        self._again_at = None
        self._unanswered = 0
        self._stored.append(entry)
        self.view = view_log(self._stored)
        return entry

    def unanswered(self, why: str, now: Now) -> list[Tell | WakeAt]:
        """Nobody knows whether it is: ask again, and now and then say so."""
        self._again_at = now.monotonic + APPEND_RETRY
        told = (
            [Tell("warning", f"the checkpoint log does not answer: {why}")]
            if self._unanswered % TELL_EVERY == 0
            else []
        )
        self._unanswered += 1
        return [*told, WakeAt(self._again_at)]

    def due(self, now: Now) -> Append | None:
        """The undecided append, when it is time to repeat it."""
        if self._again_at is None or now.monotonic < self._again_at or self._cursor.pending is None:
            return None
        self._again_at = None
        return Append(self._cursor.pending, is_repeat=True)

    # -- what is stored --

    @property
    def stored(self) -> Sequence[StoredEntry]:
        """Every entry in the log, whether it counts or not."""
        return self._stored

    @property
    def is_readable(self) -> bool:
        return not any(isinstance(e, Unreadable) for e in self._stored)

    def forget(self, positions: Sequence[LogPosition]) -> None:
        """These are not in the log any more."""
        self._stored = [e for e in self._stored if e.position not in positions]
        self.view = view_log(self._stored)


def manifests_in(stored: Sequence[StoredEntry]) -> list[Manifest]:
    """Of the completed checkpoints among these entries."""
    return [e.body.manifest for e in stored if isinstance(e, Entry) and isinstance(e.body, Completed)]
