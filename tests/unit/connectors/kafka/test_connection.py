"""A Connection: what it takes and refuses, who gets which setting, and that secrets stay inside."""

import json
import logging
import pickle

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from tidegate.connectors.kafka.connection import Connection, environment_variable
from tidegate.connectors.kafka.settings import CONSUMER_ONLY, DECIDED, PRODUCER_ONLY, SHARED, is_secret, nearest
from tidegate.errors import InvalidError

SECRETS = {
    "sasl.password": "hush-1",
    "ssl.key.password": "hush-2",
    "ssl.key.pem": "hush-3",
    "ssl.keystore.password": "hush-4",
    "sasl.oauthbearer.client.secret": "hush-5",
    "sasl.oauthbearer.assertion.private.key.passphrase": "hush-6",
    "sasl.oauthbearer.config": "hush-7",
}

# ---- servers -------------------------------------------------------------------------------------------------------


def test_several_servers_are_separated_by_commas() -> None:
    assert Connection(" a.example:9092, [::1]:9093 ,10.0.0.1:1").bootstrap == "a.example:9092,[::1]:9093,10.0.0.1:1"


@pytest.mark.parametrize(
    ("bootstrap", "problem"),
    [
        ("", "a server is empty"),
        ("a:1,", "a server is empty"),
        ("a", "'a' has no port"),
        ("a:1,[::1]", "'[::1]' has no port"),
        ("a:port", "'a:port' is not HOST:PORT"),
        ("a b:1", "'a b:1' is not HOST:PORT"),
        ("::1:9092", "'::1:9092' is not HOST:PORT"),
        (":9092", "':9092' is not HOST:PORT"),
        ("a:0", "the port of 'a:0' is not between 1 and 65535"),
        ("a:65536", "the port of 'a:65536' is not between 1 and 65535"),
        ("SSL://a:1", "'SSL://a:1' begins with a protocol; that is the setting security.protocol"),
    ],
)
def test_a_malformed_server_is_named(bootstrap: str, problem: str) -> None:
    with pytest.raises(InvalidError) as raised:
        Connection(bootstrap)
    assert raised.value.failure.message == f"bootstrap={bootstrap!r}: {problem}"


# ---- settings ------------------------------------------------------------------------------------------------------


def test_plain_values_become_librdkafkas_text() -> None:
    settings = {"a": True, "b": False, "c": 7, "d": 5.0, "e": 0.5, "f": "x"}
    assert Connection("a:1", settings).settings == {"a": "true", "b": "false", "c": "7", "d": "5", "e": "0.5", "f": "x"}


@pytest.mark.parametrize("value", [None, b"x", ["x"], lambda error: None])
def test_a_value_that_is_no_plain_one_is_refused(value: object) -> None:
    with pytest.raises(InvalidError, match=r"'client\.id' must be a str, an int, a float or a bool"):
        Connection("a:1", {"client.id": value})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("bootstrap.servers", "bootstrap="),
        ("group.id", "group="),
        ("auto.offset.reset", "start="),
        ("isolation.level", "isolation="),
        ("enable.partition.eof", "bounded="),
        ("enable.auto.commit", "commit_group_offsets="),
        ("transactional.id", "transaction_prefix="),
        ("transaction.timeout.ms", "timeout="),
        ("acks", "delivery="),
        ("partitioner", "partition="),
    ],
)
def test_what_tidegate_decides_is_refused_with_the_argument_to_use(name: str, instead: str) -> None:
    with pytest.raises(InvalidError) as raised:
        Connection("a:1", {name: "x"})
    assert repr(name) in raised.value.failure.message
    assert instead in raised.value.failure.message


def test_every_setting_has_one_owner() -> None:
    tables = [PRODUCER_ONLY, CONSUMER_ONLY, SHARED, frozenset(DECIDED)]
    assert sum(map(len, tables)) == len(frozenset().union(*tables))


def test_each_client_gets_the_settings_that_concern_it() -> None:
    connection = Connection("a:1", {"linger.ms": 5, "fetch.min.bytes": 2, "socket.timeout.ms": 9000, "new.one": "x"})
    shared = {"socket.timeout.ms", "new.one", "client.id", "bootstrap.servers", "logger"}
    assert set(connection.producer_config()) == shared | {"linger.ms"}
    assert set(connection.consumer_config()) == shared | {"fetch.min.bytes"}
    assert set(connection.admin_config()) == shared


def test_the_client_id_is_tidegate_unless_the_user_has_another() -> None:
    assert Connection("a:1").producer_config()["client.id"] == "tidegate"
    assert Connection("a:1", {"client.id": "shop"}).producer_config()["client.id"] == "shop"
    assert Connection("a:1", {"client.id": "shop"}).kafka_python_config()["client_id"] == "shop"


def test_librdkafka_warns_of_each_setting_that_is_not_for_a_client(caplog: pytest.LogCaptureFixture) -> None:
    """So the tables are right: what stands in one of them must not reach the other side."""
    base = {"bootstrap.servers": "127.0.0.1:1", "logger": logging.getLogger("librdkafka")}
    for name in sorted(PRODUCER_ONLY):
        consumer = Consumer(base | {"group.id": "g", name: _possible_value(name)})
        consumer.poll(0)
        consumer.close()
        assert _warned(caplog), name
    for name in sorted(CONSUMER_ONLY):
        Producer(base | {name: _possible_value(name)}).poll(0)
        assert _warned(caplog), name


