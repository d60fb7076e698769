"""Logins, permissions and TLS on a real broker: who is let in, what a refusal says, and that no password gets out."""

import logging
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import trustme
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography.hazmat.primitives import serialization

from tests.kafka.brokers import VERSION, Broker, unique
from tests.kafka.conftest import OwnKafka
from tidegate.connectors.kafka.client import EndAnswer, TopicPartition, TransactionState
from tidegate.connectors.kafka.connection import Connection
from tidegate.connectors.kafka.transactions import KafkaTransactionAdmin
from tidegate.deploy.dev_kafka import DevKafka, TlsFiles
from tidegate.errors import InvalidError, UnavailableError

PATIENCE = 30.0
PASSWORD = "app-secret"
LOGIN = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN", "sasl.username": "app"}
FULL_LOGIN = LOGIN | {"sasl.password": PASSWORD}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker with a login, where the user `app` may do what a test allows. The Broker itself may do everything."""
    cluster = DevKafka(tmp_path_factory.mktemp("guarded"), version=VERSION, security="sasl")
    cluster.start()
    try:
        yield Broker(cluster, FULL_LOGIN | {"sasl.username": "admin", "sasl.password": "admin-secret"})
    finally:
        cluster.kill_all()


@pytest.fixture
def app(guarded: Broker) -> Iterator[KafkaTransactionAdmin]:
    admin = KafkaTransactionAdmin(Connection(guarded.bootstrap, FULL_LOGIN), patience=5)
    yield admin
    admin.close()


def allow(broker: Broker, resource: ResourceType, name: str, *operations: AclOperation) -> None:
    """Returns when the broker has heard of it: it is the controller that answers first."""
    for operation in operations:
        words = (resource, name, ResourcePatternType.LITERAL, "User:app", "*", operation, AclPermissionType.ALLOW)
        for future in broker.admin.create_acls([AclBinding(*words)]).values():
            future.result(PATIENCE)
        deadline = time.monotonic() + PATIENCE
        while not broker.admin.describe_acls(AclBindingFilter(*words)).result(PATIENCE):
            assert time.monotonic() < deadline, f"the broker has not heard of {words}"


# ---- logging in ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (LOGIN | {"sasl.password": "wrong"}, "SASL PLAIN: SASL_AUTHENTICATION_FAILED"),
        (LOGIN | {"sasl.password": "x", "sasl.username": "nobody"}, "SASL PLAIN: SASL_AUTHENTICATION_FAILED"),
        (
            FULL_LOGIN | {"sasl.mechanism": "SCRAM-SHA-256"},
            "SASL SCRAM-SHA-256: UNSUPPORTED_SASL_MECHANISM, it offers PLAIN",
        ),
    ],
)
def test_a_refused_login_is_said_at_once(guarded: Broker, settings: dict[str, str], text: str) -> None:
    admin = KafkaTransactionAdmin(Connection(guarded.bootstrap, settings))
    started = time.monotonic()
    with pytest.raises(InvalidError) as raised:
        admin.describe("id")
    assert time.monotonic() - started < 5
    assert f"Kafka broker {guarded.bootstrap}, {text}" in raised.value.failure.message
    assert "sasl." in raised.value.failure.remedy
    assert settings["sasl.password"] not in str(raised.value).replace("wrong version", "")


def test_without_a_login_the_broker_hangs_up(guarded: Broker) -> None:
    admin = KafkaTransactionAdmin(Connection(guarded.bootstrap), patience=0.2)
    with pytest.raises(UnavailableError, match=r"security\.protocol"):
        admin.describe("id")


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_both_libraries_log_in_with_scram(own_kafka: OwnKafka, mechanism: str) -> None:
    kafka = own_kafka(security="sasl", settings=scram_settings(mechanism))
    inside = AdminClient({"bootstrap.servers": kafka.kafka.internal_bootstrap})
    info = ScramCredentialInfo(getattr(ScramMechanism, mechanism.replace("-", "_")), 4096)
    upsertion = UserScramCredentialUpsertion("admin", info, b"scram-secret")
    for future in inside.alter_user_scram_credentials([upsertion]).values():
        future.result(PATIENCE)
    settings = LOGIN | {"sasl.mechanism": mechanism, "sasl.username": "admin", "sasl.password": "scram-secret"}
    connection = Connection(kafka.bootstrap, settings)
    assert AdminClient(connection.admin_config()).list_topics(timeout=PATIENCE).brokers
    assert KafkaTransactionAdmin(connection).describe("nobody") is None
    wrong = KafkaTransactionAdmin(Connection(kafka.bootstrap, settings | {"sasl.password": "wrong"}))
    with pytest.raises(InvalidError, match=f"SASL {mechanism}: SASL_AUTHENTICATION_FAILED"):
        wrong.describe("nobody")


def scram_settings(mechanism: str) -> dict[str, str]:
    module = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    return {
        "sasl.enabled.mechanisms": mechanism,
        f"listener.name.clients.{mechanism.lower()}.sasl.jaas.config": module,
    }


# ---- permissions -----------------------------------------------------------------------------------------------------


def test_each_operation_names_the_permission_that_it_lacks(guarded: Broker, app: KafkaTransactionAdmin) -> None:
    id, topic = unique("transaction"), guarded.create_topic()
    guarded.produce_in_transaction(topic, ["a"], transactional_id=id, commit=None)

    def remedy_of(operation: str) -> str:
        with pytest.raises(InvalidError) as raised:
            {
                "describe": lambda: app.describe(id),
                "commit": lambda: app.commit(id, 1, 1),
                "fence": lambda: app.fence(id),
                "producers": lambda: app.producers([TopicPartition(topic, 0)]),
            }[operation]()
        return raised.value.failure.remedy

    assert remedy_of("describe") == f"The user needs WRITE (it includes DESCRIBE) on the transactional id {id!r}."
    allow(guarded, ResourceType.TRANSACTIONAL_ID, id, AclOperation.DESCRIBE)
    assert app.describe(id) is not None
    assert remedy_of("commit") == f"The user needs WRITE on the transactional id {id!r}."
    assert remedy_of("fence") == f"The user needs WRITE on the transactional id {id!r}."
    assert remedy_of("producers") == f"The user needs READ and DESCRIBE on the topic {topic!r}."


def test_with_its_permissions_every_operation_works(guarded: Broker, app: KafkaTransactionAdmin) -> None:
    id, topic = unique("transaction"), guarded.create_topic()
    guarded.produce_in_transaction(topic, ["a"], transactional_id=id, commit=None)
    allow(guarded, ResourceType.TRANSACTIONAL_ID, id, AclOperation.DESCRIBE, AclOperation.WRITE)
    allow(guarded, ResourceType.TOPIC, topic, AclOperation.READ, AclOperation.DESCRIBE)
    owner = app.describe(id)
    assert owner is not None
    # Whatever else is open: a user is shown only those that it may describe.
    assert id in app.open_ids()
    assert [row.records for row in app.producers(owner.partitions)] == [1]
    assert app.commit(id, owner.producer_id, owner.epoch) is EndAnswer.DONE
    app.fence(id)
    after = app.describe(id)
    assert after is not None
    assert after.state is TransactionState.EMPTY


def test_transactions_that_the_user_may_not_describe_are_not_listed(
    guarded: Broker, app: KafkaTransactionAdmin
) -> None:
    left = guarded.produce_in_transaction(guarded.create_topic(), ["a"], commit=None)
    assert left.transactional_id not in app.open_ids()


def test_the_maximum_timeout_is_assumed_where_it_may_not_be_read(
    guarded: Broker, app: KafkaTransactionAdmin, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "tidegate.kafka"):
        assert [app.maximum_timeout(), app.maximum_timeout()] == [900, 900]
    (record,) = [record for record in caplog.records if record.name == "tidegate.kafka"]
    assert "DESCRIBE_CONFIGS on the cluster" in record.getMessage()
    allow(guarded, ResourceType.BROKER, "kafka-cluster", AclOperation.DESCRIBE_CONFIGS)
    caplog.clear()
    assert app.maximum_timeout() == 900
    assert not caplog.records


# ---- secrets ---------------------------------------------------------------------------------------------------------


def test_a_password_is_in_no_log_of_a_full_connect_at_its_most_talkative(
    guarded: Broker, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    connection = Connection(guarded.bootstrap, FULL_LOGIN | {"debug": "all", "log_level": 7})
    with caplog.at_level(1):
        admin = KafkaTransactionAdmin(connection)
        admin.open_ids()
        producer = Producer(connection.producer_config())
        assert producer.list_topics(timeout=PATIENCE).brokers
        producer.poll(0.1)
        logging.getLogger("test").info("%s %r %s", connection, connection, connection.arguments())
        admin.close()
    said = "\n".join(record.getMessage() for record in caplog.records) + "".join(capfd.readouterr())
    assert "sasl.username" in said
    assert "SASL" in said
    assert PASSWORD not in said


# ---- TLS -------------------------------------------------------------------------------------------------------------


class Tls(NamedTuple):
    broker: Broker
    authority: trustme.CA
    settings: dict[str, str]
    """With a client's certificate."""


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tls]:
    """A broker that shows a certificate and wants one."""
    folder, authority = tmp_path_factory.mktemp("tls"), trustme.CA()
    authority.cert_pem.write_to_path(folder / "authority.pem")
    (folder / "server.pem").write_bytes(server_identity(authority.issue_cert("127.0.0.1")))
    settings = {
        "security.protocol": "ssl",
        "ssl.ca.location": str(folder / "authority.pem"),
        **client_settings(authority, folder),
    }
    files = TlsFiles(folder / "server.pem", client_authority=folder / "authority.pem")
    cluster = DevKafka(folder / "kafka", version=VERSION, security=files)
    cluster.start()
    try:
        yield Tls(Broker(cluster, settings), authority, settings)
    finally:
        cluster.kill_all()


