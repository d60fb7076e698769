"""`tidegate transactions`: what a job has open or left open in the systems of its sinks, and how to end it by hand.

Sinks are found by the words of the job's log, without the program. What a completed checkpoint names is due to be
committed; nothing else may become visible, and nothing that is due may be aborted, unless `--force` says that somebody
knows better. A job that is started does all of this by itself; these commands are for jobs that will not be.
"""

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Annotated

import msgspec
import typer

from tidegate.checkpoint.log import LogView
from tidegate.checkpoint.loss import explain_loss, lost_transaction
from tidegate.checkpoint.manifest import SinkTarget
from tidegate.checkpoint.protocol import (
    AlreadyCommitted,
    CommitPermit,
    Committable,
    Committed,
    CompletedInLog,
    Lost,
    OperatorDecision,
    Outcome,
    Retry,
    Unknown,
)
from tidegate.checkpoint.store import CheckpointStore
from tidegate.cli.stored import DirOption, JobArgument, JsonOption, print_json, store_and_view
from tidegate.cli.text import render_age, render_table, render_time
from tidegate.clock import SystemClock
from tidegate.errors import ErrorKind, Failure, InvalidError, UnavailableError, raise_failure
from tidegate.ids import CheckpointId, TransactionalId
from tidegate.operators.contracts import TransactionInfo, TransactionRecovery, owned_by
from tidegate.operators.reaching import open_recovery

commands = typer.Typer(help="Transactions that a job has or left open, and how to end them.", no_args_is_help=True)

_Id = Annotated[str, typer.Argument(metavar="ID", help="The transactional id, as `list` shows it.")]
_Force = Annotated[bool, typer.Option("--force", help="Although the log speaks against it.")]

# ---- what there is -------------------------------------------------------------------------------------------------


class TransactionRow(msgspec.Struct, frozen=True):
    """One transaction, for people and machines."""

    id: str
    sink: str
    state: str
    """In the words of the sink's system; 'unknown' when it knows nothing of the id."""
    instance: str
    attempt: int
    subtask: int
    started_at: float | None
    age: float | None
    """Seconds since its start, while it is open."""
    timeout: float | None
    partitions: tuple[str, ...]
    checkpoint: CheckpointId | None
    """The completed checkpoint for which its commit is due."""
    what: str
    """The same in words."""


class StoredTransactions:
    """What the log says of a job's transactions."""

    def __init__(self, store: CheckpointStore, view: LogView) -> None:
        self.store = store
        self.view = view
        newest = view.newest
        self.named = {p.committable.id: p.committable for r in newest.operators for p in r.pending} if newest else {}
        """By the newest completed checkpoint."""
        self.due = {} if view.is_settled else self.named
        """Those that the log does not say to be committed."""

    @property
    def sinks(self) -> list[SinkTarget]:
        """Those of the newest completed checkpoint and of the newest attempt, each place once."""
        operators = self.view.newest.operators if self.view.newest else ()
        then = [SinkTarget(record.name, record.sink) for record in operators if record.sink is not None]
        found: list[SinkTarget] = []
        for target in (*then, *(self.view.takeover.sinks if self.view.takeover else ())):
            if target not in found:
                found.append(target)
        return found

    @property
    def checkpoint(self) -> str:
        return f"checkpoint {self.view.newest.checkpoint}" if self.view.newest else "no completed checkpoint yet"

    def is_of_newest_attempt(self, id: TransactionalId) -> bool:
        return id.instance == self.view.instance and id.attempt >= self.view.attempt

    def what(self, id: TransactionalId, info: TransactionInfo | None) -> str:
        """To whom it belongs, in words."""
        if str(id) in self.due:
            return f"{self.checkpoint}, commit is due" if is_open(info) else f"{self.checkpoint}, not open any more"
        if id.instance != self.view.instance:
            return f"no checkpoint: of another log, {id.instance}"
        if self.is_of_newest_attempt(id):
            return "no checkpoint: open now, or left over"
        return f"no checkpoint: left over from attempt {id.attempt}"


def is_open(info: TransactionInfo | None) -> bool:
    """Whether it holds records that are neither committed nor aborted."""
    return info is not None and info.committable is not None


