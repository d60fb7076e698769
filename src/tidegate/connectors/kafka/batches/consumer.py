"""Reading partitions in whole record batches: sockets polled between two batches of the task, no thread, no waiting.

`Fetcher` says what to ask and what answers mean, `Network` asks, `Shelf` holds what has come. Requests for records have
connections of their own, so that a broker that waits for records holds no other question up.
"""

import logging
import time
from collections.abc import Mapping
from typing import NamedTuple

from tidegate.clock import Clock, SystemClock
from tidegate.connectors.kafka import messages
from tidegate.connectors.kafka.batches import requests, settings
from tidegate.connectors.kafka.batches.commands import AskMetadata, AskRange, Command, Fail, Fetch, Hand, Pass, Warn
from tidegate.connectors.kafka.batches.events import (
    TICK,
    Added,
    Described,
    Event,
    Fetched,
    NoRange,
    NotDescribed,
    NotFetched,
    Range,
    Removed,
    Taken,
)
from tidegate.connectors.kafka.batches.fetcher import Fetcher
from tidegate.connectors.kafka.batches.group_commits import CommitOffsets, FindCoordinator, GroupCommits
from tidegate.connectors.kafka.batches.network import Network, Outcome
from tidegate.connectors.kafka.batches.reading import Reader
from tidegate.connectors.kafka.batches.shelf import Shelf
from tidegate.connectors.kafka.client import Chunk, Columns, Isolation, OnLostOffsets, TopicPartition
from tidegate.connectors.kafka.connection import Connection
from tidegate.connectors.kafka.errors import Subject, of_code
from tidegate.connectors.kafka.rare_log import RareLog
from tidegate.connectors.kafka.wire import name_of
from tidegate.errors import TidegateError, UnavailableError

LOGGER = logging.getLogger("tidegate.kafka")

RECORDS, QUESTIONS = "records", "questions"
"""Lanes."""
CLOSED_WITHIN = 0.5
"""Seconds that `close` waits for a last commit of group offsets."""
STEP = 0.01
"""Seconds of a wait, after which commits that have to wait are looked at."""
VALUES_ONLY = Columns()


class _EndAsked(NamedTuple):
    """The second question of an AskRange."""

    asked: AskRange
    low: int


