"""Topics, records and isolation of the embedded log: as Kafka has them, where a job can tell."""

import pytest

from tests.unit.connectors.clocks import HandClock
from tests.unit.connectors.local_logs import commit, prepared, values, write
from tidegate.checkpoint.protocol import Committed
from tidegate.connectors.local.records import SCAN
from tidegate.errors import InvalidError, LostDataError
from tidegate.local import LocalLog

# ---- topics and records ----------------------------------------------------------------------------------------------


def test_offsets_are_counted_for_each_partition(log: LocalLog) -> None:
    log.append("t", 0, [b"a", b"b"])
    log.append("t", 1, [b"c"])
    log.append("t", 0, [b"d"])
    assert [(record.offset, record.value) for record in log.read("t", 0)] == [(0, b"a"), (1, b"b"), (2, b"d")]
    assert (log.end_offset("t", 0), log.end_offset("t", 1)) == (3, 1)


def test_a_record_keeps_key_value_and_timestamp_also_when_they_are_none(log: LocalLog) -> None:
    log.append("t", 0, [b"v", None, b""], keys=[b"k", None, b""], timestamps=[5, 6, 7])
    assert [record[1:] for record in log.read("t", 0)] == [(5, b"k", b"v"), (6, None, None), (7, b"", b"")]


def test_records_get_the_clock_s_time_by_default(log: LocalLog, clock: HandClock) -> None:
    log.append("t", 0, [b"v"])
    assert log.read("t", 0)[0].timestamp == int(clock.seconds * 1000)


def test_a_key_always_goes_to_the_same_partition(log: LocalLog) -> None:
    for _ in range(3):
        log.append("t", None, [b"x", b"y", b"z"], keys=[b"3", b"4", b"5"])
    places = {(record.key, part) for part in range(2) for record in log.read("t", part)}
    assert len(places) == 3
    # A change of the hash would send the keys of existing topics elsewhere.
    assert places == {(b"3", 0), (b"4", 1), (b"5", 0)}


def test_keyless_records_stay_together_and_calls_take_turns(log: LocalLog) -> None:
    for text in (b"a", b"b", b"c"):
        log.append("t", None, [text] * 2)
    assert (values(log, 0), values(log, 1)) == ([b"a", b"a", b"c", b"c"], [b"b", b"b"])


def test_what_is_no_bytes_and_does_not_pair_up_is_refused(log: LocalLog) -> None:
    with pytest.raises(InvalidError, match="bytes"):
        log.append("t", 0, ["text"])  # type: ignore[list-item]
    with pytest.raises(InvalidError, match="pair up"):
        log.append("t", 0, [b"a"], keys=[])
    with pytest.raises(InvalidError, match="no partition 2"):
        log.append("t", 2, [b"a"])
    with pytest.raises(InvalidError, match="no topic 'x'"):
        log.append("x", 0, [b"a"])
    with pytest.raises(InvalidError, match="no partition 7"):
        log.read("t", 7)
    assert values(log) == []


def test_a_topic_can_grow_but_not_shrink(log: LocalLog) -> None:
    log.append("t", 1, [b"kept"])
    log.create_topic("t", 2)
    log.create_topic("t", 3)
    log.create_topic("a.b-c_d", 1)
    assert log.topics() == {"a.b-c_d": 1, "t": 3}
    assert values(log, 1) == [b"kept"]
    for name, partitions in (("t", 2), ("new", 0), ("no/slash", 1), ("", 1)):
        with pytest.raises(InvalidError):
            log.create_topic(name, partitions)


def test_a_read_of_some_records_says_where_to_go_on(log: LocalLog) -> None:
    log.append("t", 0, [b"a", b"b", b"c"])
    assert [record.value for record in log.read("t", 0, offset=1, max_records=1)] == [b"b"]
    chunk = log.fetch("t", 0, 0, 2)
    assert (list(chunk.values), chunk.next_offset) == ([b"a", b"b"], 2)
    chunk = log.fetch("t", 0, 0, 100, stop=1)
    assert (list(chunk.values), chunk.next_offset) == ([b"a"], 1)
    with pytest.raises(InvalidError):
        log.fetch("t", 0, 0, 0)


def test_deleted_records_are_gone_and_the_loss_is_named(log: LocalLog) -> None:
    log.append("t", 0, [b"a", b"b", b"c"])
    log.delete_records("t", 0, before=2)
    assert values(log) == [b"c"]
    assert (log.low_watermark("t", 0), log.end_offset("t", 0)) == (2, 3)
    with pytest.raises(LostDataError, match="offsets 1 to 1 were deleted"):
        log.read("t", 0, offset=1)
    with pytest.raises(LostDataError, match="beyond the end"):
        log.read("t", 0, offset=4)
    log.delete_records("t", 0, before=1)
    assert log.low_watermark("t", 0) == 2


def test_many_records_are_deleted_and_offsets_go_on(log: LocalLog) -> None:
    count = 2 * SCAN + 1
    log.append("t", 0, [b"x"] * count)
    log.delete_records("t", 0, before=count)
    log.append("t", 0, [b"new"])
    assert [(record.offset, record.value) for record in log.read("t", 0)] == [(count, b"new")]


def test_records_of_an_open_transaction_cannot_be_deleted(log: LocalLog) -> None:
    pending = prepared(log, "id", b"a")
    log.append("t", 0, [b"b"])
    with pytest.raises(InvalidError, match="last stable offset 0"):
        log.delete_records("t", 0, before=2)
    assert commit(log, pending) == Committed()
    log.delete_records("t", 0, before=2)


# ---- isolation -------------------------------------------------------------------------------------------------------


def test_an_open_transaction_holds_back_what_is_behind_it_in_its_partitions(log: LocalLog) -> None:
    log.append("t", 0, [b"before"])
    pending = prepared(log, "id", b"open")
    log.append("t", 0, [b"behind"])
    log.append("t", 1, [b"elsewhere"])
    assert values(log) == [b"before"]
    assert values(log, committed=False) == [b"before", b"open", b"behind"]
    assert values(log, 1) == [b"elsewhere"]
    assert (log.last_stable_offset("t", 0), log.end_offset("t", 0), log.last_stable_offset("t", 1)) == (1, 3, 1)
    commit(log, pending)
    assert values(log) == [b"before", b"open", b"behind"]


def test_the_last_stable_offset_is_that_of_the_earliest_open_transaction(log: LocalLog) -> None:
    first, second = prepared(log, "one", b"a"), prepared(log, "two", b"b")
    commit(log, second)
    assert log.last_stable_offset("t", 0) == 0
    assert values(log) == []
    commit(log, first)
    assert values(log) == [b"a", b"b"]


def test_aborted_records_are_invisible_and_their_offsets_stay(log: LocalLog) -> None:
    prepared(log, "id", b"a", b"b")
    log.append("t", 0, [b"c"])
    log.abort_transaction("id")
    assert [(record.offset, record.value) for record in log.read("t", 0)] == [(2, b"c")]
    assert values(log, committed=False) == [b"a", b"b", b"c"]


def test_a_long_stretch_of_aborted_records_is_passed_in_steps(log: LocalLog) -> None:
    transaction = log.begin_transaction("id")
    write(log, transaction, *[b"x"] * (2 * SCAN))
    log.abort_transaction("id")
    log.append("t", 0, [b"end"])
    chunk = log.fetch("t", 0, 0, 10)
    assert (list(chunk.values), chunk.next_offset) == ([], SCAN)
    assert values(log) == [b"end"]