def transaction_rows(job: StoredTransactions, now: float) -> list[TransactionRow]:
    """Of every transaction that is open, or should be because its commit is due. `now`: seconds since 1970. Raises what
    the sinks' systems raise."""
    rows: dict[str, TransactionRow] = {}
    for target in job.sinks:
        due = [id for id in map(TransactionalId.parse, job.due) if id is not None and _belongs(id, target)]
        with closing(open_recovery(target.record.recovery)) as recovery:
            for id in sorted({*recovery.open_transactions(target.record.prefix, target.sink), *due}):
                info = recovery.describe(id)
                if info is not None or str(id) not in rows:
                    rows[str(id)] = _row(job, id, info, now)
    return list(rows.values())


def _belongs(id: TransactionalId, target: SinkTarget) -> bool:
    return owned_by(id, target.record.prefix, target.sink)


def _row(job: StoredTransactions, id: TransactionalId, info: TransactionInfo | None, now: float) -> TransactionRow:
    started = info.started_at if info else None
    return TransactionRow(
        id=str(id),
        sink=id.sink,
        state=info.state if info else "unknown",
        instance=id.instance,
        attempt=id.attempt,
        subtask=id.subtask,
        started_at=started,
        age=now - started if started is not None and is_open(info) else None,
        timeout=info.timeout if info else None,
        partitions=info.partitions if info else (),
        checkpoint=job.view.newest.checkpoint if job.view.newest and str(id) in job.due else None,
        what=job.what(id, info),
    )


def _age(row: TransactionRow) -> str:
    if row.age is None:
        return ""
    return render_age(row.age) if row.timeout is None else f"{render_age(row.age)} of {render_age(row.timeout)}"


# ---- list, describe ------------------------------------------------------------------------------------------------


@commands.command("list")
def list_transactions(job: JobArgument, checkpoint_dir: DirOption = None, json: JsonOption = False) -> None:
    """Open transactions of every sink of the job, and to which completed checkpoint each belongs."""
    stored = StoredTransactions(*store_and_view(job, checkpoint_dir))
    rows = transaction_rows(stored, SystemClock().now().wall)
    if json:
        print_json({"job": stored.store.job, "location": stored.store.location, "transactions": rows})
        return
    print(f"job {stored.store.job} in {stored.store.location}, attempt {stored.view.attempt}, {stored.checkpoint}")
    if not stored.sinks:
        print("the log names no sink")
    elif not rows:
        print("no open transactions")
    else:
        headers = ("id", "state", "age", "partitions", "belongs to")
        print(render_table(headers, [(r.id, r.state, _age(r), ", ".join(r.partitions), r.what) for r in rows]))


@commands.command("describe")
def describe_transaction(id: _Id, job: JobArgument, checkpoint_dir: DirOption = None, json: JsonOption = False) -> None:
    """One transaction, whatever became of it."""
    stored, parsed = StoredTransactions(*store_and_view(job, checkpoint_dir)), _parsed(id)
    with _reached(stored, parsed) as (_, info):
        if info is None:
            raise InvalidError(f"the system of sink {parsed.sink} knows no transaction {id}")
        row = _row(stored, parsed, info, SystemClock().now().wall)
    if json:
        print_json(row)
        return
    lines = {
        "id": row.id,
        "state": row.state,
        "sink": f"{row.sink}, subtask {row.subtask}",
        "attempt": f"{row.attempt} of log {row.instance}",
        "started": "" if row.started_at is None else render_time(row.started_at),
        "age": _age(row),
        "partitions": ", ".join(row.partitions),
        "belongs to": row.what,
    }
    print("\n".join(f"{name:<12}{text}" for name, text in lines.items() if text))


def _parsed(text: str) -> TransactionalId:
    id = TransactionalId.parse(text)
    if id is None:
        raise InvalidError(
            f"{text!r} is not a transactional id of a job",
            remedy="They are written prefix:log:attempt:sink:subtask:slot; see `tidegate transactions list`.",
        )
    return id


