"""Splits that take turns: all of them, also when there are thousands and nearly all have nothing."""

from tidegate.checkpoint.protocol import SplitState
from tidegate.connectors.rotation import LOOKS, RotatingReader
from tidegate.operators.contracts import Fetched

SPLITS = 2500


class Topic:
    """Thousands of splits, and which of them have one record."""

    def __init__(self, full: set[str]) -> None:
        self.full = full
        self.looks = 0

    def read(self, split: SplitState, max_records: int) -> Fetched | None:
        self.looks += 1
        if split.id not in self.full:
            return None
        self.full.discard(split.id)
        return Fetched(split.id, ["record"], split.position + 1)

    def reader(self, splits: int = SPLITS) -> RotatingReader:
        reader = RotatingReader(self.read)
        reader.add_splits([SplitState(str(number), 0) for number in range(splits)])
        return reader


def polls(reader: RotatingReader) -> list[Fetched]:
    """What comes until it has nothing."""
    return list(iter(lambda: reader.poll(100), None))


def test_one_poll_looks_at_few_splits_and_nothing_is_said_only_when_all_were_looked_at() -> None:
    topic = Topic(set())
    reader = topic.reader()
    first = reader.poll(100)
    assert first == Fetched(str(LOOKS - 1), [], 0)
    assert topic.looks == LOOKS
    assert all(fetched.values == [] for fetched in polls(reader))
    assert topic.looks == SPLITS
    topic.looks = 0
    assert len(polls(reader)) == SPLITS // LOOKS
    assert topic.looks == SPLITS


def test_the_one_split_with_a_record_is_found_among_thousands() -> None:
    topic = Topic({"1777"})
    found = [fetched for fetched in polls(topic.reader()) if fetched.values]
    assert found == [Fetched("1777", ["record"], 1)]


def test_a_few_splits_without_anything_are_one_poll() -> None:
    topic = Topic(set())
    assert topic.reader(LOOKS).poll(100) is None
    assert topic.looks == LOOKS
    assert topic.reader(0).poll(100) is None


def test_paused_splits_are_not_looked_at_and_take_their_turns_again_when_they_are_resumed() -> None:
    topic = Topic({"0", "1", "2"})
    reader = topic.reader(4)
    reader.pause_or_resume_splits(["0", "2"], [])
    assert [fetched.split for fetched in polls(reader)] == ["1"]
    topic.looks = 0
    assert reader.poll(100) is None
    assert topic.looks == 2
    reader.pause_or_resume_splits(["1", "3"], ["2"])
    assert [fetched.split for fetched in polls(reader)] == ["2"]
    reader.pause_or_resume_splits([], ["0", "1", "3"])
    assert [fetched.split for fetched in polls(reader)] == ["0"]


def test_a_split_that_is_paused_and_resumed_before_its_turn_keeps_it() -> None:
    topic = Topic({"0", "1"})
    reader = topic.reader(2)
    reader.pause_or_resume_splits(["0"], [])
    reader.pause_or_resume_splits([], ["0"])
    assert [fetched.split for fetched in polls(reader)] == ["0", "1"]


def test_all_splits_may_wait() -> None:
    reader = Topic({"0", "1"}).reader(2)
    reader.pause_or_resume_splits(["0", "1"], [])
    assert polls(reader) == []
    reader.pause_or_resume_splits([], ["0", "1"])
    assert len(polls(reader)) == 2
