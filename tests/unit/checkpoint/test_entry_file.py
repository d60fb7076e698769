"""An entry of the log as a file: read exactly as it was written, or known to be unreadable."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.checkpoint.records import CREATED, ENTRIES, TAKEOVER, entry, manifest
from tidegate.checkpoint import manifest as manifests
from tidegate.checkpoint.log import Completed, Entry, Unreadable
from tidegate.checkpoint.manifest import SubtaskRecord
from tidegate.checkpoint.protocol import Committable, OperatorSnapshot, PendingTransaction, SplitState
from tidegate.checkpoint.store import decode_entry, encode_entry
from tidegate.errors import InternalError
from tidegate.ids import CheckpointId, LogPosition, OperatorName, SubtaskIndex


@pytest.mark.parametrize("written", ENTRIES, ids=lambda each: type(each.body).__name__)
def test_an_entry_is_read_as_it_was_written(written: Entry) -> None:
    assert decode_entry(written.position, encode_entry(written)) == written


def test_a_file_is_one_json_document_for_people() -> None:
    text = encode_entry(entry(1, TAKEOVER)).decode()
    document = json.loads(text)
    assert sorted(document) == ["checksum", "entry", "format"]
    assert document["entry"]["body"]["host"] == "höst"
    assert '\n    "type": "takeover"' in text


def test_an_entry_with_thousands_of_splits_is_not_indented_and_is_read_as_it_was_written() -> None:
    splits = tuple(SplitState(f"in/{number}", number, attributes={"topic_id": "x" * 22}) for number in range(10_000))
    snapshot = OperatorSnapshot(OperatorName("source"), splits=splits)
    operator = msgspec.structs.replace(manifest().operators[0], subtasks=(SubtaskRecord(SubtaskIndex(0), snapshot),))
    written = entry(1, Completed(msgspec.structs.replace(manifest(), operators=(operator,))))
    data = encode_entry(written)
    assert len(data) < 130 * len(splits)
    assert decode_entry(written.position, data) == written


@pytest.mark.parametrize("written", ENTRIES, ids=lambda each: type(each.body).__name__)
def test_C09_a_file_cut_off_anywhere_is_unreadable(written: Entry) -> None:
    data = encode_entry(written)
    for length in range(len(data)):
        assert isinstance(decode_entry(written.position, data[:length]), Unreadable), f"cut after {length} bytes"


@pytest.mark.parametrize("written", ENTRIES, ids=lambda each: type(each.body).__name__)
@pytest.mark.parametrize("flip", [0x01, 0x02, 0x20, 0x80, 0xFF])
def test_C09_a_file_with_any_byte_changed_is_unreadable(written: Entry, flip: int) -> None:
    data = encode_entry(written)
    for index in range(len(data)):
        changed = bytearray(data)
        changed[index] ^= flip
        found = decode_entry(written.position, bytes(changed))
        assert isinstance(found, Unreadable), f"byte {index} ({data[index : index + 1]!r}) changed"


@given(st.binary(max_size=200))
def test_whatever_the_bytes_reading_them_never_raises(data: bytes) -> None:
    assert isinstance(decode_entry(LogPosition(0), data), Unreadable)


@pytest.mark.parametrize("data", [b"[" * 100_000, b'{"format": 1, "checksum": "", "entry": ' + b"[" * 100_000, b"null"])
def test_hostile_bytes_are_unreadable(data: bytes) -> None:
    assert isinstance(decode_entry(LogPosition(0), data), Unreadable)


def test_a_higher_format_of_the_file_is_refused_with_the_reason() -> None:
    found = decode_entry(LogPosition(0), b'{"format": 2, "something": "else"}')
    assert isinstance(found, Unreadable)
    assert found.why == "written by a newer version of Tidegate: entry format 2, this version reads up to 1"


def test_a_higher_format_of_the_manifest_is_refused_with_the_reason() -> None:
    newer = Completed(msgspec.structs.replace(manifest(), format=manifests.FORMAT + 1))
    found = decode_entry(LogPosition(2), encode_entry(entry(2, newer)))
    assert isinstance(found, Unreadable)
    assert "newer version of Tidegate: manifest format 2" in found.why


def test_an_entry_under_the_name_of_another_position_is_unreadable() -> None:
    found = decode_entry(LogPosition(7), encode_entry(CREATED))
    assert found == Unreadable(LogPosition(7), "holds the entry of position 0")


@pytest.mark.parametrize("value", [float("nan"), (1, 2)])
def test_what_would_not_be_read_back_as_it_is_cannot_be_written(value: object) -> None:
    prepared = PendingTransaction(CheckpointId(1), Committable("id", {"value": value}))
    snapshot = OperatorSnapshot(OperatorName("write"), pending=(prepared,))
    record = manifests.OperatorRecord(snapshot.name, 1, False, (manifests.SubtaskRecord(SubtaskIndex(0), snapshot),))
    body = Completed(msgspec.structs.replace(manifest(), operators=(record,)))
    with pytest.raises(InternalError, match=r"log entry 2 \(Completed\) holds what JSON does not keep"):
        encode_entry(entry(2, body))
