"""What a consumer decides, against clusters in which everything goes wrong that may: nothing is read twice, nothing is
passed over, and reading goes on when the trouble ends."""

import pytest

from tests.unit.connectors.kafka.batches.clusters import LOST, Log
from tests.unit.connectors.kafka.batches.logs import batch, texts
from tests.unit.connectors.kafka.batches.runs import LIMITS, A, B, Run, logs
from tidegate.connectors.kafka.batches.commands import AskMetadata, Fetch, Hand
from tidegate.connectors.kafka.batches.events import (
    TICK,
    Described,
    Fetched,
    NotDescribed,
    NotFetched,
    Range,
    Removed,
)
from tidegate.connectors.kafka.batches.fetcher import METADATA_AGE, UNKNOWN_WITHIN
from tidegate.connectors.kafka.batches.readings import FIRST_WAIT, LONGEST_PAUSE
from tidegate.connectors.kafka.batches.requests import FetchedRow
from tidegate.connectors.kafka.client import OnLostOffsets
from tidegate.connectors.kafka.messages import Cluster
from tidegate.connectors.kafka.wire import Address
from tidegate.errors import CorruptError, InvalidError, LostDataError


@pytest.mark.parametrize("are_racks", [False, True])
@pytest.mark.parametrize("seed", range(60))
def test_every_visible_record_is_read_once_whatever_goes_wrong(seed: int, are_racks: bool) -> None:
    run = Run(logs(5), seed, faults=20)
    source = run.source
    partitions = list(run.cluster.logs)
    run.add(dict.fromkeys(partitions[:3], 0))
    for step in range(300):
        partition = source.choice(partitions)
        log = run.cluster.logs[partition]
        match source.randrange(12 + are_racks):
            case 12:
                run.cluster.bring_nearer(partition)
            case 0 | 1:
                log.append(source.randrange(1, 30), gaps=source.choice([0, 0, 3]))
            case 2:
                log.append_transactions({number: source.random() < 0.5 for number in range(source.randrange(1, 4))})
            case 3:
                run.cluster.move(partition)
            case 4 | 5:
                run.take(source.randrange(1, 50))
            case _:
                run.answer()
        if step == 100:
            run.add(dict.fromkeys(partitions[3:], 0))
    run.cluster.catch_up()
    run.until_read()
    assert not run.failures
    assert {partition: run.values[partition] for partition in partitions} == {
        partition: log.values for partition, log in run.cluster.logs.items()
    }


@pytest.mark.parametrize("begin", range(12))
def test_reading_begins_at_exactly_the_offset_that_is_told(begin: int) -> None:
    log = Log()
    log.append(4, gaps=2)
    log.append_transactions({7: False})
    log.append(3)
    run = Run({A: log})
    run.add({A: begin})
    run.until_read()
    assert run.values[A] == {offset: value for offset, value in log.values.items() if offset >= begin}


def test_a_partition_that_was_removed_brings_nothing_more_and_others_go_on() -> None:
    run = Run(logs(2))
    for log in run.cluster.logs.values():
        log.leader = 1
        log.append(3)
    run.add({A: 0, B: 0})
    run.answer()
    (fetch,) = run.pending
    assert isinstance(fetch, Fetch)
    run.shelf.drop(A)
    run.handle(Removed(A))
    del run.cluster.logs[A].values, run.positions[A]
    answer = run.cluster.answer(fetch)
    run.pending.clear()
    run.handle(answer)
    run.take()
    assert set(run.values) == {B}
    (following,) = run.pending
    assert isinstance(following, Fetch)
    assert [row.partition for row in following.rows] == [B]


def test_a_partition_that_was_removed_and_added_again_takes_no_answer_of_before() -> None:
    log = Log()
    log.append(5)
    run = Run({A: log})
    run.add({A: 0})
    run.answer()
    (old,) = run.pending
    run.handle(Removed(A))
    run.add({A: 3})
    run.until_read()
    assert isinstance(old, Fetch)
    assert run.values[A] == {3: "v3", 4: "v4"}


def test_an_answer_of_the_old_leader_that_comes_after_the_move_is_dropped() -> None:
    log = Log()
    log.append(5)
    run = Run({A: log})
    run.add({A: 0})
    run.answer()
    late = run.cluster.answer(run.pending.pop())
    log.leader, log.epoch = 2, 1
    run.handle(Described(Cluster({1: Address("h", 1), 2: Address("h", 2)}, {A: (2, 1)}, {})))
    run.until_read()
    run.handle(late)
    run.take()
    assert run.values[A] == log.values
    assert len(run.values[A]) == 5


