"""What is said of a lost transaction: which one, of which checkpoint, why, which input, and what may be done."""

from collections.abc import Mapping

import msgspec

from tests.unit.checkpoint.records import manifest
from tidegate.checkpoint.loss import SPLITS_SHOWN, explain_loss, lost_transaction
from tidegate.checkpoint.manifest import Manifest, OperatorRecord, SubtaskRecord
from tidegate.checkpoint.protocol import Committable, OperatorSnapshot, PendingTransaction, SplitState
from tidegate.errors import ErrorKind, Failure
from tidegate.ids import CheckpointId, OperatorName, SubtaskIndex

WHY = "it expired at 12:00:10, 10 s after its start"


def checkpoint(number: int, splits: Mapping[str, int], *ids: str, use: int = 0) -> Manifest:
    """With a source `read` and a sink `write` that holds transactions `ids`, each in its use number `use`."""
    source = OperatorSnapshot(OperatorName("read"), splits=tuple(SplitState(id, at) for id, at in splits.items()))
    prepared = tuple(PendingTransaction(CheckpointId(number), Committable(id, {"use": use})) for id in ids)
    sink = OperatorSnapshot(OperatorName("write"), pending=prepared)
    operators = tuple(OperatorRecord(o.name, 1, False, (SubtaskRecord(SubtaskIndex(0), o),)) for o in (source, sink))
    return msgspec.structs.replace(manifest(number, 2), operators=operators)


def lost(id: str = "t", kind: ErrorKind = ErrorKind.LOST) -> Failure:
    return lost_transaction(kind, Committable(id), WHY)


def test_the_text_names_transaction_reason_checkpoint_input_and_choices() -> None:
    before = checkpoint(16, {"orders/0": 100, "orders/1": 40})
    explained = explain_loss(
        lost(), [before, checkpoint(17, {"orders/0": 130, "orders/1": 40, "orders/2": 5}, "t", "u")]
    )
    assert explained.message.splitlines() == [
        f"transaction t of a completed checkpoint is lost: {WHY}",
        "It belongs to checkpoint 17, which has 2 transactions; its records are in the state, but not in the output.",
        "They are results of input between checkpoint 16 and checkpoint 17:",
        "  source read, split orders/0: from 100 up to 130, not included",
        "  source read, split orders/2: up to 5, not included",
    ]
    assert "--accept-lost-transactions" in explained.remedy
    assert "--from-checkpoint 16" in explained.remedy
    assert "a second time" in explained.remedy
    assert (explained.kind, explained.exit_code, explained.where) == (ErrorKind.LOST, 3, "checkpoint 17")


def test_it_says_so_when_the_checkpoint_before_is_not_kept() -> None:
    explained = explain_loss(lost(), [checkpoint(17, {"a": 130}, "t")])
    assert "the checkpoint before it is not kept any more" in explained.message
    assert "  source read, split a: up to 130, not included" in explained.message
    assert "--from-checkpoint" not in explained.remedy
    assert "--fresh" in explained.remedy


def test_there_is_nothing_before_the_first_checkpoint() -> None:
    explained = explain_loss(lost(), [checkpoint(1, {"a": 9}, "t")])
    assert "before checkpoint 1, the first" in explained.message


def test_a_transaction_that_two_checkpoints_list_belongs_to_the_first_of_them() -> None:
    manifests = [checkpoint(15, {"a": 1}), checkpoint(16, {"a": 2}, "t"), checkpoint(17, {"a": 3}, "t")]
    explained = explain_loss(lost(), manifests)
    assert "checkpoint 16, which" in explained.message
    assert "from 1 up to 2" in explained.message
    assert "--from-checkpoint 15" in explained.remedy


def test_an_earlier_use_of_the_same_id_is_another_transaction() -> None:
    manifests = [checkpoint(16, {"a": 2}, "t", use=1), checkpoint(17, {"a": 3}, "t", use=2)]
    assert "checkpoint 17, which" in explain_loss(lost(), manifests).message


def test_an_unknown_outcome_is_told_as_what_it_is() -> None:
    explained = explain_loss(lost(kind=ErrorKind.UNKNOWN_OUTCOME), [checkpoint(1, {"a": 9}, "t")])
    assert "has an unknown outcome" in explained.message
    assert explained.exit_code == 3


def test_what_a_running_task_said_of_its_place_is_kept() -> None:
    found = msgspec.structs.replace(lost(), where="operator write, subtask 1, attempt 3")
    assert explain_loss(found, [checkpoint(1, {"a": 9}, "t")]).where == found.where


def test_failures_of_other_kinds_and_transactions_that_nobody_names_stay_as_they_are() -> None:
    other = Failure(ErrorKind.LOST, "offset 7 was deleted")
    manifests = [checkpoint(16, {"a": 2}, "t"), checkpoint(17, {"a": 3})]
    assert explain_loss(other, manifests) == other
    assert explain_loss(lost("stranger"), manifests) == lost("stranger")
    assert explain_loss(lost("t"), manifests) == lost("t")
    assert explain_loss(lost("t"), []) == lost("t")


def test_of_very_many_splits_the_rest_is_counted() -> None:
    splits = {f"s{number:04}": 1 for number in range(SPLITS_SHOWN + 7)}
    lines = explain_loss(lost(), [checkpoint(1, splits, "t")]).message.splitlines()
    assert len(lines) == 3 + SPLITS_SHOWN + 1
    assert lines[-1] == "  and 7 splits more"


def test_an_explained_failure_crosses_a_process_boundary() -> None:
    explained = explain_loss(lost(), [checkpoint(1, {"a": 9}, "t")])
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(explained), type=Failure) == explained
