"""Records from nothing to the largest that the broker takes, and one byte more."""

import random
import signal
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from tests.integration.programs import wait_until
from tests.integration.running import KILLED, Bench, Started
from tests.kafka.brokers import Broker
from tests.kafka.conftest import OwnKafka
from tests.kafka.medium import KafkaMedium, kafka_bench
from tests.load.kafka import sizes_program

PARTITIONS = 2
DEFAULT_LIMIT = 1_048_588
"""Kafka's default of message.max.bytes."""
LARGE_LIMIT = 20_000_000
"""More than the source fetches at once and buffers, and than librdkafka writes without being told."""
NO_LIMIT = 100_000_000
OVERHEAD_MAX = 128
"""Bytes of a batch with one record that are not its value, at most."""
SIZES = (0, 1, 100, 65_535, 65_536, 131_072, 999_999, 1_000_000)


class Sizes:
    """A job, and values that were written for it."""

    def __init__(self, bench: Bench, broker: Broker) -> None:
        self.bench = bench
        self.broker = broker
        self.name = bench.medium.name("sizes")
        self.input, self.output = bench.medium.name("sizes-in"), bench.medium.name("sizes-out")
        self.values: dict[bytes, bytes] = {}
        self._producer = Producer({"bootstrap.servers": broker.bootstrap, "message.max.bytes": NO_LIMIT})
        for topic in (self.input, self.output):
            bench.medium.create_topic(topic, PARTITIONS)

    def largest(self, limit: int) -> int:
        """The size of the largest value that the broker takes with a key of ours, found by trying."""
        topic = self.broker.create_topic()
        fits, refused = limit - OVERHEAD_MAX, limit
        assert self._takes(topic, fits)
        while refused - fits > 1:
            size = (fits + refused) // 2
            fits, refused = (size, refused) if self._takes(topic, size) else (fits, size)
        return fits

    def _takes(self, topic: str, size: int) -> bool:
        errors: list[KafkaError | None] = []
        self._producer.produce(topic, bytes(size), key_of(0), on_delivery=lambda error, _: errors.append(error))
        self._producer.flush(30)
        (error,) = errors
        assert error is None or error.code() == KafkaError.MSG_SIZE_TOO_LARGE, error
        return error is None

    def feed(self, sizes: list[int]) -> None:
        """A value of each size, every one under a key of its own."""
        for size in sizes:
            key = key_of(len(self.values))
            self.values[key] = random.Random(size).randbytes(size)
            self._send(key, self.values[key])

    def ask(self, keys: list[bytes]) -> None:
        """For what was remembered."""
        for key in keys:
            self._send(key, None)

    def _send(self, key: bytes, value: bytes | None) -> None:
        errors: list[KafkaError] = []
        self._producer.produce(
            self.input,
            value,
            key,
            partition=int(key) % PARTITIONS,
            on_delivery=lambda error, _: errors.extend([error] if error else []),
        )
        self._producer.flush(30)
        if errors:
            raise KafkaException(errors[0])

    def start(self, backend: str, *words: str) -> Started:
        arguments = [*self.bench.medium.arguments, "--job", self.name, "--input", self.input, "--output", self.output]
        options = ["--checkpoint-interval", "300ms", "--state-backend", backend]
        return self.bench.start_program(
            sizes_program.__file__, [*arguments, "--limit", str(NO_LIMIT), *words], self.name, options=options
        )

    def covered(self) -> int:
        """Records that the newest completed checkpoint covers."""
        newest = self.bench.view(self.name).newest if self.bench.checkpoints.exists() else None
        return sum(split.position for record in (newest.operators if newest else ()) for split in record.splits)

    def out(self) -> dict[bytes, bytes]:
        found = [(record.key or b"", record.value) for record in self.broker.read(self.output)]
        assert len(dict(found)) == len(found), "a key came twice"
        return {key: value for key, value in found if value is not None}


def key_of(number: int) -> bytes:
    return b"%04d" % number


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize(("limit", "backend"), [(DEFAULT_LIMIT, "fs"), (LARGE_LIMIT, "rocksdb")])
def test_records_up_to_the_brokers_limit_come_through_and_one_byte_more_is_one_error(
    own_kafka: OwnKafka, tmp_path: Path, limit: int, backend: str
) -> None:
    broker = own_kafka(settings={"message.max.bytes": limit})
    with kafka_bench(broker, tmp_path) as bench:
        job = Sizes(bench, broker)
        largest = job.largest(limit)
        sizes = [*SIZES, largest - 1, largest]
        # Those with odd and those with even numbers lie in different partitions, and each goes to either worker.
        job.feed([*sizes, 0, *sizes])
        started = job.start(backend)
        wait_until(
            lambda: started.process.poll() is not None or job.covered() >= len(job.values), "a checkpoint of all"
        )
        started.send_to_all(signal.SIGKILL)
        assert started.wait() == KILLED, started.said

        # One byte more than the broker takes is asked for first.
        (too_large, *_) = [key for key, value in job.values.items() if len(value) == largest]
        before = job.covered()
        job.ask([too_large])
        refused = job.start(backend, "--more", "1")
        assert refused.wait() == 2, refused.said
        assert f"A record of {largest + 1:,} bytes is larger than topic '{job.output}'" in refused.said
        assert refused.said.count("is larger than topic") == 1, refused.said
        assert "max.message.bytes" in refused.said
        assert "Traceback" not in refused.said
        assert job.covered() == before
        assert job.out() == {}

        job.ask([key for key in job.values if key != too_large])
        again = job.start(backend)
        again.wait_until(lambda: len(job.out()) == len(job.values), "all values")
        again.process.send_signal(signal.SIGTERM)
        assert again.wait() == 0, again.said
        assert job.out() == job.values
        assert isinstance(bench.medium, KafkaMedium)
        bench.medium.assert_readers_are_free(job.output)
