"""The checkpoint log: its entries, what a list of entries means, and who may append.

The log is the only truth about a job. An entry is created at the next position if nothing is there; so of all
JobManagers that think they run the job, exactly one wins each position. `LogCursor` is one JobManager's right to
append:

* A conflict with a foreign entry means fenced. The next position is never tried; only a new process lists the log and
  takes over.
* A write whose outcome is unknown is repeated, the same bytes at the same position, until it is decided.
* Position 0 (*created*) is never pruned: otherwise a process that saw an empty log long ago could still create it anew.
* The newest takeover is not pruned either: it holds the attempt's processes and the options that count once.

All pure. The bytes and the storage are `checkpoint.store`'s.
"""

from collections.abc import Sequence

import msgspec

from tidegate.checkpoint.manifest import Manifest, SinkTarget
from tidegate.ids import Attempt, CheckpointId, LogInstance, LogPosition

# ---- entries -------------------------------------------------------------------------------------------------------


class Created(msgspec.Struct, frozen=True, tag="created"):
    """The log begins."""


class ProcessRecord(msgspec.Struct, frozen=True):
    """A process of a job, so that a takeover on the same host can end it. `start_time` tells it from a later process
    with the same pid (Linux: clock ticks since boot)."""

    pid: int
    start_time: int


class SavepointOrigin(msgspec.Struct, frozen=True):
    """The savepoint from which an attempt begins. `instance`, `attempt` and `checkpoint` are those of the job that
    wrote it: by them it is known again, whatever may be in its folder later."""

    path: str
    is_claimed: bool
    """It became this job's own, and is removed once its state is in the job's folder."""
    instance: LogInstance
    attempt: Attempt
    checkpoint: CheckpointId

    def is_of(self, manifest: Manifest) -> bool:
        """Whether `manifest` is that of this savepoint."""
        own = (self.instance, self.attempt, self.checkpoint)
        return own == (manifest.instance, manifest.attempt, manifest.checkpoint)


class Takeover(msgspec.Struct, frozen=True, tag="takeover"):
    """A new attempt: from here on earlier ones can complete nothing."""

    host: str
    job_manager: ProcessRecord
    workers: tuple[ProcessRecord, ...] = ()
    control_address: str = ""
    options: dict[str, str] = {}
    """Options that count once for each new value (`fresh`, `from-checkpoint`, `from-savepoint`), as last applied;
    carried from takeover to takeover."""
    fresh: bool = False
    """This attempt begins without any state, or with that of `savepoint`; completed checkpoints below are as if they
    were not."""
    sinks: tuple[SinkTarget, ...] = ()
    """The program's: how tools reach their transactions also before the first checkpoint."""
    savepoint: SavepointOrigin | None = None
    """Whose state is to be the first completed checkpoint above; until it is, every later attempt begins with it."""


class Completed(msgspec.Struct, frozen=True, tag="completed"):
    """A checkpoint is complete."""

    manifest: Manifest


class CleanStop(msgspec.Struct, frozen=True, tag="committed"):
    """A clean stop: every transaction of `checkpoint` (0: of nothing) is committed and no other is open."""

    checkpoint: CheckpointId
    keeps: bool = True
    """False: nothing was to be kept; completed checkpoints below are as if they were not."""


class Discarded(msgspec.Struct, frozen=True, tag="discarded"):
    """An operator went back: these positions count no more, whether they can be read or not."""

    positions: tuple[LogPosition, ...]
    reason: str


class Finished(msgspec.Struct, frozen=True, tag="finished"):
    """All input was finite, has been read, and every result is committed."""

    checkpoint: CheckpointId


Body = Created | Takeover | Completed | CleanStop | Discarded | Finished


class Entry(msgspec.Struct, frozen=True):
    """One entry. `nonce` tells who wrote it: random per process. `at`: seconds since 1970, UTC."""

    position: LogPosition
    nonce: str
    instance: LogInstance
    attempt: Attempt
    """0 in *created*."""
    at: float
    body: Body
    previous: str = ""
    """The nonce of the entry below, as its writer saw it; '' when it saw none that could be read. By this a stray write
    right below the entries that count is told from what was there before it was pruned."""


