"""The simulated coordinator and cluster answer as real ones do: each rule was measured there."""

import pytest

from tidegate.connectors.kafka.client import TopicPartition, TransactionDescription, TransactionState
from tidegate.testing.sim.broker.cluster import Limits, SimCluster
from tidegate.testing.sim.broker.codes import BrokerError, Code
from tidegate.testing.sim.broker.coordinator import CoordinatorLimits
from tidegate.testing.sim.broker.partition import Batch, Record

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
TIMEOUT = 10_000
S = TransactionState


class Ground:
    """A cluster with one topic and one id; time in milliseconds."""

    def __init__(self, *, verifies: bool = True, **limits: int) -> None:
        self.now = 1_000_000
        self.cluster = SimCluster(lambda: self.now, Limits(CoordinatorLimits(**limits), verifies))
        self.cluster.create_topic("t", 2)
        self.sequences: dict[tuple[TopicPartition, int, int], int] = {}

    def initialise(self, id: str = "id") -> tuple[int, int]:
        """As clients do: again while the last end is being written."""
        if self.described_or_none(id) in (S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT):
            with refused(Code.CONCURRENT_TRANSACTIONS):
                self.cluster.initialise(id, TIMEOUT)
            self.cluster.write_all_markers()
        return self.cluster.initialise(id, TIMEOUT)

    def described_or_none(self, id: str) -> TransactionState | None:
        found = self.cluster.describe(id)
        return None if found is None else found.state

    def write(self, owner: tuple[int, int], count: int = 1, at: TopicPartition = A, id: str = "id") -> None:
        self.cluster.add_partitions(id, *owner, [at])
        self.append(owner, count, at, id)

    def append(self, owner: tuple[int, int], count: int = 1, at: TopicPartition = A, id: str = "id") -> None:
        first = self.sequences.get((at, *owner), 0)
        records = [Record(str(first + number).encode()) for number in range(count)]
        self.cluster.produce(at, id, Batch(*owner, first, records))
        self.sequences[at, *owner] = first + count

    def opened(self, count: int = 1, id: str = "id") -> tuple[int, int]:
        owner = self.initialise(id)
        self.write(owner, count, id=id)
        return owner

    def end(self, owner: tuple[int, int], commit: bool = True, version: int = 3, id: str = "id") -> str:
        """'NONE' or the error."""
        try:
            self.cluster.end(id, *owner, commit, version)
        except BrokerError as error:
            return error.code.name
        return "NONE"

    def described(self, id: str = "id") -> TransactionDescription:
        found = self.cluster.describe(id)
        assert found is not None
        return found

    def seen(self, at: TopicPartition = A) -> int:
        return len(self.cluster.fetch(at, 0, 1000, "read_committed")[0])

    def written(self, at: TopicPartition = A) -> int:
        return len(self.cluster.fetch(at, 0, 1000, "read_uncommitted")[0])


def refused(code: Code) -> "pytest.RaisesExc[BrokerError]":
    return pytest.raises(BrokerError, match=code.name)


# ---- committing ----------------------------------------------------------------------------------------------------


def test_an_open_transaction_is_described_and_held_back() -> None:
    ground = Ground()
    owner = ground.opened(3)
    found = ground.described()
    assert (found.state, found.producer_id, found.epoch) == (S.ONGOING, *owner)
    assert (found.timeout, found.started_at, found.partitions) == (10.0, 1000.0, (A,))
    assert (ground.seen(), ground.written()) == (0, 3)


def test_a_commit_is_answered_before_its_markers_are_written() -> None:
    ground = Ground()
    owner = ground.opened(3)
    assert ground.end(owner) == "NONE"
    assert ground.described().state is S.PREPARE_COMMIT
    assert ground.end(owner) == "CONCURRENT_TRANSACTIONS"
    assert ground.seen() == 0
    ground.cluster.write_all_markers()
    assert ground.seen() == 3
    assert ground.end(owner) == "NONE"
    assert ground.end(owner, commit=False) == "INVALID_TXN_STATE"


