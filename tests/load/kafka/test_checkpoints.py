"""Hundreds of checkpoints on Kafka, as quickly as they come: what the processes hold stops growing.

Each checkpoint opens and gives back producers, connections, files and transactional ids; one of them that stays is
invisible in a short test and ends a long job.
"""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration import order_writer
from tests.integration.exactly_once import answer_of
from tests.integration.programs import wait_until
from tests.integration.running import Bench, orders
from tests.kafka.conftest import OwnKafka
from tests.kafka.medium import KafkaMedium, kafka_bench
from tests.load.watch import Watch

CHECKPOINTS = int(os.environ.get("LOAD_KAFKA_CHECKPOINTS", "600"))
MEMORY = 6 * 1024
"""KiB. Allocators give every thread of librdkafka memory of its own and take it back late: medians of two quarters of
such runs differ by up to 3 MiB."""


@pytest.fixture
def bench(own_kafka: OwnKafka, tmp_path: Path) -> Iterator[Bench]:
    with kafka_bench(own_kafka(), tmp_path) as made:
        yield made


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_hundreds_of_checkpoints_on_kafka_leave_nothing_that_goes_on_growing(bench: Bench, tmp_path: Path) -> None:
    medium, local = bench.medium, tmp_path / "local"
    assert isinstance(medium, KafkaMedium)

    def ids() -> int:
        return sum(id.partition(":")[0] == bench.job for id in medium.transactional_ids())

    with order_writer.running(bench.topic, medium.arguments) as writer:
        wait_until(bench.has_orders, "the first order")
        options = ["--checkpoint-interval", "1ms", "--set", f"state.local_dir={local}"]
        started = bench.start(options=options)
        started.wait_until(lambda: bench.checkpoints.exists() and bench.read_up_to() > 0, "the first checkpoint")
        begun = time.monotonic()
        watch = Watch(bench, started, MEMORY, local, ids)
        reached = watch.until(CHECKPOINTS)
        took = time.monotonic() - begun
        said, _ = writer.communicate("", timeout=30)
    count = int(said)
    started.wait_until(lambda: bench.read_up_to() == count, "the last order's checkpoint")
    started.process.send_signal(signal.SIGTERM)
    assert started.wait() == 0, started.said
    print(f"\nKafka: {reached} checkpoints in {took:.0f} s, {count} orders\n{watch.course.table()}")
    bench.assert_right(answer_of(orders(0, count, order_writer.USERS)))
    assert bench.view().attempt == 1
    assert watch.course.growths() == []
