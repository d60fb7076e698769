"""The simulated Kafka keeps the promises that the real one keeps, by the same kits and with the connector itself."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import pytest

from tidegate.connectors.kafka.client import TopicPartition
from tidegate.formats import String
from tidegate.operators.contracts import Sink, Source
from tidegate.testing.conformance.sink import TransactionalSinkConformance
from tidegate.testing.conformance.source import SourceConformance
from tidegate.testing.sim.broker.partition import Batch, Record
from tidegate.testing.sim.gate import OpenGate
from tidegate.testing.sim.kafka.connector import SimKafkaSink, SimKafkaSource
from tidegate.testing.sim.kafka.medium import KafkaMedium, KafkaTraits
from tidegate.testing.sim.kafka.producer import ProducerHabits
from tidegate.testing.sim.kafka.reading import ReadingHabits
from tidegate.testing.sim.scheduler import Process, Scheduler
from tidegate.testing.sim.swarm import draw_swarm

T = TypeVar("T")
TOPIC = "topic"


class ChancyGate(OpenGate):
    """Every call is answered; what is left to chance varies."""

    def __init__(self) -> None:
        self._random = Random(1)

    def chance(self) -> float:
        return self._random.random()


class KitMedium(KafkaMedium):
    """Time goes by when somebody waits, and only then."""

    def __init__(self, traits: KafkaTraits) -> None:
        self.scheduler = Scheduler(1)
        super().__init__("kit", self.scheduler, draw_swarm(Random(1)), traits)
        self.process = Process(self.scheduler, "kit")

    def pause(self, seconds: float) -> None:
        until = self.scheduler.seconds + seconds
        self.scheduler.run(lambda: False, until, 10_000_000)
        self.scheduler.seconds = until

    def texts(self, isolation: Any) -> list[str]:
        found = []
        for number in range(len(self.cluster.topics[TOPIC].partitions)):
            rows, _ = self.cluster.fetch(TopicPartition(TOPIC, number), 0, 1_000_000, isolation)
            found += [record.value.decode() for _, record in rows if record.value is not None]
        return found


class TestSimKafkaSink(TransactionalSinkConformance):
    has_timeout = True
    unwritable = 5
    timeout = 50.0

    @pytest.fixture(autouse=True, params=["markers at once", "markers come late"])
    def _surrounded(self, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[None]:
        delay = 0.0 if request.param == "markers at once" else 0.4
        self.world = KitMedium(KafkaTraits(marker_delay=delay))
        self.world.cluster.create_topic(TOPIC, 3)
        self.process = self.world.process
        self.set_up(tmp_path)
        yield
        self.tear_down()

    def sink(self) -> Sink:
        world = self.world
        return SimKafkaSink(
            world.line(ChancyGate()),
            world.scheduler,
            self.process.plan,
            ProducerHabits(),
            world.bootstrap,
            TOPIC,
            value=String(),
            key=lambda text: text.partition("-")[0],
            timeout=self.timeout,
        )

    def read_committed(self) -> list[str]:
        return self.world.texts("read_committed")

    def read_everything(self) -> list[str]:
        return self.world.texts("read_uncommitted")

    def in_child(self, function: Callable[..., T], *arguments: Any) -> T:
        """What it has not sent when it dies, it never sends."""
        self.process = Process(self.world.scheduler, "child")
        result = function(*arguments)
        self.world.pause(0.005)
        self.process.kill("the kit wants it")
        self.process = self.world.process
        return result

    def time_out(self) -> None:
        self.world.pause(self.timeout + 1.0)

    def pause(self) -> None:
        self.world.pause(0.02)


class TestSimKafkaSource(SourceConformance):
    @pytest.fixture(autouse=True)
    def _on_cluster(self) -> None:
        self.world = KitMedium(KafkaTraits())
        self.cluster = self.world.cluster

    def create(self, splits: int) -> None:
        self.cluster.create_topic(TOPIC, splits)

    def append(self, split: int, values: Sequence[str | None]) -> None:
        self.cluster.append(TopicPartition(TOPIC, split), records(values))

    def append_invisible(self, split: int, values: Sequence[str | None]) -> None:
        self._end(*self._open(split, values), commit=False)

    def append_open(self, split: int, values: Sequence[str | None]) -> Callable[[], object]:
        producer_id, epoch = self._open(split, values)
        return lambda: self._end(producer_id, epoch, commit=True)

    def _open(self, split: int, values: Sequence[str | None]) -> tuple[int, int]:
        at = TopicPartition(TOPIC, split)
        # The kit polls for a while of real time, in which very much simulated time may pass.
        producer_id, epoch = self.cluster.initialise("kit", self.cluster.limits.coordinator.maximum_timeout)
        self.cluster.add_partitions("kit", producer_id, epoch, [at])
        self.cluster.produce(at, "kit", Batch(producer_id, epoch, 0, records(values)))
        return producer_id, epoch

    def _end(self, producer_id: int, epoch: int, commit: bool) -> None:
        self.cluster.end("kit", producer_id, epoch, commit)
        self.cluster.write_all_markers()

    def add_split(self) -> None:
        topic = self.cluster.topics[TOPIC]
        topic.grow(len(topic.partitions) + 1)

    def lose(self, split: int) -> None:
        self.cluster.partition(TopicPartition(TOPIC, split)).delete_before(2)

    def source(self, *, bounded: bool, start: str = "earliest") -> Source:
        return SimKafkaSource(
            self.world.line(ChancyGate()),
            self.world.scheduler,
            ReadingHabits(slack=0.3),
            self.world.bootstrap,
            TOPIC,
            value=String(),
            bounded=bounded,
            start=start,
        )

    def pause(self) -> None:
        self.world.pause(0.005)


def records(values: Sequence[str | None]) -> list[Record]:
    return [Record(None if value is None else value.encode()) for value in values]
