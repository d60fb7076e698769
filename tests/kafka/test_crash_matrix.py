"""The matrix of places and victims on Kafka: the same text as on the embedded log."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.running import Bench
from tests.integration.test_crash_matrix import CrashMatrix, Point, Victim
from tests.kafka import medium
from tests.kafka.brokers import Broker
from tests.kafka.medium import STREAM, KafkaMedium, kafka_bench
from tidegate.connectors.kafka.connection import Client

QUICK = ("acknowledge:before", "log-append:after", "commit:after")


@pytest.fixture
def bench(kafka: Broker, tmp_path: Path, job_client: Client) -> Iterator[Bench]:
    with kafka_bench(kafka, tmp_path, job_client) as made:
        yield made


class TestKafka(CrashMatrix):
    """Where each case takes some seconds."""

    stream = STREAM

    def is_quick(self, point: Point, victim: Victim) -> bool:
        return super().is_quick(point, victim) and point.name in QUICK


# ---- the checks ----------------------------------------------------------------------------------------------------


def test_a_transaction_that_holds_readers_back_is_noticed(
    kafka: Broker, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(medium, "READERS_PATIENCE", 1.0)
    topic, id = bench.medium.name("held"), bench.medium.name("held-id")
    bench.medium.create_topic(topic, 2)
    bench.medium.append(topic, [[b"a"], [b"b"]])
    bench.medium.assert_readers_are_free(topic)
    transaction = kafka.produce_in_transaction(topic, ["a"], partition=1, commit=None, transactional_id=id)
    assert id in bench.medium.open_transactions()
    with pytest.raises(AssertionError, match="holds readers"):
        bench.medium.assert_readers_are_free(topic)
    transaction.abort()
    bench.medium.assert_readers_are_free(topic)
    assert id not in bench.medium.open_transactions()
    assert isinstance(bench.medium, KafkaMedium)
    assert id in bench.medium.transactional_ids()
