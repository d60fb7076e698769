"""Transactions of the embedded log: who may write under a transactional id, and what became of what was written.

Functions over one connection, each called inside a transaction of `database`. They never keep a lock or an SQLite
transaction open: a transaction of the log is rows and their state, so that it outlives its producer and anybody can
commit it.

Each `begin` makes a row with an epoch of its own under the id; rows that ever held records are kept, so what became
of a transaction can be told for as long as the log exists.
"""

import enum
import sqlite3
from collections.abc import Sequence

import msgspec

from tidegate.checkpoint.protocol import AlreadyCommitted, Committed, Lost, Outcome, Unknown
from tidegate.connectors.local import records
from tidegate.connectors.local.records import Row
from tidegate.errors import InternalError, SinkFencedError, TidegateError, UnavailableError

TIMED_OUT = "it was open for longer than its timeout"
FENCED = "a newer transaction was begun under its id"
ABORTED = "it was aborted by hand or by a recovery"


class TransactionState(enum.Enum):
    """As Kafka's coordinator calls them."""

    EMPTY = "Empty"
    """Begun, nothing written."""
    ONGOING = "Ongoing"
    """Holds records, prepared or not; neither committed nor aborted."""
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"


class TransactionDescription(msgspec.Struct, frozen=True):
    """The newest transaction under an id."""

    id: str
    epoch: int
    state: TransactionState
    reason: str
    """Why it was aborted; empty otherwise."""
    start: int | None
    """When its first record was written, milliseconds since 1970; None while it is empty."""
    timeout: int
    """Milliseconds from `start` after which it is aborted."""
    prepared: bool
    partitions: tuple[str, ...]
    """'topic/partition' of each partition that it holds back; empty unless it is Ongoing."""


def begin(connection: sqlite3.Connection, id: str, timeout: int) -> tuple[int, int]:
    """Number and epoch of a new transaction; whatever was open under `id` is aborted, its producer fenced."""
    (newest,) = connection.execute("SELECT max(epoch) FROM transactions WHERE id = ?", (id,)).fetchone()
    epoch = 0 if newest is None else newest + 1
    abort(connection, id, FENCED)
    cursor = connection.execute(
        "INSERT INTO transactions (id, epoch, state, timeout) VALUES (?, ?, 'Empty', ?)", (id, epoch, timeout)
    )
    connection.execute("DELETE FROM transactions WHERE id = ? AND epoch < ? AND start IS NULL", (id, epoch))
    if cursor.lastrowid is None:
        raise InternalError(f"SQLite gave no number to the new transaction {id}")
    return cursor.lastrowid, epoch


def write(connection: sqlite3.Connection, id: str, number: int, rows: Sequence[Row], now: int) -> None:
    """Add `rows`. Raises SinkFencedError or UnavailableError when the transaction is not this producer's to write any
    more."""
    state = _own_state(connection, id, number)
    if state is TransactionState.EMPTY:
        connection.execute("UPDATE transactions SET state = 'Ongoing', start = ? WHERE number = ?", (now, number))
    first = records.append(connection, rows, number)
    connection.executemany(
        "INSERT OR IGNORE INTO open_partitions VALUES (?, ?, ?)",
        [(partition, number, offset) for partition, offset in first.items()],
    )


def prepare(connection: sqlite3.Connection, id: str, number: int) -> TransactionDescription | None:
    """Declare it complete; None when nothing was written. Raises as `write`."""
    if _own_state(connection, id, number) is TransactionState.EMPTY:
        return None
    connection.execute("UPDATE transactions SET prepared = 1 WHERE number = ?", (number,))
    return describe(connection, id)


def _own_state(connection: sqlite3.Connection, id: str, number: int) -> TransactionState:
    row = connection.execute("SELECT state, reason, prepared FROM transactions WHERE number = ?", (number,)).fetchone()
    if row is None:
        raise _not_ours(id, FENCED)
    state, reason, prepared = TransactionState(row[0]), row[1], row[2]
    if state is TransactionState.COMPLETE_ABORT:
        raise _not_ours(id, reason)
    if prepared:
        raise InternalError(f"transaction {id} was used again after it had been prepared ({state.value})")
    return state


def _not_ours(id: str, reason: str) -> TidegateError:
    if reason == TIMED_OUT:
        return UnavailableError(
            f"transaction {id} was aborted: {reason}",
            remedy="Give the sink a longer timeout, or take checkpoints more often.",
        )
    return SinkFencedError(
        f"transaction {id} was taken from its producer: {reason}",
        remedy="If no newer attempt of this job runs, another job uses this transaction prefix: change one of them.",
    )


