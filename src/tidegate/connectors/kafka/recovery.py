"""A sink's transactions in Kafka, seen from the JobManager and by tools: by ids, without any producer.

Aborting is initialising the id anew and nothing else: other ways leave the producer alive, or the coordinator in the
belief that the transaction is open.
"""

import logging
import time
from collections.abc import Callable

from tidegate.checkpoint.protocol import CommitPermit, Committable, Outcome
from tidegate.clock import Clock, SystemClock
from tidegate.connectors.kafka import outcomes
from tidegate.connectors.kafka.client import TransactionAdmin, TransactionDescription, TransactionState
from tidegate.connectors.kafka.connection import Connection
from tidegate.connectors.kafka.outcomes import Prepared
from tidegate.errors import InvalidError
from tidegate.ids import Attempt, LogInstance, OperatorName, SubtaskIndex, TransactionalId
from tidegate.operators.contracts import TransactionInfo, owned_ids

LOGGER = logging.getLogger("tidegate.kafka.sink")

SYSTEM_CLOCK = SystemClock()
EXACTLY_ONCE = "exactly-once"


class KafkaRecovery:
    """`delivery` and `timeout` are the sink's. A sink without transactions may have had them before: what is left of
    these is committed and aborted all the same, but that it may not be listed stops nobody."""

    def __init__(
        self,
        admin: TransactionAdmin,
        delivery: str = EXACTLY_ONCE,
        timeout: float | None = None,
        clock: Clock = SYSTEM_CLOCK,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._admin = admin
        self._delivery = delivery
        self._timeout = timeout
        self._clock = clock
        self._pause = pause

    def check_timeout(self, needed: float) -> None:
        if self._delivery != EXACTLY_ONCE:
            return
        maximum = self._admin.maximum_timeout()
        if self._timeout is not None and self._timeout > maximum:
            raise InvalidError(
                f"timeout={self._timeout:g} s of the Kafka sink is more than the brokers allow: their "
                f"transaction.max.timeout.ms is {maximum:g} s",
                remedy=f"Give a timeout of at most {maximum:g}, or none, or raise transaction.max.timeout.ms.",
            )
        timeout, whose = (self._timeout, "timeout=") if self._timeout is not None else (maximum, "the brokers' maximum")
        if timeout <= needed:
            raise InvalidError(
                f"Kafka aborts the sink's transactions after {timeout:g} s ({whose}), and it may take {needed:g} s "
                "until one is committed",
                remedy="Take checkpoints more often or shorten their timeout, or give transactions more time: timeout= "
                "of the sink, and transaction.max.timeout.ms of the brokers.",
            )

    def commit(self, committable: Committable, permit: CommitPermit) -> Outcome:
        return outcomes.commit(self._admin, committable, self._clock, self._pause)

    def abort(self, id: TransactionalId) -> None:
        outcomes.abort(self._admin, str(id), self._pause)

    def open_transactions(self, prefix: str, sink: OperatorName) -> list[TransactionalId]:
        """Also raises InvalidError when the user may not see the transactions that it asks for."""
        try:
            return self._open_transactions(prefix, sink)
        except InvalidError as error:
            if self._delivery == EXACTLY_ONCE:
                raise
            LOGGER.warning(
                "what an earlier run of sink %s with exactly-once delivery may have left open is not looked for: %s",
                sink,
                error,
            )
            return []

    def _open_transactions(self, prefix: str, sink: OperatorName) -> list[TransactionalId]:
        # A broker leaves out what the user may not describe, without a word. Describing one id is refused aloud.
        nobody = TransactionalId(prefix, LogInstance("none"), Attempt(0), sink, SubtaskIndex(0), 0)
        self._admin.describe(str(nobody))
        return owned_ids(self._admin.open_ids(), prefix, sink)

    def describe(self, id: TransactionalId) -> TransactionInfo | None:
        found = self._admin.describe(str(id))
        if found is None:
            return None
        is_open = found.state is TransactionState.ONGOING
        return TransactionInfo(
            id=id,
            state=found.state.value,
            started_at=found.started_at,
            timeout=found.timeout,
            partitions=tuple(map(str, found.partitions)),
            committable=self._as_it_is(found).committable() if is_open else None,
        )

    def _as_it_is(self, found: TransactionDescription) -> Prepared:
        """An open transaction as if it had been prepared with what its partitions have of it now."""
        assert found.started_at is not None, f"{found.id} is Ongoing and has not begun"
        records = sum(
            one.records
            for one in self._admin.producers(found.partitions)
            if one.producer_id == found.producer_id and one.epoch == found.epoch
        )
        return Prepared(
            found.id, found.producer_id, found.epoch, found.started_at, found.timeout, found.partitions, records
        )

    def close(self) -> None:
        self._admin.close()


def open_recovery(bootstrap: str, settings: str, delivery: str = EXACTLY_ONCE) -> KafkaRecovery:
    """The factory that a manifest names."""
    from tidegate.connectors.kafka.transactions import KafkaTransactionAdmin

    return KafkaRecovery(KafkaTransactionAdmin(Connection.of_arguments(bootstrap, settings)), delivery)
