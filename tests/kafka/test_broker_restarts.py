"""The broker is killed and comes back while a process of the job stands at a fail point: nothing is lost or doubled.

The other processes meanwhile go on without a broker. Attempts may fail; the job may not.
"""

import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.integration.running import Bench
from tests.integration.test_crash_matrix import POINTS, Point
from tests.kafka import medium
from tests.kafka.brokers import VERSION, Broker
from tests.kafka.medium import kafka_bench
from tidegate.connectors.kafka.connection import Client
from tidegate.deploy.dev_kafka import DevKafka

STREAM = replace(medium.STREAM, options=(*medium.STREAM.options, "--restart", "fixed-delay:100:100ms"))
QUICK = ("log-append:after", "commit:before")


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that these tests kill and restart."""
    cluster = DevKafka(tmp_path_factory.mktemp("mortal-kafka"), version=VERSION)
    cluster.start()
    try:
        yield Broker(cluster)
    finally:
        cluster.kill_all()


@pytest.fixture
def bench(mortal: Broker, tmp_path: Path, job_client: Client) -> Iterator[Bench]:
    with kafka_bench(mortal, tmp_path, job_client) as made:
        yield made


@pytest.mark.parametrize(
    "point",
    [pytest.param(point, id=point.place, marks=() if point.name in QUICK else pytest.mark.slow) for point in POINTS],
)
def test_a_broker_that_dies_and_comes_back_costs_no_record(mortal: Broker, bench: Bench, point: Point) -> None:
    answer = STREAM.fill(bench, point.users)
    fail_points = [text for text in (point.first, f"{point.place}=stop") if text]
    started = STREAM.start_until(bench, ",".join(fail_points), len(fail_points) - 1)
    started.wait_until_stopped()
    mortal.kafka.kill()
    mortal.kafka.restart()
    started.send_to_all(signal.SIGCONT)
    bench.hurry.touch()
    assert started.wait() == 0, started.said
    bench.assert_right(answer)
