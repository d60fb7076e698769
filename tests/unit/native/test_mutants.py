"""The comparisons of the compiled part with Python's notice a compiled part that is wrong: one that drops, doubles or
changes a record, or counts wrongly."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.native import model, test_partitions
from tests.unit.native.model import Row
from tests.unit.native.reading import check_read
from tests.unit.native.writing import check_written
from tidegate.connectors.kafka.batches import reading, writers
from tidegate.connectors.kafka.batches.writers import Columns, Producing
from tidegate.native import native

pytestmark = pytest.mark.skipif(native is None, reason="the compiled part was not built")

ROWS = [Row(index, index * 7, b"k%d" % index, b"v%d" % index, [(b"name", b"h%d" % index)]) for index in range(4)]
GAPS = [row._replace(number=row.number * 2) for row in ROWS]
DENSE_BATCH = model.batch(b"".join(map(model.record, ROWS)), 4, first=70, last_delta=3, times=(5, 99))
GAPS_BATCH = model.batch(b"".join(map(model.record, GAPS)), 4, first=70, last_delta=9, times=(5, 99))
COLUMNS = Columns([b"v0", b"v1", None], [b"k0", None, b"k2"], [5, 9, 7], [[("a", b"b")], None, [("c", None)]])


def wrong(**functions: Callable[..., Any]) -> Any:
    """The compiled part with other functions."""
    names = (
        "KEYS",
        "TIMESTAMPS",
        "HEADERS",
        "OFFSETS",
        "read_records",
        "append_records",
        "partitions_of",
        "first_elsewhere",
    )
    return SimpleNamespace(**{**{name: getattr(native, name) for name in names}, **functions})


# ---- reading -------------------------------------------------------------------------------------------------------


def read_wrongly(change: Callable[[list[list[Any] | None]], Any]) -> Any:
    def read(*given: Any) -> Any:
        assert native is not None
        columns: list[list[Any] | None] = list(native.read_records(*given))
        change(columns)
        return tuple(columns)

    return wrong(read_records=read)


def each(columns: list[list[Any] | None], change: Callable[[list[Any]], Any]) -> None:
    for column in columns:
        if column is not None:
            change(column)


def changed(column: int, index: int, to: Any) -> Callable[[list[list[Any] | None]], Any]:
    def change(columns: list[list[Any] | None]) -> None:
        found = columns[column]
        if found is not None:
            found[index] = to

    return change


READERS: dict[str, Callable[[list[list[Any] | None]], Any]] = {
    "drops the last record": lambda columns: each(columns, lambda column: column.pop()),
    "drops the first record": lambda columns: each(columns, lambda column: column.pop(0)),
    "doubles a record": lambda columns: each(columns, lambda column: column.append(column[-1])),
    "turns the order around": lambda columns: each(columns, lambda column: column.reverse()),
    "changes a value": changed(0, 1, b"V1"),
    "has nothing for a value": changed(0, 1, None),
    "changes a key": changed(1, 1, b""),
    "changes a timestamp": changed(2, 3, 27),
    "changes a header": changed(3, 3, [("name", b"h")]),
    "changes an offset": changed(4, 3, 77),
    "has keys for values": lambda columns: columns.__setitem__(0, columns[1]),
}


def check_all_are_read() -> None:
    for data in (DENSE_BATCH, GAPS_BATCH):
        own, other = check_read(data)
        assert own == other


def test_without_a_mutant_all_is_read_the_same() -> None:
    check_all_are_read()


@pytest.mark.parametrize("name", READERS)
def test_a_reader_that_is_wrong_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "native", read_wrongly(READERS[name]))
    with pytest.raises(AssertionError):
        check_all_are_read()


def test_a_reader_that_refuses_what_is_right_or_takes_what_is_wrong_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: Any) -> Any:
        raise ValueError("what is right")

    monkeypatch.setattr(reading, "native", wrong(read_records=refuse))
    with pytest.raises(AssertionError):
        check_read(DENSE_BATCH)
    body = model.record(ROWS[0])
    monkeypatch.setattr(reading, "native", wrong(read_records=lambda *given: ([b"v0"], [b"k0"], [5], [[]], [70])))
    with pytest.raises(AssertionError):
        check_read(model.batch(body + b"\x00", 1))


def test_a_reader_that_lets_another_error_through_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def end(*given: Any) -> Any:
        raise SystemExit

    monkeypatch.setattr(reading, "native", wrong(read_records=end))
    with pytest.raises(SystemExit):
        check_read(DENSE_BATCH)


# ---- writing -------------------------------------------------------------------------------------------------------


def write_wrongly(change: Callable[[bytearray, list[Any]], Any]) -> Any:
    """`change` is given the batch and what the compiled part was given besides, before it is called."""

    def append(batch: bytearray, *given: Any) -> Any:
        assert native is not None
        mutable = list(given)
        change(batch, mutable)
        return native.append_records(batch, *mutable)

    return wrong(append_records=append)


def dropped(batch: bytearray, given: list[Any]) -> None:
    given[4] += 1


def doubled(batch: bytearray, given: list[Any]) -> None:
    assert native is not None
    native.append_records(batch, *given)


def with_(index: int, change: Callable[[Any], Any]) -> Callable[[bytearray, list[Any]], Any]:
    return lambda batch, given: given.__setitem__(index, change(given[index]))


WRITERS: dict[str, Callable[[bytearray, list[Any]], Any]] = {
    "drops a record": dropped,
    "doubles all records": doubled,
    "changes a value": with_(0, lambda values: [b"V0", *values[1:]]),
    "turns the order around": with_(0, lambda values: values[::-1]),
    "forgets the keys": with_(1, lambda keys: None),
    "changes the first timestamp": with_(2, lambda times: [4, *times[1:]]),
    "changes the latest timestamp": with_(2, lambda times: [times[0], 10, *times[2:]]),
    "forgets the headers": with_(3, lambda headers: None),
    "counts from another number": with_(5, lambda number: number + 1),
    "has another limit": with_(8, lambda limit: limit - 1),
    "has no limit": with_(8, lambda limit: 1 << 40),
}


def check_some_are_written() -> None:
    (_, _, size), *_ = check_written([(COLUMNS, 0)], 1 << 30, Producing(7, 1, True), 3).steps
    for limit in range(size - 30, size + 2):
        check_written([(COLUMNS, 0)], limit, Producing(), 3)


@pytest.mark.parametrize("name", WRITERS)
def test_a_writer_that_is_wrong_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writers, "native", write_wrongly(WRITERS[name]))
    with pytest.raises(AssertionError):
        check_some_are_written()


def test_without_a_mutant_all_is_written_the_same() -> None:
    check_some_are_written()


# ---- partitions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change", [lambda found: found[:-1], lambda found: [*found, 0], lambda found: [one ^ 1 for one in found]]
)
def test_partitions_that_are_wrong_are_noticed(change: Callable[[list[int]], list[int]], monkeypatch: Any) -> None:
    partitions_of = test_partitions.partitions_of
    monkeypatch.setattr(test_partitions, "partitions_of", lambda keys, count: change(partitions_of(keys, count)))
    with pytest.raises(AssertionError):
        test_partitions.test_every_rest_of_bytes_behind_the_last_word_is_hashed_as_unsigned(3, 0x80)


@pytest.mark.parametrize("found", [-1, 0, 1])
def test_a_key_that_is_elsewhere_and_gets_past_is_noticed(found: int, monkeypatch: Any) -> None:
    monkeypatch.setattr(test_partitions, "first_elsewhere", lambda keys, partition, count: found)
    with pytest.raises(AssertionError):
        test_partitions.test_the_first_key_of_which_it_cannot_be_said_that_it_is_there_is_found()
