"""Opening producers of whole record batches: connections that stay open from one transaction to the next.

Everything here blocks, and within bounds. It never ends a transaction but by opening its id anew, which aborts what was
open under it.
"""

import time
from collections.abc import Callable

from tidegate.clock import Clock, SystemClock
from tidegate.connectors.kafka import errors
from tidegate.connectors.kafka.batches import produce_requests, settings
from tidegate.connectors.kafka.batches.hub import QUESTIONS, RECORDS, Hub
from tidegate.connectors.kafka.batches.network import Network
from tidegate.connectors.kafka.batches.producer import BatchProducer, OnFailure, Role
from tidegate.connectors.kafka.batches.pump import PumpedProducer
from tidegate.connectors.kafka.batches.sending import NOT_COORDINATOR
from tidegate.connectors.kafka.batches.writers import Producing
from tidegate.connectors.kafka.connection import Connection
from tidegate.connectors.kafka.pauses import growing
from tidegate.connectors.kafka.wire import Address, check
from tidegate.errors import UnavailableError

SYSTEM_CLOCK = SystemClock()
OPEN_PATIENCE = 60.0
"""Seconds within which a producer must be initialised: coordinators load and move."""
FIRST_PAUSE, LONGEST_PAUSE = 0.005, 0.5
PLAIN_PATIENCE = 300.0
"""Seconds for which a producer without transactions tries to deliver a record."""
LAST_PATIENCE = 5.0
"""Seconds for which a producer without guarantee waits when it is flushed, at its end."""


class BatchProducerFactory:
    """A `client.ProducerFactory`. Raises InvalidError for settings that it cannot follow."""

    def __init__(self, connection: Connection, clock: Clock = SYSTEM_CLOCK) -> None:
        self._settings = settings.of_producer(connection)
        self._bootstrap = connection.bootstrap
        network = Network(connection.bootstrap, self._settings.network, self._settings.timeout)
        network.open_ahead(QUESTIONS, RECORDS)
        self._hub = Hub(network, f"Kafka at {connection.bootstrap}", clock)
        self._coordinators: dict[str, Address] = {}

    def open_transaction(self, id: str, timeout: float) -> BatchProducer:
        place = f"transaction {id} at {self._bootstrap}"
        who = self._repeated(lambda: self._initialised(id, timeout, f"opening {place}"))
        role = Role(who, id, self._coordinators[id])
        # A record that is tried for longer than its transaction lives would come too late.
        delivery = min(self._settings.delivery or timeout, timeout)
        return BatchProducer(self._hub, role, place, self._settings, timeout, delivery)

    def open_plain(self, on_failure: OnFailure | None = None) -> BatchProducer:
        place = f"Kafka at {self._bootstrap}"
        delivery = min(self._settings.delivery or PLAIN_PATIENCE, PLAIN_PATIENCE)
        if on_failure is not None:
            role = Role(Producing())
            return PumpedProducer(self._hub, role, place, self._settings, LAST_PATIENCE, delivery, on_failure)
        role = Role(self._repeated(lambda: self._idempotent(f"opening {place}")))
        return PumpedProducer(self._hub, role, place, self._settings, PLAIN_PATIENCE, delivery)

    def _initialised(self, id: str, timeout: float, doing: str) -> Producing:
        subject = errors.Subject(id=id, timeout=timeout, operation="WRITE")
        coordinator = self._coordinators.get(id) or self._found(id, doing, subject)
        request = produce_requests.initialise(id, timeout)
        try:
            response = self._hub.answer(lambda reply: self._hub.network.ask_at(coordinator, QUESTIONS, request, reply))
        except UnavailableError:
            self._coordinators.pop(id, None)
            raise
        if response.error_code in NOT_COORDINATOR:
            self._coordinators.pop(id, None)
        check(response.error_code, doing, subject=subject)
        return Producing(response.producer_id, response.producer_epoch, is_transactional=True)

    def _found(self, id: str, doing: str, subject: errors.Subject) -> Address:
        request = produce_requests.find_transaction_coordinator(id)
        response = self._hub.answer(lambda reply: self._hub.network.ask_any(QUESTIONS, request, reply))
        code, address = produce_requests.coordinator(response)
        check(code, doing, subject=subject)
        self._coordinators[id] = address
        return address

    def _idempotent(self, doing: str) -> Producing:
        request = produce_requests.initialise(None, 0)
        response = self._hub.answer(lambda reply: self._hub.network.ask_any(QUESTIONS, request, reply))
        check(response.error_code, doing)
        return Producing(response.producer_id, response.producer_epoch)

    def _repeated(self, once: Callable[[], Producing]) -> Producing:
        """Its result, after as many tries as it takes until it raises no UnavailableError or patience is over."""
        deadline = self._hub.now + OPEN_PATIENCE
        for pause in growing(FIRST_PAUSE, LONGEST_PAUSE):
            try:
                return once()
            except UnavailableError:
                if self._hub.now + pause > deadline:
                    raise
            time.sleep(pause)
        raise AssertionError("pauses never end")
