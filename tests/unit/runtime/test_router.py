"""An output sends each record to its subtask, in order, in batches of a sensible size, and never later than it may."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.elements import Barrier, Batch, Element, EndOfInput
from tidegate.errors import InternalError
from tidegate.graph.logical import Partitioning
from tidegate.ids import CheckpointId
from tidegate.runtime.channels import LocalChannel
from tidegate.runtime.router import Output
from tidegate.state.key_groups import key_group, subtask_of

GROUPS = 128
BARRIER = Barrier(CheckpointId(1))


class Receivers:
    """An output and the channels behind it."""

    def __init__(
        self,
        partitioning: Partitioning,
        count: int,
        *,
        batch_size: int = 4,
        linger: float = 1.0,
        capacity: int = 10**9,
        first_turn: int = 0,
    ) -> None:
        self.channels = [LocalChannel(capacity) for _ in range(count)]
        self.output = Output(
            partitioning,
            self.channels,
            batch_size=batch_size,
            linger=linger,
            max_parallelism=GROUPS,
            first_turn=first_turn,
        )

    def push(self, values: list[Any], keys: list[Any] | None = None, now: float = 0.0) -> None:
        self.output.push(Batch(values, keys), now)

    def arrived(self, channel: int = 0) -> list[Element]:
        elements = []
        while (element := self.channels[channel].poll()) is not None:
            elements.append(element)
        return elements

    def values(self, channel: int = 0) -> list[Any]:
        return [element.values if isinstance(element, Batch) else element for element in self.arrived(channel)]


def forward(**options: Any) -> Receivers:
    return Receivers(Partitioning.FORWARD, 1, **options)


def target(key: object, parallelism: int) -> int:
    return subtask_of(key_group(key, GROUPS), parallelism, GROUPS)


def check_routing(pushed: list[tuple[str, int]], received: list[list[tuple[str, int]]]) -> None:
    """Each record is at the subtask of its key, once, and those of one subtask are in the order in which they were
    pushed."""
    for subtask, records in enumerate(received):
        assert records == [(key, n) for key, n in pushed if target(key, len(received)) == subtask]


keys_of_batches = st.lists(st.lists(st.sampled_from("abcdefghij"), min_size=1, max_size=9), max_size=12)


@given(keys_of_batches, st.integers(1, 5), st.integers(1, 8), st.booleans())
def test_by_hash_each_record_goes_once_to_the_subtask_of_its_key_in_order(
    batches: list[list[str]], parallelism: int, batch_size: int, timed: bool
) -> None:
    receivers = Receivers(Partitioning.HASH, parallelism, batch_size=batch_size)
    pushed: list[tuple[str, int]] = []
    for keys in batches:
        numbered = [(key, len(pushed) + i) for i, key in enumerate(keys)]
        pushed += numbered
        stamps = [number for _, number in numbered] if timed else None
        receivers.output.push(Batch(numbered, keys, stamps), 0.0)
    receivers.output.broadcast(BARRIER)
    received: list[list[tuple[str, int]]] = []
    for channel in range(parallelism):
        *arrived, barrier = receivers.arrived(channel)
        assert barrier == BARRIER
        received.append([])
        for batch in arrived:
            assert isinstance(batch, Batch)
            received[-1] += batch.values
            assert batch.keys == [key for key, _ in batch.values], "keys stay beside their records"
            assert batch.timestamps == ([number for _, number in batch.values] if timed else None)
    check_routing(pushed, received)


def test_the_check_of_the_routing_fails_when_a_record_is_removed_doubled_moved_or_changed() -> None:
    pushed = [(key, number) for number, key in enumerate("abcdefabc")]
    right = [[record for record in pushed if target(record[0], 2) == subtask] for subtask in (0, 1)]
    assert all(right)
    check_routing(pushed, right)
    record = right[0][0]
    for wrong in (
        [right[0][1:], right[1]],
        [[record, *right[0]], right[1]],
        [right[0][1:], [record, *right[1]]],
        [[(record[0], 99), *right[0][1:]], right[1]],
        [[*right[0][1:], record], right[1]],
    ):
        with pytest.raises(AssertionError):
            check_routing(pushed, wrong)


@pytest.mark.parametrize(
    ("partitioning", "count"), [(Partitioning.FORWARD, 1), (Partitioning.HASH, 1), (Partitioning.REBALANCE, 3)]
)
def test_a_batch_that_one_channel_takes_whole_is_not_copied(partitioning: Partitioning, count: int) -> None:
    receivers = Receivers(partitioning, count)
    batch = Batch([1, 2, 3, 4], ["a", "b", "c", "d"])
    receivers.output.push(batch, 0.0)
    assert receivers.arrived() == [batch]


def test_by_hash_a_batch_of_one_subtask_is_not_copied() -> None:
    receivers = Receivers(Partitioning.HASH, 3)
    batch = Batch([1, 2, 3, 4], ["a", "a", "a", "a"])
    receivers.output.push(batch, 0.0)
    assert receivers.arrived(target("a", 3)) == [batch]


def test_batches_are_rebalanced_one_by_one_in_turn_from_the_first_turn_on() -> None:
    receivers = Receivers(Partitioning.REBALANCE, 3, batch_size=1, first_turn=4)
    for value in range(7):
        receivers.push([value])
    assert [receivers.values(channel) for channel in range(3)] == [[[2], [5]], [[0], [3], [6]], [[1], [4]]]


def test_small_batches_are_collected_until_there_are_enough_records() -> None:
    receivers = forward(batch_size=4)
    for value in range(3):
        receivers.push([value])
        assert receivers.values() == []
    receivers.push([3])
    assert receivers.values() == [[0, 1, 2, 3]]


def test_collected_batches_do_not_outgrow_the_batch_size() -> None:
    receivers = forward(batch_size=4)
    receivers.push([0, 1, 2])
    receivers.push([3, 4])
    assert receivers.values() == [[0, 1, 2]]
    receivers.push([5, 6, 7, 8, 9])
    assert receivers.values() == [[3, 4], [5, 6, 7, 8, 9]]
    assert receivers.output.next_deadline is None


def test_collecting_does_not_touch_the_batches_that_were_pushed() -> None:
    receivers = forward(batch_size=10)
    first, second = Batch([1], ["a"], [10]), Batch([2], ["b"], [20])
    receivers.output.push(first, 0.0)
    receivers.output.push(second, 0.0)
    receivers.output.broadcast(BARRIER)
    batch = receivers.arrived()[0]
    assert isinstance(batch, Batch)
    assert (batch.values, batch.keys, batch.timestamps) == ([1, 2], ["a", "b"], [10, 20])
    assert (first.values, first.keys, first.timestamps) == ([1], ["a"], [10])


def test_batches_with_other_columns_are_not_mixed() -> None:
    receivers = forward(batch_size=10)
    for batch in (Batch([1]), Batch([2], ["a"]), Batch([3], ["b"]), Batch([4], ["c"], [1]), Batch([5], None, [1])):
        receivers.output.push(batch, 0.0)
    receivers.output.broadcast(BARRIER)
    assert receivers.values() == [[1], [2, 3], [4], [5], BARRIER]


def test_the_first_record_waits_no_longer_than_linger() -> None:
    receivers = forward(linger=1.0)
    assert receivers.output.next_deadline is None
    receivers.push([0], now=10.0)
    receivers.push([1], now=10.9)
    assert receivers.output.next_deadline == 11.0
    receivers.output.flush_due(10.99)
    assert receivers.values() == []
    receivers.output.flush_due(11.0)
    assert receivers.values() == [[0, 1]]
    assert receivers.output.next_deadline is None
    receivers.push([2], now=20.0)
    assert receivers.output.next_deadline == 21.0


def test_each_channel_has_its_own_deadline() -> None:
    receivers = Receivers(Partitioning.REBALANCE, 2, linger=1.0)
    receivers.push([0], now=1.0)
    receivers.push([1], now=1.5)
    assert receivers.output.next_deadline == 2.0
    receivers.output.flush_due(2.0)
    assert [receivers.values(0), receivers.values(1)] == [[[0]], []]
    assert receivers.output.next_deadline == 2.5


def test_there_is_room_only_while_every_channel_has_credit() -> None:
    receivers = Receivers(Partitioning.REBALANCE, 2, batch_size=1, capacity=1)
    assert receivers.output.has_room
    receivers.push([0])
    assert not receivers.output.has_room
    receivers.values(0)
    assert receivers.output.has_room


def test_what_waits_for_company_waits_for_credit_too_and_has_no_deadline_meanwhile() -> None:
    receivers = forward(batch_size=4, capacity=4)
    receivers.push([0, 1, 2, 3])
    receivers.push([4])
    assert receivers.output.next_deadline is None
    receivers.output.flush_due(100.0)
    assert receivers.values() == [[0, 1, 2, 3]]
    assert receivers.output.next_deadline == 1.0
    receivers.output.flush_due(100.0)
    assert receivers.values() == [[4]]


@pytest.mark.parametrize("element", [BARRIER, EndOfInput()])
def test_a_broadcast_comes_behind_all_records_in_every_channel_also_without_credit(element: Barrier) -> None:
    receivers = Receivers(Partitioning.REBALANCE, 3, batch_size=4, capacity=2)
    receivers.push([0, 1, 2, 3])
    receivers.push([4])
    assert not receivers.output.has_room
    receivers.output.broadcast(element)
    receivers.push([5, 6, 7, 8])
    assert [receivers.values(channel) for channel in range(3)] == [
        [[0, 1, 2, 3], element],
        [[4], element],
        [element, [5, 6, 7, 8]],
    ]


def test_one_push_with_room_overshoots_by_at_most_one_batch_above_the_buffer() -> None:
    receivers = forward(batch_size=4, capacity=4)
    receivers.push([0, 1, 2])
    assert receivers.output.has_room
    receivers.push([3, 4, 5, 6])
    assert not receivers.output.has_room
    assert receivers.values() == [[0, 1, 2], [3, 4, 5, 6]]


def test_records_of_a_side_output_are_ordinary_behind_its_edge() -> None:
    receivers = forward(batch_size=1)
    receivers.output.push(Batch([1], tag="late"), 0.0)
    (batch,) = receivers.arrived()
    assert isinstance(batch, Batch)
    assert batch.tag is None


def test_an_empty_batch_is_nothing() -> None:
    for partitioning, count in ((Partitioning.FORWARD, 1), (Partitioning.HASH, 2)):
        receivers = Receivers(partitioning, count)
        receivers.push([], [])
        receivers.output.broadcast(BARRIER)
        assert receivers.values() == [BARRIER]


def test_records_without_keys_at_a_hash_edge_are_an_internal_error() -> None:
    with pytest.raises(InternalError, match="without keys"):
        Receivers(Partitioning.HASH, 2).push([1])


def test_a_forward_edge_with_several_channels_is_an_internal_error() -> None:
    with pytest.raises(InternalError, match="2 channels"):
        Receivers(Partitioning.FORWARD, 2)


# ---- to all ----------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 9), max_size=12), st.integers(1, 5), st.integers(1, 8))
def test_what_is_broadcast_comes_to_every_subtask_once_and_in_order(
    sizes: list[int], parallelism: int, batch_size: int
) -> None:
    receivers = Receivers(Partitioning.BROADCAST, parallelism, batch_size=batch_size)
    pushed: list[int] = []
    for size in sizes:
        numbers = list(range(len(pushed), len(pushed) + size))
        pushed += numbers
        receivers.push(numbers)
    receivers.output.broadcast(BARRIER)
    for channel in range(parallelism):
        *batches, barrier = receivers.values(channel)
        assert barrier == BARRIER
        assert [number for values in batches for number in values] == pushed


def test_a_broadcast_has_room_only_when_every_subtask_has() -> None:
    receivers = Receivers(Partitioning.BROADCAST, 3, batch_size=1, capacity=1)
    assert receivers.output.has_room
    receivers.push([1])
    assert [receivers.values(channel) for channel in (0, 1)] == [[[1]], [[1]]]
    assert not receivers.output.has_room
    assert receivers.values(2) == [[1]]
    assert receivers.output.has_room
