"""What must hold, seen from outside: from the log service, the storage, the exit codes, and the input that was made.

Each checker is told of every change of what it looks at and reports the first thing that must not be. None of them
knows how the engine works; what they compare with is computed anew from the input.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from tidegate.checkpoint.log import CleanStop, Completed, Created, Discarded, Entry, Finished, Takeover
from tidegate.checkpoint.manifest import Manifest, files_of
from tidegate.checkpoint.protocol import Committable
from tidegate.checkpoint.recovery import named_by
from tidegate.checkpoint.store import CheckpointStore, attempt_of, decode_entry
from tidegate.errors import ErrorKind
from tidegate.ids import LogPosition, TransactionalId
from tidegate.testing.sim.job import JOB, Event, Total
from tidegate.testing.sim.job_manager import SimJobManager
from tidegate.testing.sim.outside import Outside, OutsideTransaction
from tidegate.testing.sim.swarm import JobShape

Violated = Callable[[str], None]
Use = tuple[str, int, int]
"""One use of a transactional id: the id, the producer id where there is one, the epoch."""


class LogChecker:
    """Positions are unbroken and written once, each by the winner of the newest takeover; ids and attempts only grow;
    what is deleted was not needed. `on_completed` is told of each checkpoint."""

    def __init__(self, store: CheckpointStore, retained: int, now: Callable[[], float], violated: Violated) -> None:
        self._store = store
        self.retained = retained
        self._now = now
        self.taken_over_at = 0.0
        """Seconds; the newest takeover."""
        self.completed_at = 0.0
        """Seconds; the newest completed checkpoint."""
        self._violated = violated
        self.on_completed: list[Callable[[Manifest], None]] = []
        self.entries: dict[LogPosition, Entry] = {}
        """Those that are stored and belong to the log."""
        self._next = LogPosition(0)
        self.owner: str | None = None
        """The nonce of the newest takeover."""
        self._attempt = 0
        self._beginning = LogPosition(-1)
        """Completed checkpoints below count no more."""
        self._highest = 0
        self.named: set[Use] = set()
        """Every transaction that a completed checkpoint ever named."""
        self.is_finished = False

    @property
    def completed(self) -> list[Entry]:
        return [entry for entry in self.entries.values() if isinstance(entry.body, Completed)]

    @property
    def manifests(self) -> list[Manifest]:
        return [entry.body.manifest for entry in self.completed if isinstance(entry.body, Completed)]

    def created(self, path: str, data: bytes) -> None:
        if not path.startswith(f"{JOB}/log/"):
            return
        position = LogPosition(int(path.rpartition("/")[2].removesuffix(".json")))
        entry = decode_entry(position, data)
        if not isinstance(entry, Entry):
            self._violated(f"log entry {position} cannot be read: {entry.why}")
        elif position > self._next:
            self._violated(f"log entry {position} was written where {self._next} is the next")
        elif position == self._next:
            self._next = LogPosition(position + 1)
            self._appended(entry)
        # Else: a stray write of a process that was away for long, at a position that was used and pruned since.

    def _appended(self, entry: Entry) -> None:
        self.entries[entry.position] = entry
        if isinstance(entry.body, Takeover):
            if entry.attempt <= self._attempt:
                self._violated(f"attempt {entry.attempt} takes over after attempt {self._attempt}")
            self.owner, self._attempt, self.taken_over_at = entry.nonce, entry.attempt, self._now()
            self._beginning = entry.position if entry.body.fresh else self._beginning
        elif not isinstance(entry.body, Created | Discarded) and entry.nonce != self.owner:
            what = type(entry.body).__name__
            self._violated(f"attempt {entry.attempt} wrote {what} into the log, attempt {self._attempt} runs the job")
        if isinstance(entry.body, Completed):
            self._completed(entry.body.manifest)
        self.is_finished = isinstance(entry.body, Finished)

    def _completed(self, manifest: Manifest) -> None:
        if manifest.checkpoint <= self._highest:
            self._violated(f"checkpoint {manifest.checkpoint} completed after checkpoint {self._highest}")
        self._highest, self.completed_at = manifest.checkpoint, self._now()
        missing = sorted(manifest.files.difference(self._store.state_files()))
        if missing:
            self._violated(f"checkpoint {manifest.checkpoint} names {missing}, which are not there")
        for record in manifest.operators:
            self.named.update(use_of(pending.committable) for pending in record.pending)
        for told in self.on_completed:
            told(manifest)

    def replaced(self, path: str, _: bytes) -> None:
        self._violated(f"{path} was replaced: what is stored of a job never changes")

    def deleted(self, path: str) -> None:
        folder, _, name = path.removeprefix(f"{JOB}/").partition("/")
        if folder == "log":
            self._entry_deleted(LogPosition(int(name.removesuffix(".json"))))
        elif path.removeprefix(f"{JOB}/") in files_of(self.manifests):
            self._violated(f"{path} was deleted, and a checkpoint in the log names it")

    def _entry_deleted(self, position: LogPosition) -> None:
        completed = [entry.position for entry in self.completed]
        # Who has begun anew retains nothing of before, but only once it has something: until then what counts is what
        # was retained when a request that comes late was sent.
        kept = ([at for at in completed if at > self._beginning] or completed)[-self.retained :]
        takeovers = [entry.position for entry in self.entries.values() if isinstance(entry.body, Takeover)]
        if position == 0 or position >= min(kept, default=0) or position == max(takeovers, default=0):
            self._violated(f"log entry {position} was deleted; the completed ones at {kept} are all that is retained")
        self.entries.pop(position, None)

    def is_of_last(self, path: str) -> bool:
        """Whether the last attempt wrote the file."""
        return attempt_of(path.removeprefix(f"{JOB}/")) == self._attempt

    def check_files(self, excused: Sequence[str]) -> None:
        """At the end: exactly the files that are needed, but for those that are `excused`."""
        needed = files_of(self.manifests[-self.retained :])
        there = self._store.state_files()
        for path in sorted(needed.difference(there)):
            self._violated(f"{path} is missing, and a checkpoint in the log needs it")
        for path in self.unnamed_files():
            if f"{JOB}/{path}" not in excused:
                self._violated(f"{path} is left over: no checkpoint in the log names it")

    def unnamed_files(self) -> list[str]:
        """Files of state that are there and that no checkpoint in the log names."""
        needed = files_of(self.manifests)
        return [path for path in self._store.state_files() if path not in needed]


def use_of(committable: Committable) -> Use:
    """The transaction that is to be committed."""
    return (committable.id, committable.payload.get("producer_id", 0), committable.payload["epoch"])


def use_of_transaction(transaction: OutsideTransaction) -> Use:
    """The same, as the outside knows it."""
    return (transaction.id, transaction.producer_id, transaction.epoch)


class CommitChecker:
    """Only what a completed checkpoint of the log names is ever committed."""

    def __init__(self, log: LogChecker, violated: Violated) -> None:
        self._log = log
        self._violated = violated

    def committed(self, transaction: OutsideTransaction) -> None:
        if use_of_transaction(transaction) not in self._log.named:
            self._violated(f"{transaction.id} was committed, and no completed checkpoint names it")


class UseChecker:
    """Transactional ids are used as recovery counts on: each use by one attempt only, with an epoch that is higher than
    those before, and not as long as the newest completed checkpoint names the id."""

    def __init__(self, log: LogChecker, violated: Violated) -> None:
        self._log = log
        self._violated = violated
        self._epochs: dict[tuple[str, int], int] = {}

    def begun(self, id: str) -> None:
        newest = self._log.manifests[-1:]
        if newest and id in named_by(newest[0]):
            self._violated(f"{id} is used again, and checkpoint {newest[0].checkpoint}, the newest, still names it")

    def completed(self, manifest: Manifest) -> None:
        for record in manifest.operators:
            for pending in record.pending:
                self._check(pending.committable, manifest)

    def _check(self, committable: Committable, manifest: Manifest) -> None:
        name = f"checkpoint {manifest.checkpoint} of attempt {manifest.attempt}"
        id, producer, epoch = use_of(committable)
        parsed = TransactionalId.parse(id)
        if parsed is None or (parsed.instance, parsed.attempt) != (manifest.instance, manifest.attempt):
            self._violated(f"{name} names {id}, which is not an id of this attempt")
        before = self._epochs.get((id, producer), -1)
        if epoch <= before:
            self._violated(f"{name} names epoch {epoch} of {id}, and an earlier one named epoch {before}")
        self._epochs[id, producer] = epoch


class OutputChecker:
    """At every moment readers see, per key, totals 1, 2, 3 … of different input records, each right; at the end of all.

    Where records of one key stay in one sink subtask, readers also see them in order and without a gap.
    """

    def __init__(
        self, service: Outside, shape: JobShape, events: dict[int, Event], place: dict[int, str], violated: Violated
    ) -> None:
        self._service = service
        self._shape = shape
        self.keeps_order = shape.sink_parallelism is None
        self._events = events
        self._place = place
        """By event: the input partition that it came from."""
        self._violated = violated

    def committed(self) -> None:
        """More is out."""
        for topic in self._shape.output_topics:
            self._check_values(topic, [total for part in self._service.committed(topic) for total in part])

    def seen(self) -> None:
        """Readers may see more."""
        for topic in self._shape.output_topics if self.keeps_order else ():
            for part in self._service.visible(topic):
                self._check_order(topic, part)

    def check_complete(self) -> None:
        """The job is finished: everything is there, and visible."""
        for topic in self._shape.output_topics:
            totals: list[Total] = [total for part in self._service.visible(topic) for total in part]
            missing = sorted(self._events.keys() - {total.id for total in totals})
            if missing:
                self._violated(f"{topic}: events {missing} are missing at the end")
            for key in sorted({event.key for event in self._events.values()}):
                of_key = sorted((total for total in totals if total.key == key), key=lambda total: total.count)
                self._check_order(topic, of_key)

    def _check_values(self, topic: str, totals: Sequence[Total]) -> None:
        doubled = sorted(id for id, times in Counter(total.id for total in totals).items() if times > 1)
        if doubled:
            self._violated(f"{topic}: events {doubled} were put out more than once")
        counts = Counter((total.key, total.count) for total in totals)
        repeated = sorted(what for what, times in counts.items() if times > 1)
        if repeated:
            self._violated(f"{topic}: counts {repeated} were put out more than once")
        for total in totals:
            event = self._events.get(total.id)
            if event is None or event.key != total.key:
                self._violated(f"{topic}: {total} comes from no event")
            if total.remembered != total.count or total.listed != total.total:
                self._violated(f"{topic}: the states of one key were not captured together: {total}")

    def _check_order(self, topic: str, totals: Sequence[Total]) -> None:
        count: dict[str, int] = {}
        so_far: dict[str, int] = {}
        newest: dict[tuple[str, str], int] = {}
        for total in totals:
            event = self._events[total.id]
            count[total.key] = count.get(total.key, 0) + 1
            so_far[total.key] = so_far.get(total.key, 0) + event.amount
            if total.count != count[total.key]:
                self._violated(f"{topic}: {total} is number {count[total.key]} of its key for readers")
            elif total.total != so_far[total.key]:
                self._violated(f"{topic}: {total} should have the total {so_far[total.key]}")
            source = (total.key, self._place[total.id])
            # At another parallelism, what waited for a call may be behind what is read then.
            if newest.get(source, -1) > total.id and not self._shape.calls:
                self._violated(f"{topic}: {total} came after event {newest[source]} of the same partition and key")
            newest[source] = total.id


def check_exit(log: LogChecker, may_lose: bool, manager: SimJobManager, violated: Violated) -> None:
    """A JobManager that was taken over exits with 4, and no other; none exits with a code that only damage explains."""
    name, failure = manager.process.name, manager.failure
    is_owner = log.owner == manager.nonce
    if manager.exit_code == 4 and (is_owner or (log.owner is None and not _has_foreign(log, manager.nonce))):
        violated(f"{name} exits as fenced, and nobody has taken over")
    if manager.exit_code == 3 and not may_lose:
        violated(f"{name} stops, and no transaction has timed out: {failure}")
    if manager.exit_code == 2:
        violated(f"{name} refuses what is right: {failure}")
    if failure is not None and failure.kind in (ErrorKind.INTERNAL, ErrorKind.USER_CODE, ErrorKind.CORRUPT):
        violated(f"{name} ends with '{failure.kind.value}': {failure.message}")


def check_left_files(
    log: LogChecker, created_at: Mapping[str, float], manager: SimJobManager, violated: Violated
) -> None:
    """Whoever has recorded an end leaves no file that the log does not name, but for what zombies wrote when its
    workers were gone already, and for what it said that it could not remove."""
    newest = log.entries[max(log.entries)] if log.entries else None
    has_ended = newest is not None and newest.nonce == manager.nonce and isinstance(newest.body, CleanStop | Finished)
    if not has_ended or manager.settling_since is None or manager.reporter.has_left_something:
        return
    for path in log.unnamed_files():
        if created_at[f"{JOB}/{path}"] < manager.settling_since:
            violated(f"{manager.process.name} has ended and left {path}, which no checkpoint in the log names")


def _has_foreign(log: LogChecker, nonce: str) -> bool:
    return any(entry.nonce != nonce for entry in log.entries.values())
