"""The matrix of backends, parallelisms, checkpoints and savepoints on Kafka: the same text as on the embedded log."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.running import Bench
from tests.integration.test_state_matrix import LASTING, PLACES, StateMatrix
from tests.kafka.brokers import Broker
from tests.kafka.medium import STREAM, kafka_bench
from tidegate.connectors.kafka.connection import Client


@pytest.fixture
def bench(kafka: Broker, tmp_path: Path, job_client: Client) -> Iterator[Bench]:
    with kafka_bench(kafka, tmp_path, job_client) as made:
        yield made


class TestKafka(StateMatrix):
    """Where each case takes some seconds."""

    options = STREAM.options
    widths = ((2, 3),)
    places = PLACES[2:]
    begins_with = LASTING
    quick_kills = frozenset({("rocksdb", 2, PLACES[2])})
