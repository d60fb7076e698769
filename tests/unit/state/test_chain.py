"""Chains of stored pieces: what they say together, within the groups that their handles stand for."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tidegate.checkpoint.protocol import OperatorSnapshot, StateHandle, StateInfo
from tidegate.errors import CorruptError, InternalError
from tidegate.ids import KeyGroup, OperatorName, SubtaskIndex
from tidegate.state.chain import ChainReader, read_rows
from tidegate.state.descriptors import ListState, MapState, StateDescriptor, ValueState
from tidegate.state.key_groups import group_of_bytes
from tidegate.state.keys import encode_key
from tidegate.state.object_backend import ObjectStateBackend
from tidegate.state.pieces import Column, Piece, PieceWriter, StoredRow, write_piece
from tidegate.testing.conformance.state_kit import KeptFiles

GROUPS = range(8)
STATES = ("total",)


def key_in(group: int, number: int = 0) -> bytes:
    """The encoded key of a user of this group."""
    found = (key for i in range(10_000) if group_of_bytes(key := encode_key(f"user-{i}"), 8) == group)
    return [key for key, _ in zip(found, range(number + 1), strict=False)][number]


class Chain:
    """Pieces that were stored one after another."""

    def __init__(self) -> None:
        self.files = KeptFiles()
        self.handles: list[StateHandle] = []

    def add(
        self,
        said: dict[bytes, bytes | None],
        *,
        is_full: bool = False,
        groups: range = GROUPS,
        stands_for: range | None = None,
    ) -> "Chain":
        columns: dict[KeyGroup, list[Column]] = {}
        for key, value in said.items():
            column = columns.setdefault(KeyGroup(group_of_bytes(key, 8)), [Column(0, [], [], [])])[0]
            if value is None:
                column.removed.append(key)
            else:
                column.keys.append(key)
                column.values.append(value)
        data = write_piece(groups, 8, "str", STATES, columns, is_full=is_full)
        self.handles.append(self.files.write(f"1-{len(self.handles)}", data, stands_for or groups))
        return self

    def rows(self, groups: range = GROUPS, states: tuple[str, ...] = STATES) -> list[StoredRow]:
        infos = tuple(StateInfo(name, "value", "int", "msgpack/1") for name in states)
        snapshot = OperatorSnapshot(OperatorName("it"), key_type="str", states=infos, handles=tuple(self.handles))
        return list(read_rows(snapshot, self.files, groups))

    def values(self, groups: range = GROUPS) -> dict[bytes, bytes]:
        return {row.key: row.value for row in self.rows(groups)}


A, B, C, OTHER = key_in(2), key_in(2, 1), key_in(2, 2), key_in(5)


def test_later_pieces_replace_and_remove_what_earlier_ones_say() -> None:
    chain = Chain().add({A: b"1", B: b"1", OTHER: b"1"}, is_full=True).add({A: b"2", C: b"2"}).add({B: None, A: b"3"})
    assert chain.values() == {A: b"3", C: b"2", OTHER: b"1"}
    assert [row.group for row in chain.rows()] == [2, 2, 5]
    assert chain.values(range(3, 8)) == {OTHER: b"1"}


def test_a_removed_key_may_come_back_and_an_unknown_one_may_be_removed() -> None:
    chain = Chain().add({A: b"1"}, is_full=True).add({A: None, C: None}).add({A: b"2"})
    assert chain.values() == {A: b"2"}


def test_a_handle_stands_for_its_groups_alone_whatever_its_content_holds() -> None:
    chain = Chain()
    chain.add({A: b"new"}, is_full=True, groups=range(4), stands_for=range(4))
    chain.add({A: b"old", OTHER: b"1"}, stands_for=range(4, 8))
    assert chain.values() == {A: b"new", OTHER: b"1"}


def test_a_key_twice_in_full_pieces_is_corrupt_and_in_pieces_with_changes_is_not() -> None:
    with pytest.raises(CorruptError, match="twice"):
        Chain().add({A: b"1"}, is_full=True).add({A: b"2"}, is_full=True).rows()
    assert Chain().add({A: b"1"}, is_full=True).add({A: b"1"}).values() == {A: b"1"}


def test_a_full_piece_that_removes_keys_is_corrupt() -> None:
    data = write_piece(GROUPS, 8, "str", STATES, {KeyGroup(2): [Column(0, [], [], [A])]}, is_full=True)
    with pytest.raises(CorruptError, match="does not fit together"):
        list(Piece(data).columns(KeyGroup(2)))


def test_removed_keys_of_another_group_are_corrupt() -> None:
    chain = Chain()
    data = write_piece(GROUPS, 8, "str", STATES, {KeyGroup(3): [Column(0, [], [], [A])]}, is_full=False)
    chain.handles.append(chain.files.write("1-0", data, GROUPS))
    with pytest.raises(CorruptError, match="not of group 3"):
        chain.rows()


def test_a_state_that_the_checkpoint_does_not_list_is_corrupt() -> None:
    with pytest.raises(CorruptError, match="total is not among"):
        Chain().add({A: b"1"}, is_full=True).rows(states=("other",))


def test_files_of_another_form_are_never_taken_for_pieces() -> None:
    chain = Chain().add({A: b"1"}, is_full=True)
    chain.handles[0] = msgspec.structs.replace(chain.handles[0], form="rocksdb")
    with pytest.raises(InternalError, match="rocksdb"):
        chain.rows()


def test_a_group_may_have_several_chunks() -> None:
    writer = PieceWriter(8, "str", STATES)
    writer.add(KeyGroup(2), [Column(0, [A], [b"1"])])
    writer.add(KeyGroup(2), [Column(0, [B], [b"2"])])
    writer.add(KeyGroup(5), [Column(0, [OTHER], [b"3"])])
    chain = Chain()
    chain.handles.append(chain.files.write("1-0", writer.finish(GROUPS), GROUPS))
    assert chain.values() == {A: b"1", B: b"2", OTHER: b"3"}


def test_chunks_out_of_order_are_corrupt() -> None:
    writer = PieceWriter(8, "str", STATES)
    writer.add(KeyGroup(5), [Column(0, [OTHER], [b"3"])])
    writer.add(KeyGroup(2), [Column(0, [A], [b"1"])])
    with pytest.raises(CorruptError, match="lists group 2 behind 5"):
        Piece(writer.finish(GROUPS))


def test_a_file_is_read_once_and_kept_only_as_long_as_groups_of_it_are_to_come() -> None:
    chain = Chain()
    for start in range(0, 8, 2):
        some = range(start, start + 2)
        chain.add({key_in(group): b"1" for group in some}, is_full=True, groups=some)
    reads: list[str | None] = []

    class Counting(KeptFiles):
        def read_state(self, handle: StateHandle) -> bytes:
            reads.append(handle.path)
            return chain.files.read_state(handle)

    reader = ChainReader(chain.handles, Counting())
    for group in GROUPS:
        reader.read(KeyGroup(group))
        assert len(reader._open) == 1
    assert reads == [handle.path for handle in chain.handles]


def test_a_piece_of_format_1_is_restored_and_gone_on_with() -> None:
    files = KeptFiles()
    handle = files.write("1-0", Path(__file__).with_name("piece_format_1.bin").read_bytes(), GROUPS)
    descriptors: tuple[StateDescriptor[Any], ...] = (
        ValueState(int, name="total"),
        ListState(str, name="recent"),
        MapState(str, float, name="by-device"),
    )
    infos = tuple(descriptor.info for descriptor in descriptors)
    snapshot = OperatorSnapshot(OperatorName("totals"), key_type="tuple[str, int]", states=infos, handles=(handle,))
    backend = ObjectStateBackend(OperatorName("totals"), SubtaskIndex(0), 1, 8)
    backend.restore([snapshot], files)
    total, recent, devices = (backend.register(descriptor) for descriptor in descriptors)
    for number in range(6):
        backend.set_current_key((f"user-{number}", number))
        assert total.value() == number * 1000
        assert recent.get() == ["x" * number, "ä"]
        assert devices.items() == [("phone", 0.5 * number)]
    assert len(list(read_rows(snapshot, files, GROUPS))) == 18