def test_a_completed_transaction_keeps_its_epoch_and_start_and_has_no_partitions() -> None:
    ground = Ground()
    owner = ground.opened()
    ground.now += 500
    ground.end(owner)
    ground.cluster.write_all_markers()
    found = ground.described()
    assert (found.state, found.epoch, found.started_at, found.partitions) == (S.COMPLETE_COMMIT, owner[1], 1000.0, ())
    ground.initialise()
    assert ground.described().started_at is None


def test_partitions_learn_of_a_commit_one_by_one() -> None:
    ground = Ground()
    owner = ground.opened(2)
    ground.write(owner, 3, B)
    ground.end(owner)
    [decision] = ground.cluster.decisions
    assert ground.cluster.write_marker(decision, B)
    assert (ground.seen(A), ground.seen(B)) == (0, 3)
    assert ground.described().state is S.PREPARE_COMMIT
    ground.cluster.write_marker(decision, A)
    assert ground.described().state is S.COMPLETE_COMMIT


@pytest.mark.parametrize(("version", "answer"), [(1, "INVALID_PRODUCER_EPOCH"), (3, "PRODUCER_FENCED")])
def test_a_commit_with_an_old_epoch_is_refused(version: int, answer: str) -> None:
    ground = Ground()
    owner = ground.opened()
    ground.initialise()
    assert ground.end(owner, version=version) == answer
    assert ground.seen() == 0


def test_a_commit_for_another_producer_or_id_is_refused() -> None:
    ground = Ground()
    owner = ground.opened()
    assert ground.end((owner[0] + 1, owner[1])) == "INVALID_PRODUCER_ID_MAPPING"
    assert ground.end(owner, id="nobody") == "INVALID_PRODUCER_ID_MAPPING"
    assert ground.described().state is S.ONGOING


def test_a_commit_after_an_abort_is_refused() -> None:
    ground = Ground()
    owner = ground.opened()
    assert ground.end(owner, commit=False) == "NONE"
    assert ground.end(owner) == "CONCURRENT_TRANSACTIONS"
    ground.cluster.write_all_markers()
    assert ground.end(owner) == "INVALID_TXN_STATE"
    assert ground.seen() == 0


def test_an_empty_transaction_cannot_be_ended() -> None:
    ground = Ground()
    assert ground.end(ground.initialise()) == "INVALID_TXN_STATE"


def test_from_version_5_on_an_end_raises_the_epoch_and_may_be_repeated() -> None:
    ground = Ground()
    owner = ground.opened()
    assert ground.end(owner, version=5) == "NONE"
    assert ground.end(owner, version=5) == "CONCURRENT_TRANSACTIONS"
    ground.cluster.write_all_markers()
    found = ground.described()
    assert (found.state, found.epoch) == (S.COMPLETE_COMMIT, owner[1] + 1)
    assert ground.end(owner, version=5) == "NONE"
    assert ground.end(owner, version=3) == "PRODUCER_FENCED"
    assert ground.seen() == 1


# ---- aborting ------------------------------------------------------------------------------------------------------


def test_initialising_aborts_what_is_open_and_fences_its_producer() -> None:
    ground = Ground()
    owner = ground.opened(3)
    with refused(Code.CONCURRENT_TRANSACTIONS):
        ground.cluster.initialise("id", TIMEOUT)
    assert ground.described().state is S.PREPARE_ABORT
    assert ground.initialise() == (owner[0], owner[1] + 2)
    assert (ground.described().state, ground.seen()) == (S.EMPTY, 0)
    with refused(Code.PRODUCER_FENCED):
        ground.write(owner)
    with refused(Code.INVALID_PRODUCER_EPOCH):
        ground.cluster.partition(A).append(Batch(*owner, 3, [Record(b"late")]))


