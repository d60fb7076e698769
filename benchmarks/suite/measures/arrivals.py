"""Reads a topic and says when what came: in the process of who asks, or in one of its own that keeps everything in a
file and decodes nothing, `python -m benchmarks.suite.measures.arrivals --help`.

Batches are looked at when all is over, so that the reader takes next to nothing of the machine that is measured. The
time of arrival is that at which the broker's answer was there.
"""

import argparse
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from benchmarks.suite.measures.promptness import be_prompt
from benchmarks.suite.measures.quantiles import NoMeasure
from tidegate.connectors.kafka.batches import reading, requests
from tidegate.connectors.kafka.batches.visibility import Aborted, visible
from tidegate.connectors.kafka.client import Columns, Isolation, TopicPartition
from tidegate.connectors.kafka.connection import Connection
from tidegate.connectors.kafka.wire import Brokers, address_of

BYTES = 1 << 25
WAIT = 0.2
"""Seconds for which a broker may wait for records."""
PATIENCE = 30.0
_ENCODE = msgspec.msgpack.encode


class Arrival(msgspec.Struct, frozen=True, array_like=True):
    """What a broker has sent of one partition."""

    at: float
    """Seconds of the monotonic clock."""
    partition: int
    records: bytes
    aborted: tuple[tuple[int, int], ...]

    def values(self) -> list[bytes | None]:
        """Of all records that may be seen, in order."""
        partition = TopicPartition("output", self.partition)
        found = list(reading.spans(self.records))
        seen = visible(self.records, found, [Aborted(*one) for one in self.aborted])
        batches = reading.Batches(partition, self.records, seen, 0, found[-1].end_offset if found else 0)
        reader = reading.Reader(Columns(), "the broker")
        return [value for index in range(len(seen)) for value in reader.chunk(batches, index).values]


class Arrivals:
    """Of one topic, from its beginning, at the only broker."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, isolation: Isolation) -> None:
        self._brokers = Brokers(bootstrap, Connection(bootstrap).kafka_python_config(), PATIENCE)
        self._address = address_of(bootstrap)
        self._positions = {TopicPartition(topic, number): 0 for number in range(partitions)}
        self._limits = requests.FetchLimits(BYTES, BYTES, 1, isolation)

    def poll(self, wait: float = WAIT) -> list[Arrival]:
        """What has come, or comes within `wait` seconds. Raises NoMeasure when the broker refuses."""
        rows = [requests.FetchRow(partition, offset, -1, -1) for partition, offset in self._positions.items()]
        response = self._brokers.send(self._address, requests.fetch(rows, self._limits, wait))
        now = time.monotonic()
        arrivals = []
        for row in requests.fetched_rows(response):
            if row.code:
                raise NoMeasure(f"{row.partition} cannot be read, code {row.code}")
            spans = list(reading.spans(row.records))
            if spans:
                self._positions[row.partition] = spans[-1].end_offset
                aborted = tuple((one.producer_id, one.first_offset) for one in row.aborted)
                arrivals.append(Arrival(now, row.partition.partition, bytes(row.records[: spans[-1].end]), aborted))
        return arrivals

    def close(self) -> None:
        self._brokers.close()


def command(bootstrap: str, topic: str, isolation: Isolation, path: Path) -> list[str]:
    """How to run it."""
    module = [sys.executable, "-m", "benchmarks.suite.measures.arrivals"]
    return [*module, bootstrap, topic, str(path), "--isolation", isolation]


def read(path: Path) -> Iterator[Arrival]:
    """What such a process has kept, in the order in which it came."""
    decode = msgspec.msgpack.Decoder(Arrival).decode
    with path.open("rb") as file:
        while head := file.read(8):
            yield decode(file.read(int.from_bytes(head, "big")))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bootstrap", metavar="HOST:PORT", help="the only broker")
    parser.add_argument("topic")
    parser.add_argument("file", type=Path)
    parser.add_argument("--isolation", choices=("read_committed", "read_uncommitted"), default="read_committed")
    parser.add_argument("--partitions", type=int, default=4)
    options = parser.parse_args(arguments)
    be_prompt()
    arrivals = Arrivals(options.bootstrap, options.topic, options.partitions, options.isolation)
    is_stopped = False

    def stop(*_: object) -> None:
        nonlocal is_stopped
        is_stopped = True

    signal.signal(signal.SIGTERM, stop)
    with options.file.open("wb") as file:
        print("reading", flush=True)
        while not is_stopped:
            for data in map(_ENCODE, arrivals.poll()):
                file.write(len(data).to_bytes(8, "big") + data)


if __name__ == "__main__":
    main()
