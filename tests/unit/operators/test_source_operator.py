"""A source remembers where each split stands, and decodes what was read under every `on_error=`."""

from collections import deque
from collections.abc import Sequence
from typing import Any

import pytest

from tests.unit.operators.bench import rows, run
from tidegate.checkpoint.protocol import SplitState
from tidegate.elements import Batch
from tidegate.errors import InternalError, UnavailableError, UserCodeError
from tidegate.ids import CheckpointId
from tidegate.operators.contracts import Fetched
from tidegate.operators.source import SourceInput, SourceOperator
from tidegate.operators.user_code import OnError

SKIP = OnError(skip=True)
ASIDE = OnError(tag="dead")


class Scripted:
    """A reader that brings what it was told, whatever is asked."""

    def __init__(self, *fetches: Fetched | None) -> None:
        self._fetches = deque(fetches)
        self.added: list[str] = []
        self.asked: list[int] = []
        self.completed: list[dict[str, int]] = []

    def add_splits(self, splits: Sequence[SplitState]) -> None:
        self.added += [split.id for split in splits]

    def poll(self, max_records: int) -> Fetched | None:
        self.asked.append(max_records)
        return self._fetches.popleft() if self._fetches else None

    def notify_checkpoint_complete(self, splits: Sequence[SplitState]) -> None:
        self.completed.append({split.id: split.position for split in splits})

    def close(self) -> None:
        self.added = []


class Numbers:
    """Decodes decimal text; None, a tombstone, stays None."""

    def __init__(self) -> None:
        self.one_by_one = 0

    def decode(self, raw: list[Any]) -> list[Any]:
        return [None if text is None else int(text) for text in raw]

    def decode_one(self, raw: Any) -> Any:
        self.one_by_one += 1
        return None if raw is None else int(raw)


def source_of(*fetches: Fetched | None, splits: str = "ab", no_more: bool = True) -> SourceInput:
    source = SourceInput(Scripted(*fetches))
    source.assign([SplitState(id, 0) for id in splits], no_more)
    return source


def positions(source: SourceInput) -> dict[str, int]:
    return {split.id: split.position for split in source.splits}


# ---- splits and positions --------------------------------------------------------------------------------------------


def test_the_position_is_the_one_behind_the_last_batch_that_was_given_out() -> None:
    source = source_of(Fetched("a", [1, 2], 2), Fetched("b", [3], 70), Fetched("a", [4], 3))
    assert positions(source) == {"a": 0, "b": 0}
    source.poll(10)
    assert positions(source) == {"a": 2, "b": 0}
    source.poll(10)
    source.poll(10)
    assert positions(source) == {"a": 3, "b": 70}


def test_a_batch_carries_values_and_timestamps_and_no_key() -> None:
    source = source_of(Fetched("a", [1, 2], 2, keys=["k", "l"], timestamps=[10, 20]))
    batch = source.poll(10)
    assert batch is not None
    assert (batch.values, batch.keys, batch.timestamps) == ([1, 2], None, [10, 20])


def test_a_position_may_move_without_any_record() -> None:
    source = source_of(Fetched("a", [], 9))
    batch = source.poll(10)
    assert batch is not None
    assert not batch.values
    assert positions(source)["a"] == 9


def test_nothing_now_moves_nothing() -> None:
    source = source_of(None)
    assert source.poll(10) is None
    assert positions(source) == {"a": 0, "b": 0}


def test_the_reader_is_asked_for_as_many_as_wanted() -> None:
    reader = Scripted()
    SourceInput(reader).poll(17)
    assert reader.asked == [17]


def test_splits_are_listed_by_id_finished_ones_included() -> None:
    source = source_of(Fetched("b", [1], 1, finished=True), splits="bca")
    source.poll(10)
    assert [(split.id, split.finished) for split in source.splits] == [("a", False), ("b", True), ("c", False)]