class Unreadable(msgspec.Struct, frozen=True):
    """Something is at `position`, but it is not an entry."""

    position: LogPosition
    why: str


StoredEntry = Entry | Unreadable

# ---- what a log says -----------------------------------------------------------------------------------------------


class LogView(msgspec.Struct, frozen=True):
    """What the entries of a log mean together."""

    entries: tuple[StoredEntry, ...]
    """In order of position: the unbroken run up to the newest. Below it is only what is never pruned, and stray writes
    of fenced processes."""
    discarded: frozenset[LogPosition]
    instance: LogInstance | None
    """None when the log is empty."""
    attempt: Attempt
    """Of the newest takeover, also when that cannot be read; 0 when there was none."""
    takeover: Takeover | None
    options: dict[str, str]
    takeover_position: LogPosition | None = None
    """Of `takeover`; below the run once what followed it was pruned."""
    below_run: tuple[LogPosition, ...] = ()
    """What is stored below the run: position 0, the newest takeover, stray writes."""

    @property
    def next_position(self) -> LogPosition:
        return LogPosition(self.entries[-1].position + 1 if self.entries else 0)

    @property
    def newest_nonce(self) -> str:
        """Who wrote the newest entry; '' when there is none or it cannot be read. For the cursor of a takeover."""
        newest = self.entries[-1] if self.entries else None
        return newest.nonce if isinstance(newest, Entry) else ""

    @property
    def live(self) -> tuple[StoredEntry, ...]:
        """Entries that count: not discarded, and newer than the beginning."""
        begin = self.beginning.position if self.beginning else -1
        return tuple(e for e in self.entries if e.position > begin and e.position not in self.discarded)

    @property
    def beginning(self) -> Entry | None:
        """The newest entry by which what is below it counts no more: a fresh start, or a stop that kept nothing. None
        when the log has none, or nobody needs to know of it any more."""
        return next((e for e in reversed(self.entries) if isinstance(e, Entry) and _begins_anew(e.body)), None)

    @property
    def origin(self) -> SavepointOrigin | None:
        """The savepoint from which the state of now began, if it began with one."""
        body = self.beginning.body if self.beginning else None
        return body.savepoint if isinstance(body, Takeover) else None

    @property
    def unimported(self) -> SavepointOrigin | None:
        """The savepoint with whose state the next attempt is to begin: somebody began, and did not come so far that it
        was in the log."""
        return None if self.completed else self.origin

    @property
    def completed(self) -> tuple[Entry, ...]:
        """The readable completed entries that count, oldest first."""
        return tuple(e for e in self.live if isinstance(e, Entry) and isinstance(e.body, Completed))

    @property
    def manifests(self) -> tuple[Manifest, ...]:
        return tuple(e.body.manifest for e in self.completed if isinstance(e.body, Completed))

    @property
    def newest(self) -> Manifest | None:
        """The newest completed checkpoint."""
        return self.manifests[-1] if self.manifests else None

    @property
    def damage(self) -> Unreadable | None:
        """An unreadable entry at or above the newest completed one: it may be a completed checkpoint, so nobody may
        restore an older one."""
        floor = self.completed[-1].position if self.completed else -1
        return next((e for e in self.live if isinstance(e, Unreadable) and e.position > floor), None)

    @property
    def finished(self) -> Finished | None:
        """The job's end, if nothing but a takeover came after it."""
        bodies = [e.body for e in self.live if isinstance(e, Entry)]
        ends = [body for body in bodies if isinstance(body, Finished | Completed)]
        return ends[-1] if ends and isinstance(ends[-1], Finished) else None

    @property
    def is_settled(self) -> bool:
        """Whether everything that `newest` names is known to be committed: a clean stop or the job's end said so, or a
        later checkpoint completed (it was triggered only after that) and an operator went back."""
        newest = self.completed[-1] if self.completed else None
        if newest is None or not isinstance(newest.body, Completed):
            return True
        later = [e for e in self.entries if isinstance(e, Entry) and e.position > newest.position]
        went_back = any(isinstance(e.body, Completed) and e.position in self.discarded for e in later)
        wanted = newest.body.manifest.checkpoint
        return went_back or any(isinstance(e.body, CleanStop | Finished) and e.body.checkpoint == wanted for e in later)