def test_what_is_held_ahead_is_bounded_and_goes_on_when_it_is_taken() -> None:
    run = Run(logs(3))
    for log in run.cluster.logs.values():
        for _ in range(100):
            log.append(5)
    run.add(dict.fromkeys(run.cluster.logs, 0))
    for _ in range(400):
        run.answer()
    held = sum(item.size for items in run.shelf._items.values() for item in items if isinstance(item, Hand))
    assert LIMITS.total <= held <= LIMITS.total + 3 * 10_000
    assert run.pending == []
    run.until_read()
    assert [len(run.values[partition]) for partition in run.cluster.logs] == [500] * 3


def test_while_one_partition_is_held_back_its_broker_does_not_wait_for_the_others() -> None:
    log, idle = Log(), Log()
    for _ in range(20):
        log.append(5)
    run = Run({A: log, B: idle})
    run.add({A: 0, B: 0})
    waits = {}
    for _ in range(50):
        run.answer()
        for command in run.pending:
            if isinstance(command, Fetch):
                waits[tuple(row.partition for row in command.rows)] = command.wait
    assert waits[B,] < waits[A, B]


def test_a_broker_that_has_nothing_may_wait_longer_and_longer_until_something_comes_or_is_added() -> None:
    run = Run(logs(2))
    run.cluster.logs[B].leader = 1
    run.add({A: 0})

    def waits(count: int) -> list[float]:
        found = []
        while len(found) < count:
            found += [command.wait for command in run.pending if isinstance(command, Fetch)]
            run.answer()
        return found

    assert waits(3) == [FIRST_WAIT, 2 * FIRST_WAIT, LIMITS.wait]
    run.cluster.logs[A].append(1)
    run.answer()
    run.take()
    assert min(waits(2)) == FIRST_WAIT
    waits(3)
    run.add({B: 0})
    assert min(waits(3)) == FIRST_WAIT


# ---- offsets that are not there ------------------------------------------------------------------------------------


def test_lost_offsets_come_behind_what_was_fetched_before_them() -> None:
    log = Log()
    log.append(3)
    log.append(3)
    log.batches.pop()
    run = Run({A: log})
    run.add({A: 0})
    for _ in range(2):
        run.answer()
    log.append(2)
    log.start = 7
    for _ in range(10):
        run.answer()
    (error,) = run.failures
    assert isinstance(error, LostDataError)
    assert "offsets 3 to 6 are gone before they were read; the partition now begins at 7" in str(error)


def test_reading_goes_on_at_the_beginning_where_that_was_chosen() -> None:
    log = Log()
    log.append(3)
    run = Run({A: log}, on_lost="earliest")
    run.add({A: 0})
    log.append(4)
    log.start = 3
    run.until_read()
    assert (run.lost, run.values[A]) == (3, {offset: f"v{offset}" for offset in range(3, 7)})


@pytest.mark.parametrize("choice", ["fail", "earliest"])
def test_a_log_that_ends_before_the_offset_is_an_error_whatever_was_chosen(choice: OnLostOffsets) -> None:
    log = Log()
    log.append(2)
    run = Run({A: log}, on_lost=choice)
    run.add({A: 5})
    for _ in range(5):
        run.answer()
    (error,) = run.failures
    assert isinstance(error, LostDataError)
    assert "ends at offset 2, and reading had reached 5" in str(error)


def test_an_offset_that_was_not_there_for_a_moment_is_asked_for_again() -> None:
    log = Log()
    log.append(2)
    run = Run({A: log})
    run.add({A: 1})
    run.answer()
    (fetch,) = run.pending
    run.pending.clear()
    assert isinstance(fetch, Fetch)
    run.handle(Fetched(1, 0, 0.0, [FetchedRow(A, 1, b"", (), -1)]))
    run.until_read()
    assert "had no offset 1 for a moment" in run.warnings[0]


def test_a_log_that_has_become_another_one_behind_the_reader_is_an_error() -> None:
    """As after the election of a leader that was not in sync: the offsets are there, with other records."""
    log = Log(epoch=4)
    log.append(3)
    run = Run({A: log})
    run.add({A: 0})
    run.until_read()
    other = Log(epoch=5)
    other.append(9)
    run.cluster.logs[A] = other
    for _ in range(30):
        run.answer()
        run.take()
    (error,) = run.failures
    assert isinstance(error, LostDataError)
    assert "has lost records that were already read: its log is another one from offset 0 on" in str(error)
    assert len(run.values[A]) == 3


# ---- who leads -----------------------------------------------------------------------------------------------------


def asked_often(run: Run, seconds: float) -> int:
    """How many questions there are in that time when nothing is answered well."""
    count = 0
    until = run.now + seconds
    while run.now < until:
        for command in run.pending[:]:
            run.pending.remove(command)
            count += 1
            match command:
                case AskMetadata():
                    run.handle(NotDescribed(LOST))
                case Fetch():
                    run.handle(NotFetched(command.node, LOST))
        run.now += 0.001
        run.handle(TICK)
    return count


