"""A stored piece of state is read right or called corrupt, whatever was done to its bytes."""

import tracemalloc
from typing import Any

import msgspec
import pytest
import xxhash
from hypothesis import example, given
from hypothesis import strategies as st

from tidegate.checkpoint.protocol import OperatorSnapshot, StateInfo
from tidegate.errors import CorruptError, InvalidError
from tidegate.ids import CheckpointId, KeyGroup, OperatorName, SubtaskIndex
from tidegate.state.descriptors import ListState, MapState, StateDescriptor, ValueState
from tidegate.state.key_groups import key_group
from tidegate.state.keys import encode_key
from tidegate.state.object_backend import ObjectStateBackend
from tidegate.state.object_capture import ObjectCapture
from tidegate.state.pieces import Column, Piece, write_piece
from tidegate.testing.conformance.state_kit import KeptFiles

DESCRIPTORS: tuple[StateDescriptor[Any], ...] = (
    ValueState(int, name="total"),
    ListState(str, name="recent"),
    MapState(str, float, name="by-device"),
)


def _backend() -> ObjectStateBackend:
    return ObjectStateBackend(OperatorName("totals"), SubtaskIndex(0), 1, 8)


def _capture() -> ObjectCapture:
    backend = _backend()
    total, recent, devices = map(backend.register, DESCRIPTORS)
    for number in range(6):
        backend.set_current_key((f"user-{number}", number))
        total.update(number * 1000)
        recent.extend(["x" * number, "ä"])
        devices.put("phone", 0.5 * number)
    return backend.capture(CheckpointId(1))


def _stored(capture: ObjectCapture) -> bytes:
    """The only piece of a capture; empty when it has none."""
    files = KeptFiles()
    pieces = [files.read_state(handle) for handle in capture.store(files)]
    assert len(pieces) < 2
    return pieces[0] if pieces else b""


def _snapshot(data: bytes, states: tuple[StateInfo, ...]) -> tuple[OperatorSnapshot, KeptFiles]:
    files = KeptFiles()
    handle = files.write("1-0", data, range(8))
    return OperatorSnapshot(OperatorName("totals"), key_type=CAPTURE.key_type, states=states, handles=(handle,)), files


CAPTURE = _capture()
DATA = _stored(CAPTURE)


def _restored(data: bytes, states: tuple[StateInfo, ...] = CAPTURE.states) -> ObjectStateBackend:
    backend = ObjectStateBackend(OperatorName("totals"), SubtaskIndex(0), 1, 8, is_incremental=False)
    snapshot, files = _snapshot(data, states)
    backend.restore([snapshot], files)
    return backend


def _restore(data: bytes, states: tuple[StateInfo, ...] = CAPTURE.states) -> bytes:
    """What a backend captures again after it was given `data`."""
    backend = _restored(data, states)
    for descriptor in DESCRIPTORS:
        backend.register(descriptor)
    return _stored(backend.capture(CheckpointId(2)))


def _resealed(data: bytes) -> bytes:
    """`data` with the checksum that belongs to it: damage that no checksum shows."""
    return data[:6] + xxhash.xxh3_64_intdigest(data[14:]).to_bytes(8, "big") + data[14:]


def test_a_piece_gives_back_what_was_captured() -> None:
    assert _restore(DATA) == DATA


def test_every_truncation_is_corrupt() -> None:
    for length in range(len(DATA)):
        with pytest.raises(CorruptError):
            _restore(DATA[:length])


def test_every_flipped_bit_is_corrupt() -> None:
    for position in range(len(DATA)):
        damaged = bytearray(DATA)
        damaged[position] ^= 1 << position % 8
        with pytest.raises(CorruptError):
            _restore(bytes(damaged))


def test_a_higher_format_is_refused_with_the_way_out() -> None:
    with pytest.raises(CorruptError, match=r"format 3(.|\n)*later"):
        _restore(DATA[:4] + b"\x00\x03" + DATA[6:])


@given(st.integers(14, len(DATA) - 1), st.binary(min_size=1, max_size=6))
@example(18, b"\x90\xdd\xff\xff\xff\xff")
def test_damage_below_the_checksum_is_corrupt_or_refused_or_still_state(position: int, junk: bytes) -> None:
    damaged = _resealed(DATA[:position] + junk + DATA[position + len(junk) :])
    tracemalloc.start()
    try:
        _restore(damaged)
    except (CorruptError, InvalidError):
        pass
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 5_000_000


@given(st.binary())
def test_anything_behind_a_right_beginning_is_corrupt(body: bytes) -> None:
    with pytest.raises(CorruptError):
        Piece(_resealed(b"TGKS\x00\x01" + bytes(8) + body))


def test_groups_can_be_read_alone() -> None:
    piece = Piece(DATA)
    group = key_group(("user-3", 3), 8)
    columns = dict(piece.columns(group))
    assert list(columns) == ["total", "recent", "by-device"]
    assert msgspec.msgpack.encode(3000) in columns["total"].values
    assert piece.groups(range(group, group + 1)) == [group]
    assert piece.groups(range(8)) == sorted({key_group((f"user-{n}", n), 8) for n in range(6)})
    assert piece.groups(range(0)) == []


def _written(columns: dict[KeyGroup, list[Column]]) -> bytes:
    """A whole piece with these columns."""
    return write_piece(range(8), 8, CAPTURE.key_type, tuple(state.name for state in CAPTURE.states), columns)


def test_columns_that_contradict_the_rest_are_corrupt() -> None:
    key, value = encode_key(("user-3", 3)), msgspec.msgpack.encode(1)
    group = key_group(("user-3", 3), 8)
    other = KeyGroup((group + 1) % 8)
    right = Column(0, [key], [value])
    assert _restore(_written({group: [right]}))
    for columns, complaint in (
        ({other: [right]}, "is not of group"),
        ({group: [right, right]}, "stored twice"),
        ({group: [Column(0, [key, key], [value, value])]}, "stored twice"),
        ({group: [Column(3, [key], [value])]}, "does not fit"),
        ({group: [Column(0, [key], [])]}, "does not fit"),
        ({group: [Column(0, [key], [b""])]}, "no int"),
        ({KeyGroup(8): [right]}, "lists group 8"),
    ):
        with pytest.raises(CorruptError, match=complaint):
            _restore(_written(columns))


def test_a_state_that_the_checkpoint_does_not_list_is_corrupt() -> None:
    with pytest.raises(CorruptError, match="by-device"):
        _restore(DATA, CAPTURE.states[:2])


def test_restored_state_that_nobody_asks_for_shows() -> None:
    backend = _restored(DATA)
    backend.register(DESCRIPTORS[0])
    assert backend.unclaimed == ("recent", "by-device")


def test_a_program_with_keys_of_another_type_is_refused_at_the_first_key() -> None:
    backend = _restored(DATA)
    with pytest.raises(InvalidError, match=r"str where keys are of type tuple\[str, int\]"):
        backend.set_current_key("user-1")
