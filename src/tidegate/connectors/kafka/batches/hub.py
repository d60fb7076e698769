"""What the producers of one sink share: connections, who leads, and the lock under which all of it is used.

A producer is used by two threads, and producers come and go while a connection stays. Whoever polls does so for all of
them. Nothing waits while it holds the lock.
"""

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from tidegate.clock import Clock
from tidegate.connectors.kafka import messages
from tidegate.connectors.kafka.batches import requests
from tidegate.connectors.kafka.batches.network import Network, Outcome
from tidegate.connectors.kafka.batches.queues import Leaders
from tidegate.connectors.kafka.messages import Cluster
from tidegate.errors import TidegateError, UnavailableError

RECORDS, QUESTIONS = "records", "questions"
"""Lanes."""
STEP = 0.02
"""Seconds of a wait, after which whoever waits looks himself: another thread may have taken what he waits for."""

Reply = Callable[[Outcome], None]
"""Called, under the lock, with what became of a request."""


class Hub:
    """`lock` must be held for everything but `answer`, `pump` and `now`."""

    def __init__(self, network: Network, place: str, clock: Clock) -> None:
        self.lock = threading.Lock()
        self.network = network
        self.leaders = Leaders()
        self.counts: dict[str, int] = {}
        """How many partitions topics had when they were last described."""
        self._place = place
        self._clock = clock

    @property
    def now(self) -> float:
        """Seconds of a monotonic clock."""
        return self._clock.now().monotonic

    @property
    def wall(self) -> int:
        """Milliseconds since 1970."""
        return int(self._clock.now().wall * 1000)

    def poll(self) -> None:
        """Take what has come, for all."""
        for outcome in self.network.poll():
            outcome.about(outcome)

    def describe(
        self, topics: Sequence[str], reply: Callable[[Cluster | TidegateError], None], creates: bool = False
    ) -> None:
        """Ask who leads. The answer is known here before `reply` is told of it. `creates`: brokers that make topics
        when they are asked for some make these."""

        def described(outcome: Outcome) -> None:
            reply(outcome.error if outcome.error is not None else self._described(outcome.response))

        self.network.ask_any(QUESTIONS, requests.metadata(topics, creates), described)

    def _described(self, response: Any) -> Cluster | TidegateError:
        cluster = messages.cluster_of(response)
        if not cluster.brokers:
            return UnavailableError(f"{self._place} names no brokers")
        self.network.learn(cluster.brokers)
        self.leaders.learn(cluster)
        self.counts |= Counter(partition.topic for partition in cluster.leaders)
        return cluster

    # ---- waiting ---------------------------------------------------------------------------------------------------

    def answer(self, ask: Callable[[Reply], None]) -> Any:
        """The response to what `ask` asks. Blocks, until the request's time is over. Raises what came of it."""
        outcomes: list[Outcome] = []
        with self.lock:
            ask(outcomes.append)
        while not outcomes:
            self.pump(STEP)
        (outcome,) = outcomes
        if outcome.error is not None:
            raise outcome.error
        return outcome.response

    def pump(self, seconds: float) -> None:
        """Wait until something may have come, so many seconds at most, and take it."""
        with self.lock:
            wait = self.network.waiting(seconds)
        wait()
        with self.lock:
            self.poll()