def server_identity(certificate: trustme.LeafCert) -> bytes:
    """Key and certificate as Java reads them: the key in PKCS 8."""
    key = serialization.load_pem_private_key(certificate.private_key_pem.bytes(), None)
    encryption = serialization.NoEncryption()
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
    return pem + b"".join(part.bytes() for part in certificate.cert_chain_pems)


def client_settings(authority: trustme.CA, folder: Path) -> dict[str, str]:
    identity = authority.issue_cert("client.example")
    identity.cert_chain_pems[0].write_to_path(folder / "client.pem")
    identity.private_key_pem.write_to_path(folder / "client-key.pem")
    return {
        "ssl.certificate.location": str(folder / "client.pem"),
        "ssl.key.location": str(folder / "client-key.pem"),
    }


def test_both_libraries_connect_by_tls_with_a_certificate(tls: Tls) -> None:
    connection = Connection(tls.broker.bootstrap, tls.settings)
    topic = tls.broker.create_topic()
    left = tls.broker.produce_in_transaction(topic, ["a"], commit=None)
    admin = KafkaTransactionAdmin(connection)
    owner = admin.describe(left.transactional_id)
    assert owner is not None
    assert admin.commit(owner.id, owner.producer_id, owner.epoch) is EndAnswer.DONE
    assert AdminClient(connection.admin_config()).list_topics(timeout=PATIENCE).brokers