def test_a_split_keeps_what_else_the_connector_said_of_it() -> None:
    source = SourceInput(Scripted(Fetched("a", [1], 6)))
    source.assign([SplitState("a", 5, stop=8, attributes={"topic": "x"})], True)
    source.poll(10)
    assert source.splits == (SplitState("a", 6, stop=8, attributes={"topic": "x"}),)


def test_a_split_that_had_finished_is_kept_and_not_read_again() -> None:
    reader = Scripted()
    source = SourceInput(reader)
    source.assign([SplitState("a", 5, finished=True), SplitState("b", 0)], False)
    assert reader.added == ["b"]
    assert [split.id for split in source.splits] == ["a", "b"]


def test_it_has_ended_when_all_are_finished_and_no_more_will_come() -> None:
    source = source_of(Fetched("a", [1], 1, finished=True), Fetched("b", [], 0, finished=True), no_more=False)
    source.poll(1)
    source.poll(1)
    assert not source.has_ended
    source.assign((), True)
    assert source.has_ended


def test_it_has_not_ended_while_one_split_goes_on() -> None:
    source = source_of(Fetched("a", [1], 1, finished=True))
    source.poll(1)
    assert not source.has_ended


def test_without_any_split_it_has_ended_once_no_more_will_come() -> None:
    assert source_of(splits="").has_ended
    assert not source_of(splits="", no_more=False).has_ended


def test_only_finished_splits_have_ended_from_the_start() -> None:
    source = SourceInput(Scripted())
    source.assign([SplitState("a", 5, finished=True)], True)
    assert source.has_ended


def test_a_split_that_comes_twice_would_be_read_twice_and_is_refused() -> None:
    source = source_of(no_more=False)
    with pytest.raises(InternalError, match="split a was assigned twice"):
        source.assign([SplitState("a", 0)], False)


def test_a_split_that_comes_after_the_last_is_refused() -> None:
    with pytest.raises(InternalError, match="no more would come"):
        source_of().assign([SplitState("z", 0)], False)


def test_a_reader_that_brings_a_split_it_was_not_given_is_found_out() -> None:
    with pytest.raises(InternalError, match="split z, which it was not given"):
        source_of(Fetched("z", [1], 1)).poll(1)


def test_a_reader_that_goes_on_after_the_end_of_a_split_is_found_out() -> None:
    source = source_of(Fetched("a", [1], 1, finished=True), Fetched("a", [2], 2))
    source.poll(1)
    with pytest.raises(InternalError, match="had said to be finished"):
        source.poll(1)


# ---- decoding --------------------------------------------------------------------------------------------------------


def test_without_a_format_the_batch_passes_as_it_is() -> None:
    batch = Batch([b"1"], None, [10])
    assert run(SourceOperator(None), batch) == [batch]


@pytest.mark.parametrize("deserializer", [None, Numbers()])
def test_a_batch_without_records_gives_none(deserializer: Numbers | None) -> None:
    assert run(SourceOperator(deserializer), Batch([])) == []


def test_a_good_batch_is_decoded_at_once_and_keeps_its_timestamps() -> None:
    numbers = Numbers()
    (out,) = run(SourceOperator(numbers), Batch(["1", None, "3"], None, [10, 20, 30]))
    assert (out.values, out.timestamps) == ([1, None, 3], [10, 20, 30])
    assert numbers.one_by_one == 0


def test_a_poison_record_fails_with_the_users_traceback_and_the_place() -> None:
    with pytest.raises(UserCodeError) as failed:
        run(SourceOperator(Numbers()), Batch(["1", "x", "3"]))
    failure = failed.value.failure
    assert "ValueError on record 'x': invalid literal" in failure.message
    assert failure.where == "operator it, subtask 1, attempt 3"
    assert "in decode_one" in failure.traceback
    assert "tidegate/operators" not in failure.traceback


def test_poison_records_are_skipped_and_counted() -> None:
    operator = SourceOperator(Numbers(), SKIP)
    (out,) = run(operator, Batch(["1", "x", "3", "y"], None, [10, 20, 30, 40]))
    assert (out.values, out.timestamps) == ([1, 3], [10, 30])
    assert operator.records_skipped == 2


