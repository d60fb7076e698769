"""One SQLite database shared by several processes, each of which may die at any moment: whole transactions or nothing.

One file holds all topics of a directory, so that a transaction over several partitions is committed by one atomic
statement, and so that a transactional id has one owner whatever it writes to. The price is one writer at a time in
the directory; writes are therefore short. Nothing here may hold a lock between two calls, and nothing may be half
made: the file appears under its name only when its tables are complete.
"""

import os
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from tidegate.errors import CorruptError, InternalError, InvalidError, TidegateError, UnavailableError

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]

FILE_NAME = "log.sqlite"
SCHEMA_VERSION = 1
BUSY_SECONDS = 10.0
"""How long one try waits while another process writes."""
TRIES = 3

SCHEMA = f"""
PRAGMA user_version = {SCHEMA_VERSION};
CREATE TABLE log (created INTEGER NOT NULL);
CREATE TABLE partitions (
    number INTEGER PRIMARY KEY,
    topic TEXT NOT NULL,
    partition INTEGER NOT NULL,
    low_watermark INTEGER NOT NULL DEFAULT 0,
    end_offset INTEGER NOT NULL DEFAULT 0,
    UNIQUE (topic, partition)
);
CREATE TABLE records (
    partition_number INTEGER NOT NULL,
    offset INTEGER NOT NULL,
    transaction_number INTEGER,
    timestamp INTEGER NOT NULL,
    key BLOB,
    value BLOB,
    PRIMARY KEY (partition_number, offset)
) WITHOUT ROWID;
CREATE TABLE transactions (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    state TEXT NOT NULL,
    reason TEXT NOT NULL DEFAULT '',
    start INTEGER,
    timeout INTEGER NOT NULL,
    prepared INTEGER NOT NULL DEFAULT 0,
    UNIQUE (id, epoch)
);
CREATE INDEX ongoing ON transactions (number) WHERE state = 'Ongoing';
CREATE TABLE open_partitions (
    partition_number INTEGER NOT NULL,
    transaction_number INTEGER NOT NULL,
    first_offset INTEGER NOT NULL,
    PRIMARY KEY (partition_number, transaction_number)
) WITHOUT ROWID;
"""
"""Moments and durations in milliseconds. `open_partitions` holds rows of Ongoing transactions only."""


def create(directory: Path, created: int) -> None:
    """Make the directory's database unless it has one; of several processes that try, one wins and all go on with
    it."""
    directory.mkdir(parents=True, exist_ok=True)
    final = directory / FILE_NAME
    if final.exists():
        return
    handle, name = tempfile.mkstemp(prefix="new-log-", dir=directory)
    os.close(handle)
    draft = Path(name)
    try:
        connection = sqlite3.connect(draft, isolation_level=None)
        # Kept in the file's header: nobody has to switch it while others are at work.
        connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript(SCHEMA)
        connection.execute("INSERT INTO log VALUES (?)", (created,))
        connection.close()
        _publish(draft, final)
    finally:
        draft.unlink(missing_ok=True)


def _publish(draft: Path, final: Path) -> None:
    descriptor = os.open(draft, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)
    try:
        os.link(draft, final)
    except FileExistsError:
        return
    folder = os.open(final.parent, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


class Database:
    """A connection that several threads of this process may use, one at a time.

    Raises InvalidError when `directory` holds no log of this version, UnavailableError when others keep it locked or
    the disk refuses, CorruptError when the file is damaged.
    """

    def __init__(self, directory: Path) -> None:
        self.path = directory / FILE_NAME
        if not self.path.exists():
            raise InvalidError(
                f"there is no embedded log in {directory}",
                remedy="Make one with LocalLog(directory).create_topic(name, partitions), or correct the directory.",
            )
        self._lock = threading.Lock()
        self._connection = sqlite3.connect(
            self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        version = self.read(lambda connection: connection.execute("PRAGMA user_version").fetchone()[0])
        if version != SCHEMA_VERSION:
            self.close()
            raise InvalidError(
                f"the embedded log {self.path} has format {version}, this version of Tidegate reads {SCHEMA_VERSION}",
                remedy="Use the version of Tidegate that wrote it, or another directory.",
            )

    def read(self, work: Work[T]) -> T:
        """What `work` returns, with everything it sees from one moment."""
        with self._lock:
            return self._repeat("BEGIN", work)

    def write(self, work: Work[T], *, durable: bool = False) -> T:
        """Do `work` as one transaction, alone among all processes; it may be called again when nothing of it was kept.

        Killing processes loses nothing that was written. `durable` makes it, and everything that any process wrote
        before, survive the loss of power too.
        """
        with self._lock:
            # Syncing the write-ahead log at one commit syncs all that is in it: chunks need no sync of their own.
            self._connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            return self._repeat("BEGIN IMMEDIATE", work)

    def close(self) -> None:
        """Give the connection back. Undoes nothing."""
        with self._lock:
            self._connection.close()

    def _repeat(self, begin: str, work: Work[T]) -> T:
        for _ in range(TRIES):
            try:
                return self._transact(begin, work)
            except sqlite3.OperationalError as error:
                if _code(error) != sqlite3.SQLITE_BUSY:
                    raise self._translated(error) from error
                time.sleep(0.01)
            except sqlite3.Error as error:
                raise self._translated(error) from error
        raise UnavailableError(
            f"the embedded log {self.path} was locked by others for {TRIES * BUSY_SECONDS:g} s",
            remedy="Look for a process that holds it open in a debugger or an SQLite shell.",
        )

    def _transact(self, begin: str, work: Work[T]) -> T:
        connection = self._connection
        connection.execute(begin)
        try:
            result = work(connection)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        return result

    def _translated(self, error: sqlite3.Error) -> TidegateError:
        if isinstance(error, sqlite3.IntegrityError | sqlite3.ProgrammingError | sqlite3.InterfaceError):
            return InternalError(f"embedded log {self.path}: {error}")
        if _code(error) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return CorruptError(
                f"the embedded log {self.path} is damaged: {error}",
                remedy="Restore the directory from a copy; nothing was changed.",
            )
        return UnavailableError(f"embedded log {self.path}: {error}")


def _code(error: sqlite3.Error) -> int:
    """Without the detail: 'busy recovering after a crash' and 'busy' call for the same."""
    return int(getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)) & 0xFF
