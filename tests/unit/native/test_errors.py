"""What the compiled part is called wrongly with is an error, with the batch as it was or with what came before the
record that is wrong; never a crash, and never a byte of somebody else's."""

import sys
from array import array
from collections import UserList
from collections.abc import Sequence
from typing import Any

import pytest

from tests.unit.native import model
from tests.unit.native.model import Row
from tests.unit.native.test_writing import BAD, LENIENT
from tidegate.connectors.kafka.batches.writers import Columns, NativeWriter, Producing
from tidegate.native import native

pytestmark = pytest.mark.skipif(native is None, reason="the compiled part was not built")
if native is not None:
    append_records, read_records = native.append_records, native.read_records

HEADER = b"header of the batch"
LARGE = 1 << 30
RIGHT: dict[str, Any] = {"value": b"v", "key": b"k", "time": 5, "headers": [("a", b"b")]}
REFUSALS = (TypeError, OverflowError, UnicodeEncodeError, BufferError)


def append(batch: bytearray, values: Any, **others: Any) -> tuple[int, int, int]:
    """With what is right for so many records, unless `others` say otherwise."""
    given: dict[str, Any] = {
        "keys": None,
        "timestamps": None if "timestamps" in others else [5] * len(values),
        "headers": None,
        "begin": 0,
        "number": 0,
        "first": -1,
        "latest": -1,
        "limit": LARGE,
    }
    return append_records(batch, values, *{**given, **others}.values())


def written(rows: Sequence[Row]) -> bytes:
    return HEADER + b"".join(map(model.record, rows))


def rows(count: int, first: int = 0, value: Any = b"v") -> list[Row]:
    return [Row(first + index, 0, None, value) for index in range(count)]


def columns_of(count: int, index: int, bad: dict[str, Any]) -> dict[str, Any]:
    given = [{**RIGHT, **(bad if one == index else {})} for one in range(count)]
    names = {"values": "value", "keys": "key", "timestamps": "time", "headers": "headers"}
    return {column: [row[name] for row in given] for column, name in names.items()}


@pytest.mark.parametrize("name", [name for name in BAD if name not in LENIENT])
@pytest.mark.parametrize("begin", [0, 1, 3])
def test_a_first_record_that_is_wrong_is_an_error_and_leaves_the_batch_as_it_was(name: str, begin: int) -> None:
    batch = bytearray(HEADER)
    with pytest.raises(REFUSALS):
        append(batch, **columns_of(4, begin, BAD[name]), begin=begin)
    assert batch == HEADER


@pytest.mark.parametrize("name", [name for name in BAD if name not in LENIENT])
@pytest.mark.parametrize("index", [1, 3])
def test_a_record_in_the_middle_that_is_wrong_keeps_what_came_before_it(name: str, index: int) -> None:
    batch = bytearray(HEADER)
    assert append(batch, **columns_of(4, index, BAD[name])) == (index, 5, 5)
    row = Row(0, 0, b"k", b"v", [(b"a", b"b")])
    assert batch == written([row._replace(number=number) for number in range(index)])


