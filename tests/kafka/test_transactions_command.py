"""`tidegate transactions` and `checkpoints show --lag` reach Kafka by a job's log alone, without its program."""

import json
from pathlib import Path

from tests.integration.user_programs import Project
from tests.kafka.brokers import Broker
from tests.kafka.sinks import SinkGround, until
from tests.unit.cli.stored_job import StoredJob
from tidegate.checkpoint.manifest import SinkRecord, SinkTarget
from tidegate.checkpoint.protocol import SplitState
from tidegate.connectors.kafka.source import KafkaSource
from tidegate.ids import OperatorName


def test_what_a_job_left_in_kafka_is_listed_committed_and_aborted_by_its_log(kafka: Broker, tmp_path: Path) -> None:
    ground = SinkGround(kafka)
    target = SinkTarget(OperatorName("out"), SinkRecord(ground.prefix, ground.sink().recovery_spec))
    stored = StoredJob(tmp_path / "flows", "totals", instance="log")
    stored.begin(target)
    stored.take_over(target)
    project, writer = Project(tmp_path / "project"), ground.writer()
    due, left = str(ground.id(0)), str(ground.id(1))
    prepared = ground.prepared(writer, 0, "due")
    ground.prepared(writer, 1, "left")
    stored.complete(1, prepared=[prepared], sink=target.record)
    folder = str(stored.folder)
    listed = json.loads(project.run("transactions", "list", folder, "--json").stdout)
    rows = {row["id"]: row for row in listed["transactions"]}
    assert {id: row["what"] for id, row in rows.items()} == {
        due: "checkpoint 1, commit is due",
        left: "no checkpoint: left over from attempt 1",
    }
    assert rows[due]["partitions"] == [f"{ground.topic}/0"]
    assert rows[due]["timeout"] == 50.0
    assert 0 <= rows[due]["age"] < 50
    assert project.run("transactions", "abort", due, folder).returncode == 2
    assert project.run("transactions", "commit", left, folder).returncode == 2
    committed = project.run("transactions", "commit", due, folder)
    assert (committed.returncode, committed.stdout) == (0, f"committed {due}\n"), committed.stderr
    aborted = project.run("transactions", "abort", left, folder)
    assert (aborted.returncode, aborted.stdout) == (0, f"aborted {left}\n"), aborted.stderr
    until(ground.texts, lambda texts: texts == ["due"])
    again = project.run("transactions", "commit", due, folder)
    assert again.stdout == f"{due} was committed before\n"


def test_the_lag_of_a_checkpoint_is_asked_of_kafka(kafka: Broker, tmp_path: Path) -> None:
    topic = kafka.create_topic(partitions=2)
    kafka.produce(topic, [b"x"] * 250, partition=1)
    spec = KafkaSource(kafka.bootstrap, topic).inspection_spec
    stored = StoredJob(tmp_path / "flows", "totals")
    stored.begin()
    stored.complete(1, source=spec, splits=(SplitState(f"{topic}/0", 0), SplitState(f"{topic}/1", 100)))
    shown = Project(tmp_path / "project").run("checkpoints", "show", str(stored.folder), "--lag", "--json")
    assert shown.returncode == 0, shown.stderr
    lags = {row["split"]: row["lag"] for row in json.loads(shown.stdout)["lag"]}
    assert (lags[f"{topic}/0"], lags[f"{topic}/1"]) == (0, 150)
