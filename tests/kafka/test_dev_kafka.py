"""The Kafka of development and tests: it keeps data over restarts and kills, and goes with whoever started it."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from tests.integration.programs import wait_until
from tests.kafka.brokers import VERSION, Broker, login
from tests.kafka.certificates import make_certificates
from tests.kafka.conftest import OwnKafka
from tidegate.deploy.dev_kafka import DevKafka, ensure_jars
from tidegate.deploy.dev_kafka.ports import free_ports
from tidegate.deploy.processes import is_running, process_record
from tidegate.errors import UnavailableError


def test_records_that_are_produced_are_read(kafka: Broker) -> None:
    topic = kafka.create_topic(partitions=2)
    kafka.produce(topic, ["a", None], keys=["k", b"l"], partition=1, headers=[[("h", b"1")], []], timestamps=[7, 8])
    kafka.produce(topic, [b"c"], partition=0)
    first, second, third = kafka.read(topic)
    assert (first.partition, first.offset, first.key, first.value) == (0, 0, None, b"c")
    assert second == (1, 0, b"k", b"a", 7, [("h", b"1")])
    assert third == (1, 1, b"l", None, 8, [])


def test_a_transaction_is_visible_when_it_is_committed(kafka: Broker) -> None:
    topic = kafka.create_topic()
    transaction = kafka.produce_in_transaction(topic, ["a", "b"], commit=None)
    assert kafka.values(topic) == []
    assert kafka.values(topic, "read_uncommitted") == [b"a", b"b"]
    assert kafka.end_offsets(topic) == {0: 2}
    assert kafka.end_offsets(topic, "read_committed") == {0: 0}
    transaction.commit()
    assert kafka.values(topic) == [b"a", b"b"]


def test_a_transaction_that_is_aborted_is_never_visible(kafka: Broker) -> None:
    topic = kafka.create_topic()
    kafka.produce_in_transaction(topic, ["a"], commit=False)
    kafka.produce_in_transaction(topic, ["b"], commit=True)
    assert kafka.values(topic) == [b"b"]


def test_offsets_groups_and_partitions_can_be_changed(kafka: Broker) -> None:
    topic = kafka.create_topic()
    kafka.produce(topic, ["a", "b", "c"])
    kafka.delete_records(topic, 0, 2)
    kafka.add_partitions(topic, 3)
    kafka.set_group_offsets(f"group-of-{topic}", topic, {0: 2})
    assert kafka.values(topic) == [b"c"]
    assert kafka.start_offsets(topic) == {0: 2, 1: 0, 2: 0}
    assert kafka.group_offsets(f"group-of-{topic}", topic) == {0: 2}
    assert kafka.group_offsets("a-group-that-nobody-made", topic) == {}
    kafka.delete_topic(topic)


# ---- life and death ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One node that these tests stop and kill; each leaves it running. Its cluster id is the most awkward one."""
    folder = tmp_path_factory.mktemp("mortal-kafka")
    (folder / "cluster-id").write_text("-_" * 11)
    cluster = DevKafka(folder, version=VERSION)
    cluster.start()
    try:
        yield Broker(cluster)
    finally:
        cluster.kill_all()


@pytest.mark.parametrize("end", [DevKafka.stop, DevKafka.kill])
def test_a_node_that_is_stopped_or_killed_comes_back_with_address_and_data(mortal: Broker, end: object) -> None:
    topic, address = mortal.create_topic(), mortal.bootstrap
    mortal.produce_in_transaction(topic, ["a"])
    open_one = mortal.produce_in_transaction(topic, ["b"], commit=None)
    assert callable(end)
    end(mortal.kafka)
    mortal.kafka.restart()
    mortal.produce(topic, ["c"])
    assert mortal.bootstrap == address
    assert mortal.values(topic) == [b"a"]
    open_one.commit()
    assert mortal.values(topic) == [b"a", b"b", b"c"]


def test_a_node_that_is_paused_answers_when_it_is_resumed(mortal: Broker) -> None:
    topic = mortal.create_topic()
    mortal.kafka.pause()
    impatient = AdminClient({"bootstrap.servers": mortal.bootstrap, "log_level": 0})
    with pytest.raises(KafkaException):
        impatient.list_topics(timeout=0.5)
    mortal.kafka.resume()
    mortal.produce(topic, ["a"])
    assert mortal.values(topic) == [b"a"]


def test_two_clusters_side_by_side_know_nothing_of_each_other(kafka: Broker, mortal: Broker) -> None:
    ours, theirs = kafka.create_topic(), mortal.create_topic()
    assert theirs not in kafka.admin.list_topics().topics
    assert ours not in mortal.admin.list_topics().topics


@pytest.mark.slow
def test_a_setting_is_changed_by_a_restart(mortal: Broker) -> None:
    mortal.kafka.restart(settings={"auto.create.topics.enable": True})
    try:
        mortal.produce("a-topic-that-nobody-made", ["a"])
        assert mortal.values("a-topic-that-nobody-made") == [b"a"]
    finally:
        mortal.kafka.restart(settings={"auto.create.topics.enable": False})


