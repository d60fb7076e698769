"""Passwords reach the clients of Kafka and nothing else: no checkpoint, no log, no list of settings or processes, no
error. What a whole job says and stores is looked at in `tests/kafka/test_secrets_of_a_job.py`."""

import os
import pickle
from pathlib import Path
from typing import cast

import msgspec
import pytest

from tests.integration.programs import TIDEGATE, run
from tests.unit.checkpoint import records
from tests.unit.enemy import secret_program
from tests.unit.enemy.messages import parameters
from tidegate.checkpoint.log import Completed
from tidegate.checkpoint.manifest import SinkRecord, SinkTarget
from tidegate.checkpoint.store import encode_entry
from tidegate.connectors.kafka.connection import Connection
from tidegate.connectors.kafka.settings import SHARED, Setting, is_secret
from tidegate.deploy.cluster import encode_parameters
from tidegate.errors import InvalidError
from tidegate.kafka import KafkaSink, KafkaSource

PASSWORD = "h0sh-h0sh"
WITH_SECRETS = secret_program.SETTINGS | {
    "sasl.password": PASSWORD,
    "ssl.key.password": PASSWORD,
    "ssl.key.pem": PASSWORD,
    "ssl.keystore.password": PASSWORD,
    "sasl.oauthbearer.client.secret": PASSWORD,
    "sasl.oauthbearer.config": PASSWORD,
    "sasl.oauthbearer.assertion.private.key.passphrase": PASSWORD,
    "sasl.oauthbearer.assertion.private.key.pem": PASSWORD,
    # Java's names and other mistakes, which librdkafka refuses later than they may be shown.
    "sasl.jaas.config": PASSWORD,
    "SASL.PASSWORD": PASSWORD,
    "sasl.credentials": PASSWORD,
    "auth.token": PASSWORD,
}


def test_nothing_that_is_stored_of_a_sink_or_source_has_a_secret() -> None:
    sink, source = (
        KafkaSink("a:1", "totals", settings=WITH_SECRETS),
        KafkaSource("a:1", "orders", settings=WITH_SECRETS),
    )
    record = SinkRecord("app", sink.recovery_spec)
    manifest = records.manifest()
    operators = tuple(
        msgspec.structs.replace(one, sink=record, source=source.inspection_spec) for one in manifest.operators
    )
    takeover = msgspec.structs.replace(records.TAKEOVER, sinks=(SinkTarget(manifest.operators[0].name, record),))
    for body in (Completed(msgspec.structs.replace(manifest, operators=operators)), takeover):
        stored = encode_entry(records.entry(2, body))
        assert b"sasl.password" in stored
        assert PASSWORD.encode() not in stored


def test_nothing_that_is_shown_of_a_sink_or_source_has_a_secret() -> None:
    sink, source = (
        KafkaSink("a:1", "totals", settings=WITH_SECRETS),
        KafkaSource("a:1", "orders", settings=WITH_SECRETS),
    )
    job_graph = secret_program.job.graph()
    for shown in (sink, source, sink.recovery_spec, source.inspection_spec, Connection("a:1", WITH_SECRETS)):
        assert PASSWORD not in f"{shown} {shown!r}"
    assert "none-given" not in "\n".join(job_graph.fingerprint().lines)


def test_every_setting_of_librdkafka_that_sounds_like_a_secret_is_one() -> None:
    words = (
        "password",
        "passphrase",
        "secret",
        "private.key.pem",
        "key.pem",
        "jaas",
        "credential",
        "oauthbearer.config",
    )
    sounding = {name for name in SHARED if any(word in name for word in words)}
    public = {"sasl.oauthbearer.client.credentials.client.id"}
    assert {name for name in SHARED if is_secret(name)} == sounding - public


@pytest.mark.parametrize("password", ["plain", "with 'quotes' and \"others\"", "söme{braces}%s\\", "-----BEGIN"])
def test_whatever_a_password_is_no_error_about_it_shows_it(password: str) -> None:
    secret = f"{password}-{PASSWORD}"
    for settings in (
        {"sasl.password": secret, "security.protocol": "sasl_ssl", "sasl.mechanism": "PLAIN"},
        {"sasl.password": [secret]},
        {"ssl.key.pem": secret, "ssl.certificate.pem": "none", "security.protocol": "ssl"},
        {
            "ssl.key.password": secret,
            "ssl.key.location": "/nowhere",
            "ssl.certificate.location": "/nowhere",
            "security.protocol": "ssl",
        },
    ):
        with pytest.raises(InvalidError) as raised:
            Connection("127.0.0.1:1", cast(dict[str, Setting], settings)).kafka_python_config()
        assert PASSWORD not in str(raised.value)


def test_a_secret_that_is_missing_is_asked_for_by_the_name_of_its_variable() -> None:
    stored = Connection("a:1", {"sasl.password": PASSWORD}).arguments()
    with pytest.raises(InvalidError, match="TIDEGATE_KAFKA_SASL_PASSWORD"):
        Connection.of_arguments(**stored)


def test_a_worker_is_told_nothing_secret_by_the_arguments_or_parameters_of_its_process() -> None:
    """It imports the program, and has the environment of its parent; others may read neither."""
    text = encode_parameters(parameters("/flows/secret_program.py"))
    assert PASSWORD not in text
    assert "SHOP_PASSWORD" not in text


def test_the_list_of_settings_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", PASSWORD)
    monkeypatch.setenv("TIDEGATE_KAFKA_SASL_PASSWORD", PASSWORD)
    done = run([*TIDEGATE, "run", secret_program.__file__, "--show-config"], tmp_path)
    assert done.returncode == 0, done.stderr
    assert "checkpoints.dir" in done.stdout
    assert PASSWORD not in done.stdout + done.stderr


def test_places_of_checkpoints_with_a_password_are_refused_without_repeating_it() -> None:
    from tidegate.config.values import parse_folder
    from tidegate.storage.resolve import open_storage

    for place in (
        f"s3://user:{PASSWORD}@bucket/a",
        f"webhdfs://user:{PASSWORD}@host:1/a",
        f"s3://bucket/a?key={PASSWORD}",
    ):
        for ask in (parse_folder, open_storage):
            with pytest.raises(InvalidError) as raised:
                ask(place)
            assert PASSWORD not in str(raised.value)


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="of Linux")
def test_the_environment_of_a_process_is_its_users_own() -> None:
    """Secrets of Kafka come from there: the kernel shows it to nobody else."""
    mode = os.stat("/proc/self/environ").st_mode
    assert mode & 0o077 == 0


def test_a_connection_keeps_its_secrets_where_a_program_may_pickle_it() -> None:
    """Nothing of the engine does: programs are imported by each process."""
    assert PASSWORD.encode() in pickle.dumps(Connection("a:1", {"sasl.password": PASSWORD}))
