"""A Kafka for development before any process of it runs: properties, command lines, ports, Java, Maven and jars."""

import os
import socket
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tidegate.cli.dev_kafka import parse_topic
from tidegate.cli.main import main
from tidegate.deploy.dev_kafka import DEFAULT_VERSION, DevKafka, TlsFiles, ensure_jars
from tidegate.deploy.dev_kafka.foreground import prepare
from tidegate.deploy.dev_kafka.jars import pom_text
from tidegate.deploy.dev_kafka.ports import free_ports, is_free
from tidegate.deploy.dev_kafka.settings import (
    NodeAddress,
    Security,
    SettingValue,
    format_arguments,
    java_command,
    logging_text,
    server_properties,
)
from tidegate.deploy.dev_kafka.tools import find_java, install_missing, java_release
from tidegate.errors import InvalidError, UnavailableError

# ---- properties and command lines ----------------------------------------------------------------------------------

CLUSTER = [NodeAddress(id, 9092 + id, 9192 + id, 9292 + id) for id in (1, 2, 3)]


def properties(
    nodes: int = 1, security: Security = "none", settings: Mapping[str, SettingValue] = {}
) -> dict[str, str]:
    text = server_properties(CLUSTER[0], CLUSTER[:nodes], Path("/data"), security, settings)
    lines = [line.partition("=") for line in text.splitlines()]
    assert len({name for name, _, _ in lines}) == len(lines)
    return {name: value for name, _, value in lines}


def test_a_node_is_broker_and_controller_on_loopback() -> None:
    found = properties()
    assert found["process.roles"] == "broker,controller"
    assert found["listeners"] == "CLIENTS://127.0.0.1:9093,INTERNAL://127.0.0.1:9193,CONTROLLER://127.0.0.1:9293"
    assert found["advertised.listeners"] == "CLIENTS://127.0.0.1:9093,INTERNAL://127.0.0.1:9193"
    assert found["controller.quorum.voters"] == "1@127.0.0.1:9293"
    assert found["log.dirs"] == "/data"
    assert found["auto.create.topics.enable"] == "false"


def test_clients_are_told_the_advertised_port_and_nobody_listens_there() -> None:
    node = NodeAddress(1, 9093, 9193, 9293, advertised_port=9393)
    lines = server_properties(node, [node], Path("/data")).splitlines()
    assert "listeners=CLIENTS://127.0.0.1:9093,INTERNAL://127.0.0.1:9193,CONTROLLER://127.0.0.1:9293" in lines
    assert "advertised.listeners=CLIENTS://127.0.0.1:9393,INTERNAL://127.0.0.1:9193" in lines


@pytest.mark.parametrize(("nodes", "copies", "needed"), [(1, "1", "1"), (3, "3", "2")])
def test_records_are_as_safe_as_the_number_of_nodes_allows(nodes: int, copies: str, needed: str) -> None:
    found = properties(nodes)
    assert len(found["controller.quorum.voters"].split(",")) == nodes
    for name in ("default", "offsets.topic", "transaction.state.log"):
        assert found[f"{name}.replication.factor"] == copies
    assert found["transaction.state.log.min.isr"] == found["min.insync.replicas"] == needed


def test_records_are_kept_whatever_their_age() -> None:
    assert properties()["log.retention.ms"] == "-1"


def test_settings_of_the_caller_win() -> None:
    settings = {"auto.create.topics.enable": True, "transaction.max.timeout.ms": 5000, "x": "C:\\y"}
    found = properties(settings=settings)
    assert found["auto.create.topics.enable"] == "true"
    assert found["transaction.max.timeout.ms"] == "5000"
    assert found["x"] == r"C:\\y"


def test_a_setting_of_several_lines_is_refused() -> None:
    with pytest.raises(InvalidError, match=r"the value of broker\.rack has several lines"):
        properties(settings={"broker.rack": "a\nlog.dirs=/"})


def test_without_security_nobody_logs_in() -> None:
    found = properties()
    assert found["listener.security.protocol.map"].startswith("CLIENTS:PLAINTEXT,INTERNAL:PLAINTEXT,")
    assert not [name for name in found if "sasl" in name or "ssl" in name or "authorizer" in name]


def test_with_sasl_only_clients_log_in_and_the_authorizer_decides() -> None:
    found = properties(security="sasl")
    assert found["listener.security.protocol.map"] == "CLIENTS:SASL_PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT"
    logins = found["listener.name.clients.plain.sasl.jaas.config"]
    assert logins.endswith('required user_admin="admin-secret" user_app="app-secret";')
    assert found["authorizer.class.name"].endswith(".StandardAuthorizer")
    assert found["super.users"] == "User:admin;User:ANONYMOUS"


