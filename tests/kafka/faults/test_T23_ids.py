"""Transactional ids: how many there are, how long they may be, what it costs to end many that others left (T23, T24,
T25)."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.integration.running import KILLED, Bench
from tests.kafka.brokers import Broker, unique
from tests.kafka.faults.jobs import ABORTED, CountingJob, interrupt, kill_all, states, wait_for_checkpoints
from tests.kafka.faults.leftovers import Leftovers
from tests.kafka.sinks import SinkGround, client_threads, committed, sockets, until
from tidegate.checkpoint.protocol import Committed
from tidegate.ids import Attempt, LogInstance, OperatorName, SubtaskIndex, TransactionalId
from tidegate.testing.conformance.sink_kit import prepare

# ---- how many ------------------------------------------------------------------------------------------------------

TOLERABLE = 1
SLOTS_MAX = 4 + 2 * TOLERABLE
"""Of each subtask and attempt: two in use, one ahead, one to spare, and two for each failure in a row."""


def test_T23_transactional_ids_are_used_again_and_their_number_does_not_grow_with_checkpoints(job: CountingJob) -> None:
    options = ["-p", "2", "--checkpoint-interval", "50ms", "--set", f"checkpoints.tolerable_failures={TOLERABLE}"]
    started = job.start(options=options)

    def ids_after(checkpoints: int) -> list[str]:
        """After so many more, each of which has something to commit."""
        for _ in range(checkpoints):
            job.feed(8)
            wait_for_checkpoints(job, started, 1)
        return [id for id in job.medium.transactional_ids() if id.startswith(f"{job.name}:")]

    # One for each of these would be far more than there may be.
    ids = ids_after(3 * SLOTS_MAX)
    job.wait_for_all(started)
    interrupt(started)
    for subtask in ("0", "1"):
        assert 2 <= len([id for id in ids if id.split(":")[4] == subtask]) <= SLOTS_MAX, ids
    job.assert_exactly_once()
    job.assert_nothing_is_open()


# ---- how long ------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("each_client_of_faults")
def test_T24_the_longest_id_that_names_allow_is_written_found_and_committed(kafka: Broker) -> None:
    """Longer names are refused when a program is built; see the tests of the sink and of graphs."""
    ground = SinkGround(kafka)
    prefix, sink = (unique("p") + "p" * 64)[:64], OperatorName("s" * 64)
    id = TransactionalId(prefix, LogInstance("i" * 32), Attempt(10**9), sink, SubtaskIndex(32_767), 32_767)
    committable = prepare(ground.writer(), id, ["a"])
    recovery = ground.recovery()
    assert until(lambda: recovery.open_transactions(prefix, sink), bool) == [id]
    assert committed(recovery, committable) == Committed()
    assert until(ground.texts, bool) == ["a"]


@pytest.mark.usefixtures("each_client_of_faults")
def test_T24_a_prefix_of_40_kilobytes_is_one_error_before_anything_runs(bench: Bench, job: CountingJob) -> None:
    refused = job.run("--prefix", "p" * 40_000)
    assert refused.process.returncode == 2, refused.said[:500]
    assert "is not a name: 1 to 64 of" in refused.said
    assert "restart 1 in" not in refused.said
    assert bench.open_transactions("p" * 40_000) == []


# ---- many that others left -----------------------------------------------------------------------------------------


@pytest.fixture
def leftovers(kafka: Broker) -> Iterator[Leftovers]:
    with closing(Leftovers(kafka, kafka.create_topic())) as made:
        yield made


def test_T25_ending_many_transactions_with_interruptions_leaves_no_thread_and_no_socket(
    kafka: Broker, leftovers: Leftovers
) -> None:
    """A request for each, over connections that all share, and never a producer."""
    ground, sink = SinkGround(kafka), OperatorName("out")
    ids = [ground.id(subtask=number) for number in range(60)]
    leftovers.open(map(str, ids))
    # Clients of others may still be ending: these are upper bounds.
    threads, opened = client_threads(), sockets()
    left = len(ids)
    for _ in range(20):
        recovery = ground.recovery()
        found = recovery.open_transactions(ground.prefix, sink)
        assert len(found) == left
        for id in found[:2]:
            recovery.abort(id)
        left -= 2
        # Closed with most of them still to do, as when a start is interrupted.
        recovery.close()
        assert until(lambda: client_threads() <= threads and sockets() <= opened, bool)
    rest = ground.recovery()
    for id in rest.open_transactions(ground.prefix, sink):
        rest.abort(id)
    assert rest.open_transactions(ground.prefix, sink) == []
    rest.close()
    assert until(lambda: client_threads() <= threads and sockets() <= opened, bool)


@pytest.mark.slow
def test_T25_a_start_that_dies_again_and_again_while_it_ends_many_transactions_gets_there(
    job: CountingJob, leftovers: Leftovers
) -> None:
    job.feed(100)
    kill_all(job.run_until_all_is_out())
    instance = next(id for id in job.medium.transactional_ids() if id.startswith(f"{job.name}:")).split(":")[1]
    ids = [f"{job.name}:{instance}:1:out:{subtask}:0" for subtask in range(100, 200)]
    leftovers.open(ids)
    job.feed(100)
    for count in range(5, 25, 5):
        died = job.run(fail_point=f"recovery-abort:before:{count}@jobmanager")
        assert died.process.returncode == KILLED, died.said
        found = states(job.medium, ids)
        assert "Ongoing" in found.values()
    job.run_until_all_is_out()
    assert set(states(job.medium, ids).values()) <= ABORTED
    job.assert_exactly_once()
    job.assert_nothing_is_open()
