"""What is decided about topics and positions without asking a broker."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tidegate.checkpoint.protocol import SplitState
from tidegate.clock import Now
from tidegate.connectors.kafka import identity
from tidegate.connectors.kafka.client import Isolation, Topic, TopicPartition, partition_of
from tidegate.connectors.kafka.discovery import (
    TOPIC_ID,
    KafkaInspection,
    Offsets,
    Ranges,
    Selection,
    open_inspection,
    refuse_foreign,
)
from tidegate.connectors.kafka.identity import TopicIdentity
from tidegate.errors import InvalidError, LostDataError, UnavailableError

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def test_a_split_id_is_its_partition() -> None:
    assert partition_of("a.b-c_d/12") == TopicPartition("a.b-c_d", 12)
    assert str(partition_of("t/0")) == "t/0"


def test_a_pattern_must_match_the_whole_name() -> None:
    selection = Selection(pattern=re.compile(r"orders-\d+"))
    assert "orders-12" in selection
    assert not [name for name in ("orders-", "old-orders-12", "orders-12x") if name in selection]
    assert "orders" not in Selection(("orders-1", "order"))


def test_S09_partitions_of_topics_that_are_read_no_more_are_refused_with_their_names() -> None:
    refuse_foreign(Selection(("t",)), [A, B])
    with pytest.raises(InvalidError, match=r"topic u, v, which is not among the source's topics=t"):
        refuse_foreign(Selection(("t",)), [A, partition_of("v/0"), partition_of("u/0"), partition_of("u/1")])


class ScriptedCluster:
    """Answers for partitions from a table, and remembers what was asked, in order."""

    bootstrap = "127.0.0.1:9092"

    def __init__(self, answers: dict[Any, Offsets]) -> None:
        self.answers = answers
        self.asked: list[Any] = []

    def offsets(self, partitions: Any, at: Any, isolation: Isolation) -> Offsets:
        self.asked.append(at)
        return self.answers[at if isinstance(at, str) else "time"]


def ranges(cluster: ScriptedCluster) -> Ranges:
    return Ranges(cluster, [A, B], "read_committed")  # type: ignore[arg-type]


def test_S15_the_end_is_asked_before_the_time_so_that_nothing_between_the_two_is_skipped() -> None:
    cluster = ScriptedCluster({"latest": {A: 10, B: 20}, "time": {A: -1, B: 15}})
    assert ranges(cluster).since(EPOCH + timedelta(milliseconds=7)) == {A: 10, B: 15}
    assert cluster.asked == ["latest", 7]


@pytest.mark.parametrize(
    ("moment", "milliseconds"),
    [
        (EPOCH + timedelta(microseconds=1), 1),
        (EPOCH + timedelta(milliseconds=1), 1),
        (EPOCH - timedelta(days=1), 0),
    ],
)
def test_a_moment_is_the_millisecond_that_is_not_before_it(moment: datetime, milliseconds: int) -> None:
    cluster = ScriptedCluster({"latest": {A: 1, B: 1}, "time": {A: 0, B: 0}})
    ranges(cluster).since(moment)
    assert cluster.asked == ["latest", milliseconds]


def test_each_question_is_asked_once() -> None:
    cluster = ScriptedCluster({"earliest": {A: 1, B: 2}, "latest": {A: 3, B: 4}})
    asked = ranges(cluster)
    assert asked.resolve("earliest", {}) == asked.resolve({}, asked.beginnings) == {A: 1, B: 2}
    assert asked.resolve("latest", {}) == {A: 3, B: 4}
    assert asked.resolve({"t/1": 9}, asked.ends) == {A: 3, B: 9}
    assert cluster.asked == ["earliest", "latest"]


def test_a_partition_that_vanishes_between_two_questions_is_told() -> None:
    with pytest.raises(UnavailableError, match="t/1 at"):
        _ = ranges(ScriptedCluster({"earliest": {A: 1}})).beginnings


def test_an_inspection_is_opened_by_what_the_source_said() -> None:
    assert isinstance(open_inspection("127.0.0.1:9092", "{}", "read_uncommitted"), KafkaInspection)


# ---- identity ------------------------------------------------------------------------------------------------------


class SteppedClock:
    def __init__(self) -> None:
        self.time = 0.0

    def now(self) -> Now:
        return Now(self.time, self.time)


class Answers:
    """In place of the question to the brokers: the next of `results` each time."""

    def __init__(self, *results: Any) -> None:
        self.results = list(results)
        self.asked: list[list[str]] = []

    def __call__(self, names: Sequence[str]) -> "Answers":
        self.asked.append(list(names))
        return self

    def answer(self) -> Any:
        result = self.results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result


def topic(id: str, partitions: int = 1) -> dict[str, Topic]:
    return {"t": Topic("t", id, tuple(range(partitions)), False)}


SPLIT = SplitState("t/0", 5, attributes={TOPIC_ID: "one"})


def watched(*results: Any) -> tuple[TopicIdentity, Answers, SteppedClock]:
    answers, clock = Answers(*results), SteppedClock()
    return TopicIdentity(answers, "127.0.0.1:9092", Selection(("t",)), clock), answers, clock


def test_S11_a_split_waits_for_the_answer_and_is_verified_once() -> None:
    watch, answers, clock = watched(None, topic("one"), topic("one"), topic("two"))
    assert watch.verified() == []
    watch.add([SPLIT])
    assert [watch.verified(), watch.verified(), watch.verified()] == [[], [SPLIT], []]
    assert answers.asked == [["t"]]
    clock.time += identity.CHECKED_EVERY
    assert watch.verified() == []
    clock.time += identity.CHECKED_EVERY
    with pytest.raises(LostDataError, match="its id was one and is two"):
        watch.verified()


def test_S11_a_topic_of_another_id_is_not_read() -> None:
    watch, _, _ = watched(topic("two"))
    watch.add([SPLIT])
    with pytest.raises(LostDataError, match="created anew"):
        watch.verified()


def test_a_position_of_another_system_is_not_taken_for_an_offset() -> None:
    watch, _, _ = watched(topic("one"))
    watch.add([SplitState("t/0", 5, attributes={"created": "another log"})])
    with pytest.raises(InvalidError, match="the position of t/0 in the checkpoint is not one in a Kafka topic"):
        watch.verified()


def test_a_broker_that_does_not_know_the_topic_yet_is_asked_again() -> None:
    watch, answers, clock = watched({}, topic("one", 0), topic("one"))
    watch.add([SPLIT])
    assert watch.verified() == []
    assert watch.verified() == []
    assert len(answers.asked) == 1
    clock.time += identity.ASK_AGAIN_AFTER
    assert watch.verified() == []
    clock.time += identity.ASK_AGAIN_AFTER
    assert watch.verified() == [SPLIT]


def test_a_topic_that_stays_unknown_is_lost() -> None:
    watch, _, clock = watched({})
    watch.add([SPLIT])
    clock.time += identity.UNKNOWN_WITHIN
    with pytest.raises(LostDataError, match=r"t/0 at .* is not there any more"):
        watch.verified()


def test_no_answer_matters_only_to_who_waits_for_it() -> None:
    watch, _, clock = watched(topic("one"), UnavailableError("no"), UnavailableError("no"))
    watch.add([SPLIT])
    assert watch.verified() == [SPLIT]
    clock.time += identity.CHECKED_EVERY
    assert watch.verified() == []
    watch.add([SplitState("t/1", 0)])
    with pytest.raises(UnavailableError):
        watch.verified()


def test_a_finished_split_is_not_watched_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    watch, answers, clock = watched(topic("one"))
    watch.add([SPLIT])
    assert watch.verified() == [SPLIT]
    watch.remove("t/0")
    clock.time += 10 * identity.CHECKED_EVERY
    assert watch.verified() == []
    assert len(answers.asked) == 1