def test_with_tls_a_certificate_is_asked_for_where_an_authority_is_given() -> None:
    alone = properties(security=TlsFiles(Path("/server.pem")))
    assert alone["listener.security.protocol.map"] == "CLIENTS:SSL,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT"
    assert alone["listener.name.clients.ssl.keystore.location"] == "/server.pem"
    assert alone["listener.name.clients.ssl.client.auth"] == "none"
    both = properties(security=TlsFiles(Path("/server.pem"), Path("/authority.pem")))
    assert both["listener.name.clients.ssl.truststore.location"] == "/authority.pem"
    assert both["listener.name.clients.ssl.client.auth"] == "required"


@pytest.mark.parametrize(
    ("version", "option", "logging", "binding"),
    [
        ("3.9.1", "-Dlog4j.configuration=file:///n/l", "log4j.rootLogger=WARN", "slf4j-reload4j"),
        ("4.0.0", "-Dlog4j2.configurationFile=file:///n/l", "rootLogger.level=WARN", "log4j-slf4j-impl"),
    ],
)
def test_logging_is_that_of_the_version(version: str, option: str, logging: str, binding: str) -> None:
    command = java_command("java", Path("/jars"), version, Path("/n/l"))
    assert command[0] == "java"
    assert option in command
    assert command[-2:] == ["-cp", "/jars/*"]
    assert logging in logging_text(version)
    assert f"<artifactId>{binding}</artifactId>" in pom_text(version)
    assert pom_text(version).count(f"<version>{version}</version>") == 2


def test_a_cluster_id_may_begin_with_a_dash() -> None:
    assert format_arguments(Path("/n/server.properties"), "-x")[2:] == [
        "--cluster-id=-x",
        "--config",
        "/n/server.properties",
    ]


# ---- ports and folders ---------------------------------------------------------------------------------------------


def test_free_ports_are_different_and_below_those_of_connections() -> None:
    ports = free_ports(50)
    assert len(set(ports)) == 50
    assert all(20_000 <= port < 32_000 and is_free(port) for port in ports)


def test_a_port_on_which_somebody_listens_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_java(tmp_path / "bin", monkeypatch)
    put_jars(tmp_path / "cache", monkeypatch)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(InvalidError, match=f"port {port} is taken"):
            DevKafka(tmp_path / "kafka", ports=[port]).start()


def test_each_node_needs_a_port(tmp_path: Path) -> None:
    with pytest.raises(InvalidError, match="3 nodes need as many ports, not 1"):
        DevKafka(tmp_path, nodes=3, ports=[9092])
    with pytest.raises(InvalidError, match="3 nodes need as many ports, not 2"):
        DevKafka(tmp_path, nodes=3, advertised_ports=[9092, 9093])


def test_a_folder_of_another_number_of_nodes_is_refused(tmp_path: Path) -> None:
    (tmp_path / "node-1").mkdir()
    with pytest.raises(InvalidError, match="1 nodes, not 3"):
        DevKafka(tmp_path, nodes=3)


def test_a_node_that_was_not_started_cannot_be_killed(tmp_path: Path) -> None:
    with pytest.raises(InvalidError, match="no Kafka node 1 that was started"):
        DevKafka(tmp_path).kill()


# ---- Java and Maven ------------------------------------------------------------------------------------------------

Fake = Callable[[str, str], None]
"""Puts a script, by name and text, on PATH, where only what a script needs is besides."""
JAVA_17 = """echo 'openjdk version "17.0.15" 2025-04-15' >&2"""


