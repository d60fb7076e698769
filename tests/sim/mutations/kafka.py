"""Errors of the Kafka connector: what it concludes from answers, how it aborts, where it reads on."""

from typing import Any

import msgspec
import pytest

from tidegate.checkpoint.protocol import Committed, Outcome, Retry
from tidegate.connectors.kafka import outcomes
from tidegate.connectors.kafka.client import EndAnswer, partition_of
from tidegate.connectors.kafka.outcomes import Prepared
from tidegate.connectors.kafka.sink import KafkaSinkWriter
from tidegate.connectors.kafka.source import KafkaSourceReader


def aborts_by_ending_the_transaction(patch: pytest.MonkeyPatch) -> None:
    """The producer is not fenced: its next record opens a transaction anew."""

    def wrong(admin: Any, id: str, pause: Any = None) -> None:
        found = admin.describe(id)
        if found is not None:
            cluster = admin._cluster
            admin._line.ask(f"aborts {id}", lambda: cluster.end(id, found.producer_id, found.epoch, commit=False))

    patch.setattr(outcomes, "abort", wrong)


def trusts_the_offsets_of_its_group(patch: pytest.MonkeyPatch) -> None:
    right = KafkaSourceReader.add_splits

    def wrong(self: Any, splits: Any) -> None:
        offsets = self._consumer.line.cluster.groups.get(self._consumer.group, {})
        there = [(split, offsets.get(partition_of(split.id), split.position)) for split in splits]
        right(self, [msgspec.structs.replace(split, position=offset) for split, offset in there])

    patch.setattr(KafkaSourceReader, "add_splits", wrong)


def takes_a_refused_end_for_a_commit(patch: pytest.MonkeyPatch) -> None:
    def wrong(admin: Any, prepared: Prepared, *others: Any) -> Outcome:
        answer = admin.commit(prepared.id, prepared.producer_id, prepared.epoch)
        return Retry("it is still being ended") if answer is EndAnswer.CONCURRENT else Committed()

    patch.setattr(outcomes, "_commit", wrong)


def believes_the_coordinator_alone(patch: pytest.MonkeyPatch) -> None:
    """Markers that a broker forgot are written by nobody."""
    patch.setattr(outcomes, "_hanging", lambda admin, prepared: [])


def takes_an_epoch_that_its_commit_raised_for_somebody_elses(patch: pytest.MonkeyPatch) -> None:
    right = outcomes.judge

    def wrong(prepared: Prepared, found: Any, wall: float) -> Any:
        raised = found is not None and found.state in outcomes._COMMITTED and found.epoch == prepared.epoch + 1
        return outcomes.Lost("the id was initialised again") if raised else right(prepared, found, wall)

    patch.setattr(outcomes, "judge", wrong)


def prepares_without_waiting_for_what_was_sent(patch: pytest.MonkeyPatch) -> None:
    right = KafkaSinkWriter.flush

    def wrong(self: Any, txn: Any) -> None:
        producer = txn.producer

        def sends_once() -> None:
            for _ in range(len(producer._waiting) + len(producer._under_way)):
                producer._send_one()

        producer.flush = sends_once
        right(self, txn)

    patch.setattr(KafkaSinkWriter, "flush", wrong)
    patch.setattr(outcomes, "problems", lambda prepared, producers: "")
