"""Files of records as bounded sources: one split a file, a position is the byte at which the next record begins.

A file is opened for each read and closed after it: any number of files takes turns without running out of handles.
Reading may never go beyond the size that the file had when it was discovered, and never begin inside a record.
Compressed files are refused: one cannot go on in their middle without reading all that comes before.
"""

import csv
import glob
import os
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import IO, Any

import msgspec

from tidegate.checkpoint.protocol import RecoverySpec, SplitState
from tidegate.connectors.rotation import RotatingReader
from tidegate.errors import CorruptError, InvalidError, LostDataError, UnavailableError
from tidegate.formats import Json
from tidegate.operators.contracts import Deserializer, Fetched, SourceContext, SourceReader

Paths = str | Path | Sequence[str | Path]

_COMPRESSED = {".gz", ".bz2", ".xz", ".zst", ".zip"}


class _Lines:
    """The lines of an open file from `position` to `stop`; `position` is always behind the last that was taken."""

    def __init__(self, file: IO[bytes], position: int, stop: int) -> None:
        self._file = file
        self.position = position
        self._stop = stop

    def __iter__(self) -> Iterator[bytes]:
        while self.position < self._stop and (line := self._file.readline(self._stop - self.position)):
            self.position += len(line)
            yield line


ReadRecords = Callable[[SplitState, _Lines, int], list[Any]]


class JsonLinesSource:
    """One JSON value a line, in UTF-8; empty lines are passed over.

    paths: files or patterns such as 'data/**/*.jsonl', or a list of them. type: what each line must be, as for `Json`.
    """

    def __init__(self, paths: Paths, type: Any = Any) -> None:
        self._paths = _as_tuple(paths)
        self._deserializer = Json(type)

    @property
    def bounded(self) -> bool:
        return True

    @property
    def deserializer(self) -> Deserializer | None:
        return self._deserializer

    @property
    def discovery_interval(self) -> float | None:
        return None

    @property
    def inspection_spec(self) -> RecoverySpec | None:
        return None

    def discover(self, known: frozenset[str] | None) -> list[SplitState]:
        return _discover(self._paths, known, lambda path: 0)

    def open_reader(self, context: SourceContext) -> SourceReader:
        return RotatingReader(lambda split, max_records: _read(split, max_records, self._records))

    def _records(self, split: SplitState, lines: _Lines, max_records: int) -> list[Any]:
        return [line for line in islice(lines, max_records) if line.strip()]


class CsvSource:
    """Rows of comma-separated values as RFC 4180 has them: quoted fields may hold delimiters, quotes and line ends.

    paths: files or patterns such as 'data/*.csv', or a list of them. type: a `msgspec.Struct` or another type that
    msgspec makes from a dict, with texts converted to its fields' types; by default a row is a `dict[str, str]`.
    columns: the names of the columns of files without a header; by default the first row of each file names them.
    null_values: texts that mean None. A row with more or fewer fields than columns cannot be decoded (ValueError);
    rows without any field are passed over.
    """

    def __init__(
        self,
        paths: Paths,
        *,
        type: Any = None,
        columns: Sequence[str] | None = None,
        delimiter: str = ",",
        null_values: Sequence[str] = (),
        encoding: str = "utf-8",
    ) -> None:
        if len(delimiter) != 1:
            raise InvalidError(f"delimiter={delimiter!r} must be one character")
        if "\n".encode(encoding) != b"\n":
            raise InvalidError(
                f"encoding={encoding!r} does not end lines with one byte", remedy="Convert the files first."
            )
        self._paths = _as_tuple(paths)
        self._columns = None if columns is None else list(columns)
        self._delimiter = delimiter
        self._encoding = encoding
        self._deserializer = CsvRows(type, null_values)

    @property
    def bounded(self) -> bool:
        return True

    @property
    def deserializer(self) -> Deserializer | None:
        return self._deserializer

    @property
    def discovery_interval(self) -> float | None:
        return None

    @property
    def inspection_spec(self) -> RecoverySpec | None:
        return None

    def discover(self, known: frozenset[str] | None) -> list[SplitState]:
        return _discover(self._paths, known, lambda path: self._header(path)[1])

    def open_reader(self, context: SourceContext) -> SourceReader:
        columns: dict[str, list[str]] = {}

        def records(split: SplitState, lines: _Lines, max_records: int) -> list[Any]:
            if split.id not in columns:
                columns[split.id] = self._header(split.id)[0]
            names = columns[split.id]
            return [(names, row) for row in islice(self._rows(split.id, lines), max_records) if row]

        return RotatingReader(lambda split, max_records: _read(split, max_records, records))

    def _header(self, path: str) -> tuple[list[str], int]:
        """The names of the columns, and where the first row of values begins."""
        if self._columns is not None:
            return self._columns, 0
        with open(path, "rb") as file:
            lines = _Lines(file, 0, os.fstat(file.fileno()).st_size)
            names = next(self._rows(path, lines), [])
        # A spreadsheet's mark of UTF-8 is no part of the first name.
        names = [name.removeprefix("\ufeff") for name in names]
        if len(set(names)) < len(names):
            raise InvalidError(f"{path}: two columns have one name: {names}", remedy="Rename one, or give columns=.")
        return names, lines.position

    def _rows(self, path: str, lines: _Lines) -> Iterator[list[str]]:
        """The rows that `lines` hold. It takes exactly the lines of the rows that were asked for."""
        text = (line.decode(self._encoding) for line in lines)
        begin = lines.position
        try:
            for row in csv.reader(text, delimiter=self._delimiter, strict=True):
                yield row
                begin = lines.position
        except (csv.Error, UnicodeDecodeError) as error:
            raise CorruptError(
                f"{path}: the row that begins at byte {begin} is not CSV in {self._encoding}: {error}",
                remedy="Correct the file, or give the source the right delimiter and encoding.",
            ) from error


