"""The matrix of backends, parallelisms, checkpoints and savepoints on Kafka: the same text as on the embedded log."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.running import Bench
from tests.integration.test_state_matrix import LASTING, PLACES, StateMatrix
from tests.kafka.brokers import Broker
from tests.kafka.medium import STREAM, kafka_bench


@pytest.fixture
def bench(kafka: Broker, tmp_path: Path) -> Iterator[Bench]:
    with kafka_bench(kafka, tmp_path) as made:
        yield made


class TestKafka(StateMatrix):
    """Where each case takes some seconds."""

    options = STREAM.options
    widths = ((2, 3),)
    places = PLACES[2:]
    begins_with = LASTING
    quick_kills = frozenset({("rocksdb", 2, PLACES[2])})
