"""The embedded log as its users see it: topics, records, transactions of one directory.

Every call stands alone: it opens, does and ends one transaction of the database, so a process that dies leaves
nothing behind but what it had finished. Nothing here may decide when a transaction of a job is committed; that is the
engine's.
"""

import re
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from tidegate.checkpoint.protocol import Outcome
from tidegate.clock import Clock, SystemClock
from tidegate.connectors.local import database, partitioner, records, transactions
from tidegate.connectors.local.database import Database
from tidegate.connectors.local.records import Chunk, Isolation, PartitionInfo, Row
from tidegate.connectors.local.transactions import TransactionDescription
from tidegate.errors import InvalidError

DEFAULT_TIMEOUT = 900.0
"""Seconds; Kafka's default maximum."""
SYSTEM_CLOCK = SystemClock()

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_DELETE_AT_ONCE = 10_000


class LogRecord(NamedTuple):
    """One record as it lies in the log."""

    offset: int
    timestamp: int
    """Milliseconds since 1970."""
    key: bytes | None
    value: bytes | None


class Transaction(NamedTuple):
    """A transaction begun here. It lives in the log; this only names it."""

    id: str
    number: int
    epoch: int


class LocalLog:
    """Topics in `directory`, shared by any number of processes of one machine; a context manager that closes it.

    Made if absent, unless `create` is False. Raises InvalidError for a wrong name or argument, UnavailableError when
    the disk or other processes do not let it through, CorruptError when the file is damaged. Times out by the wall
    clock of `clock`: transactions past their timeout are aborted by whoever reads, begins, prepares, lists or
    describes next.
    """

    def __init__(self, directory: str | Path, *, create: bool = True, clock: Clock = SYSTEM_CLOCK) -> None:
        self.directory = Path(directory).absolute()
        self._clock = clock
        self._batches = 0
        if create:
            database.create(self.directory, self._now())
        self._database = Database(self.directory)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file. Commits and aborts nothing."""
        self._database.close()

    def _now(self) -> int:
        return int(self._clock.now().wall * 1000)

    @property
    def created(self) -> int:
        """When this log was made, milliseconds since 1970: tells it from one that was put in its place."""
        return self._database.read(lambda connection: int(connection.execute("SELECT created FROM log").fetchone()[0]))

    # ---- topics ----------------------------------------------------------------------------------------------------

    def create_topic(self, name: str, partitions: int) -> None:
        """Make the topic, or give it more partitions; nothing happens when it has that many already.

        Raises InvalidError for fewer than it has: keys would change their partition and records vanish.
        """
        if _TOPIC.fullmatch(name) is None:
            raise InvalidError(f"{name!r} cannot name a topic", remedy="Use 1 to 249 of A-Z, a-z, 0-9, '.', '_', '-'.")

        def work(connection: sqlite3.Connection) -> None:
            (present,) = connection.execute("SELECT count(*) FROM partitions WHERE topic = ?", (name,)).fetchone()
            if partitions < max(present, 1):
                raise InvalidError(
                    f"topic {name} of {self.directory} has {present} partitions and cannot get {partitions}",
                    remedy="A topic has at least one partition and never loses one.",
                )
            new = [(name, partition) for partition in range(present, partitions)]
            connection.executemany("INSERT INTO partitions (topic, partition) VALUES (?, ?)", new)

        self._database.write(work, durable=True)

    def topics(self) -> dict[str, int]:
        """Number of partitions by topic, in the order of the names."""
        query = "SELECT topic, count(*) FROM partitions GROUP BY topic ORDER BY topic"
        return self._database.read(lambda connection: dict(connection.execute(query).fetchall()))

    def partitions(self, topic: str) -> int:
        """How many partitions `topic` has. Raises InvalidError when there is no such topic."""
        return len(self.partition_numbers(topic))

    def partition_numbers(self, topic: str) -> list[int]:
        """The database's number of each partition, for `Row`. Raises InvalidError when there is no such topic."""
        query = "SELECT number FROM partitions WHERE topic = ? ORDER BY partition"
        numbers = self._database.read(
            lambda connection: [row[0] for row in connection.execute(query, (topic,)).fetchall()]
        )
        if not numbers:
            raise InvalidError(
                f"there is no topic {topic!r} in the embedded log {self.directory}",
                remedy=f"Make it with LocalLog(directory).create_topic({topic!r}, partitions).",
            )
        return numbers

    # ---- records ---------------------------------------------------------------------------------------------------

    def append(
        self,
        topic: str,
        partition: int | None,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None = None,
        timestamps: Sequence[int] | None = None,
    ) -> None:
        """Add records that are visible at once and survive everything when this returns.

        All of them go to `partition`; with None each goes by the hash of its key, those without a key to one
        partition that changes with every call. `timestamps` are milliseconds since 1970; now, when left out.
        """
        numbers = self.partition_numbers(topic)
        keys = [None] * len(values) if keys is None else keys
        timestamps = [self._now()] * len(values) if timestamps is None else timestamps
        if not len(values) == len(keys) == len(timestamps):
            raise InvalidError(
                f"{len(values)} values, {len(keys)} keys and {len(timestamps)} timestamps do not pair up"
            )
        if not all(one is None or isinstance(one, bytes) for column in (keys, values) for one in column):
            raise InvalidError("keys and values of the embedded log are bytes or None", remedy="Encode them first.")
        if partition is None:
            targets = partitioner.assign(keys, len(numbers), self._batches)
            self._batches += 1
        elif 0 <= partition < len(numbers):
            targets = [partition] * len(values)
        else:
            raise InvalidError(f"topic {topic} has {len(numbers)} partitions, there is no partition {partition}")
        rows = [
            Row(numbers[target], timestamp, key, value)
            for target, timestamp, key, value in zip(targets, timestamps, keys, values, strict=True)
        ]
        self._database.write(lambda connection: records.append(connection, rows), durable=True)

    def read(
        self,
        topic: str,
        partition: int,
        offset: int | None = None,
        max_records: int | None = None,
        isolation: Isolation = "read_committed",
    ) -> list[LogRecord]:
        """Records from `offset` on (from the first that is left, when None), up to `max_records` or all that are
        there."""
        found: list[LogRecord] = []
        position = self.low_watermark(topic, partition) if offset is None else offset
        while max_records is None or len(found) < max_records:
            wanted = records.SCAN if max_records is None else max_records - len(found)
            chunk = self.fetch(topic, partition, position, wanted, isolation)
            found += map(LogRecord, chunk.offsets, chunk.timestamps, chunk.keys, chunk.values)
            if chunk.next_offset == position:
                break
            position = chunk.next_offset
        return found

    def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        max_records: int,
        isolation: Isolation = "read_committed",
        stop: int | None = None,
    ) -> Chunk:
        """One read, quick also where much is invisible: it may bring nothing and still move `next_offset`.

        Raises LostDataError when `offset` lies below the low watermark or beyond the end.
        """
        if max_records < 1:
            raise InvalidError(f"at least one record must be asked for, not {max_records}")
        self._expire()
        place = f"{topic}/{partition} of {self.directory}"

        def work(connection: sqlite3.Connection) -> Chunk:
            info = self._info(connection, topic, partition)
            return records.read(connection, place, info, offset, max_records, isolation, stop)

        return self._database.read(work)

    def low_watermark(self, topic: str, partition: int) -> int:
        """The first offset that has not been deleted."""
        return self.partition_info(topic, partition).low_watermark

    def end_offset(self, topic: str, partition: int) -> int:
        """The offset that the next record will get."""
        return self.partition_info(topic, partition).end_offset

    def last_stable_offset(self, topic: str, partition: int) -> int:
        """The first offset that read_committed does not reach: where the earliest open transaction begins, or the
        end."""
        return self.partition_info(topic, partition).last_stable_offset

    def partition_info(self, topic: str, partition: int) -> PartitionInfo:
        """All of these at one moment."""
        self._expire()
        return self._database.read(lambda connection: self._info(connection, topic, partition))

    def _info(self, connection: sqlite3.Connection, topic: str, partition: int) -> PartitionInfo:
        info = records.partition_info(connection, topic, partition)
        if info is None:
            raise InvalidError(f"the embedded log {self.directory} has no partition {partition} of a topic {topic!r}")
        return info

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Give up all records with offsets below `before`. Raises InvalidError when an open transaction reaches into
        them."""
        info = self.partition_info(topic, partition)
        if before > info.last_stable_offset:
            raise InvalidError(
                f"{topic}/{partition}: cannot delete before offset {before}, only before the last stable offset"
                f" {info.last_stable_offset}",
                remedy="Wait until the open transactions are committed or aborted.",
            )
        # The mark moves first: whatever is interrupted, nobody reads a range that is half gone.
        query = "UPDATE partitions SET low_watermark = max(low_watermark, ?) WHERE number = ?"
        self._database.write(lambda connection: connection.execute(query, (before, info.number)).rowcount, durable=True)
        while self._delete_some(info.number, before):
            pass

    def _delete_some(self, number: int, before: int) -> bool:
        query = (
            "DELETE FROM records WHERE partition_number = ?1 AND offset < min(?2, ?3 +"
            " (SELECT min(offset) FROM records WHERE partition_number = ?1))"
        )
        arguments = (number, before, _DELETE_AT_ONCE)
        return self._database.write(lambda connection: connection.execute(query, arguments).rowcount) > 0

    # ---- transactions ----------------------------------------------------------------------------------------------

    def begin_transaction(self, id: str, timeout: float = DEFAULT_TIMEOUT) -> Transaction:
        """Open one under `id`, to be aborted `timeout` seconds after its first record. Aborts what is open under `id`
        and fences its producer."""
        self._expire()
        milliseconds = int(timeout * 1000)
        number, epoch = self._database.write(lambda connection: transactions.begin(connection, id, milliseconds))
        return Transaction(id, number, epoch)

    def write_transaction(self, transaction: Transaction, rows: Sequence[Row]) -> None:
        """Add `rows`, invisible until the commit. Raises SinkFencedError, or UnavailableError after a timeout."""
        id, number, _ = transaction
        now = self._now()
        self._database.write(lambda connection: transactions.write(connection, id, number, rows, now))

    def prepare_transaction(self, transaction: Transaction, rows: Sequence[Row] = ()) -> TransactionDescription | None:
        """Add the last `rows` and make all of it survive the loss of power; None when there is nothing. Raises as a
        write."""
        self._expire()
        id, number, _ = transaction
        now = self._now()

        def work(connection: sqlite3.Connection) -> TransactionDescription | None:
            if rows:
                transactions.write(connection, id, number, rows, now)
            return transactions.prepare(connection, id, number)

        return self._database.write(work, durable=True)

    def commit_transaction(self, id: str, epoch: int, start: int) -> Outcome:
        """Make the transaction visible that began under `id` with `epoch` at `start` (milliseconds), whoever wrote it.

        May be repeated. One past its timeout can still be committed when nobody has aborted it yet.
        """
        return self._database.write(lambda connection: transactions.commit(connection, id, epoch, start), durable=True)

    def abort_transaction(self, id: str) -> None:
        """Abort what is open under `id` and fence its producer; nothing happens when nothing is."""
        self._database.write(lambda connection: transactions.abort(connection, id, transactions.ABORTED), durable=True)

    def list_transactions(self, *, ongoing_only: bool = False) -> list[TransactionDescription]:
        """The newest transaction of each id, by id; or only those that are open or prepared."""
        self._expire()
        return self._database.read(transactions.ongoing if ongoing_only else transactions.newest)

    def describe(self, id: str) -> TransactionDescription | None:
        """The newest transaction under `id`; None when there never was one."""
        self._expire()
        return self._database.read(lambda connection: transactions.describe(connection, id))

    def _expire(self) -> None:
        now = self._now()
        if self._database.read(lambda connection: transactions.has_expired(connection, now)):
            self._database.write(lambda connection: transactions.expire(connection, now), durable=True)
