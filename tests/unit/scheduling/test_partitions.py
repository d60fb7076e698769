"""An attempt of a job whose keys the input's partitions keep together: who gets which split, and what ends it."""

from dataclasses import dataclass, replace

import pytest

from tests.unit.scheduling import programs
from tests.unit.scheduling.manifests import INSTANCE, manifest
from tests.unit.scheduling.programs import READ, TOTALS, WRITE, Splits, task
from tidegate.checkpoint.manifest import Manifest
from tidegate.checkpoint.protocol import SplitState
from tidegate.clock import Now
from tidegate.errors import ErrorKind
from tidegate.graph.logical import InputEdge, LogicalGraph, LogicalNode, Partitioning
from tidegate.graph.physical import build_physical
from tidegate.ids import Attempt, CheckpointId, OperatorName, WorkerIndex
from tidegate.runtime.control import AssignSplits, TaskRunning, WorkerReady
from tidegate.scheduling.deployment import AttemptFailed, Deployment, Outcome
from tidegate.scheduling.protocol import SendToWorker
from tidegate.state.key_partitions import KeyPartitions

ATTEMPT = Attempt(2)
ZERO = Now(0.0, 0.0)
BY_USER = OperatorName("by-user")
FOUR = KeyPartitions(4, "murmur2")


@dataclass(frozen=True)
class Topics(Splits):
    def partition_of(self, split: str) -> tuple[str, int]:
        topic, _, number = split.rpartition("/")
        return topic, int(number)


def graph(source: Topics) -> LogicalGraph:
    read, totals, write = programs.graph(source).nodes
    by_user = LogicalNode(
        BY_USER,
        "key_by",
        (InputEdge(READ, Partitioning.FORWARD),),
        factory=programs.no_operator,
        key_type=f"str in {FOUR}",
        partitions=FOUR,
    )
    keyed = replace(totals, inputs=(InputEdge(BY_USER, Partitioning.FORWARD),))
    return LogicalGraph(programs.JOB, (read, by_user, keyed, write))


def deployed(parallelism: int, source: Topics, restored: Manifest | None = None) -> Deployment:
    logical = graph(source)
    physical = build_physical(logical, parallelism, programs.MAX_PARALLELISM)
    settings = programs.job_settings(parallelism)
    fingerprint = logical.fingerprint()
    found = Deployment(logical, physical, settings, INSTANCE, ATTEMPT, fingerprint)
    for worker in range(parallelism):
        found.received(WorkerIndex(worker), WorkerReady(WorkerIndex(worker), ATTEMPT, fingerprint, "here"), ZERO)
    found.recovered(restored, CheckpointId(5))
    for subtask in range(parallelism):
        found.received(WorkerIndex(subtask), TaskRunning(task(READ, subtask)), ZERO)
    return found


def look(found: Deployment, *splits: str) -> list[Outcome]:
    return found.discovered(READ, [SplitState(split, 0) for split in splits], ZERO)


def assigned(outcomes: list[Outcome]) -> dict[int, list[str]]:
    sent = [out for out in outcomes if isinstance(out, SendToWorker) and isinstance(out.message, AssignSplits)]
    return {out.worker: [split.id for split in out.message.splits] for out in sent}  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("parallelism", "expected"),
    [
        (1, {0: ["a/0", "a/1", "a/2", "a/3"]}),
        (2, {0: ["a/0", "a/1"], 1: ["a/2", "a/3"]}),
        (3, {0: ["a/0", "a/1"], 1: ["a/2"], 2: ["a/3"]}),
        (6, {0: ["a/0"], 1: ["a/1"], 2: [], 3: ["a/2"], 4: ["a/3"], 5: []}),
    ],
)
def test_each_worker_reads_the_partitions_whose_keys_it_has(parallelism: int, expected: dict[int, list[str]]) -> None:
    found = deployed(parallelism, Topics(discovery_interval=1.0))
    assert assigned(look(found, "a/3", "a/1", "a/2", "a/0")) == expected


@pytest.mark.parametrize("others", [(), ("a/4",)])
def test_a_topic_with_other_partitions_ends_the_attempt_for_good_before_anything_is_read(
    others: tuple[str, ...],
) -> None:
    found = deployed(2, Topics(discovery_interval=1.0))
    [failed] = look(found, "a/0", "a/1", *(("a/2", "a/3", *others) if others else ()))
    assert isinstance(failed, AttemptFailed)
    assert failed.failure.kind is ErrorKind.INVALID
    assert failed.failure.where == f"operator {READ}"


def test_a_topic_that_grows_ends_the_attempt_when_it_is_seen() -> None:
    found = deployed(2, Topics(discovery_interval=1.0))
    look(found, "a/0", "a/1", "a/2", "a/3")
    assert assigned(look(found)) == {}
    [failed] = look(found, "a/4", "a/5")
    assert isinstance(failed, AttemptFailed)
    assert "topic a has 6 partitions" in failed.failure.message


def test_a_topic_that_has_grown_is_gone_on_with_by_one_subtask_where_every_key_is_right() -> None:
    known = [SplitState(f"a/{number}", 0) for number in range(4)]
    assert isinstance(look(deployed(1, Topics(discovery_interval=1.0)), "a/0", "a/4")[0], AttemptFailed)
    one = deployed(1, Topics(discovery_interval=1.0), manifest(5, splits=known))
    assert assigned(look(one, "a/4")) == {0: [*(split.id for split in known), "a/4"]}
    [failed] = look(deployed(2, Topics(discovery_interval=1.0), manifest(5, splits=known)), "a/4")
    assert isinstance(failed, AttemptFailed)


def test_the_chain_is_one_and_named_after_the_source() -> None:
    logical = graph(Topics())
    [vertex] = build_physical(logical, 2, programs.MAX_PARALLELISM).vertices
    assert vertex.operators == (READ, BY_USER, TOTALS, WRITE)