def test_librdkafka_warns_of_nothing_in_the_configurations(caplog: pytest.LogCaptureFixture) -> None:
    connection = Connection("127.0.0.1:1", {"linger.ms": 5, "compression.type": "lz4", "fetch.min.bytes": 2})
    consumer = Consumer(connection.consumer_config() | {"group.id": "g"})
    for client in (consumer, Producer(connection.producer_config()), AdminClient(connection.admin_config())):
        client.poll(0)
        assert not _warned(caplog)
    consumer.close()


def _possible_value(name: str) -> str:
    words = {"codec": "lz4", "compression.type": "lz4", "strategy": "lifo", "guarantee": "true", "check.crcs": "true"}
    words |= {"offset.report": "true", "max.poll.interval.ms": "400000", "compression.level": "3"}
    words |= {"fetch.max.bytes": "5000000", "fetch.message.max.bytes": "5000", "session.timeout.ms": "9000"}
    words |= {"linger": "11", "queue.buffering.max.ms": "11", "threshold": "3"}
    return next((value for word, value in words.items() if word in name), "1234")


def _warned(caplog: pytest.LogCaptureFixture) -> bool:
    warned = any("CONFWARN" in record.getMessage() and " property" in record.getMessage() for record in caplog.records)
    caplog.clear()
    return warned


def test_check_takes_what_librdkafka_takes() -> None:
    Connection("127.0.0.1:1", {"linger.ms": 5, "fetch.min.bytes": 2, "socket.keepalive.enable": True}).check()


@pytest.mark.parametrize(
    ("name", "meant"),
    [("linger.mss", "linger.ms"), ("fetch.min.byte", "fetch.min.bytes"), ("sasl.passwort", "sasl.password")],
)
def test_check_names_an_unknown_setting_and_the_nearest_one(name: str, meant: str) -> None:
    with pytest.raises(InvalidError) as raised:
        Connection("127.0.0.1:1", {name: "1"}).check()
    assert raised.value.failure.message == f"Kafka has no setting {name!r}; is {meant!r} meant?"


def test_an_unknown_setting_that_looks_like_none_gets_no_suggestion() -> None:
    assert nearest("qqqqqqqq") is None
    with pytest.raises(InvalidError, match=r"Kafka has no setting 'qqqqqqqq'\n"):
        Connection("127.0.0.1:1", {"qqqqqqqq": "1"}).check()


@pytest.mark.parametrize("name", ["linger.ms", "fetch.min.bytes", "socket.timeout.ms"])
def test_check_names_a_setting_with_an_impossible_value(name: str) -> None:
    with pytest.raises(InvalidError, match="Invalid value") as raised:
        Connection("127.0.0.1:1", {name: "many"}).check()
    assert name in str(raised.value)


# ---- secrets -------------------------------------------------------------------------------------------------------


def test_secrets_are_never_in_a_text() -> None:
    connection = Connection("a:1", {"sasl.username": "shop", **SECRETS})
    for text in (repr(connection), str(connection), f"{connection}", json.dumps(connection.arguments())):
        assert "hush" not in text
        assert "shop" in text
        assert all(name in text for name in SECRETS)


def test_secrets_reach_the_clients() -> None:
    connection = Connection("a:1", SECRETS)
    for config in (connection.producer_config(), connection.consumer_config(), connection.admin_config()):
        assert config.items() >= SECRETS.items()


def test_an_error_about_a_secret_does_not_show_it() -> None:
    with pytest.raises(InvalidError) as raised:
        Connection("a:1", {"sasl.password": b"hush"})  # type: ignore[dict-item]
    assert "hush" not in str(raised.value)
    settings = {"security.protocol": "ssl", "ssl.key.pem": "hush", "ssl.key.password": "hush"}
    with pytest.raises(InvalidError) as raised:
        Connection("127.0.0.1:1", settings).check()
    assert "ssl.key.pem" in str(raised.value)
    assert "hush" not in str(raised.value)


def test_what_is_stored_makes_the_same_connection_again(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = Connection("a:1,b:2", {"sasl.username": "shop", "socket.timeout.ms": 9000, **SECRETS})
    for name, secret in SECRETS.items():
        monkeypatch.setenv(environment_variable(name), secret)
    assert Connection.of_arguments(**connection.arguments()) == connection


def test_a_missing_secret_is_asked_for_by_the_name_of_its_variable() -> None:
    stored = Connection("a:1", {"sasl.password": "hush"}).arguments()
    with pytest.raises(InvalidError) as raised:
        Connection.of_arguments(**stored)
    assert "TIDEGATE_KAFKA_SASL_PASSWORD" in raised.value.failure.remedy
    assert "'sasl.password'" in raised.value.failure.message


def test_the_environment_does_not_replace_what_the_program_leaves_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_KAFKA_SASL_PASSWORD", "hush")
    assert "sasl.password" not in Connection("a:1").producer_config()
    assert "sasl.password" not in Connection.of_arguments(**Connection("a:1").arguments()).producer_config()


def test_every_setting_that_may_hold_a_secret_is_one() -> None:
    suspicious = ("password", "secret", "passphrase", "key.pem")
    names = PRODUCER_ONLY | CONSUMER_ONLY | SHARED
    assert {name for name in names if any(word in name for word in suspicious)} <= set(filter(is_secret, names))
    assert not is_secret("sasl.username")
    assert not is_secret("ssl.key.location")


def test_it_survives_pickling_as_it_is() -> None:
    connection = Connection("a:1", SECRETS)
    assert pickle.loads(pickle.dumps(connection)) == connection
