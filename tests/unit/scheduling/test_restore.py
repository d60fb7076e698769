"""Whether a program can go on from a checkpoint, and what each worker gets of it."""

from dataclasses import replace

import msgspec
import pytest

from tests.unit.scheduling.manifests import SUM, handle, manifest
from tests.unit.scheduling.programs import READ, TOTALS, WRITE, graph, job_settings, physical
from tidegate.checkpoint.manifest import Manifest, SubtaskRecord
from tidegate.checkpoint.protocol import SplitState, StateInfo
from tidegate.errors import CorruptError, InvalidError
from tidegate.graph.logical import InputEdge, LogicalGraph, LogicalNode, Partitioning
from tidegate.ids import OperatorName, SubtaskIndex, WorkerIndex
from tidegate.scheduling.restore import check_restorable, restored_for

HANDLES = [handle(0, 1, "a"), handle(2, 3, "b"), handle(4, 5, "c"), handle(6, 7, "d")]
"""Of a run with parallelism 4."""


@pytest.mark.parametrize(
    ("parallelism", "paths"),
    [
        (1, ["abcd"]),
        (2, ["ab", "cd"]),
        (3, ["ab", "bc", "d"]),
        (4, ["a", "b", "c", "d"]),
        (8, ["a", "a", "b", "b", "c", "c", "d", "d"]),
    ],
)
def test_each_worker_gets_the_handles_that_touch_its_key_groups_at_any_parallelism(
    parallelism: int, paths: list[str]
) -> None:
    found = []
    for worker in range(parallelism):
        restored = restored_for(manifest(1, handles=HANDLES), physical(graph(), parallelism), WorkerIndex(worker))
        [totals] = [each for each in restored if each.name == TOTALS]
        found.append("".join(str(h.path) for snapshot in totals.snapshots for h in snapshot.handles))
    assert found == paths


def test_a_worker_gets_every_operator_it_runs_with_key_type_and_states_and_whether_it_had_ended() -> None:
    restored = restored_for(manifest(1, handles=HANDLES, ended=True), physical(graph(), 1), WorkerIndex(0))
    assert [each.name for each in restored] == [READ, TOTALS, WRITE]
    assert all(each.ended for each in restored)
    assert [(s.key_type, s.states) for s in restored[1].snapshots] == [("str", (SUM,))] * 4


def test_splits_and_transactions_are_not_restored_by_workers() -> None:
    restored = restored_for(manifest(1, splits=[SplitState("a", 3)]), physical(graph(), 1), WorkerIndex(0))
    assert [(s.splits, s.pending, s.handles) for s in restored[0].snapshots] == [((), (), ())]


def test_a_program_that_has_not_changed_fits() -> None:
    check_restorable(manifest(1, handles=HANDLES, splits=[SplitState("a", 3)]), graph(), job_settings())


def test_an_operator_may_be_added_and_one_without_state_or_a_sink_may_be_removed() -> None:
    check_restorable(manifest(1), graph(states=("sum", "more")), job_settings())
    check_restorable(manifest(1), graph(sinks=()), job_settings())


def test_another_max_parallelism_is_refused_and_names_both() -> None:
    with pytest.raises(InvalidError, match=r"checkpoint 1 .* 16.* 8") as raised:
        check_restorable(manifest(1, max_parallelism=16), graph(), job_settings())
    assert raised.value.exit_code == 2
    assert "16" in raised.value.failure.remedy


def test_a_state_that_the_program_no_longer_declares_or_declares_as_another_kind_is_refused() -> None:
    with pytest.raises(InvalidError, match=r"'sum' of operator 'totals'.* does not declare"):
        check_restorable(manifest(1), graph(states=()), job_settings())
    listed = StateInfo("sum", "list", "int", "msgpack/1")
    with pytest.raises(InvalidError, match="list state in checkpoint 1, and a value state in the program"):
        check_restorable(manifest(1, states=(listed,)), graph(), job_settings())