def view_log(stored: Sequence[StoredEntry]) -> LogView:
    """The meaning of what is stored, in any order."""
    ordered = sorted(stored, key=lambda e: e.position)
    run = _unbroken(ordered)
    entries = [e for e in run if isinstance(e, Entry)]
    takeover = _newest_takeover(ordered, entries)
    newest = takeover.body if takeover else None
    discarded = [p for e in entries if isinstance(e.body, Discarded) for p in e.body.positions]
    return LogView(
        entries=tuple(run),
        discarded=frozenset(discarded),
        instance=entries[-1].instance if entries else None,
        attempt=_attempt(run),
        takeover=newest if isinstance(newest, Takeover) else None,
        options=dict(newest.options) if isinstance(newest, Takeover) else {},
        takeover_position=takeover.position if takeover else None,
        below_run=tuple(e.position for e in ordered[: len(ordered) - len(run)]),
    )


def _attempt(run: Sequence[StoredEntry]) -> Attempt:
    """The newest; each newer entry that cannot be read may be a takeover, whose number must not be used again."""
    newest = max((i for i, e in enumerate(run) if isinstance(e, Entry)), default=-1)
    known = max((e.attempt for e in run if isinstance(e, Entry)), default=Attempt(0))
    return Attempt(known + len(run) - newest - 1)


def _newest_takeover(ordered: list[StoredEntry], run: list[Entry]) -> Entry | None:
    """The newest takeover by the writer of the newest entry, which may be below the run; any other there is a stray."""
    takeovers = [e for e in ordered if isinstance(e, Entry) and isinstance(e.body, Takeover)]
    for entry in reversed(run):
        own = [e for e in takeovers if e.nonce == entry.nonce]
        if own:
            return own[-1]
    return None


def _begins_anew(body: Body) -> bool:
    return (isinstance(body, Takeover) and body.fresh) or (isinstance(body, CleanStop) and not body.keeps)


def _unbroken(stored: list[StoredEntry]) -> list[StoredEntry]:
    run: list[StoredEntry] = []
    for entry in reversed(stored):
        if run and not _is_right_below(entry, run[-1]):
            break
        run.append(entry)
    return run[::-1]


def _is_right_below(entry: StoredEntry, above: StoredEntry) -> bool:
    if entry.position != above.position - 1:
        return False
    if not isinstance(entry, Entry) or not isinstance(above, Entry):
        return True
    return above.previous in ("", entry.nonce)


# ---- who may append ------------------------------------------------------------------------------------------------


class LogCursor:
    """One process's place in the log: the next position that it may write, and the append whose outcome is not yet
    known.

    `previous` is who wrote the newest entry that this process has seen: `LogView.newest_nonce`.
    """

    def __init__(self, next_position: LogPosition, nonce: str, instance: LogInstance, previous: str = "") -> None:
        self.next_position = next_position
        self.nonce = nonce
        self.instance = instance
        self.previous = previous
        self.pending: Entry | None = None

    def begin(self, body: Body, attempt: Attempt, at: float) -> Entry:
        """The entry to be appended now. Only one may be undecided at a time."""
        assert self.pending is None, f"{self.pending} is still undecided"
        self.pending = Entry(self.next_position, self.nonce, self.instance, attempt, at, body, self.previous)
        return self.pending

    def won(self) -> Entry:
        """The pending entry is in the log."""
        assert self.pending is not None, "nothing was appended"
        entry, self.pending = self.pending, None
        self.previous = self.nonce
        self.next_position = LogPosition(entry.position + 1)
        return entry


def prunable(view: LogView, retained: int) -> tuple[LogPosition, ...]:
    """Positions that nobody needs, from the bottom up: all below the oldest of the `retained` newest completed entries,
    or below a stop that kept nothing; but never position 0 or the newest takeover, and never the newest completed entry
    or what follows it."""
    oldest = view.completed[-retained:][:1] or (view.beginning,)
    if oldest[0] is None or not isinstance(oldest[0].body, Completed | CleanStop):
        return ()
    floor = oldest[0].position
    stored = (*view.below_run, *(e.position for e in view.entries))
    return tuple(p for p in stored if 0 < p < floor and p != view.takeover_position)
