"""Kafka for tests: one broker that all share, and others that a test may kill and configure.

Where it cannot be started, the tests that need it fail with the reason: a test that is skipped says nothing.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.kafka.brokers import VERSION, Broker
from tests.kafka.proxy import ProxiedBroker, proxied_broker
from tidegate.connectors.kafka import connection
from tidegate.deploy.dev_kafka import DevKafka


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One node, started when the first test asks for it. Topics, groups and transactional ids are the test's own: take
    names from `create_topic` and `unique`. Nobody kills, pauses or configures it."""
    cluster = DevKafka(tmp_path_factory.mktemp("kafka"), version=VERSION)
    cluster.start()
    try:
        yield Broker(cluster)
    finally:
        cluster.kill_all()


OwnKafka = Callable[..., Broker]


@pytest.fixture
def own_kafka(tmp_path: Path) -> Iterator[OwnKafka]:
    """`own_kafka(nodes=1, settings={}, ...)` starts a cluster of the test's own; arguments are those of `DevKafka`, and
    `client`: librdkafka's settings, where the cluster wants any. The DevKafka, to kill and restart, is `.kafka` of what
    it returns."""
    clusters: list[DevKafka] = []

    def start(client: Mapping[str, Any] | None = None, **arguments: Any) -> Broker:
        folder = tmp_path / f"kafka-{len(clusters) + 1}"
        cluster = DevKafka(**{"folder": folder, "version": VERSION, **arguments})
        clusters.append(cluster)
        cluster.start()
        return Broker(cluster, client)

    try:
        yield start
    finally:
        for cluster in clusters:
            cluster.kill_all()


ProxiedKafka = Callable[..., ProxiedBroker]


@pytest.fixture
def proxied_kafka(tmp_path: Path) -> Iterator[ProxiedKafka]:
    """`proxied_kafka(nodes=1, settings={}, ...)` starts a cluster of the test's own whose clients come through a
    proxy for each node; arguments are those of `DevKafka`."""
    with ExitStack() as stack:

        def start(nodes: int = 1, **arguments: Any) -> ProxiedBroker:
            folder = tmp_path / f"proxied-kafka-{len(list(tmp_path.iterdir()))}"
            return stack.enter_context(proxied_broker(**{"folder": folder, "nodes": nodes, **arguments}))

        yield start


@pytest.fixture(scope="session")
def shared_proxied_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxiedBroker]:
    """For `network`."""
    with proxied_broker(folder=tmp_path_factory.mktemp("proxied-kafka")) as started:
        yield started


@pytest.fixture
def network(shared_proxied_kafka: ProxiedBroker) -> Iterator[ProxiedBroker]:
    """One node behind a proxy, started when the first test asks for it, without faults at the beginning and at the end
    of each test. Nobody kills, pauses or configures the node."""
    yield shared_proxied_kafka
    shared_proxied_kafka.heal()
    shared_proxied_kafka.proxy.reset_connections()


OTHER_CLIENT: connection.Client = "librdkafka" if connection.DEFAULT_CLIENT == "batches" else "batches"
FIRST_THE_DEFAULT = [connection.DEFAULT_CLIENT, pytest.param(OTHER_CLIENT, marks=pytest.mark.slow)]


@pytest.fixture(params=[connection.DEFAULT_CLIENT, OTHER_CLIENT])
def each_client(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> connection.Client:
    """Once with each client. Sources and sinks that name none use it, in this process and not in those it starts."""
    name: connection.Client = request.param
    monkeypatch.setattr(connection, "DEFAULT_CLIENT", name)
    return name


@pytest.fixture(params=FIRST_THE_DEFAULT)
def each_client_of_faults(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> connection.Client:
    """As `each_client`, for tests that take their time: the client that is not the default runs with the slow ones."""
    name: connection.Client = request.param
    monkeypatch.setattr(connection, "DEFAULT_CLIENT", name)
    return name


@pytest.fixture(params=FIRST_THE_DEFAULT)
def job_client(request: pytest.FixtureRequest) -> connection.Client:
    """As `each_client_of_faults`, for `kafka_bench`: of the jobs that a test starts."""
    name: connection.Client = request.param
    return name
