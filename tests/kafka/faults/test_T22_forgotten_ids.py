"""Coordinators that forget a transactional id on which nothing happened for long: by default after a week, here after
two seconds (T16, T22)."""

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.integration.programs import wait_until
from tests.integration.running import Bench
from tests.kafka.brokers import VERSION, Broker
from tests.kafka.faults.jobs import CountingJob, differences, interrupt, kill_all
from tests.kafka.faults.test_T04_expired_transactions import ACCEPT, SHORT, TIGHT, stop_before_the_commit
from tests.kafka.medium import kafka_bench
from tidegate.connectors.kafka.connection import Client, Connection
from tidegate.connectors.kafka.transactions import KafkaTransactionAdmin
from tidegate.deploy.dev_kafka import DevKafka

SETTINGS = {
    "transactional.id.expiration.ms": 2000,
    "transaction.remove.expired.transaction.cleanup.interval.ms": 200,
}


@pytest.fixture(scope="module")
def forgetful(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    cluster = DevKafka(tmp_path_factory.mktemp("forgetful-kafka"), version=VERSION, settings=SETTINGS)
    cluster.start()
    try:
        yield Broker(cluster)
    finally:
        cluster.kill_all()


@pytest.fixture
def bench(forgetful: Broker, tmp_path: Path, job_client: Client) -> Iterator[Bench]:
    with kafka_bench(forgetful, tmp_path, job_client) as made:
        yield made


def wait_until_forgotten(broker: Broker, ids: list[str]) -> None:
    with closing(KafkaTransactionAdmin(Connection(broker.bootstrap))) as admin:
        wait_until(lambda: all(admin.describe(id) is None for id in ids), "that the coordinator forgets its ids")


@pytest.mark.slow
def test_T16_a_prepared_transaction_whose_id_was_forgotten_stops_the_job_and_is_not_tried_again_and_again(
    forgetful: Broker, job: CountingJob
) -> None:
    """Nobody can tell any more whether it was committed: neither is assumed, and an operator decides."""
    kill_all(stop_before_the_commit(job))
    before, after = dict.fromkeys(range(4), 25), job.positions()
    named = job.pending()
    wait_until_forgotten(forgetful, named)
    output = job.output()
    for _ in range(2):
        stopped = job.run(*SHORT, options=[*TIGHT, "--restart", "fixed-delay:100:50ms"])
        assert stopped.process.returncode == 3, stopped.said
        assert f"transaction {named[0]} of a completed checkpoint has an unknown outcome" in stopped.said
        assert "transactional.id.expiration.ms" in stopped.said
        assert "restart 1 in" not in stopped.said
        assert job.output() == output
    job.feed(100)
    accepted = job.start(*SHORT, options=[*TIGHT, ACCEPT])
    accepted.wait_until(lambda: job.count() >= 300 - sum(after.values()) + sum(before.values()), "the rest")
    interrupt(accepted)
    assert re.search(rf"given up by {ACCEPT}: transaction {named[0]}", accepted.said), accepted.said
    expected = job.expected(lambda partition, offset: before[partition] <= offset < after[partition])
    assert differences(expected, job.output()) == []
    job.assert_nothing_is_open()


@pytest.mark.slow
def test_T22_a_job_that_was_idle_for_longer_than_its_ids_are_kept_goes_on_and_loses_nothing(
    forgetful: Broker, job: CountingJob
) -> None:
    """The transactions that it has opened ahead are not known any more; the first records find that out."""
    started = job.start(options=["--restart", "fixed-delay:20:50ms"])
    job.feed(100)
    job.wait_for_all(started)
    for _ in range(3):
        own = [id for id in job.medium.transactional_ids() if id.startswith(f"{job.name}:")]
        wait_until_forgotten(forgetful, own)
        job.feed(100)
        job.wait_for_all(started)
    interrupt(started)
    assert "bug" not in started.said
    assert job.bench.view(job.name).attempt > 1
    assert re.search("has forgotten it|does not know it any more", started.said), started.said
    job.assert_exactly_once()
    job.assert_nothing_is_open()
