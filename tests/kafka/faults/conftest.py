"""What the fault tests share: a bench on the Kafka that all tests share, and a job there with topics of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.running import Bench
from tests.kafka.brokers import Broker
from tests.kafka.faults.jobs import CountingJob
from tests.kafka.medium import kafka_bench
from tidegate.connectors.kafka.connection import Client


@pytest.fixture
def bench(kafka: Broker, tmp_path: Path, job_client: Client) -> Iterator[Bench]:
    with kafka_bench(kafka, tmp_path, job_client) as made:
        yield made


@pytest.fixture
def job(bench: Bench) -> CountingJob:
    return CountingJob(bench)
