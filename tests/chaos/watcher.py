"""Follows the output of a chaos run all the time, as a reader of committed records, and has each one checked at once.

It reads directly from the brokers, never through the connector or the proxies under test.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import closing

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from tests.chaos.checker import Checker, Seen, Violation
from tests.chaos.records import OUTPUT_PARTITIONS

AT_ONCE = 500
POLL_SECONDS = 0.2
FETCH_PATIENCE = 60.0
"""Seconds in which a re-reading must go on."""


def consumer_of(bootstrap: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "chaos",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            # A log that is shorter than what was read of it is an error, never a reason to begin again.
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 100,
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
        }
    )


def _seen(message: Message) -> Seen:
    return Seen(message.partition() or 0, message.offset() or 0, message.value() or b"")


def _raise_lost_log(error: KafkaError) -> None:
    if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
        raise Violation("lost", f"what was read of the output is not there any more: {error}")


class Watcher(threading.Thread):
    """`violation` is set with the first one, and then nothing more is read."""

    def __init__(self, topic: str, checker: Checker) -> None:
        super().__init__(name="watcher", daemon=True)
        self._brokers = ""
        self._topic = topic
        self._checker = checker
        self._ended = threading.Event()
        self._last_at = time.monotonic()
        self._longest_gap = (0.0, 0.0)
        self.violation: Violation | None = None
        self.error: BaseException | None = None
        """Why it cannot watch any more."""

    @property
    def count(self) -> int:
        """Records that were found right."""
        return self._checker.count

    def has_all(self, count: int) -> bool:
        return self._checker.has_all(count)

    def longest_gap(self) -> tuple[float, float]:
        """Seconds without output, the present gap included, and when it began (monotonic)."""
        return max(self._longest_gap, (time.monotonic() - self._last_at, self._last_at))

    def begin(self, bootstrap: str) -> None:
        self._brokers = bootstrap
        self.start()

    def begin_again(self) -> None:
        """What was waited for until now was not the job's doing."""
        self._last_at, self._longest_gap = time.monotonic(), (0.0, 0.0)

    def run(self) -> None:
        try:
            with closing(consumer_of(self._brokers)) as consumer:
                consumer.assign([TopicPartition(self._topic, number, 0) for number in range(OUTPUT_PARTITIONS)])
                while not self._ended.is_set():
                    for message in consumer.consume(AT_ONCE, POLL_SECONDS):
                        self._take(message)
        except Violation as violation:
            self.violation = violation
        except BaseException as error:
            self.error = error

    def _take(self, message: Message) -> None:
        error = message.error()
        if error is not None:
            _raise_lost_log(error)
            return
        self._checker.check(_seen(message))
        now = time.monotonic()
        self._longest_gap = max(self._longest_gap, (now - self._last_at, self._last_at))
        self._last_at = now

    def end(self) -> None:
        self._ended.set()
        if self.is_alive():
            self.join(10)


def read_all(bootstrap: str, topic: str) -> Iterator[Seen]:
    """By a new reader, from the first record to the last that is committed now."""
    with closing(consumer_of(bootstrap)) as consumer:
        waiting = set(range(OUTPUT_PARTITIONS))
        consumer.assign([TopicPartition(topic, number, 0) for number in sorted(waiting)])
        deadline = time.monotonic() + FETCH_PATIENCE
        while waiting:
            for message in consumer.consume(AT_ONCE, POLL_SECONDS):
                error = message.error()
                if error is None:
                    deadline = time.monotonic() + FETCH_PATIENCE
                    yield _seen(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    waiting.discard(message.partition() or 0)
                else:
                    _raise_lost_log(error)
            if time.monotonic() > deadline:
                raise Violation("lost", f"nothing more of {topic} can be read, of partitions {sorted(waiting)}")
