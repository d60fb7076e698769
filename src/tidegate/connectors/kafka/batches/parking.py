"""Records for topics of which nobody knows yet how many partitions they have: kept in order until it is known. Pure."""

from collections.abc import Container

from tidegate.connectors.kafka import errors
from tidegate.connectors.kafka.batches.grouping import Given
from tidegate.connectors.kafka.batches.readings import FIRST_PAUSE, LONGEST_PAUSE
from tidegate.connectors.kafka.messages import Cluster
from tidegate.connectors.kafka.wire import name_of
from tidegate.errors import InvalidError, TidegateError

UNKNOWN_TOPIC, LEADER_NOT_AVAILABLE = 3, 5
UNKNOWN_WITHIN = 30.0
"""Seconds for which a topic may be unknown to the brokers that are asked."""


class Parking:
    """`place` is said in errors."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._given: list[Given] = []
        self._since: dict[str, float] = {}
        """When topics were first looked for."""
        self._is_asked = False
        self._ask_at = 0.0
        self._pause = FIRST_PAUSE

    def __bool__(self) -> bool:
        return bool(self._given)

    def holds(self, topic: str) -> bool:
        """Whether something for that topic waits: what comes now waits behind it."""
        return any(given.topic == topic for given in self._given)

    def add(self, given: Given, now: float) -> None:
        self._given.append(given)
        self._since.setdefault(given.topic, now)

    def clear(self) -> None:
        self._given = []

    def to_ask(self, now: float) -> list[str]:
        """The topics to ask for now; whoever asks tells of the answer."""
        if not self._given or self._is_asked or now < self._ask_at:
            return []
        self._is_asked = True
        self._ask_at = now + self._pause
        self._pause = min(2 * self._pause, LONGEST_PAUSE)
        return sorted({given.topic for given in self._given})

    def told(self, answer: Cluster | TidegateError, now: float) -> list[tuple[TidegateError, int]]:
        """What cannot be written, and how many records that are: they are dropped."""
        self._is_asked = False
        if isinstance(answer, TidegateError):
            return self._refused({one.topic: answer for one in self._given}) if isinstance(answer, InvalidError) else []
        wrong = {}
        for topic, code in answer.errors.items():
            is_there_soon = code in (UNKNOWN_TOPIC, LEADER_NOT_AVAILABLE)
            if not is_there_soon or now >= self._since.get(topic, now) + UNKNOWN_WITHIN:
                subject = errors.Subject(topic=topic, operation="WRITE")
                doing = f"{self._place}, writing to topic {topic}"
                wrong[topic] = errors.of_code(code, doing, name_of(code), subject)
        return self._refused(wrong)

    def _refused(self, wrong: dict[str, TidegateError]) -> list[tuple[TidegateError, int]]:
        refused = [(wrong[given.topic], len(given.values)) for given in self._given if given.topic in wrong]
        self._given = [given for given in self._given if given.topic not in wrong]
        return refused

    def released(self, known: Container[str]) -> list[Given]:
        """What can be written now, in order."""
        released = [given for given in self._given if given.topic in known]
        self._given = [given for given in self._given if given.topic not in known]
        for given in released:
            self._since.pop(given.topic, None)
        if not self._given:
            self._pause = FIRST_PAUSE
        return released
