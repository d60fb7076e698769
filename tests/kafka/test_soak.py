"""A minute of random kills on Kafka, with the death and return of the broker in the middle of it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.running import Bench
from tests.integration.test_soak import Soak
from tests.kafka.conftest import OwnKafka
from tests.kafka.medium import KafkaMedium, kafka_bench
from tidegate.connectors.kafka.connection import Client


@pytest.fixture
def bench(own_kafka: OwnKafka, tmp_path: Path, job_client: Client) -> Iterator[Bench]:
    with kafka_bench(own_kafka(), tmp_path, job_client) as made:
        yield made


class TestKafka(Soak):
    """With a broker that dies too."""

    def happen_in_the_middle(self, bench: Bench) -> None:
        assert isinstance(bench.medium, KafkaMedium)
        bench.medium.broker.kafka.kill()
        bench.medium.broker.kafka.restart()
