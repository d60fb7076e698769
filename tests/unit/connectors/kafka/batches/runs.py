"""A fetcher with its cluster: commands are carried out, answers come in any order, time passes when it is told to."""

import random
from collections import defaultdict

from tests.unit.connectors.kafka.batches.clusters import Brokers, Log
from tidegate.connectors.kafka.batches.commands import AskMetadata, AskRange, Command, Fail, Fetch, Hand, Pass, Warn
from tidegate.connectors.kafka.batches.events import TICK, Added, Event, Taken
from tidegate.connectors.kafka.batches.fetcher import Fetcher
from tidegate.connectors.kafka.batches.reading import Reader
from tidegate.connectors.kafka.batches.readings import Limits
from tidegate.connectors.kafka.batches.shelf import Shelf
from tidegate.connectors.kafka.client import Columns, OnLostOffsets, TopicPartition
from tidegate.errors import TidegateError

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)
LIMITS = Limits(partition=1000, total=3000, wait=0.1)


class Run:
    """A fetcher and its cluster, with time that passes when it is told to. Answers come in any order."""

    def __init__(
        self, logs: dict[TopicPartition, Log], seed: int = 0, faults: int = 0, on_lost: OnLostOffsets = "fail"
    ) -> None:
        self.source = random.Random(seed)
        self.cluster = Brokers(logs, self.source, faults)
        self.fetcher = Fetcher("host:9092", on_lost, LIMITS)
        self.shelf = Shelf(Reader(Columns(offsets=True), "host:9092"))
        self.now = 0.0
        self.pending: list[Fetch | AskMetadata | AskRange] = []
        self.values: dict[TopicPartition, dict[int, str]] = defaultdict(dict)
        self.positions: dict[TopicPartition, int] = {}
        self.warnings: list[str] = []
        self.failures: list[TidegateError] = []
        self.lost = 0

    def add(self, positions: dict[TopicPartition, int]) -> None:
        self.positions.update(positions)
        self.handle(Added(positions))

    def handle(self, event: Event) -> None:
        for command in self.fetcher.handle(event, self.now):
            self._do(command)

    def _do(self, command: Command) -> None:
        match command:
            case Fetch() | AskMetadata() | AskRange():
                self.pending.append(command)
            case Hand():
                self.shelf.put(command.batches.partition, command)
            case Pass():
                self.lost += command.lost
                self.shelf.put(command.partition, command)
            case Fail():
                self.failures.append(command.error)
            case Warn():
                self.warnings.append(command.text)

    def answer(self) -> None:
        """Any of what was asked, or time passes."""
        asked = [command.node for command in self.pending if isinstance(command, Fetch)]
        assert len(asked) == len(set(asked)), "two fetches at one broker"
        self.now += 0.01
        if self.pending:
            self.handle(self.cluster.answer(self.pending.pop(self.source.randrange(len(self.pending)))))
        self.handle(TICK)

    def take(self, max_records: int = 1000) -> None:
        for chunk in self.shelf.take(max_records):
            values = self.values[chunk.partition]
            offsets = list(chunk.offsets or [])
            assert offsets == sorted(offsets)
            assert not offsets or offsets[0] >= self.positions[chunk.partition], "read again"
            assert chunk.next_offset > max([self.positions[chunk.partition] - 1, *offsets])
            values |= {offset: (value or b"").decode() for offset, value in zip(offsets, chunk.values, strict=True)}
            self.positions[chunk.partition] = chunk.next_offset
        self.handle(Taken(self.shelf.taken()))

    def until_read(self, steps: int = 3000) -> None:
        self.cluster.faults = 0
        for _ in range(steps):
            if all(self.positions[partition] == log.end for partition, log in self.cluster.logs.items()):
                return
            self.answer()
            self.take()
        raise AssertionError(f"at {self.positions} after {steps} answers; failures {self.failures}")


def logs(count: int = 1) -> dict[TopicPartition, Log]:
    return {TopicPartition("orders", number): Log(leader=1 + number % 3) for number in range(count)}