def test_an_abort_by_end_txn_fences_nobody() -> None:
    ground = Ground()
    told: list[str] = []
    ground.cluster.coordinator.on_reuse.append(told.append)
    owner = ground.opened(10)
    ground.end(owner, commit=False)
    ground.cluster.write_all_markers()
    assert told == []
    ground.now += 5
    ground.write(owner, 10, B)
    assert told == ["id"]
    again = ground.described()
    assert (again.state, again.producer_id, again.epoch, again.partitions) == (S.ONGOING, *owner, (B,))
    assert again.started_at == 1000.005
    ground.end(owner)
    ground.cluster.write_all_markers()
    assert (ground.seen(A), ground.seen(B)) == (0, 10)


@pytest.mark.parametrize("bump", [1, 2])
def test_a_transaction_past_its_timeout_is_aborted_at_the_next_look_and_fenced(bump: int) -> None:
    ground = Ground(expiry_bump=bump, check_interval=500)
    owner = ground.opened()
    ground.now += TIMEOUT
    assert ground.described().state is S.ONGOING
    ground.now += 501
    ground.cluster.tick()
    assert (ground.described().state, ground.described().epoch) == (S.PREPARE_ABORT, owner[1] + bump)
    assert ground.end(owner) == "PRODUCER_FENCED"
    ground.cluster.write_all_markers()
    assert ground.described().state is S.COMPLETE_ABORT
    assert ground.cluster.coordinator.has_timed_out == {owner}


def test_the_timeout_counts_from_the_first_partition_and_never_for_an_empty_transaction() -> None:
    ground = Ground()
    owner = ground.initialise()
    ground.now += 100 * TIMEOUT
    ground.cluster.tick()
    assert ground.described().state is S.EMPTY
    ground.write(owner)
    ground.now += TIMEOUT - 1
    ground.cluster.tick()
    assert ground.described().state is S.ONGOING


def test_a_timeout_above_the_brokers_maximum_is_refused() -> None:
    ground = Ground(maximum_timeout=5000)
    with refused(Code.INVALID_TRANSACTION_TIMEOUT):
        ground.cluster.initialise("id", 5001)
    assert ground.cluster.describe("id") is None


def test_markers_of_an_administrator_leave_the_coordinator_as_it_is() -> None:
    ground = Ground()
    owner = ground.opened(10)
    ground.cluster.mark(A, *owner, commit=False, coordinator_epoch=0)
    assert ground.described().state is S.ONGOING
    [row] = ground.cluster.producers(A)
    assert (row.records, row.first_open_offset) == (10, None)
    assert ground.end(owner) == "NONE"
    ground.cluster.write_all_markers()
    assert (ground.described().state, ground.seen()) == (S.COMPLETE_COMMIT, 0)


# ---- ids and epochs ------------------------------------------------------------------------------------------------


def test_each_initialisation_raises_the_epoch_until_a_new_producer_id_begins_at_zero() -> None:
    ground = Ground(last_epoch=3)
    owners = [ground.initialise() for _ in range(4)]
    first = owners[0][0]
    assert owners == [(first, 0), (first, 1), (first, 2), (first + 1, 0)]


def test_by_itself_the_producer_id_changes_where_kafka_changes_it() -> None:
    ground = Ground()
    first = ground.initialise()[0]
    count = next(number for number in range(1, 40_000) if ground.initialise()[0] != first)
    assert 32_765 <= count <= 32_767


def test_an_id_that_nobody_uses_is_forgotten_and_an_open_one_never() -> None:
    ground = Ground(id_expiration=60_000)
    ground.opened(id="open")
    owner = ground.opened(id="idle")
    ground.end(owner, id="idle")
    ground.cluster.write_all_markers()
    ground.cluster.coordinator.entries["open"].timeout = 10**9
    ground.now += 60_501
    assert ground.cluster.describe("idle") is None
    assert ground.described("open").state is S.ONGOING
    assert ground.end(owner, id="idle") == "INVALID_PRODUCER_ID_MAPPING"