def test_a_cluster_that_does_not_answer_is_asked_less_and_less_often() -> None:
    run = Run(logs(3))
    run.add(dict.fromkeys(run.cluster.logs, 0))
    assert asked_often(run, 60) <= 60 / LONGEST_PAUSE + 10
    for log in run.cluster.logs.values():
        log.append(1)
    run.until_read()


def test_a_topic_that_stays_unknown_is_an_error_and_one_that_comes_back_is_none() -> None:
    def say(known: bool) -> None:
        nodes = {1: Address("h", 1)}
        cluster = Cluster(nodes, {A: (1, 0)}, {}) if known else Cluster(nodes, {}, {"orders": 3})
        run.handle(Described(cluster))

    def unknown(seconds: float) -> None:
        until = run.now + seconds
        while run.now < until:
            if any(isinstance(command, AskMetadata) for command in run.pending):
                run.pending.clear()
                say(known=False)
            run.now += 0.1
            run.handle(TICK)

    run = Run(logs())
    run.add({A: 0})
    unknown(UNKNOWN_WITHIN - 3)
    say(known=True)
    assert not run.failures
    run.pending.clear()
    run.handle(Fetched(1, 0, 0.0, [FetchedRow(A, 3, b"", (), -1)]))
    unknown(UNKNOWN_WITHIN + 3)
    (error,) = run.failures
    assert isinstance(error, InvalidError)
    assert "orders/0 is unknown to the brokers" in str(error)


def test_who_may_not_read_is_told_so() -> None:
    run = Run(logs())
    run.add({A: 0})
    run.handle(Described(Cluster({1: Address("h", 1)}, {}, {"orders": 29})))
    (error,) = run.failures
    assert isinstance(error, InvalidError)
    assert "The user needs READ on the topic 'orders'" in str(error)


def test_the_brokers_are_asked_again_after_a_while_though_nothing_is_wrong() -> None:
    run = Run(logs())
    run.add({A: 0})
    run.answer()
    run.now += METADATA_AGE
    run.handle(TICK)
    assert [type(command) for command in run.pending] == [Fetch, AskMetadata]


def test_a_broker_that_wants_to_hear_nothing_for_a_while_hears_nothing() -> None:
    run = Run(logs())
    run.add({A: 0})
    run.answer()
    run.pending.clear()
    run.handle(Fetched(1, 0, 2.0, [FetchedRow(A, 0, b"", (), -1)]))
    for _ in range(19):
        run.now += 0.1
        run.handle(TICK)
        assert run.pending == []
    run.now += 0.2
    run.handle(TICK)
    assert [type(command) for command in run.pending] == [Fetch]


@pytest.mark.parametrize("code", [14, 2, -1, 87])
def test_other_errors_of_a_partition_are_said_and_tried_again(code: int) -> None:
    log = Log()
    log.append(1)
    run = Run({A: log})
    run.add({A: 0})
    run.answer()
    run.pending.clear()
    run.handle(Fetched(1, 0, 0.0, [FetchedRow(A, code, b"", (), -1)]))
    if code == 87:
        assert isinstance(run.failures[0], InvalidError)
        return
    assert "orders/0" in run.warnings[0]
    run.until_read()


def test_an_error_of_the_whole_answer_frees_all_that_was_asked() -> None:
    log = Log()
    log.append(1)
    run = Run({A: log})
    run.add({A: 0})
    run.answer()
    run.pending.clear()
    run.handle(Fetched(1, 70, 0.0, []))
    run.until_read()


@pytest.mark.parametrize("data", [b"\x00" * 80, b"\xff" * 80])
def test_what_is_no_record_batch_is_an_error_with_its_place(data: bytes) -> None:
    run = Run(logs())
    run.add({A: 0})
    run.answer()
    run.handle(Fetched(1, 0, 0.0, [FetchedRow(A, 0, data, (), -1)]))
    (error,) = run.failures
    assert isinstance(error, CorruptError)
    assert "orders/0 at host:9092: what was answered from offset 0 on is no record batch" in str(error)


def test_a_batch_before_the_offset_is_passed_over() -> None:
    run = Run(logs())
    run.add({A: 4})
    run.answer()
    before, there = batch(texts(0, "a")), batch(texts(3, "b", "c"))
    run.handle(Fetched(1, 0, 0.0, [FetchedRow(A, 0, before + there, (), -1)]))
    run.take()
    assert run.values[A] == {4: "c"}


def test_a_range_that_nobody_asked_for_any_more_is_dropped() -> None:
    run = Run(logs())
    run.add({A: 0})
    run.handle(Removed(A))
    run.handle(Range(A, 5, 9))
    assert not run.failures
