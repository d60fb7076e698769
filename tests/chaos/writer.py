"""A process of its own that writes numbered orders at a steady rate until its standard input ends.

    python -m tests.chaos.writer --bootstrap HOST:PORT --topic NAME --users N --rate RECORDS_A_SECOND

It prints how many orders are delivered once a second, and last how many there are in all, each delivered once and in
order, however often brokers died meanwhile.
"""

import argparse
import select
import sys
import time

import msgspec
from confluent_kafka import KafkaError, Message, Producer

from tests.chaos.records import order, partition_of

PAUSE = 0.02
"""Seconds between two looks at what is due."""
FLUSH_PATIENCE = 120.0
"""Seconds in which a broker must be back at the end."""


class Writer:
    """One idempotent producer, and how far it is."""

    def __init__(self, bootstrap: str, topic: str, users: int) -> None:
        settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0}
        # Never given up: a record that is left out would be a hole in the numbers.
        self._producer = Producer(settings | {"message.timeout.ms": 0, "linger.ms": 5, "reconnect.backoff.max.ms": 500})
        self._topic = topic
        self._users = users
        self.given = 0
        self.delivered = 0

    def write_up_to(self, count: int) -> None:
        while self.given < count:
            number, user = self.given, order(self.given, self._users)
            try:
                self._producer.produce(
                    self._topic,
                    msgspec.json.encode(user),
                    user.user.encode(),
                    partition=partition_of(number, self._users),
                    on_delivery=self._report,
                )
            except BufferError:
                # No broker for a while: what is due waits here.
                break
            self.given += 1
        self._producer.poll(0)

    def _report(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            sys.exit(f"an order was not delivered: {error}")
        self.delivered += 1

    def flush(self) -> None:
        left = self._producer.flush(FLUSH_PATIENCE)
        if left:
            sys.exit(f"{left} orders were not delivered within {FLUSH_PATIENCE:g} s")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--users", type=int, required=True)
    parser.add_argument("--rate", type=int, required=True)
    arguments = parser.parse_args()
    writer = Writer(arguments.bootstrap, arguments.topic, arguments.users)
    begin = told = time.monotonic()
    while not select.select([sys.stdin], [], [], PAUSE)[0]:
        writer.write_up_to(int((time.monotonic() - begin) * arguments.rate))
        if time.monotonic() >= told + 1:
            told = time.monotonic()
            print(writer.delivered, flush=True)
    writer.flush()
    print(f"in all {writer.delivered}", flush=True)


if __name__ == "__main__":
    main()