def put_script(folder: Path, name: str, text: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


def put_java(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_script(folder, "java", JAVA_17)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("JAVA_HOME", raising=False)


def put_jars(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    (cache / "tidegate" / f"kafka-{DEFAULT_VERSION}").mkdir(parents=True)


@pytest.fixture
def on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return lambda name, text: put_script(folder, name, text)


@pytest.mark.parametrize(
    ("text", "release"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('java version "1.8.0_401"', 1),
        ("command not found", 0),
    ],
)
def test_the_release_is_read_from_what_java_says(text: str, release: int) -> None:
    assert java_release(text) == release


@pytest.mark.usefixtures("on_path")
def test_without_java_it_is_said_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(InvalidError, match=r"no java is on PATH\nInstall Java 17 or newer .*openjdk-17-jre-headless"):
        DevKafka(tmp_path / "kafka").start()


def test_an_old_java_is_refused(on_path: Fake) -> None:
    on_path("java", """echo 'java version "1.8.0_401"' >&2""")
    with pytest.raises(InvalidError, match=r"needs Java 17, and .*/java is Java 1\n"):
        find_java()


def test_the_java_of_java_home_comes_first(on_path: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_path("java", "exit 1")
    (tmp_path / "home").mkdir()
    put_script(tmp_path / "home" / "bin", "java", JAVA_17)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert find_java() == str(tmp_path / "home" / "bin" / "java")


@pytest.mark.usefixtures("on_path")
def test_without_maven_it_is_said_what_to_install() -> None:
    with pytest.raises(InvalidError, match="no mvn is on PATH\nInstall Maven"):
        ensure_jars()


def test_who_may_not_install_is_told_what_to_install(on_path: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    on_path("apt-get", "exit 1")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(InvalidError, match="no java is on PATH"):
        install_missing(maven=True, say=print)


def test_root_installs_the_first_package_that_there_is(
    on_path: Fake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked, java = tmp_path / "asked", tmp_path / "bin" / "java"
    has_default_java = f"""
echo "$@" >> {asked}
case "$*" in
  *default-jre-headless) printf '%s\\n' '#!/bin/sh' 'echo openjdk version \\"21\\"' > {java}; /bin/chmod +x {java};;
  *openjdk-17-jre-headless) exit 100;;
esac"""
    on_path("apt-get", has_default_java)
    on_path("mvn", "exit 1")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    said: list[str] = []
    install_missing(maven=True, say=said.append)
    assert said == ["installing openjdk-17-jre-headless", "installing default-jre-headless"]
    assert [line.split()[0] for line in asked.read_text().splitlines()] == ["update", "install", "install"]


# ---- jars ----------------------------------------------------------------------------------------------------------

COPIES_A_JAR = """
for word in "$@"; do case "$word" in -DoutputDirectory=*) folder="${word#*=}";; esac; done
/bin/mkdir -p "$folder"; echo jar > "$folder/kafka.jar"; /bin/sleep 0.2"""


def test_jars_are_fetched_once_also_by_two_at_the_same_time(on_path: Fake, tmp_path: Path) -> None:
    on_path("mvn", f"echo run >> {tmp_path}/runs; {COPIES_A_JAR}")
    both = [threading.Thread(target=ensure_jars) for _ in range(2)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    folder = ensure_jars()
    assert folder == tmp_path / "cache" / "tidegate" / f"kafka-{DEFAULT_VERSION}"
    assert [path.name for path in folder.iterdir()] == ["kafka.jar"]
    assert (tmp_path / "runs").read_text() == "run\n"


def test_a_download_that_fails_is_shown_and_leaves_nothing_that_looks_whole(on_path: Fake, tmp_path: Path) -> None:
    on_path("mvn", f"{COPIES_A_JAR}\necho '[ERROR] no such version'; exit 1")
    with pytest.raises(UnavailableError, match=r"(?s)could not fetch Kafka 4\.9\.9.*no such version"):
        ensure_jars("4.9.9")
    assert [path.name for path in (tmp_path / "cache" / "tidegate").iterdir()] == ["kafka-4.9.9.lock"]


@pytest.mark.parametrize("version", ["4", "../4.3.1", "4.3.1-rc1", "2.8.0", "3.8.1", ""])
def test_a_version_that_cannot_be_started_is_refused(version: str) -> None:
    with pytest.raises(InvalidError, match="is no version of Kafka"):
        ensure_jars(version)


def test_with_jars_there_nothing_needs_maven(on_path: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_path("java", JAVA_17)
    put_jars(tmp_path / "cache", monkeypatch)
    said: list[str] = []
    prepare(DEFAULT_VERSION, said.append)
    assert said == []


# ---- the command ---------------------------------------------------------------------------------------------------


def test_a_topic_is_a_name_and_partitions() -> None:
    assert parse_topic("orders.eu:12") == ("orders.eu", 12)


@pytest.mark.parametrize("text", ["orders", "orders:", ":4", "orders:0", "orders:-1", "orders:x", ""])
def test_what_is_no_topic_is_refused(text: str) -> None:
    with pytest.raises(InvalidError, match="names no topic and partitions"):
        parse_topic(text)


def test_two_nodes_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["dev-kafka", "--nodes", "2"])
    assert ended.value.code == 2
    assert "--nodes 2 is not possible" in capsys.readouterr().err