class CsvRows:
    """From rows, each with the names of its columns, to values."""

    def __init__(self, type: Any, null_values: Sequence[str]) -> None:
        self._type = type
        self._list_type: Any = None if type is None else list[type]
        self._nulls = frozenset(null_values)

    def decode(self, raw: list[Any]) -> list[Any]:
        rows = list(map(self._as_dict, raw))
        return rows if self._type is None else msgspec.convert(rows, self._list_type, strict=False)

    def decode_one(self, raw: Any) -> Any:
        row = self._as_dict(raw)
        return row if self._type is None else msgspec.convert(row, self._type, strict=False)

    def _as_dict(self, raw: tuple[list[str], list[str]]) -> dict[str, str | None]:
        names, fields = raw
        if len(names) != len(fields):
            raise ValueError(f"a row has {len(fields)} fields for the {len(names)} columns {names}: {fields}")
        if not self._nulls:
            return dict(zip(names, fields, strict=True))
        return {name: None if field in self._nulls else field for name, field in zip(names, fields, strict=True)}


def _as_tuple(paths: Paths) -> tuple[str, ...]:
    given = (paths,) if isinstance(paths, str | Path) else tuple(paths)
    return tuple(os.path.abspath(path) for path in given)


def _discover(paths: tuple[str, ...], known: frozenset[str] | None, first: Callable[[str], int]) -> list[SplitState]:
    found = dict.fromkeys(path for pattern in paths for path in _matches(pattern))
    new = [path for path in found if path not in (known or ())]
    return [SplitState(id=path, position=first(path), stop=os.stat(path).st_size) for path in new]


def _matches(pattern: str) -> list[str]:
    found = [path for path in sorted(glob.glob(pattern, recursive=True)) if os.path.isfile(path)]
    # A file may be called 'a[1].csv'.
    found = [pattern] if not found and os.path.isfile(pattern) else found
    if not found:
        raise InvalidError(f"no file matches {pattern}", remedy="Correct the path; patterns know *, ?, [abc] and **.")
    for path in found:
        if Path(path).suffix.lower() in _COMPRESSED:
            raise InvalidError(
                f"{path} is compressed: reading cannot go on in its middle after a restore",
                remedy="Decompress it first.",
            )
    return found


def _read(split: SplitState, max_records: int, records: ReadRecords) -> Fetched:
    path, position = split.id, split.position
    if split.stop is not None and position >= split.stop:
        return Fetched(path, [], position, finished=True)
    with _opened(path, position) as file:
        size = os.fstat(file.fileno()).st_size
        stop = size if split.stop is None else split.stop
        if size < stop:
            raise _changed(
                path, f"has shrunk from {stop} bytes to {size}, and bytes from {position} on were to be read"
            )
        file.seek(max(position - 1, 0))
        if position > 0 and file.read(1) != b"\n":
            raise _changed(path, f"has no line that begins at byte {position}, where reading was to go on")
        lines = _Lines(file, position, stop)
        values = records(split, lines, max_records)
    return Fetched(path, values, lines.position, finished=lines.position >= stop)


def _opened(path: str, position: int) -> IO[bytes]:
    try:
        return open(path, "rb")
    except FileNotFoundError as error:
        raise _changed(path, f"is gone, and bytes from {position} on were to be read") from error
    except OSError as error:
        raise UnavailableError(f"{path} cannot be read: {error.strerror}") from error


def _changed(path: str, how: str) -> LostDataError:
    return LostDataError(
        f"{path} {how}", remedy="Put the old file back; a file may grow after it was found, and must keep what it has."
    )