def test_poison_records_go_undecoded_to_the_side_output() -> None:
    operator = SourceOperator(Numbers(), ASIDE)
    out = run(operator, Batch(["1", "x", "3", "y"], None, [10, 20, 30, 40]))
    assert rows(out) == [(None, [1, 3]), ("dead", ["x", "y"])]
    assert out[1].timestamps == [20, 40]
    assert operator.records_skipped == 0


def test_a_batch_of_poison_alone_emits_no_empty_batch() -> None:
    assert run(SourceOperator(Numbers(), SKIP), Batch(["x", "y"])) == []
    assert rows(run(SourceOperator(Numbers(), ASIDE), Batch(["x"]))) == [("dead", ["x"])]


def test_being_out_of_memory_is_never_the_records_fault() -> None:
    class Exhausted(Numbers):
        def decode(self, raw: list[Any]) -> list[Any]:
            raise MemoryError

        def decode_one(self, raw: Any) -> Any:
            raise MemoryError

    with pytest.raises(UserCodeError, match="MemoryError"):
        run(SourceOperator(Exhausted(), SKIP), Batch(["1"]))


def test_an_error_of_tidegates_own_keeps_its_kind() -> None:
    class Registry(Numbers):
        def decode(self, raw: list[Any]) -> list[Any]:
            raise UnavailableError("the registry does not answer")

        decode_one = decode

    with pytest.raises(UnavailableError, match="registry"):
        run(SourceOperator(Registry()), Batch(["1"]))


def test_a_deserializer_that_drops_records_in_silence_is_found_out() -> None:
    class Forgetful(Numbers):
        def decode(self, raw: list[Any]) -> list[Any]:
            return [int(text) for text in raw if text is not None]

    with pytest.raises(UserCodeError, match="made 1 values of 2 records"):
        run(SourceOperator(Forgetful(), SKIP), Batch(["1", None]))


# ---- completed checkpoints -------------------------------------------------------------------------------------------


def told_source(*fetches: Fetched | None) -> tuple[SourceInput, Scripted]:
    reader = Scripted(*fetches)
    source = SourceInput(reader)
    source.assign([SplitState(id, 0) for id in "ab"], True)
    return source, reader


def test_the_reader_is_told_the_positions_of_the_checkpoint_that_completed_and_not_those_of_now() -> None:
    source, reader = told_source(Fetched("a", [1, 2], 2), Fetched("b", [3], 70))
    source.poll(10)
    assert source.capture(CheckpointId(1)) == source.splits
    source.poll(10)
    source.completed(CheckpointId(1))
    assert reader.completed == [{"a": 2, "b": 0}]


def test_an_abandoned_checkpoint_is_never_told() -> None:
    source, reader = told_source(Fetched("a", [1, 2], 2))
    source.capture(CheckpointId(1))
    source.poll(10)
    source.abandoned(CheckpointId(1))
    source.completed(CheckpointId(1))
    assert reader.completed == []
    source.capture(CheckpointId(2))
    source.completed(CheckpointId(2))
    assert reader.completed == [{"a": 2, "b": 0}]


def test_a_completed_checkpoint_is_told_once_and_an_earlier_one_behind_it_not_at_all() -> None:
    source, reader = told_source()
    for number in (1, 2):
        source.capture(CheckpointId(number))
    for number in (2, 2, 1):
        source.completed(CheckpointId(number))
    assert len(reader.completed) == 1


def test_what_a_reader_makes_of_a_completed_checkpoint_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    class Grumpy(Scripted):
        def notify_checkpoint_complete(self, splits: Sequence[SplitState]) -> None:
            raise UnavailableError("no coordinator")

    source = SourceInput(Grumpy(Fetched("a", [1], 1)))
    source.assign([SplitState("a", 0)], True)
    source.capture(CheckpointId(1))
    source.completed(CheckpointId(1))
    assert "checkpoint 1 completed" in caplog.text
    assert "no coordinator" in caplog.text
    assert source.poll(10) is not None
