"""The rights that docs/guarantees.md lists are enough for a job, and each of them is needed: what it says happens."""

import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from tests.integration.programs import TIDEGATE, run
from tests.kafka import rights_program
from tests.kafka.brokers import VERSION, Broker
from tests.unit.docs import markdown
from tidegate.connectors.kafka.connection import Client
from tidegate.deploy.dev_kafka import DevKafka, ensure_jars
from tidegate.deploy.dev_kafka.tools import find_java

pytestmark = pytest.mark.slow
GUARANTEES = (Path(__file__).parents[2] / "docs" / "guarantees.md").read_text(encoding="utf-8")
ROWS = markdown.rows(GUARANTEES, "resource")
RESOURCES = {
    "each input topic": (ResourceType.TOPIC, "orders", ResourcePatternType.LITERAL),
    "each output topic": (ResourceType.TOPIC, "totals", ResourcePatternType.LITERAL),
    "transactional ids": (ResourceType.TRANSACTIONAL_ID, "running-totals:", ResourcePatternType.PREFIXED),
    "group": (ResourceType.GROUP, "running-totals", ResourcePatternType.LITERAL),
    "cluster": (ResourceType.BROKER, "kafka-cluster", ResourcePatternType.LITERAL),
}
"""By what a row begins with: where the rights of the job of `rights_program` are."""
EVERYTHING = AclBindingFilter(
    ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
)
ACL_TOOL = "org.apache.kafka.tools.AclCommand"


class Guarded:
    """A broker that wants a login, and the job that logs in there."""

    def __init__(self, kafka: DevKafka, folder: Path) -> None:
        self.kafka = kafka
        self.folder = folder
        # The nodes' own listener wants no login.
        self.inside = AdminClient({"bootstrap.servers": kafka.internal_bootstrap, "log_level": 0})

    def allow(self, rows: Sequence[list[str]]) -> None:
        """These rights and no others."""
        for future in self.inside.delete_acls([EVERYTHING]).values():
            future.result(30)
        for future in self.inside.create_acls([_binding(row) for row in rows]).values() if rows else ():
            future.result(30)

    def run_job(self, client: Client) -> "subprocess.CompletedProcess[str]":
        """What a run before it left open is aborted."""
        options = ["--fresh", "--restart", "fixed-delay:1:100ms", "--checkpoint-interval", "500ms"]
        program = [rights_program.__file__, *options, "--", "--bootstrap", self.kafka.bootstrap, "--client", client]
        return run([*TIDEGATE, "run", *program], self.folder)

    def written(self) -> int:
        return len(Broker(self.kafka, rights_program.login("admin")).read("totals"))


def _place(row: list[str]) -> tuple[ResourceType, str, ResourcePatternType]:
    return next(place for start, place in RESOURCES.items() if row[0].startswith(start))


def _binding(row: list[str]) -> AclBinding:
    kind, name, pattern = _place(row)
    return AclBinding(kind, name, pattern, "User:app", "*", AclOperation[row[1]], AclPermissionType.ALLOW)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("guarded")
    kafka = DevKafka(folder / "kafka", version=VERSION, security="sasl")
    kafka.start()
    try:
        kafka.create_topics({"orders": 2, "totals": 2})
        Broker(kafka, rights_program.login("admin")).produce("orders", [b"%d" % number for number in range(10)])
        yield Guarded(kafka, folder)
    finally:
        kafka.kill_all()


def test_with_the_rights_that_the_shown_commands_give_a_job_runs(guarded: Guarded, job_client: Client) -> None:
    guarded.allow([])
    commands = [line.split() for line in GUARANTEES.splitlines() if line.startswith("    kafka-acls.sh ")]
    assert len(commands) == 5
    for command in commands:
        words = [word.replace("User:flows", "User:app") for word in command[1:]]
        place = ["--bootstrap-server", guarded.kafka.internal_bootstrap]
        java = [find_java(), "-cp", f"{ensure_jars(VERSION)}/*", ACL_TOOL]
        subprocess.run([*java, *place, *words], check=True, capture_output=True, timeout=60)
    before = guarded.written()
    done = guarded.run_job(job_client)
    assert done.returncode == 0, done.stderr
    assert guarded.written() == before + 10
    assert "DESCRIBE_CONFIGS" not in done.stderr


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[1]} on {row[0]}")
def test_without_one_right_it_is_as_the_table_says(guarded: Guarded, row: list[str], job_client: Client) -> None:
    guarded.allow([other for other in ROWS if other != row])
    before = guarded.written()
    done = guarded.run_job(job_client)
    assert "Traceback" not in done.stderr
    if row[3].startswith("exit code 2"):
        assert done.returncode == 2, done.stderr
        assert _place(row)[1] in done.stderr.splitlines()[-1]
        assert guarded.written() == before
    else:
        assert done.returncode == 0, done.stderr
        assert "warning" in row[3]
        assert guarded.written() == before + 10
