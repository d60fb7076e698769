"""What tests of a misbehaving network share: sinks that deliver through it as jobs do, and what must hold then."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from tests.integration.programs import wait_until
from tests.kafka.proxy import KafkaProxy
from tests.kafka.sinks import SinkGround, committed, until
from tidegate.checkpoint.protocol import AlreadyCommitted, Committable, Committed
from tidegate.errors import UnavailableError
from tidegate.ids import OperatorName, TransactionalId
from tidegate.testing.conformance.sink_kit import prepare

IMPATIENT = {"socket.timeout.ms": 1000}
"""Gives a request up soon that is not answered."""
OUT = OperatorName("out")
DONE = (Committed(), AlreadyCommitted())


@contextmanager
def in_background(action: Callable[[], Any]) -> "Iterator[Future[Any]]":
    with ThreadPoolExecutor(1) as executor:
        yield executor.submit(action)


def assert_clean(ground: SinkGround, *texts: str) -> None:
    """Readers see just that, nothing is open, and a fresh record gets through."""
    until(ground.texts, lambda found: len(found) >= len(texts))
    assert ground.tools.open_transactions(ground.prefix, OUT) == []
    until(lambda: is_free(ground), bool)
    ground.broker.produce(ground.topic, ["fresh"])
    assert ground.texts() == [*texts, "fresh"]


def is_free(ground: SinkGround) -> bool:
    """Whether nothing holds readers back."""
    broker = ground.broker
    return broker.end_offsets(ground.topic, "read_committed") == broker.end_offsets(ground.topic)


def end(ground: SinkGround) -> int:
    """Records and markers in the only partition."""
    return ground.broker.end_offsets(ground.topic)[0]


def wait_until_answered(proxy: KafkaProxy, api: str, count: int) -> None:
    wait_until(lambda: proxy.answered[api] >= count, f"{count} answers to {api}")


class Deliverer:
    """Delivers texts as a job does: what fails is aborted and written again under ids of a new attempt."""

    def __init__(self, ground: SinkGround) -> None:
        self._ground = ground
        self._settings = {"socket.timeout.ms": 3000}
        self._attempt = 0
        self._recovery = ground.recovery(settings=self._settings)
        self._writer = ground.writer(settings=self._settings)
        self.failures = 0

    def deliver(self, *texts: str) -> None:
        while (committable := self._prepare(texts)) is None:
            self.failures += 1
        assert committed(self._writer, committable) in DONE

    def _prepare(self, texts: Sequence[str]) -> Committable | None:
        self._attempt += 1
        id = self._ground.id(attempt=self._attempt)
        try:
            return prepare(self._writer, id, texts)
        except UnavailableError:
            self._abort(id)
            return None

    def _abort(self, id: TransactionalId) -> None:
        def is_aborted() -> bool:
            try:
                self._recovery.abort(id)
            except UnavailableError:
                return False
            return True

        until(is_aborted, bool)


def reset_until(is_over: threading.Event, proxy: KafkaProxy, pause: float = 0.2) -> int:
    """How often it did."""
    count = 0
    while not is_over.wait(pause):
        proxy.reset_connections()
        count += 1
    return count
