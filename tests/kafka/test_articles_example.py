"""The articles' example on Kafka, where the consumer group's committed offsets say something else than the checkpoint.

Group offsets are for tools that show how far readers are; nothing may be restored from there.
"""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.running import Bench, Started
from tests.integration.test_articles_example import Articles, ArticlesExample
from tests.kafka.brokers import Broker
from tests.kafka.medium import KafkaMedium, kafka_bench
from tidegate.connectors.kafka.connection import Client


@pytest.fixture
def bench(kafka: Broker, tmp_path: Path, job_client: Client) -> Iterator[Bench]:
    with kafka_bench(kafka, tmp_path, job_client) as made:
        yield made


class TestKafka(ArticlesExample):
    """With group offsets that are wrong."""

    def mislead(self, articles: Articles, started: Started) -> None:
        medium = articles.bench.medium
        assert isinstance(medium, KafkaMedium)
        broker = medium.broker
        started.wait_until(
            lambda: broker.group_offsets(articles.job, articles.topic) == {0: 2, 1: 1},
            "the commit of the group's offsets",
        )
        # The next checkpoint would put them right again.
        started.send_to_all(signal.SIGSTOP)
        started.wait_until_stopped(3)
        broker.set_group_offsets(articles.job, articles.topic, {0: 5, 1: 0})
        assert broker.group_offsets(articles.job, articles.topic) == {0: 5, 1: 0}
