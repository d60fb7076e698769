"""A process of its own that appends numbered orders to a topic until it is told to stop, and says how many there are.

    python -m tests.integration.order_writer TOPIC (--log DIR | --bootstrap HOST:PORT)

It stops when its standard input ends, between two appends, and prints the number of orders.
"""

import argparse
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.integration.mediums import Appender, LogMedium
from tests.integration.running import by_partition, orders

USERS = 37
AT_ONCE = 40
PAUSE = 0.02
"""Seconds between two appends."""


@contextmanager
def running(topic: str, medium_arguments: Sequence[str]) -> Iterator["subprocess.Popen[str]"]:
    """A writer, killed at the end unless it has ended."""
    command = [sys.executable, "-m", "tests.integration.order_writer", topic, *medium_arguments]
    root = Path(__file__).parents[2]
    process = subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def appender(arguments: argparse.Namespace) -> Appender:
    if arguments.log:
        return LogMedium(Path(arguments.log))
    from tests.kafka.medium import KafkaAppender

    return KafkaAppender(arguments.bootstrap)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("topic")
    place = parser.add_mutually_exclusive_group(required=True)
    place.add_argument("--log")
    place.add_argument("--bootstrap")
    arguments = parser.parse_args()
    target, count = appender(arguments), 0
    while not select.select([sys.stdin], [], [], 0)[0]:
        target.append(arguments.topic, by_partition(orders(count, AT_ONCE, USERS)))
        count += AT_ONCE
        time.sleep(PAUSE)
    print(count)


if __name__ == "__main__":
    main()
