"""Commits of group offsets, for lag tools: one under way at a time, and of those that have to wait only the newest.

Pure. Best effort: what fails for good is said and forgotten. What fails because the coordinator is elsewhere, or is not
there yet, is tried again. Nothing is ever read back.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from tidegate.connectors.kafka.client import TopicPartition
from tidegate.connectors.kafka.wire import Address, name_of

COORDINATOR_MOVES = frozenset({14, 15, 16})
"""COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR."""
PAUSE = 0.2
"""Seconds before the coordinator is looked for again."""


class FindCoordinator(NamedTuple):
    group: str


class CommitOffsets(NamedTuple):
    coordinator: Address
    group: str
    positions: Mapping[TopicPartition, int]


class GroupCommits:
    """`warn` is told of what failed for good."""

    def __init__(self, group: str, warn: Callable[[str], None]) -> None:
        self._group = group
        self._warn = warn
        self._wanted: Mapping[TopicPartition, int] = {}
        self._sent: Mapping[TopicPartition, int] = {}
        self._coordinator: Address | None = None
        self._is_asked = False
        self._not_before = 0.0

    @property
    def is_under_way(self) -> bool:
        """Something is wanted, or was sent and not answered."""
        return self._is_asked or bool(self._wanted)

    def want(self, positions: Mapping[TopicPartition, int]) -> None:
        self._wanted = positions

    def next(self, now: float) -> FindCoordinator | CommitOffsets | None:
        """What to ask now; whoever is given something tells of the answer, or that there was none."""
        if self._is_asked or not self._wanted or now < self._not_before:
            return None
        self._is_asked = True
        if self._coordinator is None:
            return FindCoordinator(self._group)
        self._sent, self._wanted = self._wanted, {}
        return CommitOffsets(self._coordinator, self._group, self._sent)

    def found(self, code: int, address: Address, now: float) -> None:
        """The answer to FindCoordinator."""
        self._is_asked = False
        if not code:
            self._coordinator = address
        elif code in COORDINATOR_MOVES:
            self._not_before = now + PAUSE
        else:
            self._give_up(name_of(code))

    def committed(self, codes: list[int], now: float) -> None:
        """The answer to CommitOffsets: a code for each partition."""
        self._is_asked = False
        wrong = [code for code in codes if code]
        if wrong and wrong[0] in COORDINATOR_MOVES:
            self._again(now)
        elif wrong:
            self._say(name_of(wrong[0]))

    def unanswered(self, why: str, now: float) -> None:
        self._is_asked = False
        self._say(why)
        self._again(now)

    def _again(self, now: float) -> None:
        self._coordinator = None
        self._not_before = now + PAUSE
        self._wanted = self._wanted or self._sent

    def _give_up(self, why: str) -> None:
        self._wanted = {}
        self._say(why)

    def _say(self, why: str) -> None:
        self._warn(f"offsets of group {self._group}, which serve lag tools only, were not committed: {why}")
