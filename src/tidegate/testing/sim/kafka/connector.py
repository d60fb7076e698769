"""The Kafka connector's own source and sink with simulated brokers behind them: where they would open a client, they
get a simulated one. Everything else is theirs."""

from collections.abc import Callable, Sequence
from typing import Any

from tidegate.checkpoint.protocol import RecoverySpec
from tidegate.clock import Clock
from tidegate.connectors.kafka.client import Columns, Consumer, Question, Questions
from tidegate.connectors.kafka.recovery import KafkaRecovery
from tidegate.connectors.kafka.sink import KafkaSink, KafkaSinkWriter
from tidegate.connectors.kafka.source import KafkaSource
from tidegate.operators.contracts import SinkContext, TransactionalSink, TransactionRecovery
from tidegate.testing.sim.kafka.admin import SimTransactionAdmin
from tidegate.testing.sim.kafka.line import Line
from tidegate.testing.sim.kafka.producer import Later, ProducerHabits, SimProducerFactory
from tidegate.testing.sim.kafka.reading import ReadingHabits, SimConsumer, SimQuestion, SimQuestions


class SimKafkaSource(KafkaSource):
    """`line`, `clock` and `habits` are of the process that has it."""

    def __init__(
        self, line: Line, clock: Clock, habits: ReadingHabits, bootstrap: str, topic: str, **arguments: Any
    ) -> None:
        super().__init__(bootstrap, topic, **arguments)
        self._line = line
        self._own_clock = clock
        self._habits = habits

    @property
    def inspection_spec(self) -> RecoverySpec:
        arguments = {"bootstrap": self.connection.bootstrap}
        return RecoverySpec("tidegate.testing.sim.kafka.medium:open_inspection", arguments)

    def _questions(self) -> Questions:
        return SimQuestions(self._line, self.connection.bootstrap)

    def _asker(self) -> Callable[[Sequence[str]], Question]:
        def ask(names: Sequence[str]) -> Question:
            now = self._seconds()
            delay = self._line.gate.chance() * self._habits.longest_answer
            return SimQuestion(self._line, names, self._seconds, now + delay)

        return ask

    def _seconds(self) -> float:
        return self._own_clock.now().monotonic

    def _consumer(self, group: str, columns: Columns) -> Consumer:
        return SimConsumer(self._line, group, columns, self._isolation, self._habits)

    def _clock(self) -> Clock:
        return self._own_clock


class SimKafkaSink(KafkaSink):
    """`line`, `clock`, `later` and `habits` are of the process that has it."""

    def __init__(
        self,
        line: Line,
        clock: Clock,
        later: Later,
        habits: ProducerHabits,
        bootstrap: str,
        topic: str,
        **arguments: Any,
    ) -> None:
        super().__init__(bootstrap, topic, **arguments)
        self._line = line
        self._own_clock = clock
        self._later = later
        self._habits = habits

    @property
    def recovery_spec(self) -> RecoverySpec:
        arguments = {"bootstrap": self.connection.bootstrap}
        return RecoverySpec("tidegate.testing.sim.kafka.medium:open_recovery", arguments)

    def open_writer(self, context: SinkContext) -> TransactionalSink[Any]:
        producers = SimProducerFactory(self._line, self._later, self._habits, self._milliseconds)
        return KafkaSinkWriter(self, producers, SimTransactionAdmin(self._line), self._own_clock, self._line.pause)

    def _milliseconds(self) -> int:
        return int(self._own_clock.now().wall * 1000)

    def open_recovery(self) -> TransactionRecovery:
        admin = SimTransactionAdmin(self._line)
        return KafkaRecovery(admin, self.delivery, self.timeout, self._own_clock, self._line.pause)
