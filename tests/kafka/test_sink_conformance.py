"""The Kafka sink keeps the promises of a transactional sink, on a real broker."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.kafka.brokers import Broker, unique
from tests.unit.connectors.children import call_and_kill
from tidegate.connectors.kafka.connection import Client
from tidegate.connectors.kafka.sink import KafkaSink
from tidegate.formats import String
from tidegate.ids import OperatorName
from tidegate.operators.contracts import Sink
from tidegate.testing.conformance.sink import TransactionalSinkConformance

T = TypeVar("T")
QUIET_LOOKS = 15
"""Looks, a tenth of a second apart, at which a broker has nothing new."""


def before_the_dash(text: str) -> str:
    return text.partition("-")[0]


class TestKafkaSink(TransactionalSinkConformance):
    has_timeout = True
    unwritable = 5
    patience = 30.0
    timeout = 50.0
    """Seconds; tests that wait for it make it short."""

    @pytest.fixture(autouse=True)
    def _surrounded(self, tmp_path: Path, kafka: Broker, each_client: Client) -> Iterator[None]:
        self.broker = kafka
        self.client = each_client
        self.bootstrap = kafka.bootstrap
        self.topic = kafka.create_topic(partitions=3)
        self.prefix = unique("app")
        self.set_up(tmp_path)
        yield
        self.tear_down()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "broker"}

    def sink(self) -> Sink:
        return KafkaSink(
            self.bootstrap, self.topic, value=String(), key=before_the_dash, timeout=self.timeout, client=self.client
        )

    def read_committed(self) -> list[str]:
        return [value.decode() for value in self.broker.values(self.topic) if value is not None]

    def read_everything(self) -> list[str]:
        values = self.broker.values(self.topic, "read_uncommitted")
        return [value.decode() for value in values if value is not None]

    def in_child(self, function: Callable[..., T], *arguments: Any) -> T:
        result = call_and_kill(function, *arguments)
        self._wait_until_quiet()
        return result

    def _wait_until_quiet(self) -> None:
        """What the dead process had sent is still read, and may open a transaction: let it, before anybody looks."""
        recovery = self.recovery()
        seen: list[object] = []
        deadline = time.monotonic() + self.patience
        while len(seen) < QUIET_LOOKS or any(look != seen[-1] for look in seen[-QUIET_LOOKS:]):
            assert time.monotonic() < deadline, f"the broker does not come to rest: {seen[-3:]}"
            time.sleep(0.1)
            open_ids = recovery.open_transactions(self.prefix, OperatorName("out"))
            seen.append((open_ids, self.broker.end_offsets(self.topic)))

    def time_out(self) -> None:
        """The broker looks for expired transactions every half second."""
        time.sleep(self.timeout + 1.5)

    def pause(self) -> None:
        time.sleep(0.02)

    def test_a_transaction_past_its_timeout_is_lost_and_check_tells(self) -> None:
        self.timeout = 3.0
        super().test_a_transaction_past_its_timeout_is_lost_and_check_tells()

    def test_a_transaction_that_timed_out_cannot_be_prepared(self) -> None:
        self.timeout = 3.0
        super().test_a_transaction_that_timed_out_cannot_be_prepared()