def test_the_state_of_an_operator_and_the_splits_of_a_source_that_are_gone_are_refused() -> None:
    nodes = graph().nodes
    without_totals = type(graph())(graph().job, (nodes[0], nodes[2]))
    with pytest.raises(InvalidError, match="state of the operator 'totals'"):
        check_restorable(manifest(1), without_totals, job_settings())
    without_source = type(graph())(graph().job, nodes[1:])
    with pytest.raises(InvalidError, match="state of the source 'read'"):
        check_restorable(manifest(1, splits=[SplitState("a", 3)]), without_source, job_settings())


def test_a_source_that_is_no_source_any_more_is_refused() -> None:
    nodes = graph().nodes
    renamed = type(graph())(graph().job, (type(nodes[1])(READ, "map", factory=nodes[1].factory), nodes[1]))
    with pytest.raises(InvalidError, match="'read' as a source, the program as map"):
        check_restorable(manifest(1, splits=[SplitState("a", 3)]), renamed, job_settings())


# ---- what the program has no place for -----------------------------------------------------------------------------

ALLOWED = job_settings(allow_non_restored_state=True)


def test_everything_that_is_gone_is_named_at_once() -> None:
    gone = (SUM, StateInfo("more", "value", "int", "msgpack/1"))
    with pytest.raises(InvalidError, match=r"'sum' of operator.*'more' of operator") as raised:
        check_restorable(manifest(1, states=gone), graph(states=()), job_settings())
    assert "--allow-non-restored-state" in raised.value.failure.remedy


def test_state_that_is_gone_may_be_dropped_and_is_told_by_name() -> None:
    nodes = graph().nodes
    without_totals = type(graph())(graph().job, (nodes[0], nodes[2]))
    assert check_restorable(manifest(1), without_totals, ALLOWED) == (
        "checkpoint 1 has state of the operator 'totals', which the program does not have: dropped",
    )
    [told] = check_restorable(manifest(1), graph(states=("other",)), ALLOWED, "savepoint /s")
    assert told == "savepoint /s has state 'sum' of operator 'totals', which the program does not declare: dropped"
    without_source = type(graph())(graph().job, nodes[1:])
    [told] = check_restorable(manifest(1, splits=[SplitState("a", 3)]), without_source, ALLOWED)
    assert "'read'" in told


def test_what_is_dropped_is_not_given_to_workers() -> None:
    nodes = graph().nodes
    without_totals = type(graph())(graph().job, (nodes[0], type(nodes[2])(WRITE, "sink", nodes[1].inputs[:0])))
    restored = restored_for(manifest(1, handles=HANDLES), physical(without_totals, 1), WorkerIndex(0))
    assert TOTALS not in [operator.name for operator in restored]


def test_another_kind_of_state_or_max_parallelism_is_refused_whatever_may_be_dropped() -> None:
    listed = StateInfo("sum", "list", "int", "msgpack/1")
    with pytest.raises(InvalidError, match="list state in checkpoint 1"):
        check_restorable(manifest(1, states=(listed,)), graph(), ALLOWED)
    with pytest.raises(InvalidError, match="max_parallelism"):
        check_restorable(manifest(1, max_parallelism=16), graph(), ALLOWED)


def test_state_without_keys_that_is_gone_is_refused_too() -> None:
    found = manifest(1)
    spare = StateInfo("offsets", "list-split", "int", "msgpack/1")
    [source, totals, sink] = found.operators
    snapshot = msgspec.structs.replace(totals.snapshots[0], operator_states=(spare,))
    totals = msgspec.structs.replace(totals, subtasks=(SubtaskRecord(SubtaskIndex(0), snapshot),))
    with pytest.raises(InvalidError, match="'offsets' of operator 'totals'"):
        check_restorable(msgspec.structs.replace(found, operators=(source, totals, sink)), graph(), job_settings())


