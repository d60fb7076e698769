"""Notices that a checkpoint is complete may be lost, come late, twice or in another order: the sink's transactions in
Kafka are committed all the same, once and in their order (T14)."""

from collections.abc import Iterator

import pytest

from tests.kafka.brokers import Broker
from tests.kafka.sinks import SinkGround, until
from tests.unit.runtime.harness import HandClock, HandExecutor
from tidegate.checkpoint.protocol import CheckpointCompleted, CommitPermit
from tidegate.checkpoint.transactions import SinkCommitted, SinkReady, SinkTransactions
from tidegate.elements import Batch
from tidegate.errors import Failure
from tidegate.ids import Attempt, CheckpointId, LogInstance, OperatorName, SubtaskIndex
from tidegate.runtime.sink_driver import SinkDriver

pytestmark = pytest.mark.usefixtures("each_client_of_faults")


class Driven:
    """One sink subtask of a job on a topic of its own, as its task drives it, with notices as the test sends them."""

    def __init__(self, kafka: Broker) -> None:
        self.ground = SinkGround(kafka)
        self.told: list[SinkReady | SinkCommitted] = []
        self.failures: list[Failure] = []
        self._executor = HandExecutor()
        transactions = SinkTransactions(
            self.ground.prefix, LogInstance("log"), Attempt(1), OperatorName("out"), SubtaskIndex(0), pool_limit=6
        )
        self._driver = SinkDriver(
            self.ground.writer(),
            transactions,
            "sink",
            self._executor,
            HandClock(),
            self.told.append,
            self.failures.append,
        )
        self._driver.start()
        self._executor.run_all()

    def checkpoint(self, number: int) -> None:
        """Its record is written and prepared, and acknowledged with all that is pending."""
        self._driver.write(Batch([str(number)]))
        self._driver.barrier(CheckpointId(number))
        self._executor.run_all()
        ready = self.told[-1]
        assert isinstance(ready, SinkReady)
        assert ready.checkpoint == number

    def complete(self, number: int) -> None:
        self._driver.permit(CommitPermit(CheckpointCompleted(Attempt(1), CheckpointId(number))))
        self._executor.run_all()

    def abandon(self, number: int) -> None:
        self._driver.abandon(CheckpointId(number))

    def expect(self, *numbers: int) -> None:
        """Readers see these and nothing else, in this order."""
        assert self.failures == []
        wanted = [str(number) for number in numbers]
        assert until(self.ground.texts, lambda texts: len(texts) >= len(wanted)) == wanted

    def close(self) -> None:
        self._driver.close()


@pytest.fixture
def driven(kafka: Broker) -> Iterator[Driven]:
    made = Driven(kafka)
    yield made
    made.close()


def test_T14_a_notice_that_is_lost_is_made_good_by_the_next_in_the_order_of_the_checkpoints(driven: Driven) -> None:
    driven.checkpoint(1)
    driven.checkpoint(2)
    driven.checkpoint(3)
    driven.expect()
    driven.complete(2)
    driven.expect(1, 2)
    driven.complete(3)
    driven.expect(1, 2, 3)


def test_T14_notices_that_come_late_or_twice_change_nothing(driven: Driven) -> None:
    driven.checkpoint(1)
    driven.checkpoint(2)
    driven.complete(2)
    committed = [event for event in driven.told if isinstance(event, SinkCommitted)]
    driven.checkpoint(3)
    driven.complete(1)
    driven.complete(2)
    driven.expect(1, 2)
    assert [one.checkpoint for one in committed] == [2]
    driven.complete(3)
    driven.complete(3)
    driven.expect(1, 2, 3)


def test_T14_what_an_abandoned_checkpoint_had_prepared_stays_open_until_a_later_one_completes(driven: Driven) -> None:
    """The source does not read its records again: aborting it would lose them."""
    driven.checkpoint(1)
    driven.abandon(1)
    assert driven.ground.state(0) == "Ongoing"
    driven.checkpoint(2)
    driven.abandon(2)
    driven.expect()
    driven.checkpoint(3)
    driven.complete(3)
    driven.expect(1, 2, 3)
