"""What carries the orders to a job and its totals away: here the embedded log; Kafka is beside its own tests.

A bench and its tests speak to a `Medium` alone, so that one text of a test runs on both.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from tidegate.local import LocalLog


class Appender(Protocol):
    """What writes orders."""

    def append(self, topic: str, by_partition: Sequence[Sequence[bytes]]) -> None:
        """Durable when this returns."""
        ...


class Medium(Appender, Protocol):
    """Topics and transactions that several tests may share: what a test makes there, it calls by `name`."""

    place: list[str]
    """How a program is told where this is."""
    arguments: list[str]
    """The same for a job, with how it is to go there."""

    def name(self, base: str) -> str:
        """`base`, or what is called so in this test alone."""
        ...

    def create_topic(self, topic: str, partitions: int) -> None:
        """Nothing happens when it is there already."""
        ...

    def read(self, topic: str) -> list[list[bytes]]:
        """By partition, in order, what a reader of committed records sees; [] when there is no such topic."""
        ...

    def open_transactions(self) -> list[str]:
        """The ids, as text, of those that are neither committed nor aborted."""
        ...

    def assert_readers_are_free(self, topic: str) -> None:
        """Nothing that is open holds back who reads what is committed. May add records to `topic`."""
        ...

    def clear(self) -> None:
        """The test is over."""
        ...


class LogMedium:
    """An embedded log of the test's own. See `Medium`."""

    def __init__(self, folder: Path) -> None:
        self.place = self.arguments = ["--log", str(folder)]
        self._folder = folder

    def name(self, base: str) -> str:
        return base

    def create_topic(self, topic: str, partitions: int) -> None:
        # A process that a test has stopped may hold the lock for writing.
        with self._opened() as found:
            if found is not None and topic in found.topics():
                return
        with LocalLog(self._folder) as log:
            log.create_topic(topic, partitions)

    def append(self, topic: str, by_partition: Sequence[Sequence[bytes]]) -> None:
        with LocalLog(self._folder) as log:
            for partition, values in enumerate(by_partition):
                log.append(topic, partition, values)

    def read(self, topic: str) -> list[list[bytes]]:
        with self._opened() as log:
            if log is None or topic not in log.topics():
                return []
            return [
                [record.value or b"" for record in log.read(topic, number)] for number in range(log.partitions(topic))
            ]

    def open_transactions(self) -> list[str]:
        with self._opened() as log:
            return [] if log is None else [one.id for one in log.list_transactions(ongoing_only=True)]

    def assert_readers_are_free(self, topic: str) -> None:
        with LocalLog(self._folder, create=False) as log:
            for number in range(log.partitions(topic)):
                info = log.partition_info(topic, number)
                assert info.last_stable_offset == info.end_offset, f"readers of {topic}/{number} are held back: {info}"

    def clear(self) -> None:
        pass

    @contextmanager
    def _opened(self) -> Iterator[LocalLog | None]:
        if not (self._folder / "log.sqlite").exists():
            yield None
            return
        with LocalLog(self._folder, create=False) as log:
            yield log
