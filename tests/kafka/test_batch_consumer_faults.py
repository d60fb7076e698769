"""The client of whole record batches while brokers slow it down, networks break and leaders move: nothing is read
twice, and nothing is passed over."""

import time
from collections.abc import Callable, Iterator

import pytest

from tests.kafka.brokers import PATIENCE, VERSION, Broker
from tests.kafka.collecting import Collected, batches, beginnings, ends
from tests.kafka.conftest import OwnKafka
from tests.kafka.proxy import ProxiedBroker
from tidegate.connectors.kafka.client import TopicPartition
from tidegate.deploy.dev_kafka import DevKafka
from tidegate.errors import LostDataError

pytestmark = pytest.mark.slow

# ---- brokers that want less ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_quota_slows_it_down_and_nothing_is_lost(own_kafka: OwnKafka) -> None:
    """Brokers say for how long they want to hear nothing, and hang up on nobody who listens."""
    kafka = own_kafka(settings={"quota.window.num": 2, "quota.window.size.seconds": 1})
    topic = kafka.create_topic()
    kafka.produce(topic, ["x" * 1000] * 3000)
    quota(kafka, "slow", 1_000_000)
    begun = time.monotonic()
    with batches(kafka, **{"client.id": "slow", "max.partition.fetch.bytes": 200_000}) as own:
        Collected(own, beginnings(kafka, topic)).until(ends(kafka, topic))
    assert time.monotonic() - begun > 1


def quota(kafka: Broker, client_id: str, bytes_per_second: int) -> None:
    from kafka.protocol.admin import AlterClientQuotasRequest

    from tidegate.connectors.kafka.wire import Brokers

    entry = AlterClientQuotasRequest.EntryData
    request = AlterClientQuotasRequest(
        entries=[
            entry(
                entity=[entry.EntityData(entity_type="client-id", entity_name=client_id, version=0)],
                ops=[entry.OpData(key="consumer_byte_rate", value=float(bytes_per_second), remove=False, version=0)],
                version=0,
            )
        ],
        validate_only=False,
        version=0,
    )
    brokers = Brokers(kafka.bootstrap, {"client_id": "test"}, 10)
    (answer,) = brokers.send_any(request).entries
    assert answer.error_code == 0
    brokers.close()


# ---- networks that break -------------------------------------------------------------------------------------------


def through_trouble(network: ProxiedBroker, trouble: Callable[[int], object], seconds: float = 4.0) -> None:
    """Everything is read once while the trouble comes again and again."""
    broker = network.broker
    topic = broker.create_topic(partitions=3)
    keys = [f"{number}" for number in range(400)]
    settings = {"socket.timeout.ms": 1000, "max.partition.fetch.bytes": 20_000, "client.id": "troubled"}
    with batches(broker, **settings) as own:
        found = Collected(own, dict.fromkeys([TopicPartition(topic, number) for number in range(3)], 0))
        begun, count = time.monotonic(), 0
        while time.monotonic() < begun + seconds:
            broker.produce(topic, [f"{count} {key} {'z' * 100}" for key in keys], keys=keys)
            trouble(count)
            count += 1
            for _ in range(20):
                found.poll()
        network.heal()
        found.until(ends(broker, topic))
    values = [value.split()[:2] for one in found.values().values() for value in one]
    assert sorted(values) == sorted([b"%d" % turn, key.encode()] for turn in range(count) for key in keys)


def test_connections_that_are_reset_cost_no_record(network: ProxiedBroker) -> None:
    through_trouble(network, lambda turn: network.proxy.reset_connections())


@pytest.mark.slow
def test_answers_and_requests_that_are_lost_cost_no_record(network: ProxiedBroker) -> None:
    def trouble(turn: int) -> None:
        lose = network.proxy.lose_replies if turn % 2 else network.proxy.lose_requests
        lose(("Fetch", "Metadata", "ApiVersions")[turn % 3], times=1, reset=turn % 4 < 2)

    through_trouble(network, trouble, 8)


@pytest.mark.slow
def test_a_network_that_goes_dark_and_slow_costs_no_record(network: ProxiedBroker) -> None:
    def trouble(turn: int) -> None:
        if turn % 8 == 2:
            network.proxy.cut()
        elif turn % 8 == 4:
            network.heal()
        elif turn % 8 == 5:
            network.proxy.throttle(300_000)

    through_trouble(network, trouble, 10)


