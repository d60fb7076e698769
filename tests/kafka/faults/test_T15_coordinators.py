"""Coordinators and leaders that die and move, on three brokers, and answers that nobody expects: a commit is done or
asked for again, and no record of a transaction is lost on the way (T15, T16, T20)."""

import threading
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any

import pytest
from kafka.protocol.producer import EndTxnRequest, EndTxnResponse

from tests.integration.programs import wait_until
from tests.kafka.brokers import Broker
from tests.kafka.conftest import OwnKafka
from tests.kafka.faults.jobs import CountingJob, interrupt
from tests.kafka.medium import kafka_bench
from tests.kafka.raw_requests import RawRequests
from tests.kafka.sinks import SinkGround, committed, until
from tidegate.checkpoint.protocol import AlreadyCommitted, Committed, Outcome, Retry
from tidegate.connectors.kafka import outcomes
from tidegate.connectors.kafka.connection import Client
from tidegate.connectors.kafka.transactions import KafkaTransactionAdmin
from tidegate.connectors.kafka.wire import Address, Brokers
from tidegate.errors import TidegateError


class ThreeCopies(Broker):
    """Topics stay whole when one of three brokers is away."""

    def create_topic(
        self, name: str | None = None, partitions: int = 1, config: Mapping[str, str] = {}, copies: int = 3
    ) -> str:
        return super().create_topic(name, partitions, config, copies)


def coordinator_of(broker: Broker, id: str) -> int:
    """The number of its node."""
    raw = RawRequests(broker.bootstrap)
    address = raw.coordinator(id)
    raw.close()
    return broker.bootstrap.split(",").index(f"{address.host}:{address.port}") + 1


def at_least(count: int) -> Callable[[list[str | None]], bool]:
    return lambda texts: len(texts) >= count


# ---- one of three --------------------------------------------------------------------------------------------------

MOMENTS = ["before", "while", "after"]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("each_client_of_faults")
def test_T15_whichever_coordinator_of_three_dies_before_while_or_after_it_commits_each_transaction_is_committed_once(
    own_kafka: OwnKafka,
) -> None:
    broker = ThreeCopies(own_kafka(nodes=3).kafka)
    ground = SinkGround(broker)
    writer, recovery = ground.writer(), ground.recovery()
    wanted: list[str] = []
    for number, moment in enumerate(2 * MOMENTS):
        values = [f"{number}-{place}" for place in range(100)]
        committable = ground.prepared(writer, number, *values)
        node = coordinator_of(broker, committable.id)
        seen: list[Outcome] = []
        commit = threading.Thread(target=lambda c=committable, s=seen: s.append(committed(writer, c)))
        if moment == "before":
            broker.kafka.kill(node)
        commit.start()
        if moment == "after":
            commit.join()
        if moment != "before":
            broker.kafka.kill(node)
        commit.join(60)
        # Another coordinator has taken over: the dead one is not waited for.
        assert seen in ([Committed()], [AlreadyCommitted()])
        broker.kafka.restart(node)
        assert committed(recovery, committable) == AlreadyCommitted()
        wanted += values
        assert until(ground.texts, at_least(len(wanted))) == wanted
    assert recovery.open_transactions(ground.prefix, ground.id().sink) == []


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_T20_leaders_that_die_and_move_under_load_cost_no_record_of_a_transaction(
    own_kafka: OwnKafka, tmp_path_factory: pytest.TempPathFactory, job_client: Client
) -> None:
    """Each broker in turn; with it go leaders of both topics, coordinators of transactions and the group's."""
    broker = ThreeCopies(own_kafka(nodes=3).kafka)
    with kafka_bench(broker, tmp_path_factory.mktemp("bench"), job_client) as bench:
        job = CountingJob(bench)
        job.feed(1000)
        started = job.start("--pause", "0.001", options=["--restart", "fixed-delay:100:500ms"])
        started.wait_until(lambda: job.count() > 0, "the first output")
        for node in (1, 2, 3):
            job.feed(2000)
            broker.kafka.kill(node)
            job.feed(2000)
            broker.kafka.restart(node)
        job.wait_for_all(started)
        interrupt(started)
        assert "bug" not in started.said
        job.assert_exactly_once()
        wait_until(lambda: bench.open_transactions(job.name) == [], "the end of all transactions")


# ---- answers that nobody expects -----------------------------------------------------------------------------------


@pytest.mark.usefixtures("each_client_of_faults")
@pytest.mark.parametrize("code", [-1, 42, 53, 120, 9999])
def test_T16_an_answer_to_the_commit_that_nobody_expects_is_neither_success_nor_loss(
    kafka: Broker, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """Everything else is the broker's own: the transaction stays open, and the next try commits it."""
    ground = SinkGround(kafka)
    committable = ground.prepared(ground.writer(), 0, "a", "b")
    admin = KafkaTransactionAdmin(ground.sink().connection, patience=0.01)
    send = Brokers.send

    def spoilt(self: Brokers, address: Address, request: Any) -> Any:
        if isinstance(request, EndTxnRequest):
            return EndTxnResponse(throttle_time_ms=0, error_code=code, version=request.API_VERSION)
        return send(self, address, request)

    with monkeypatch.context() as patch, closing(admin):
        patch.setattr(Brokers, "send", spoilt)
        try:
            outcome: object = outcomes.commit(admin, committable, pause=lambda seconds: None)
        except TidegateError as error:
            outcome = error
    assert isinstance(outcome, Retry | TidegateError), outcome
    assert ground.state() == "Ongoing"
    assert ground.texts() == []
    assert committed(ground.recovery(), committable) == Committed()
    assert until(ground.texts, bool) == ["a", "b"]
