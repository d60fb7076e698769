"""What the file sources do beyond what every source must: types, headers, quoting, and files that are not what they
were."""

import gzip
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tidegate.checkpoint.protocol import SplitState
from tidegate.connectors.files import CsvRows
from tidegate.errors import CorruptError, InvalidError, LostDataError
from tidegate.files import CsvSource, JsonLinesSource
from tidegate.ids import Attempt, JobName, OperatorName, SubtaskIndex
from tidegate.operators.contracts import Source, SourceContext

CONTEXT = SourceContext(JobName("job"), OperatorName("in"), SubtaskIndex(0), 1, Attempt(1))


class Order(msgspec.Struct):
    user: str
    amount: int
    note: str | None = None


def read(source: Source, splits: list[SplitState] | None = None) -> list[Any]:
    """The decoded values of all splits."""
    splits = source.discover(None) if splits is None else splits
    reader = source.open_reader(CONTEXT)
    reader.add_splits(splits)
    raw: list[Any] = []
    finished = 0
    while finished < len(splits):
        fetched = reader.poll(2)
        assert fetched is not None
        raw += fetched.values
        finished += fetched.finished
    reader.close()
    assert source.deserializer is not None
    decoded = source.deserializer.decode(raw)
    assert decoded == [source.deserializer.decode_one(one) for one in raw]
    return decoded


def file(directory: Path, content: str | bytes, name: str = "a.csv") -> Path:
    path = directory / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_rows_are_dicts_of_texts_by_the_header(tmp_path: Path) -> None:
    path = file(tmp_path, "user,amount\nann,3\nbob,\n")
    assert read(CsvSource(path)) == [{"user": "ann", "amount": "3"}, {"user": "bob", "amount": ""}]


def test_rows_are_converted_to_a_type(tmp_path: Path) -> None:
    path = file(tmp_path, "user,amount,note\nann,3,x\nbob,4,-\n")
    assert read(CsvSource(path, type=Order, null_values=["-"])) == [Order("ann", 3, "x"), Order("bob", 4, None)]


def test_columns_may_be_named_where_there_is_no_header(tmp_path: Path) -> None:
    path = file(tmp_path, "ann;3\nbob;4")
    source = CsvSource(path, columns=["user", "amount"], delimiter=";", type=Order)
    assert read(source) == [Order("ann", 3), Order("bob", 4)]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_quoted_fields_hold_delimiters_quotes_and_line_ends(tmp_path: Path, end: str) -> None:
    rows = ["a,b", f'"x,{end}{end}""y""",1', '"""",2', '5" disk,3', '"",4']
    values = [f'x,{end}{end}"y"', '"', '5" disk', ""]
    source = CsvSource(file(tmp_path, end.join(rows)))
    assert [row["a"] for row in read(source)] == values
    (split,) = source.discover(None)
    reader = source.open_reader(CONTEXT)
    reader.add_splits([split])
    for number in range(4):
        fetched = reader.poll(1)
        assert fetched is not None
        rest = SplitState(split.id, fetched.next_position, split.stop)
        assert [row["a"] for row in read(source, [rest])] == values[number + 1 :]


def test_a_spreadsheet_s_byte_order_mark_is_no_part_of_the_first_name(tmp_path: Path) -> None:
    assert read(CsvSource(file(tmp_path, b"\xef\xbb\xbfuser\nann\n"))) == [{"user": "ann"}]


def test_a_row_of_another_width_cannot_be_decoded_and_hides_no_other(tmp_path: Path) -> None:
    rows = CsvRows(None, [])
    with pytest.raises(ValueError, match="3 fields for the 2 columns"):
        rows.decode([(["a", "b"], ["1", "2", "3"])])
    with pytest.raises(msgspec.ValidationError):
        CsvRows(Order, []).decode([(["user", "amount"], ["ann", "three"])])


@pytest.mark.parametrize(
    ("content", "place"), [('a\nok\n"x"y\n', "byte 5"), ('a\n"never closed\n', "byte 2"), (b"a\nok\n\xff\n", "byte 5")]
)
def test_what_is_no_csv_is_corrupt_and_its_place_is_named(tmp_path: Path, content: str | bytes, place: str) -> None:
    with pytest.raises(CorruptError, match=place):
        read(CsvSource(file(tmp_path, content)))


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidError, match="two columns"):
        CsvSource(file(tmp_path, "a,b,a\n")).discover(None)


def test_files_are_found_by_pattern_list_and_name_once_each(tmp_path: Path) -> None:
    for name in ("b.jsonl", "a.jsonl", "deep/c.jsonl", "x[1].jsonl"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        file(tmp_path, "1\n", name)

    def found(paths: Any) -> list[str]:
        return [str(Path(split.id).relative_to(tmp_path)) for split in JsonLinesSource(paths).discover(None)]

    assert found(tmp_path / "*.jsonl") == ["a.jsonl", "b.jsonl", "x[1].jsonl"]
    assert found(str(tmp_path / "**" / "c*")) == ["deep/c.jsonl"]
    assert found([tmp_path / "b.jsonl", tmp_path / "?.jsonl"]) == ["b.jsonl", "a.jsonl"]
    assert found(tmp_path / "x[1].jsonl") == ["x[1].jsonl"]


def test_a_relative_path_names_the_same_splits_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = file(tmp_path, "1\n", "a.jsonl")
    monkeypatch.chdir(tmp_path)
    source = JsonLinesSource("a.jsonl")
    monkeypatch.chdir("/")
    assert [split.id for split in source.discover(None)] == [str(path)]


def test_no_match_and_compressed_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidError, match="no file matches"):
        JsonLinesSource(tmp_path / "*.jsonl").discover(None)
    file(tmp_path, gzip.compress(b"1\n"), "a.jsonl.gz")
    with pytest.raises(InvalidError, match="is compressed"):
        JsonLinesSource(tmp_path / "*").discover(None)


def test_lines_become_values_of_the_type(tmp_path: Path) -> None:
    path = file(tmp_path, '{"user":"ann","amount":3}\n\n  \r\n{"user":"bob","amount":4}', "a.jsonl")
    assert read(JsonLinesSource(path, Order)) == [Order("ann", 3), Order("bob", 4)]


def test_a_last_line_without_an_end_is_read_as_it_was_discovered(tmp_path: Path) -> None:
    path = file(tmp_path, "1\n2", "a.jsonl")
    source = JsonLinesSource(path)
    splits = source.discover(None)
    file(tmp_path, "1\n23\n4\n", "a.jsonl")
    assert read(source, splits) == [1, 2]


@pytest.mark.parametrize("content", [b"1\n", b"1\n2222\n3\n", None])
def test_a_file_that_is_not_the_one_that_was_read_is_lost_data(tmp_path: Path, content: bytes | None) -> None:
    path = file(tmp_path, "1\n2\n3\n", "a.jsonl")
    source = JsonLinesSource(path)
    (split,) = source.discover(None)
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(LostDataError, match=r"a\.jsonl"):
        read(source, [SplitState(split.id, 4, split.stop)])


@pytest.mark.parametrize("arguments", [{"delimiter": ",,"}, {"encoding": "utf-16"}])
def test_a_wrong_argument_is_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidError):
        CsvSource("a.csv", **arguments)


def test_more_files_than_handles_take_turns(tmp_path: Path) -> None:
    for number in range(1500):
        file(tmp_path, f"{number}\n", f"{number}.jsonl")
    assert sorted(read(JsonLinesSource(tmp_path / "*.jsonl"))) == list(range(1500))