@pytest.mark.parametrize("like", [bytearray, memoryview, lambda data: array("B", data), lambda data: array("I", data)])
@pytest.mark.parametrize("size", [0, 4, 8000])
def test_whatever_has_bytes_is_a_key_or_a_value(like: Any, size: int) -> None:
    batch, data = bytearray(HEADER), b"abcd" * (size // 4)
    append(batch, [like(data)] * 2, keys=[like(data)] * 2)
    assert batch == written([Row(number, 0, data, data) for number in range(2)])


def test_subclasses_are_written_as_what_they_are_subclasses_of() -> None:
    class Text(str):
        __slots__ = ()

    class Data(bytes): ...

    class Number(int): ...

    class Columns(list): ...  # type: ignore[type-arg]

    class Pair(tuple):  # type: ignore[type-arg]
        __slots__ = ()

    batch = bytearray(HEADER)
    pair = Pair([Text("name"), Data(b"h")])
    assert append(
        batch, Columns([Data(b"v")]), keys=Pair([Data(b"k")]), timestamps=[Number(7)], headers=[Columns([pair])]
    ) == (1, 7, 7)
    assert batch == written([Row(0, 0, b"k", b"v", [(b"name", b"h")])])


# ---- a batch that is written into itself ---------------------------------------------------------------------------


@pytest.mark.parametrize("column", ["values", "keys"])
@pytest.mark.parametrize("index", [0, 2])
@pytest.mark.parametrize("like", [lambda batch: batch, memoryview])
def test_the_batch_is_no_key_and_no_value_of_itself(column: str, index: int, like: Any) -> None:
    """It cannot grow while somebody looks at it."""
    batch = bytearray(HEADER)
    given: dict[str, Any] = {"values": [b"v"] * 4, "keys": [b"v"] * 4}
    given[column][index] = like(batch)
    if index == 0 or like is memoryview:
        with pytest.raises(BufferError):
            append(batch, **given)
        assert batch == HEADER
    else:
        assert append(batch, **given)[0] == index
        assert batch == written([Row(number, 0, b"v", b"v") for number in range(index)])
    given.clear()
    append(batch, [b"again"])


@pytest.mark.parametrize("size", [0, 61, 5000])
def test_the_batch_is_no_header_of_itself(size: int) -> None:
    """What was measured before it grew would be written when it is larger."""
    batch = bytearray(size)
    with pytest.raises(TypeError):
        append(batch, [b"v"], headers=[[("name", b""), ("name", batch)]])
    with memoryview(batch) as view, pytest.raises(TypeError):
        append(batch, [b"v"], headers=[[("name", view)]])
    assert batch == bytes(size)
    assert append(batch, [b"v", b"w"], headers=[None, [("name", batch)]])[0] == 1


def test_a_batch_that_somebody_looks_at_is_not_written() -> None:
    batch = bytearray(HEADER)
    with memoryview(batch), pytest.raises(BufferError):
        append(batch, [b"v"])
    assert batch == HEADER
    assert append(batch, [b"v"])[0] == 1


@pytest.mark.skipif(sys.version_info < (3, 12), reason="no class has __buffer__ before Python 3.12")
@pytest.mark.parametrize("does", ["grow", "clear", "empty the columns"])
@pytest.mark.parametrize("column", ["values", "keys"])
def test_a_class_whose_buffer_changes_what_is_being_written_is_an_error_at_most(does: str, column: str) -> None:
    batch = bytearray(HEADER)
    given: dict[str, list[Any]] = {
        "values": [b"v" * 500 for _ in range(4)],
        "keys": [bytes([65 + index]) * 500 for index in range(4)],
        "headers": [[("name" * 50, b"h" * 500)] for _ in range(4)],
    }

    class Hostile:
        def __buffer__(self, flags: int) -> memoryview:
            match does:
                case "grow":
                    batch.extend(bytes(10_000))
                case "clear":
                    batch.clear()
                case _:
                    for one in given.values():
                        one.clear()
            return memoryview(b"hostile")

    given[column][1] = Hostile()
    assert append(batch, **given)[0] == 1
    given[column][:] = [Hostile()]
    for other in given.values():
        other[:] = (other or [b"v"])[:1]
    try:
        append(batch, given["values"], keys=given["keys"])
    except (BufferError, IndexError, ValueError):
        return
    assert does == "empty the columns"


# ---- places and numbers --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("begin", [2, 3, 100, (1 << 63) - 1])
def test_behind_the_end_of_the_columns_nothing_is_added(begin: int) -> None:
    batch = bytearray(HEADER)
    assert append(batch, [b"v"] * 2, begin=begin, first=3, latest=4) == (begin, 3, 4)
    assert batch == HEADER


@pytest.mark.parametrize("place", [{"begin": -1}, {"begin": -(1 << 63)}, {"number": -1}, {"number": 1 << 31}])
def test_a_place_that_there_is_not_is_refused(place: dict[str, int]) -> None:
    batch = bytearray(HEADER)
    with pytest.raises(ValueError, match="no such place"):
        append(batch, [b"v"] * 2, **place)
    assert batch == HEADER


def test_a_batch_has_no_more_records_than_kafka_counts() -> None:
    batch = bytearray(HEADER)
    assert append(batch, [b"v"] * 5, number=(1 << 31) - 3, first=5, latest=5) == (3, 5, 5)
    assert batch == written(rows(3, (1 << 31) - 3))


@pytest.mark.parametrize("name", ["begin", "number", "first", "latest", "limit"])
@pytest.mark.parametrize("number", [1 << 63, -(1 << 63) - 1, 1 << 200, "5", None, 1.5])
def test_what_is_no_number_of_64_bits_is_refused(name: str, number: Any) -> None:
    batch = bytearray(HEADER)
    with pytest.raises((OverflowError, TypeError)):
        append(batch, [b"v"], **{name: number})
    assert batch == HEADER


@pytest.mark.parametrize("limit", [-(1 << 63), -1, 0, 1])
def test_behind_a_limit_that_is_passed_only_a_first_record_is_added(limit: int) -> None:
    batch = bytearray(HEADER)
    assert append(batch, [b"v"] * 2, limit=limit)[0] == 1
    assert append(batch, [b"v"] * 2, number=1, limit=limit)[0] == 0
    assert batch == written(rows(1))


@pytest.mark.parametrize("column", ["values", "keys", "timestamps", "headers"])
@pytest.mark.parametrize("other", [UserList([1]), iter([1]), {1}, {1: 1}, b"b", "a", 5, range(1)])
def test_columns_that_are_no_list_and_no_tuple_are_refused(column: str, other: Any) -> None:
    batch = bytearray(HEADER)
    given: dict[str, Any] = {"values": [b"v"], "keys": [b"k"], "timestamps": [5], "headers": [None], column: other}
    with pytest.raises(TypeError, match=f"{column} must be a list or a tuple"):
        append(batch, **given)
    assert batch == HEADER


@pytest.mark.parametrize("column", ["values", "keys", "timestamps", "headers"])
@pytest.mark.parametrize("length", [0, 1, 3])
def test_columns_of_different_lengths_are_refused(column: str, length: int) -> None:
    batch = bytearray(HEADER)
    given: dict[str, list[Any]] = {
        "values": [b"v"] * 2,
        "keys": [b"k"] * 2,
        "timestamps": [5] * 2,
        "headers": [None] * 2,
    }
    with pytest.raises(ValueError, match="columns of different lengths"):
        append(batch, **{**given, column: (given[column] * 2)[:length]}, begin=0)
    assert batch == HEADER


@pytest.mark.parametrize("columns", [(None, [5]), ([b"v"], None)])
def test_values_and_timestamps_must_be_there(columns: Any) -> None:
    values, timestamps = columns
    with pytest.raises(ValueError, match="columns of different lengths"):
        append_records(bytearray(), values, None, timestamps, None, 0, 0, -1, -1, LARGE)


@pytest.mark.parametrize("batch", [b"bytes", memoryview(bytearray(5)), [], None, array("B", b"abc")])
def test_only_a_bytearray_is_a_batch(batch: Any) -> None:
    with pytest.raises(TypeError):
        append(batch, [b"v"])


# ---- reading -------------------------------------------------------------------------------------------------------

BODY = model.record(Row(0, 0, b"k", b"v", [(b"a", b"b")]))


@pytest.mark.parametrize(
    "part", [(-1, 5), (0, len(BODY) + 1), (5, 4), (len(BODY) + 1, len(BODY) + 1), (1 << 62, 1 << 62)]
)
def test_a_part_of_bytes_that_there_is_not_is_refused(part: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="no such part"):
        read_records(BODY, *part, 1, 0, 0, 0, -1)


@pytest.mark.parametrize("count", [-1, -(1 << 63), 2, 1 << 31, (1 << 63) - 1])
def test_more_records_than_bytes_are_refused_before_anything_is_made_for_them(count: int) -> None:
    with pytest.raises(ValueError, match="fewer bytes than so many records"):
        read_records(BODY, 0, len(BODY), count, 15, 0, 0, -1)


@pytest.mark.parametrize("index", range(1, 8))
@pytest.mark.parametrize("number", [1 << 63, -(1 << 63) - 1, "5", None, 1.5])
def test_what_is_no_number_is_refused_by_the_reader(index: int, number: Any) -> None:
    given: list[Any] = [BODY, 0, len(BODY), 1, 15, 0, 0, -1]
    given[index] = number
    with pytest.raises((OverflowError, TypeError)):
        read_records(*given)


@pytest.mark.parametrize("like", [bytes, bytearray, memoryview, lambda data: array("B", data)])
def test_whatever_has_bytes_is_read_and_can_be_changed_behind_that(like: Any) -> None:
    data = like(b"__" + BODY + b"__")
    found = read_records(data, 2, 2 + len(BODY), 1, 15, 70, 5, -1)
    assert found == ([b"v"], [b"k"], [5], [[("a", b"b")]], [70])
    if isinstance(data, bytearray):
        data.clear()
    assert found[0] == [b"v"]


@pytest.mark.parametrize("data", ["text", 5, None, [1], memoryview(BODY * 2)[::2]])
def test_what_has_no_bytes_is_not_read(data: Any) -> None:
    with pytest.raises((TypeError, BufferError)):
        read_records(data, 0, 1, 0, 0, 0, 0, -1)


def test_the_writer_goes_on_behind_what_it_refused() -> None:
    writer = NativeWriter(LARGE, Producing())
    wrong: Any = ["text"]
    for _ in range(3):
        writer.add(Columns([b"v"], None, [5], None), 0)
        with pytest.raises(TypeError):
            writer.add(Columns([b"v", *wrong, b"v"], None, [5] * 3, None), 0)
    assert (writer.records, writer.size) == (6, 61 + len(b"".join(map(model.record, rows(6)))))