@contextmanager
def _reached(
    job: StoredTransactions, id: TransactionalId
) -> Iterator[tuple[TransactionRecovery, TransactionInfo | None]]:
    """The system that knows `id`, and what it says of it. A sink that has moved is looked for where it was, too."""
    targets = [target for target in job.sinks if _belongs(id, target)]
    if not targets:
        there = ", ".join(f"{target.record.prefix}:…:{target.sink}:…" for target in job.sinks) or "none"
        raise InvalidError(
            f"{job.store.location} names no sink to which {id} belongs", remedy=f"Its sinks' ids are: {there}."
        )
    with ExitStack() as opened:
        found = []
        for target in targets:
            recovery = opened.enter_context(closing(open_recovery(target.record.recovery)))
            found.append((recovery, recovery.describe(id)))
        yield next((one for one in found if one[1] is not None), found[0])


# ---- commit, abort -------------------------------------------------------------------------------------------------


@commands.command("commit")
def commit_transaction(id: _Id, job: JobArgument, checkpoint_dir: DirOption = None, force: _Force = False) -> None:
    """Make visible what a completed checkpoint names and nobody has committed yet."""
    stored, parsed = StoredTransactions(*store_and_view(job, checkpoint_dir)), _parsed(id)
    with _reached(stored, parsed) as (recovery, info):
        newest = stored.view.newest
        if newest is not None and id in stored.due:
            committable = stored.due[id]
            permit = CommitPermit(CompletedInLog(newest.attempt, newest.checkpoint))
        else:
            committable = _forced(stored, parsed, info, force)
            permit = CommitPermit(OperatorDecision("tidegate transactions commit --force"))
        _tell(stored, committable, recovery.commit(committable, permit))


def _forced(stored: StoredTransactions, id: TransactionalId, info: TransactionInfo | None, force: bool) -> Committable:
    """What may be committed by force alone."""
    if info is None or info.committable is None:
        raise InvalidError(f"{id} holds nothing that could be committed: {_state(info)}")
    if not force:
        raise InvalidError(
            f"no completed checkpoint of {stored.store.location} names {id}: committed, its records would be visible, "
            "and the job puts them out again",
            remedy="Abort it; or give --force if you know that nobody will make its records again.",
        )
    return info.committable


def _tell(stored: StoredTransactions, committable: Committable, outcome: Outcome) -> None:
    match outcome:
        case Committed():
            print(f"committed {committable.id}")
        case AlreadyCommitted():
            print(f"{committable.id} was committed before")
        case Retry(why):
            raise UnavailableError(f"{committable.id} is not committed yet: {why}", remedy="Repeat the command.")
        case Lost(why) | Unknown(why):
            kind = ErrorKind.LOST if isinstance(outcome, Lost) else ErrorKind.UNKNOWN_OUTCOME
            if committable.id not in stored.due:
                raise_failure(Failure(kind, f"transaction {committable.id} cannot be committed any more: {why}"))
            raise_failure(explain_loss(lost_transaction(kind, committable, why), stored.view.manifests))


@commands.command("abort")
def abort_transaction(id: _Id, job: JobArgument, checkpoint_dir: DirOption = None, force: _Force = False) -> None:
    """Throw away what is open under an id, so that readers get past it, and fence its producer."""
    stored, parsed = StoredTransactions(*store_and_view(job, checkpoint_dir)), _parsed(id)
    with _reached(stored, parsed) as (recovery, info):
        if not is_open(info):
            raise InvalidError(f"nothing is open under {id}: {_state(info)}")
        if not force:
            _refuse_to_harm(stored, parsed, job)
        recovery.abort(parsed)
        print(f"aborted {id}")


def _refuse_to_harm(stored: StoredTransactions, id: TransactionalId, job: str) -> None:
    if str(id) in stored.due:
        raise InvalidError(
            f"{stored.checkpoint} is complete and names {id}: aborted, its records would be lost",
            remedy=f"Run tidegate transactions commit {id} {job}; or give --force to lose them.",
        )
    if id.instance != stored.view.instance:
        raise InvalidError(
            f"{id} belongs to another checkpoint log, {id.instance}; this one is {stored.view.instance}",
            remedy="Name the job by the folder of that log; or give --force if it is lost and its job does not run.",
        )
    if stored.is_of_newest_attempt(id):
        raise InvalidError(
            f"{id} is of attempt {id.attempt}, the newest, and the job may be running: its attempt would fail",
            remedy="Stop the job or start it again, which aborts it; or give --force if the job does not run.",
        )


def _state(info: TransactionInfo | None) -> str:
    return "its system knows nothing of it" if info is None else f"its state is {info.state}"
