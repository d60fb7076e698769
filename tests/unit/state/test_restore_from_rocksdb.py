"""The object backend goes on from what the RocksDB backend stored, in its own form."""

from pathlib import Path
from typing import Any

import pytest

from tidegate.ids import SubtaskIndex
from tidegate.state.backend import PIECE
from tidegate.state.descriptors import AggregatingState, ListState, MapState, ReducingState, StateDescriptor, ValueState
from tidegate.state.key_groups import key_group, subtask_of
from tidegate.state.object_backend import ObjectStateBackend
from tidegate.testing.conformance.state_kit import MAX_PARALLELISM, OPERATOR, USERS, StateBackendKit

pytest.importorskip("rocksdict")

DESCRIPTORS: tuple[StateDescriptor[Any], ...] = (
    ValueState(int | None, name="value"),
    ListState(str, name="list"),
    MapState(str, float, name="map"),
    ReducingState(int, max, name="reducing"),
    AggregatingState(list[int], list, lambda so_far, value: [*so_far, value], sum, name="aggregating"),
)


class Kit(StateBackendKit):
    def backend(self, subtask: SubtaskIndex, parallelism: int, max_parallelism: int) -> ObjectStateBackend:
        return ObjectStateBackend(OPERATOR, subtask, parallelism, max_parallelism)


@pytest.mark.parametrize("parallelism", [1, 3])
def test_all_kinds_come_back_and_the_next_capture_is_in_pieces(tmp_path: Path, parallelism: int) -> None:
    from tidegate.state.rocksdb import RocksMemory, RocksStateBackend

    kit = Kit()
    old = RocksStateBackend(OPERATOR, SubtaskIndex(0), 1, MAX_PARALLELISM, tmp_path, RocksMemory(64 << 20))
    value, elements, entries, reduced, aggregated = (old.register(descriptor) for descriptor in DESCRIPTORS)
    for number, user in enumerate(USERS):
        old.set_current_key(user)
        value.update(None if number % 7 == 0 else number)
        elements.extend(["x", str(number)])
        entries.put("b", number / 2)
        entries.put("a", 1.0)
        reduced.add(number)
        aggregated.add(number)
    taken = kit.take(old)
    assert {handle.form for handle in taken.handles} == {"rocksdb"}
    for subtask in range(parallelism):
        backend = kit.restored(taken, subtask=subtask, parallelism=parallelism)
        handles = [backend.register(descriptor) for descriptor in DESCRIPTORS]
        own = [user for user in USERS if subtask_of(key_group(user, MAX_PARALLELISM), parallelism, 32) == subtask]
        assert sorted(backend.keys("list")) == sorted(own)
        for user in own:
            number = USERS.index(user)
            backend.set_current_key(user)
            value, elements, entries, reduced, aggregated = handles
            assert value.peek() == (None if number % 7 == 0 else number)
            assert elements.get() == ["x", str(number)]
            assert entries.items() == [("b", number / 2), ("a", 1.0)]
            assert (reduced.get(), aggregated.get()) == (number, number)
        stored = kit.take(backend).handles
        assert {handle.form for handle in stored} == {PIECE}
    old.close()