def test_a_node_that_does_not_start_shows_the_end_of_its_log(tmp_path: Path) -> None:
    kafka = DevKafka(tmp_path, version=VERSION, settings={"log.segment.bytes": "many"})
    with pytest.raises(UnavailableError, match=r"(?s)server\.log.*log\.segment\.bytes"):
        kafka.start()


STARTER = """
import sys, time
from pathlib import Path
from tidegate.deploy.dev_kafka import DevKafka
kafka = DevKafka(Path(sys.argv[1]), version=sys.argv[2])
kafka.start()
print(kafka.pid(), flush=True)
time.sleep(600)
"""


def test_nodes_go_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", STARTER, str(tmp_path), VERSION]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        try:
            node = process_record(int(parent.stdout.readline()))
            assert is_running(node)
        finally:
            parent.kill()
    wait_until(lambda: not is_running(node), "the node is gone")


def test_jars_that_are_there_are_not_fetched_again(monkeypatch: pytest.MonkeyPatch, kafka: Broker) -> None:
    monkeypatch.setenv("PATH", "")
    folder = ensure_jars(kafka.kafka.version)
    assert any(path.name.startswith("kafka-clients") for path in folder.iterdir())


# ---- what else it can be -------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_three_nodes_go_on_without_one(own_kafka: OwnKafka) -> None:
    broker = own_kafka(nodes=3)
    topic = broker.create_topic(partitions=3, copies=3)
    broker.produce_in_transaction(topic, ["a"])
    broker.kafka.kill(2)
    broker.produce_in_transaction(topic, ["b"])
    broker.kafka.restart(2)
    broker.kafka.kill(1)
    broker.produce_in_transaction(topic, ["c"])
    assert sorted(map(str, broker.values(topic))) == ["b'a'", "b'b'", "b'c'"]
    broker.kafka.stop()
    broker.kafka.start()
    assert sorted(map(str, broker.values(topic))) == ["b'a'", "b'b'", "b'c'"]


@pytest.mark.slow
@pytest.mark.parametrize("version", ["3.9.1", "4.0.0"])
def test_older_versions_can_be_started(own_kafka: OwnKafka, version: str) -> None:
    broker = own_kafka(version=version)
    topic = broker.create_topic()
    broker.produce_in_transaction(topic, ["a"])
    broker.kafka.kill()
    broker.kafka.restart()
    assert broker.values(topic) == [b"a"]
    assert (ensure_jars(version) / f"kafka-clients-{version}.jar").exists()


@pytest.mark.slow
def test_with_sasl_a_user_may_do_what_acls_allow(own_kafka: OwnKafka) -> None:
    admin = own_kafka(security="sasl")
    topic = admin.create_topic()
    admin.produce(topic, ["a"])
    app = Broker(admin.kafka, login("app"))
    assert topic not in app.admin.list_topics().topics
    everything = (ResourcePatternType.LITERAL, "User:app", "*", AclOperation.ALL, AclPermissionType.ALLOW)
    for future in admin.admin.create_acls([AclBinding(ResourceType.TOPIC, topic, *everything)]).values():
        future.result()
    wait_until(lambda: topic in app.admin.list_topics().topics, "the ACL is known")
    app.produce(topic, ["b"])
    assert app.values(topic) == [b"a", b"b"]
    with pytest.raises(KafkaException):
        Broker(admin.kafka, login("app") | {"sasl.password": "wrong"}).admin.list_topics(timeout=2)


@pytest.mark.slow
def test_with_tls_a_client_must_trust_and_be_trusted(own_kafka: OwnKafka, tmp_path: Path) -> None:
    certificates = make_certificates(tmp_path)
    broker = own_kafka(security=certificates.server, client=certificates.client)
    topic = broker.create_topic()
    broker.produce_in_transaction(topic, ["a"])
    assert broker.values(topic) == [b"a"]
    for settings in ({}, certificates.authority):
        with pytest.raises(KafkaException):
            Broker(broker.kafka, settings).admin.list_topics(timeout=2)


# ---- the command ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_the_command_runs_until_it_is_stopped_and_goes_on_with_its_data(tmp_path: Path, stop: signal.Signals) -> None:
    port = free_ports(1)[0]
    options = ["--version", VERSION, "--port", str(port), "--folder", str(tmp_path / "data"), "--topic", "orders:4"]
    command = [str(Path(sys.executable).parent / "tidegate"), "dev-kafka", *options]
    told: list[list[str]] = []
    for _ in range(2):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            lines = []
            for line in process.stdout:
                lines.append(line)
                if "Ctrl-C" in line:
                    os.kill(process.pid, stop)
            told.append(lines)
        assert process.returncode == 0
    first, second = told
    assert first[0] == "made topic orders:4\n"
    assert f"127.0.0.1:{port};" in first[1]
    assert second == first[1:]
