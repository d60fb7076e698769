"""A producer that goes on sending though nobody calls it: for one without transactions, whose records others wait for.

A thread looks when the task has not for a while, and only as long as something is to be sent. It takes the lock as all
others do, and does nothing that the task would not.
"""

import threading
from collections.abc import Sequence
from typing import Any

from tidegate.connectors.kafka.batches.producer import BatchProducer
from tidegate.connectors.kafka.client import Header

LOOKS_EVERY = 0.01
"""Seconds."""


class PumpedProducer(BatchProducer):
    """A `client.Producer` without transactions."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._has_work = threading.Event()
        threading.Thread(target=self._pump, name="tidegate-kafka-sends", daemon=True).start()

    def send(
        self,
        topic: str,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None = None,
        partitions: Sequence[int] | None = None,
        timestamps: Sequence[int] | None = None,
        headers: Sequence[Sequence[Header] | None] | None = None,
    ) -> None:
        super().send(topic, values, keys, partitions, timestamps, headers)
        self._has_work.set()

    def drop(self) -> None:
        super().drop()
        self._has_work.set()
        with self._hub.lock:
            self._hub.network.close()

    def _pump(self) -> None:
        while self._goes_on():
            self._has_work.wait()
            self._hub.pump(LOOKS_EVERY)

    def _goes_on(self) -> bool:
        with self._hub.lock:
            self._move_on()
            if self._is_idle:
                self._has_work.clear()
            return not self._is_dropped