PARTITIONED = "str in 4 partitions by murmur2"


def with_keys(key_type: str, partitioning: Partitioning = Partitioning.FORWARD) -> LogicalGraph:
    """The graph with a `key_by` that declares this of its keys."""
    read, totals, write = graph().nodes
    key_by = LogicalNode(OperatorName("by-user"), "key_by", totals.inputs, factory=totals.factory, key_type=key_type)
    key_by = replace(key_by, inputs=(InputEdge(READ, Partitioning.FORWARD),))
    totals = replace(totals, inputs=(InputEdge(key_by.name, partitioning),))
    return LogicalGraph(graph().job, (read, key_by, totals, write))


def stored_with(key_type: str) -> Manifest:
    found = manifest(7)
    [source, totals, sink] = found.operators
    of_all = msgspec.structs.replace(totals.snapshots[0], key_type=key_type, handles=(handle(4, 7, "b"),))
    snapshots = [msgspec.structs.replace(of_all, key_type="", handles=()), of_all]
    subtasks = tuple(SubtaskRecord(SubtaskIndex(i), snapshot) for i, snapshot in enumerate(snapshots))
    totals = msgspec.structs.replace(totals, parallelism=2, subtasks=subtasks)
    return msgspec.structs.replace(found, operators=(source, totals, sink))


@pytest.mark.parametrize("key_type", [PARTITIONED, ""])
def test_the_same_partitions_fit_and_so_does_a_checkpoint_without_a_key(key_type: str) -> None:
    check_restorable(stored_with(key_type), with_keys(PARTITIONED), job_settings())
    check_restorable(stored_with(""), with_keys(key_type), job_settings())


@pytest.mark.parametrize(
    ("stored", "declared", "then", "now", "remedies"),
    [
        (
            PARTITIONED, "str in 8 partitions by murmur2", "4 partitions by murmur2", "8 partitions by murmur2",
            ("partitions=4 and partitioner='murmur2'", "key=str, partitions=8, partitioner='murmur2')"),
        ),
        (
            PARTITIONED, "str in 4 partitions by crc32", "4 partitions by murmur2", "4 partitions by crc32",
            ("partitioner='murmur2'", "partitions=4, partitioner='crc32')"),
        ),
        ("str", PARTITIONED, "without partitions", "4 partitions by murmur2", ("Leave partitions= out", "=4,")),
        (PARTITIONED, "str", "4 partitions by murmur2", "without partitions", ("partitions=4", "key=str)")),
        (PARTITIONED, "", "4 partitions by murmur2", "without partitions", ("partitions=4", "key=str)")),
    ],
)  # fmt: skip
def test_other_partitions_than_before_are_refused_and_the_error_names_both_and_what_to_do(
    stored: str, declared: str, then: str, now: str, remedies: tuple[str, ...]
) -> None:
    partitioning = Partitioning.FORWARD if " in " in declared else Partitioning.HASH
    with pytest.raises(InvalidError) as raised:
        check_restorable(stored_with(stored), with_keys(declared, partitioning), job_settings())
    message, remedy = raised.value.failure.message, raised.value.failure.remedy
    assert "operator 'totals'" in message
    assert message.index(f"{then} in checkpoint 7") < message.index(f"{now} in the program")
    for words in (*remedies, "another name", "write_savepoint"):
        assert words in remedy


def test_another_class_of_keys_in_the_same_partitions_is_refused() -> None:
    with pytest.raises(InvalidError, match="keys of type bytes in 4 partitions by murmur2 in checkpoint 7"):
        check_restorable(stored_with("bytes in 4 partitions by murmur2"), with_keys(PARTITIONED), job_settings())


def test_a_key_type_that_cannot_be_read_is_corrupt() -> None:
    with pytest.raises(CorruptError, match="0 partitions"):
        check_restorable(stored_with("str in 0 partitions by murmur2"), with_keys(""), job_settings())