# ---- late and lost -------------------------------------------------------------------------------------------------


def test_a_batch_that_comes_after_the_end_of_its_transaction_is_refused() -> None:
    ground = Ground()
    owner = ground.opened(3)
    ground.initialise()
    with refused(Code.PRODUCER_FENCED):
        ground.append(owner)
    other = ground.opened(id="other")
    ground.end(other, id="other")
    ground.cluster.write_all_markers()
    with refused(Code.INVALID_TXN_STATE):
        ground.append(other, id="other")
    assert ground.cluster.partition(A).open_spans() == []


def test_an_old_broker_lets_a_late_batch_open_a_transaction_that_nobody_ends() -> None:
    ground = Ground(verifies=False)
    owner = ground.opened(3)
    ground.end(owner)
    ground.cluster.write_all_markers()
    ground.append(owner)
    assert ground.described().state is S.COMPLETE_COMMIT
    assert len(ground.cluster.partition(A).open_spans()) == 1


def test_a_batch_for_a_partition_that_was_not_added_is_refused() -> None:
    ground = Ground()
    owner = ground.opened()
    with refused(Code.INVALID_TXN_STATE):
        ground.append(owner, at=B)


def test_a_coordinator_that_comes_back_goes_on_writing_markers() -> None:
    ground = Ground()
    owner = ground.opened(2)
    ground.end(owner)
    ground.cluster.lose_coordinator()
    [decision] = ground.cluster.decisions
    assert not ground.cluster.write_marker(decision, A)
    with refused(Code.COORDINATOR_NOT_AVAILABLE):
        ground.cluster.describe("id")
    assert ground.written() == 2
    ground.cluster.come_back()
    ground.cluster.write_all_markers()
    assert ground.described().state is S.COMPLETE_COMMIT
    assert ground.cluster.producers(A)[0].coordinator_epoch == 1
    assert ground.seen() == 2


def test_a_broker_that_is_away_answers_nothing_and_loses_nothing() -> None:
    ground = Ground()
    owner = ground.opened(2)
    ground.cluster.go_away()
    for ask in (lambda: ground.append(owner), ground.seen, ground.described, ground.cluster.names):
        with refused(Code.BROKER_NOT_AVAILABLE):
            ask()
    ground.cluster.come_back()
    ground.append(owner)
    assert ground.written() == 3


def test_markers_that_a_killed_broker_forgot_leave_the_partition_open_and_the_coordinator_content() -> None:
    ground = Ground()
    owner = ground.opened(2)
    ground.end(owner)
    assert ground.cluster.forget_markers() == 1
    assert ground.described().state is S.COMPLETE_COMMIT
    [row] = ground.cluster.producers(A)
    assert row.first_open_offset == 0
    assert ground.seen() == 0
    ground.cluster.mark(A, row.producer_id, row.epoch, commit=True, coordinator_epoch=max(0, row.coordinator_epoch))
    assert ground.seen() == 2


# ---- topics and groups ---------------------------------------------------------------------------------------------


def test_a_topic_that_is_made_again_has_another_id() -> None:
    ground = Ground()
    before = ground.cluster.described("t")
    ground.cluster.delete_topic("t")
    assert ground.cluster.described("t") is None
    ground.cluster.create_topic("t", 1)
    after = ground.cluster.described("t")
    assert before is not None
    assert after is not None
    assert (before.id != after.id, after.partitions) == (True, (0,))


def test_group_offsets_are_kept_and_mean_nothing_else() -> None:
    ground = Ground()
    ground.cluster.commit_offsets("g", {A: 5})
    ground.cluster.commit_offsets("g", {B: 1})
    assert ground.cluster.groups == {"g": {A: 5, B: 1}}
    assert ground.cluster.offset(A, "earliest", "read_committed") == 0
