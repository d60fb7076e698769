"""One RocksDB database in a local folder: bytes to bytes, ordered by key. The only module that calls rocksdict.

There is no write-ahead log: what is not in a checkpoint is lost with the process, and never needed. rocksdict raises
bare exceptions, lets iterators end without a word at a damaged block, and holds the interpreter in every call but
`flush`: no caller may ever see the first two, and none may do much in one call because of the third.
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tidegate.errors import CorruptError, InternalError, TidegateError, UnavailableError
from tidegate.state.rocksdb.memory import RocksMemory, library

_DISK_ERRORS = ("Corruption", "IO error", "NotFound")
_SCANNED = 64
"""Rows of one key that are removed one by one; more are removed as a range, which every later read has to look at."""


class Database:
    """A database that is open. Raises CorruptError when what is opened, or read only, is damaged, and UnavailableError
    when the local disk fails: a restart begins from the checkpoint.

    Used by one thread at a time, but for `flush`, `snapshot` and reads, which may run beside each other, and never
    beside `close`.
    """

    def __init__(self, folder: Path, memory: RocksMemory, *, is_read_only: bool = False) -> None:
        """Open what is in `folder`, or make an empty one there unless `is_read_only`."""
        rocksdict = library()
        self.folder = folder
        if not is_read_only:
            make_folder(folder)
        access = rocksdict.AccessType.read_only(False) if is_read_only else rocksdict.AccessType.read_write()
        self._is_stored = True
        """What is here is as it was stored. Damage that shows after opening for writing is of this disk."""
        with self._translated():
            self._db = rocksdict.Rdict(str(folder), memory.options(), access_type=access)
        self._is_stored = is_read_only
        self._without_log = rocksdict.WriteOptions()
        self._without_log.disable_wal = True
        self._new_batch = rocksdict.WriteBatch
        self._new_read_options = rocksdict.ReadOptions
        self._new_checkpoint = rocksdict.Checkpoint
        self._get = self._db.get

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            raise self._explained(error) from error

    def _explained(self, error: Exception) -> TidegateError:
        text = str(error)
        if not text.startswith(_DISK_ERRORS):
            return InternalError(f"the local database in {self.folder} refused a call: {text}")
        if self._is_stored and ("Corruption" in text or "No such file" in text):
            return CorruptError(
                f"the stored database that was read into {self.folder} cannot be used: {text}",
                remedy="Go back with --from-checkpoint to one that `tidegate checkpoints verify` finds whole.",
            )
        return UnavailableError(
            f"the local database in {self.folder} cannot be used: {text}",
            remedy="See whether the disk is full or damaged; the next attempt begins from the checkpoint.",
        )

    # ---- reading -----------------------------------------------------------------------------------------------------

    def get(self, row: bytes) -> bytes | None:
        try:
            found: bytes | None = self._get(row)
        except Exception:
            with self._translated():
                raise
        return found

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Rows from `start` to before `end`, in order, as they are now."""
        with self._translated():
            cursor = self._cursor(start, end)
            while cursor.valid():
                yield cursor.key(), cursor.value()
                cursor.next()
            cursor.status()

    def beginnings(self, start: bytes, end: bytes, of: Callable[[bytes], bytes]) -> Iterator[bytes]:
        """As `scan`, but of each run of rows that begin alike only that, as `of` takes it from the first of them."""
        with self._translated():
            cursor = self._cursor(start, end)
            while cursor.valid():
                beginning = of(cursor.key())
                yield beginning
                cursor.next()
                if cursor.valid() and cursor.key().startswith(beginning):
                    cursor.seek(after(beginning))
            cursor.status()

    def _cursor(self, start: bytes, end: bytes) -> Any:
        options = self._new_read_options()
        options.set_iterate_upper_bound(end)
        cursor = self._db.iter(options)
        cursor.seek(start)
        return cursor

    def first(self, start: bytes, end: bytes) -> bytes | None:
        """The first row from `start` to before `end`."""
        return next((row for row, _ in self.scan(start, end)), None)

    # ---- writing -----------------------------------------------------------------------------------------------------

    def batch(self) -> Any:
        """Changes that `write` makes together: has `put(row, value)`, `delete(row)`, `delete_range(start, end)`."""
        return self._new_batch(raw_mode=True)

    def write(self, batch: Any) -> None:
        with self._translated():
            self._db.write(batch, self._without_log)

    def remove(self, batch: Any, start: bytes, end: bytes) -> None:
        """Put into `batch` that no row from `start` to before `end` remains."""
        for number, (row, _) in enumerate(self.scan(start, end)):
            if number == _SCANNED:
                batch.delete_range(row, end)
                break
            batch.delete(row)

    # ---- files -------------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Write what is in memory to a file. May take long; lets other threads run."""
        with self._translated():
            self._db.flush(True)

    def snapshot(self, folder: Path) -> None:
        """Make `folder` a database with the rows as they are now, of hard links. Quick after `flush`."""
        shutil.rmtree(folder, ignore_errors=True)
        make_folder(folder.parent)
        with self._translated():
            self._new_checkpoint(self._db).create_checkpoint(str(folder))

    def close(self) -> None:
        with self._translated():
            self._db.close()


def make_folder(path: Path) -> None:
    """Raises UnavailableError."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise local_failure(path, error) from error


def local_failure(path: Path, error: OSError) -> UnavailableError:
    """The local disk does not do what it is asked for."""
    return UnavailableError(f"{path} cannot be used: {error}", remedy="See whether the local disk is full or damaged.")


def after(prefix: bytes) -> bytes:
    """The first key behind all that begin with `prefix`."""
    kept = prefix.rstrip(b"\xff")
    if not kept:
        raise InternalError(f"nothing comes behind all keys that begin with {prefix!r}")
    return kept[:-1] + bytes((kept[-1] + 1,))
