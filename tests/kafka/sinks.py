"""Kafka sinks for tests: writers, transactional ids and commits, on topics and prefixes of their own."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.kafka.brokers import Broker, unique
from tidegate.checkpoint.protocol import Committable, Committed, Outcome, Retry
from tidegate.connectors.kafka.sink import KafkaSink
from tidegate.connectors.kafka.transactions import KafkaTransactionAdmin
from tidegate.elements import Batch
from tidegate.formats import String
from tidegate.ids import Attempt, LogInstance, OperatorName, SubtaskIndex, TransactionalId
from tidegate.operators.contracts import TransactionalSink, TransactionRecovery
from tidegate.testing.conformance.sink_kit import open_writer, permit, prepare

PATIENCE = 30.0


class SinkGround:
    """One topic of a broker, and what writes to it. Timeouts in seconds."""

    def __init__(self, broker: Broker, partitions: int = 1, **config: str) -> None:
        self.broker = broker
        self.topic = broker.create_topic(
            partitions=partitions, config={name.replace("_", "."): value for name, value in config.items()}
        )
        self.prefix = unique("app")
        self.tools = KafkaSink(broker.direct, self.topic).open_recovery()
        """To look with, past the proxies."""

    def sink(self, topic: Any = None, **arguments: Any) -> KafkaSink:
        arguments = {"value": String(), "timeout": 50.0, **arguments}
        return KafkaSink(self.broker.bootstrap, self.topic if topic is None else topic, **arguments)

    def writer(self, **arguments: Any) -> TransactionalSink[Any]:
        return open_writer(self.sink(**arguments))

    def recovery(self, **arguments: Any) -> TransactionRecovery:
        return self.sink(**arguments).open_recovery()

    def id(self, slot: int = 0, *, subtask: int = 0, attempt: int = 1, prefix: str | None = None) -> TransactionalId:
        return TransactionalId(
            self.prefix if prefix is None else prefix,
            LogInstance("log"),
            Attempt(attempt),
            OperatorName("out"),
            SubtaskIndex(subtask),
            slot,
        )

    def texts(self) -> list[str | None]:
        """What readers see, in the order of one partition."""
        return [None if value is None else value.decode() for value in self.broker.values(self.topic)]

    def written(self, writer: TransactionalSink[Any], slot: int, *texts: str) -> Any:
        """An open transaction with these records at the broker."""
        txn = writer.begin(self.id(slot))
        writer.write(txn, Batch(list(texts)))
        txn.producer.flush()
        return txn

    def prepared(self, writer: TransactionalSink[Any], slot: int, *texts: str) -> Committable:
        return prepare(writer, self.id(slot), texts)

    def write_and_commit(self, writer: TransactionalSink[Any], *batches: Batch, slot: int = 0) -> None:
        """Readers see the records when this returns: markers are written after a commit has been answered."""
        txn = writer.begin(self.id(slot))
        for batch in batches:
            writer.write(txn, batch)
        committable = writer.prepare(txn)
        assert committable is not None
        assert committed(writer, committable) == Committed()
        until(lambda: self.state(slot), lambda state: state == "CompleteCommit")

    def state(self, slot: int = 0) -> str | None:
        """'Ongoing', 'CompleteCommit' and so on, as the coordinator says."""
        found = self.tools.describe(self.id(slot))
        return None if found is None else found.state


def quick_admin(broker: Broker, patience: float = 0.5) -> KafkaTransactionAdmin:
    """One that gives up soon."""
    sink = KafkaSink(broker.bootstrap, "unused", settings={"socket.timeout.ms": round(patience * 1000)})
    return KafkaTransactionAdmin(sink.connection, patience=patience)


def committed(side: TransactionalSink[Any] | TransactionRecovery, committable: Committable) -> Outcome:
    """Commit, again as long as the answer is 'retry'."""
    return until(lambda: side.commit(committable, permit()), lambda outcome: not isinstance(outcome, Retry))


def until(ask: Callable[[], Any], is_enough: Callable[[Any], bool]) -> Any:
    deadline = time.monotonic() + PATIENCE
    while not is_enough(answer := ask()):
        assert time.monotonic() < deadline, f"after {PATIENCE} s still {answer}"
        time.sleep(0.02)
    return answer


def client_threads() -> int:
    """How many threads of librdkafka this process has."""
    return sum(path.read_text().startswith("rdk:") for path in Path("/proc/self/task").glob("*/comm"))


def sockets() -> int:
    found = 0
    for path in Path("/proc/self/fd").iterdir():
        try:
            found += path.readlink().name.startswith("socket:")
        except FileNotFoundError:
            continue
    return found


def resident_megabytes() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6