# ---- leaders that move ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Three nodes, which tests here kill and start again."""
    settings = {"unclean.leader.election.enable": False, "min.insync.replicas": 1}
    cluster = DevKafka(tmp_path_factory.mktemp("three"), nodes=3, version=VERSION, settings=settings)
    cluster.start()
    try:
        yield Broker(cluster)
    finally:
        cluster.kill_all()


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_leaders_that_die_and_come_back_cost_no_record(three: Broker) -> None:
    topic = three.create_topic(partitions=6, copies=3)
    keys = [f"{number}" for number in range(200)]
    turns = 0
    with batches(three, **{"socket.timeout.ms": 3000}) as own:
        found = Collected(own, dict.fromkeys([TopicPartition(topic, number) for number in range(6)], 0))
        for node in (1, 2, 3):
            for step in range(6):
                three.produce(topic, [f"{turns} {key}" for key in keys], keys=keys)
                turns += 1
                if step == 2:
                    three.kafka.kill(node)
                for _ in range(30):
                    found.poll()
            three.kafka.restart(node)
        found.until(ends(three, topic), 90)
    values = [value.split() for one in found.values().values() for value in one]
    assert sorted(values) == sorted([b"%d" % turn, key.encode()] for turn in range(turns) for key in keys)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_leader_that_had_not_everything_is_found_out(three: Broker) -> None:
    """It is elected though it was not in sync. When others have written since, the offset is there with another record,
    and only the epoch of what was read before shows it."""
    topic = three.create_topic(copies=2, config={"unclean.leader.election.enable": "true"})
    partition = TopicPartition(topic, 0)
    metadata = three.admin.list_topics(topic, timeout=PATIENCE).topics[topic].partitions[0]
    leader = metadata.leader
    (follower,) = [node for node in metadata.replicas if node != leader]
    three.produce(topic, ["both"])
    with batches(three, **{"socket.timeout.ms": 3000}) as own:
        found = Collected(own, {partition: 0}).until({partition: 1})
        three.kafka.kill(follower)
        wait_for(lambda: isrs(three, topic) == [leader])
        three.produce(topic, ["only the leader"] * 5)
        found.until({partition: 6})
        three.kafka.kill(leader)
        three.kafka.restart(follower)
        wait_for(lambda: isrs(three, topic) == [follower])
        three.produce(topic, ["another"] * 20)
        with pytest.raises(LostDataError, match=f"{topic}/0 at .* has lost records that were already read"):
            found.until({partition: 99})
    three.kafka.restart(leader)
    assert found.column("values", partition) == [b"both", *[b"only the leader"] * 5]


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_replica_in_the_readers_rack_is_read_while_it_lives(own_kafka: OwnKafka) -> None:
    selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
    three = own_kafka(nodes=3, settings={"broker.rack": "far", "replica.selector.class": selector})
    three.kafka.kill(2)
    three.kafka.restart(2, {"broker.rack": "near"})
    topic = three.create_topic(partitions=3, copies=3)
    wait_for(lambda: len(isrs(three, topic)) == 3)
    partitions = [TopicPartition(topic, number) for number in range(3)]
    count = 0

    def produce() -> None:
        nonlocal count
        three.produce_in_transaction(topic, [f"{count}-{number}" for number in range(10)], commit=count % 3 != 1)
        three.produce(topic, [f"{count}"] * 20, keys=[f"{number}" for number in range(20)])
        count += 1

    with batches(three, **{"socket.timeout.ms": 3000, "client.rack": "near"}) as own:
        found = Collected(own, dict.fromkeys(partitions, 0))

        def asked() -> set[int]:
            return {own._fetcher._readings[partition].node for partition in partitions}

        for _ in range(5):
            produce()
        found.until(ends(three, topic))
        assert asked() == {2}
        three.kafka.kill(2)
        for _ in range(5):
            produce()
        found.until(ends(three, topic))
        assert 2 not in asked()
    for partition in partitions:
        assert found.column("values", partition) == [
            one.value for one in three.read(topic) if one.partition == partition.partition
        ]


def isrs(broker: Broker, topic: str) -> list[int]:
    one = broker.admin.list_topics(topic, timeout=PATIENCE).topics[topic].partitions[0]
    return list(one.isrs) if one.leader >= 0 else []


def wait_for(condition: Callable[[], bool], patience: float = 60.0) -> None:
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.1)