@pytest.mark.parametrize("left_out", [{"ssl.ca.location"}, {"ssl.certificate.location", "ssl.key.location"}])
def test_a_certificate_that_is_missing_on_either_side_is_said_at_once(tls: Tls, left_out: set[str]) -> None:
    settings = {name: value for name, value in tls.settings.items() if name not in left_out}
    admin = KafkaTransactionAdmin(Connection(tls.broker.bootstrap, settings))
    started = time.monotonic()
    with pytest.raises(InvalidError, match=r"(?i)certificate") as raised:
        admin.describe("id")
    assert time.monotonic() - started < 5
    assert isinstance(raised.value.__cause__, ssl.SSLError)
    assert "ssl.*" in raised.value.failure.remedy


def test_a_plain_client_of_a_tls_listener_is_told_so(tls: Tls) -> None:
    admin = KafkaTransactionAdmin(Connection(tls.broker.bootstrap), patience=0.2)
    with pytest.raises(UnavailableError, match=r"security\.protocol"):
        admin.describe("id")


def test_a_tls_client_of_a_plain_listener_is_told_so(guarded: Broker) -> None:
    settings = {"security.protocol": "ssl", "socket.timeout.ms": 2000}
    admin = KafkaTransactionAdmin(Connection(guarded.kafka.internal_bootstrap, settings), patience=0.2)
    with pytest.raises((UnavailableError, InvalidError), match=r"security\.protocol"):
        admin.describe("id")