class BatchConsumer:
    """`client.Consumer`. What passes by itself is logged, and reading goes on; the rest is raised by `fetch`.

    `fetch` gives whole batches: it stops when it has as many records as it was asked for, and the last batch may bring
    more. Raises InvalidError for settings that it cannot follow.
    """

    def __init__(
        self,
        connection: Connection,
        group: str,
        columns: Columns = VALUES_ONLY,
        isolation: Isolation = "read_committed",
        on_lost_offsets: OnLostOffsets = "fail",
        clock: Clock | None = None,
    ) -> None:
        chosen = settings.of_consumer(connection, isolation)
        self._bootstrap = connection.bootstrap
        self._limits = chosen.fetch
        self._clock = clock or SystemClock()
        self._log = RareLog(self._clock)
        self._fetcher = Fetcher(connection.bootstrap, on_lost_offsets, chosen.limits)
        self._network = Network(connection.bootstrap, chosen.network, chosen.timeout)
        self._network.open_ahead(QUESTIONS, RECORDS)
        self._shelf = Shelf(Reader(columns, connection.bootstrap, chosen.checks))
        self._commits = GroupCommits(group, self._log.warn)
        self._failure: TidegateError | None = None
        self.lost_offsets = 0
        """Offsets that were passed over because they are gone, under on_lost_offsets='earliest'."""

    # ---- what is read ----------------------------------------------------------------------------------------------

    def add(self, positions: Mapping[TopicPartition, int]) -> None:
        self._handle(Added(positions))

    def remove(self, partition: TopicPartition) -> None:
        self._shelf.drop(partition)
        self._handle(Removed(partition))

    def fetch(self, max_records: int) -> list[Chunk]:
        self._move_on()
        if self._failure is not None:
            raise self._failure
        chunks = self._shelf.take(max_records)
        taken = self._shelf.taken()
        if taken:
            self._handle(Taken(taken))
        return chunks

    def watched(self) -> list[int]:
        return self._network.watched()

    def _move_on(self) -> None:
        for outcome in self._network.poll():
            self._answered(outcome)
        self._handle(TICK)
        self._commit()

    def _handle(self, event: Event) -> None:
        for command in self._fetcher.handle(event, self._now):
            self._do(command)

    @property
    def _now(self) -> float:
        return self._clock.now().monotonic

    # ---- doing what the fetcher says -------------------------------------------------------------------------------

    def _do(self, command: Command) -> None:
        match command:
            case Fetch():
                request = requests.fetch(command.rows, self._limits, command.wait, command.itself)
                self._network.ask(command.node, RECORDS, request, command, command.wait)
            case Hand():
                self._shelf.put(command.batches.partition, command)
            case AskMetadata():
                self._network.ask_any(QUESTIONS, requests.metadata(command.topics), command)
            case AskRange():
                request = requests.list_offsets(command.partition, command.leader_epoch, requests.EARLIEST)
                self._network.ask(command.node, QUESTIONS, request, command)
            case Pass():
                self._pass(command)
            case Fail(partition=None):
                self._failure = self._failure or command.error
            case Fail(partition=TopicPartition() as partition):
                self._shelf.put(partition, command)
            case Warn():
                self._log.warn(command.text)

    def _pass(self, command: Pass) -> None:
        if command.lost:
            self.lost_offsets += command.lost
            LOGGER.warning(
                "%s at %s: offsets %d to %d are gone, reading goes on at %d (on_lost_offsets='earliest'; %d lost in "
                "all)",
                *(command.partition, self._bootstrap, command.end - command.lost, command.end - 1, command.end),
                self.lost_offsets,
            )
        self._shelf.put(command.partition, command)

    # ---- telling it what came --------------------------------------------------------------------------------------

    def _answered(self, outcome: Outcome) -> None:
        match outcome.about:
            case Fetch() as asked:
                self._handle(self._fetched(asked, outcome))
            case AskMetadata():
                self._described(outcome)
            case AskRange() as asked:
                self._low(asked, outcome)
            case _EndAsked() as about:
                self._end(about, outcome)
            case FindCoordinator():
                if outcome.error is None:
                    self._commits.found(*requests.coordinator(outcome.response), self._now)
                else:
                    self._commits.unanswered(outcome.error.failure.message, self._now)
            case CommitOffsets():
                if outcome.error is None:
                    self._commits.committed(requests.commit_codes(outcome.response), self._now)
                else:
                    self._commits.unanswered(outcome.error.failure.message, self._now)

    def _fetched(self, asked: Fetch, outcome: Outcome) -> Event:
        if outcome.error is not None:
            return NotFetched(asked.node, outcome.error)
        response = outcome.response
        throttle = response.throttle_time_ms / 1000
        return Fetched(asked.node, response.error_code, throttle, requests.fetched_rows(response))

    def _described(self, outcome: Outcome) -> None:
        if outcome.error is not None:
            self._handle(NotDescribed(outcome.error))
            return
        cluster = messages.cluster_of(outcome.response)
        if not cluster.brokers:
            self._handle(NotDescribed(UnavailableError(f"Kafka at {self._bootstrap} names no brokers")))
            return
        self._network.learn(cluster.brokers)
        self._handle(Described(cluster))

    def _low(self, asked: AskRange, outcome: Outcome) -> None:
        error, low = self._offset(asked.partition, outcome)
        if error is not None:
            self._handle(NoRange(asked.partition, error))
            return
        request = requests.list_offsets(asked.partition, asked.leader_epoch, requests.LATEST)
        self._network.ask(asked.node, QUESTIONS, request, _EndAsked(asked, low))

    def _end(self, about: _EndAsked, outcome: Outcome) -> None:
        partition = about.asked.partition
        error, end = self._offset(partition, outcome)
        self._handle(Range(partition, about.low, end) if error is None else NoRange(partition, error))

    def _offset(self, partition: TopicPartition, outcome: Outcome) -> tuple[TidegateError | None, int]:
        if outcome.error is not None:
            return outcome.error, -1
        code, offset = requests.listed_offset(outcome.response)
        if not code:
            return None, offset
        subject = Subject(topic=partition.topic, operation="READ")
        return of_code(code, f"asking {self._bootstrap} for the range of {partition}", name_of(code), subject), -1

    # ---- group offsets, closing ------------------------------------------------------------------------------------

    def commit_group_offsets(self, positions: Mapping[TopicPartition, int]) -> None:
        """Takes answers, too: nobody may be reading, and the next commit waits for that to the last one."""
        self._commits.want(positions)
        self._move_on()

    def _commit(self) -> None:
        match self._commits.next(self._now):
            case FindCoordinator() as asked:
                self._network.ask_any(QUESTIONS, requests.find_group_coordinator(asked.group), asked)
            case CommitOffsets() as asked:
                request = requests.offset_commit(asked.group, asked.positions)
                self._network.ask_at(asked.coordinator, QUESTIONS, request, asked)

    def close(self) -> None:
        """Waits for `CLOSED_WITHIN` at most."""
        until = time.monotonic() + CLOSED_WITHIN
        while self._commits.is_under_way and (left := until - time.monotonic()) > 0:
            self._network.wait(min(left, STEP))
            for outcome in self._network.poll():
                if isinstance(outcome.about, FindCoordinator | CommitOffsets):
                    self._answered(outcome)
            self._commit()
        self._network.close()
