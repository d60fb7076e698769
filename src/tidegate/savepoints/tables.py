"""Stored state as Arrow tables and Parquet files: one row a key, one column a state, null where a key has nothing.

State without keys has one row a subtask. Tables are made in batches of bounded size; only `table` and `dataframe` hold
all of it. Values come without the program's classes; what was pickled is bytes.
"""

from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from tidegate.checkpoint.protocol import StateInfo
from tidegate.errors import InvalidError
from tidegate.savepoints.columns import Column, arrow, key_column, value_column
from tidegate.savepoints.keys import plain_key
from tidegate.savepoints.reading import StateRows
from tidegate.savepoints.values import plain_value

BATCH_ROWS = 16_384
"""How many rows become one batch."""

FORMATS = ("parquet", "arrow")


def table(rows: StateRows) -> Any:
    """All of `rows` as a `pyarrow.Table`."""
    made = _Table(rows)
    return arrow().Table.from_batches(made.batches(), made.schema)


def dataframe(rows: StateRows) -> Any:
    """All of `rows` as a `pandas.DataFrame`."""
    try:
        import_module("pandas")
    except ImportError as error:
        raise InvalidError("the package pandas is not installed", remedy="pip install pandas") from error
    return table(rows).to_pandas()


def write_table(rows: StateRows, path: Path, file_format: str) -> int:
    """Write `rows` as a Parquet or Arrow IPC file, batch by batch, and return how many rows it has.

    The file comes under its name when it is whole. Raises InvalidError for another format.
    """
    if file_format not in FORMATS:
        raise InvalidError(f"{file_format!r} is not a format", remedy=f"Use one of: {', '.join(FORMATS)}.")
    draft = path.with_name(f"{path.name}.part")
    made = _Table(rows)
    try:
        count = _write(made, draft, file_format)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    draft.replace(path)
    return count


def _write(made: "_Table", path: Path, file_format: str) -> int:
    from pyarrow import parquet

    count = 0
    with (
        parquet.ParquetWriter(str(path), made.schema)
        if file_format == "parquet"
        else arrow().ipc.new_file(str(path), made.schema)
    ) as writer:
        for batch in made.batches():
            writer.write_batch(batch)
            count += batch.num_rows
    return count


class _Table:
    """One table in the making."""

    def __init__(self, rows: StateRows) -> None:
        self._rows = rows
        self._infos: Sequence[StateInfo] = rows.states or rows.subtask_states
        self._columns: dict[str, Column] = {info.name: value_column(info) for info in self._infos}
        self._values = {info.name: plain_value(info) for info in self._infos}
        first = ("key", key_column(rows.key_layout)) if rows.states else ("subtask", Column(arrow().int32(), int))
        self._first = first[1]
        self._first_name = f"_{first[0]}" if first[0] in self._columns else first[0]
        fields = [(self._first_name, self._first.type), *((name, one.type) for name, one in self._columns.items())]
        self.schema = arrow().schema(fields)

    def batches(self) -> Iterator[Any]:
        """Raises InvalidError for a value that its column cannot take."""
        waiting: list[tuple[Any, dict[str, Any]]] = []
        for records in self._keyed() if self._rows.states else self._by_subtask():
            waiting += records
            while len(waiting) >= BATCH_ROWS:
                yield self._batch(waiting[:BATCH_ROWS])
                waiting = waiting[BATCH_ROWS:]
        if waiting:
            yield self._batch(waiting)

    def _keyed(self) -> Iterator[list[tuple[Any, dict[str, Any]]]]:
        """Of each group, each key with all its states."""
        for _, rows in self._rows.groups():
            by_key: dict[bytes, dict[str, Any]] = {}
            for row in rows:
                by_key.setdefault(row.key, {})[row.state] = self._values[row.state](row.value)
            yield [(plain_key(key, self._rows.key_layout), values) for key, values in by_key.items()]

    def _by_subtask(self) -> Iterator[list[tuple[Any, dict[str, Any]]]]:
        by_subtask: dict[int, dict[str, Any]] = {}
        for row in self._rows.subtask_rows():
            by_subtask.setdefault(row["subtask"], {})[row["state"]] = row["value"]
        yield list(by_subtask.items())

    def _batch(self, records: list[tuple[Any, dict[str, Any]]]) -> Any:
        arrays = [self._array(self._first_name, self._first, [key for key, _ in records])]
        for name, column in self._columns.items():
            arrays.append(self._array(name, column, [values.get(name) for _, values in records]))
        return arrow().RecordBatch.from_arrays(arrays, schema=self.schema)

    def _array(self, name: str, column: Column, values: list[Any]) -> Any:
        try:
            return arrow().array(list(map(column.fit, values)), type=column.type)
        except (arrow().ArrowException, OverflowError, TypeError, ValueError, AttributeError) as error:
            raise InvalidError(
                f"column {name} of operator {self._rows.record.name} cannot be written as {column.type}: {error}",
                remedy="Read it as rows (--format jsonl), which have no limits.",
            ) from error