def commit(connection: sqlite3.Connection, id: str, epoch: int, start: int) -> Outcome:
    """Make its records visible, or tell from its row why that cannot be."""
    row = connection.execute(
        "SELECT number, state, reason, start FROM transactions WHERE id = ? AND epoch = ?", (id, epoch)
    ).fetchone()
    if row is None:
        return Unknown(f"the embedded log knows no transaction {id} with epoch {epoch}")
    number, state, reason, found_start = row
    if found_start != start:
        return Unknown(f"the transaction {id} with epoch {epoch} of this log began at {found_start}, not at {start}")
    match TransactionState(state):
        case TransactionState.COMPLETE_COMMIT:
            return AlreadyCommitted()
        case TransactionState.COMPLETE_ABORT:
            return Lost(f"transaction {id} with epoch {epoch} was aborted: {reason}")
        case _:
            _complete(connection, number, TransactionState.COMPLETE_COMMIT, "")
            return Committed()


def abort(connection: sqlite3.Connection, id: str, reason: str) -> None:
    """Abort what is open under `id`, also when it is still empty: from then on its producer is fenced."""
    rows = connection.execute(
        "SELECT number FROM transactions WHERE id = ? AND state IN ('Empty', 'Ongoing')", (id,)
    ).fetchall()
    for (number,) in rows:
        _complete(connection, number, TransactionState.COMPLETE_ABORT, reason)


def _complete(connection: sqlite3.Connection, number: int, state: TransactionState, reason: str) -> None:
    connection.execute("UPDATE transactions SET state = ?, reason = ? WHERE number = ?", (state.value, reason, number))
    connection.execute("DELETE FROM open_partitions WHERE transaction_number = ?", (number,))


def has_expired(connection: sqlite3.Connection, now: int) -> bool:
    """Whether `expire` would abort anything."""
    query = "SELECT 1 FROM transactions WHERE state = 'Ongoing' AND start + timeout < ?"
    return connection.execute(query, (now,)).fetchone() is not None


def expire(connection: sqlite3.Connection, now: int) -> None:
    """Abort every transaction that is past its timeout."""
    query = "SELECT number FROM transactions WHERE state = 'Ongoing' AND start + timeout < ?"
    for (number,) in connection.execute(query, (now,)).fetchall():
        _complete(connection, number, TransactionState.COMPLETE_ABORT, TIMED_OUT)


COLUMNS = "id, epoch, state, reason, start, timeout, prepared, number"


def describe(connection: sqlite3.Connection, id: str) -> TransactionDescription | None:
    """None when nothing was ever begun under `id`."""
    row = connection.execute(
        f"SELECT {COLUMNS} FROM transactions WHERE id = ? ORDER BY epoch DESC LIMIT 1", (id,)
    ).fetchone()
    return None if row is None else _description(connection, row)


def newest(connection: sqlite3.Connection) -> list[TransactionDescription]:
    """The newest transaction of each id, by id."""
    query = f"SELECT {COLUMNS}, max(epoch) FROM transactions GROUP BY id ORDER BY id"
    return [_description(connection, row[:-1]) for row in connection.execute(query).fetchall()]


def ongoing(connection: sqlite3.Connection) -> list[TransactionDescription]:
    """Those that are open or prepared, by id."""
    query = f"SELECT {COLUMNS} FROM transactions WHERE state = 'Ongoing' ORDER BY id"
    return [_description(connection, row) for row in connection.execute(query).fetchall()]


Fields = tuple[str, int, str, str, int | None, int, int, int]


def _description(connection: sqlite3.Connection, row: Fields) -> TransactionDescription:
    id, epoch, state, reason, start, timeout, prepared, number = row
    partitions = connection.execute(
        "SELECT topic, partition FROM open_partitions JOIN partitions ON partition_number = partitions.number"
        " WHERE transaction_number = ? ORDER BY topic, partition",
        (number,),
    ).fetchall()
    return TransactionDescription(
        id=id,
        epoch=epoch,
        state=TransactionState(state),
        reason=reason,
        start=start,
        timeout=timeout,
        prepared=bool(prepared),
        partitions=tuple(f"{topic}/{partition}" for topic, partition in partitions),
    )
