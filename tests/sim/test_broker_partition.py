"""A simulated partition: what it takes from producers, and what readers see of it."""

import pytest

from tidegate.testing.sim.broker.codes import BrokerError, Code
from tidegate.testing.sim.broker.partition import Batch, Partition, Record


def records(*texts: str) -> list[Record]:
    return [Record(text.encode(), timestamp=number) for number, text in enumerate(texts)]


def batch(first: int, *texts: str, producer: int = 1, epoch: int = 0, is_transactional: bool = True) -> Batch:
    return Batch(producer, epoch, first, records(*texts), is_transactional)


def read(partition: Partition, position: int = 0, most: int = 100) -> tuple[list[str], int]:
    rows, end = partition.fetch(position, most, "read_committed")
    return [record.value.decode() for _, record in rows if record.value is not None], end


@pytest.fixture
def partition() -> Partition:
    return Partition("t/0")


def test_a_batch_that_comes_again_is_known_by_its_sequence_numbers(partition: Partition) -> None:
    for number in range(6):
        partition.append(batch(number, str(number)))
    assert partition.append(batch(5, "5")) == 5
    assert partition.append(batch(1, "1")) == 1
    with pytest.raises(BrokerError, match=Code.OUT_OF_ORDER_SEQUENCE_NUMBER.name):
        partition.append(batch(0, "0"))
    assert partition.end == 6


@pytest.mark.parametrize("first", [0, 1, 3])
def test_a_gap_in_the_sequence_is_refused(partition: Partition, first: int) -> None:
    partition.append(batch(0, "a", "b"))
    with pytest.raises(BrokerError, match=Code.OUT_OF_ORDER_SEQUENCE_NUMBER.name):
        partition.append(batch(first, "c"))


def test_a_new_producer_and_a_new_epoch_begin_at_zero(partition: Partition) -> None:
    with pytest.raises(BrokerError, match=Code.OUT_OF_ORDER_SEQUENCE_NUMBER.name):
        partition.append(batch(1, "a"))
    partition.append(batch(0, "a", "b"))
    partition.write_marker(1, 1, commit=False, coordinator_epoch=0)
    with pytest.raises(BrokerError, match=Code.OUT_OF_ORDER_SEQUENCE_NUMBER.name):
        partition.append(batch(2, "c", epoch=1))
    partition.append(batch(0, "c", epoch=1))


def test_an_older_epoch_is_refused(partition: Partition) -> None:
    partition.append(batch(0, "a", epoch=2))
    with pytest.raises(BrokerError, match=Code.INVALID_PRODUCER_EPOCH.name):
        partition.append(batch(0, "b", epoch=1))
    with pytest.raises(BrokerError, match=Code.INVALID_PRODUCER_EPOCH.name):
        partition.write_marker(1, 1, commit=True, coordinator_epoch=0)


def test_a_marker_of_an_older_coordinator_is_refused(partition: Partition) -> None:
    partition.append(batch(0, "a"))
    partition.write_marker(1, 0, commit=True, coordinator_epoch=3)
    with pytest.raises(BrokerError, match=Code.TRANSACTION_COORDINATOR_FENCED.name):
        partition.write_marker(1, 0, commit=False, coordinator_epoch=2)


def test_readers_stop_at_the_oldest_open_transaction(partition: Partition) -> None:
    partition.append_plain(records("plain"))
    partition.append(batch(0, "one", producer=1))
    partition.append(batch(0, "two", producer=2))
    assert partition.last_stable_offset == 1
    partition.write_marker(2, 0, commit=True, coordinator_epoch=0)
    assert read(partition) == (["plain"], 1)
    partition.write_marker(1, 0, commit=False, coordinator_epoch=0)
    assert read(partition) == (["plain", "two"], 5)


def test_markers_and_aborted_records_take_offsets_and_are_passed_over(partition: Partition) -> None:
    partition.append(batch(0, "x", "y"))
    partition.write_marker(1, 0, commit=False, coordinator_epoch=0)
    partition.append(batch(2, "a", "b"))
    partition.write_marker(1, 0, commit=True, coordinator_epoch=0)
    assert read(partition, most=1) == (["a"], 4)
    assert read(partition, 4) == (["b"], 6)
    assert len(partition.fetch(0, 100, "read_uncommitted")[0]) == 4


def test_records_without_a_transaction_are_seen_at_once(partition: Partition) -> None:
    partition.append(batch(0, "a", is_transactional=False))
    assert read(partition) == (["a"], 1)


def test_an_offset_outside_of_the_log_is_refused(partition: Partition) -> None:
    partition.append_plain(records("a", "b", "c"))
    partition.delete_before(2)
    assert partition.log_start == 2
    for offset in (0, 1, 4):
        with pytest.raises(BrokerError, match=Code.OFFSET_OUT_OF_RANGE.name):
            partition.fetch(offset, 1, "read_committed")
    assert read(partition, 2) == (["c"], 3)
    assert partition.fetch(3, 1, "read_committed") == ([], 3)


def test_a_time_leads_to_the_first_record_that_is_not_before_it(partition: Partition) -> None:
    partition.append_plain(records("a", "b", "c"))
    assert [partition.first_at(time) for time in (0, 2, 3)] == [0, 2, -1]
    partition.delete_before(1)
    assert partition.first_at(0) == 1
