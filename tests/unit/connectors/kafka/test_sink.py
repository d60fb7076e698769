"""The Kafka sink refuses what cannot be right, and prepares only what is certainly there."""

import logging
from typing import Any

import msgspec
import pytest

from tests.unit.connectors.kafka.scripted import (
    ID,
    PARTITIONS,
    PREPARED,
    STARTED,
    HandClock,
    KeepingFactory,
    KeepingProducer,
    ScriptedAdmin,
    described,
    leaders,
)
from tidegate.connectors.kafka.client import EndAnswer, TransactionDescription, TransactionState
from tidegate.connectors.kafka.open_transaction import KafkaTransaction
from tidegate.connectors.kafka.sink import KafkaSink, KafkaSinkWriter
from tidegate.elements import Batch
from tidegate.errors import InternalError, InvalidError, LostDataError, SinkFencedError, TidegateError, UnavailableError
from tidegate.formats import String

S = TransactionState
EMPTY = described(S.EMPTY, started_at=None)


def sink(topic: Any = "totals", **arguments: Any) -> KafkaSink:
    return KafkaSink("localhost:9092", topic, **arguments)


class Ground:
    """A writer on scripted answers, with one transaction that wrote `records`."""

    def __init__(self, *descriptions: TransactionDescription | TidegateError | None, records: int = 30) -> None:
        self.admin = ScriptedAdmin([EMPTY, *descriptions], [EndAnswer.DONE])
        self.factory = KeepingFactory()
        self.clock = HandClock(STARTED)
        self.writer = KafkaSinkWriter(sink(timeout=60.0), self.factory, self.admin, self.clock)
        self.txn: KafkaTransaction = self.writer.begin(ID)
        self.producer = self.factory.opened[0]
        if records:
            self.writer.write(self.txn, Batch([b"x"] * records))

    def refusal(self) -> TidegateError:
        with pytest.raises(TidegateError) as caught:
            self.writer.prepare(self.txn)
        assert self.producer.is_dropped
        return caught.value


# ---- the description -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"topic": ""}, "topic=''"),
        ({"topic": None}, "topic=None"),
        ({"key": "id"}, "key='id' must be a function"),
        ({"partition": 3}, "partition=3 must be a function"),
        ({"value": "json"}, "value='json' is not a format"),
        ({"value": String}, "is not a format"),
        ({"delivery": "at-most-once"}, "'exactly-once', 'at-least-once', 'none'"),
        ({"transaction_prefix": "a:b"}, "transaction_prefix='a:b' is not a name"),
        ({"transaction_prefix": ""}, "is not a name"),
        ({"timeout": 0}, "timeout=0 must be at least 1 second"),
        ({"timeout": float("nan")}, "timeout=nan"),
        ({"timeout": True}, "timeout=True"),
        ({"timeout": "60"}, "timeout='60'"),
        ({"timeout": 60, "delivery": "none"}, "has none"),
        ({"settings": {"transactional.id": "x"}}, "transactional.id"),
    ],
)
def test_what_cannot_be_right_is_refused_with_the_argument_in_the_sentence(
    arguments: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidError) as caught:
        sink(**arguments)
    assert words in str(caught.value)


def test_T24_a_prefix_that_is_too_long_is_refused() -> None:
    with pytest.raises(InvalidError, match="1 to 64"):
        sink(transaction_prefix="x" * 40_000)
    assert sink(transaction_prefix="x" * 64).transaction_prefix == "x" * 64


def test_a_sink_says_what_it_is_and_shows_no_secret() -> None:
    made = sink(settings={"sasl.password": "hunter2"}, timeout=90)
    assert repr(made) == "KafkaSink('localhost:9092', 'totals', delivery='exactly-once')"
    assert made.timeout == 90
    assert sink().timeout is None
    assert b"hunter2" not in msgspec.json.encode(made.recovery_spec)
    assert made.recovery_spec.arguments["delivery"] == "exactly-once"


# ---- begin ---------------------------------------------------------------------------------------------------------


def test_the_brokers_maximum_is_the_timeout_and_asked_for_once() -> None:
    admin, factory = ScriptedAdmin([EMPTY]), KeepingFactory()
    writer = KafkaSinkWriter(sink(), factory, admin, HandClock())
    writer.begin(ID)
    writer.begin(ID)
    assert factory.timeouts == [900.0, 900.0]
    assert admin.asked.count("maximum_timeout") == 1


def test_a_topic_that_does_not_exist_stops_the_begin_and_drops_the_producer() -> None:
    class NoTopic(KeepingProducer):
        def partition_count(self, topic: str) -> int:
            raise InvalidError(f"no topic {topic}")

    class Factory(KeepingFactory):
        def open_transaction(self, id: str, timeout: float) -> KeepingProducer:
            self.opened.append(NoTopic())
            return self.opened[-1]

    factory = Factory()
    with pytest.raises(InvalidError, match="no topic totals"):
        KafkaSinkWriter(sink(), factory, ScriptedAdmin([EMPTY]), HandClock()).begin(ID)
    assert factory.opened[0].is_dropped


@pytest.mark.parametrize("found", [None, described()])
def test_an_id_that_somebody_else_uses_while_it_is_opened_is_fenced(found: TransactionDescription | None) -> None:
    factory = KeepingFactory()
    with pytest.raises(SinkFencedError, match=PREPARED.id):
        KafkaSinkWriter(sink(), factory, ScriptedAdmin([found]), HandClock()).begin(ID)
    assert factory.opened[0].is_dropped


# ---- prepare -------------------------------------------------------------------------------------------------------


def test_what_is_open_with_all_its_records_is_prepared_and_the_producer_let_go() -> None:
    ground = Ground(described())
    assert ground.writer.prepare(ground.txn) == PREPARED.committable()
    assert ground.producer.asked == ["totals", "flush"]
    assert ground.producer.is_dropped


def test_T13_nothing_written_is_nothing_to_commit_and_costs_no_request() -> None:
    ground = Ground(described(), records=0)
    asked = list(ground.admin.asked)
    assert ground.writer.prepare(ground.txn) is None
    assert ground.admin.asked == asked
    assert ground.producer.is_dropped


def test_T06_an_expiry_is_reported_as_expiry_with_the_numbers() -> None:
    for fenced in (None, SinkFencedError("fenced")):
        ground = Ground(described(S.COMPLETE_ABORT, epoch=4))
        ground.producer.fails = fenced
        ground.clock.wall += 70
        refusal = ground.refusal()
        assert isinstance(refusal, LostDataError)
        text = str(refusal)
        assert "timeout had passed" in text
        assert "2027-01-15 08:00:00.250 UTC" in text
        assert "60 s" in text
        assert "transaction.max.timeout.ms" in text
        assert "another producer" not in text


def test_T06_a_write_that_is_fenced_after_the_timeout_is_an_expiry_and_before_it_is_not() -> None:
    ground = Ground(described())
    ground.producer.fails = SinkFencedError("fenced")
    ground.clock.wall += 61
    with pytest.raises(LostDataError, match=r"expired.*61\.0 s ago, and its timeout is 60 s"):
        ground.writer.write(ground.txn, Batch([b"x"]))
    early = Ground(described())
    early.producer.fails = SinkFencedError("fenced")
    with pytest.raises(SinkFencedError):
        early.writer.write(early.txn, Batch([b"x"]))


NOT_TAKEN = "writing to topic totals: Message timed out"


def test_T06_an_expiry_while_records_were_under_way_is_reported_as_expiry_with_what_the_producer_said() -> None:
    for state in (S.PREPARE_ABORT, S.COMPLETE_ABORT):
        ground = Ground(described(state, epoch=4))
        ground.producer.fails = UnavailableError(NOT_TAKEN)
        ground.clock.wall += 60
        refusal = ground.refusal()
        assert isinstance(refusal, LostDataError)
        assert "its timeout had passed, which was at 2027-01-15 08:01:00.250 UTC" in str(refusal)
        assert f"Its producer says: {NOT_TAKEN}" in str(refusal)
        assert "longer timeout=" in str(refusal)


@pytest.mark.parametrize(
    ("age", "found", "asked"),
    [
        (59.0, described(S.COMPLETE_ABORT, epoch=4), 0),
        (61.0, described(), 1),
        (61.0, described(S.EMPTY, started_at=None), 1),
        (61.0, UnavailableError("no answer"), 1),
    ],
)
def test_T06_records_that_nobody_took_are_no_expiry_unless_the_coordinator_says_so(
    age: float, found: TransactionDescription | TidegateError, asked: int
) -> None:
    """And nobody is asked before one is possible: whoever does not take records may not answer either."""
    ground = Ground(found)
    ground.producer.fails = UnavailableError(NOT_TAKEN)
    ground.clock.wall += age
    before = len(ground.admin.asked)
    refusal = ground.refusal()
    assert isinstance(refusal, UnavailableError)
    assert str(refusal) == NOT_TAKEN
    assert ground.admin.asked[before:] == ["describe"] * asked


def test_T06_a_write_that_fails_after_the_timeout_says_that_it_has_passed_and_before_it_does_not() -> None:
    for age, words in (
        (61, "older than its timeout: it began at 2027-01-15 08:00:00.250 UTC at the earliest"),
        (59, ""),
    ):
        ground = Ground(described())
        ground.producer.fails = UnavailableError(NOT_TAKEN)
        ground.clock.wall += age
        with pytest.raises(UnavailableError) as caught:
            ground.writer.write(ground.txn, Batch([b"x"]))
        text = str(caught.value)
        assert text.startswith(NOT_TAKEN)
        assert (words in text, "longer timeout=" in text) == (True, age == 61)
        assert (text == NOT_TAKEN) == (age == 59)


@pytest.mark.parametrize(
    ("found", "kind", "words"),
    [
        (None, LostDataError, "does not know it any more"),
        (described(S.EMPTY, epoch=5, started_at=None), SinkFencedError, "its epoch is 5, it was 3"),
        (described(epoch=5), SinkFencedError, "another producer uses this transactional id"),
        (described(producer_id=8), SinkFencedError, "producer id 8"),
        (described(S.COMPLETE_ABORT), LostDataError, "its own producer id and epoch"),
        (described(S.PREPARE_ABORT), LostDataError, "its own producer id and epoch"),
        (described(S.COMPLETE_COMMIT), LostDataError, "CompleteCommit"),
        (UnavailableError("no answer"), UnavailableError, "no answer"),
    ],
)
def test_what_is_not_open_as_ours_is_not_prepared(
    found: TransactionDescription | TidegateError | None, kind: type[TidegateError], words: str
) -> None:
    refusal = Ground(found).refusal()
    assert isinstance(refusal, kind)
    assert words.lower() in str(refusal).lower()


@pytest.mark.parametrize("changes", [{"first_open_offset": None}, {"records": 19}, {"records": 21}])
def test_partitions_that_do_not_have_exactly_what_was_sent_are_not_prepared(changes: dict[str, Any]) -> None:
    ground = Ground(described())
    ground.admin.rows = [leaders(**changes)]
    assert isinstance(ground.refusal(), LostDataError)


def test_a_transaction_whose_beginning_was_ended_by_markers_is_not_prepared() -> None:
    ground = Ground(described())
    ground.admin.sequences = {PARTITIONS[1]: 10}
    refusal = ground.refusal()
    assert isinstance(refusal, LostDataError)
    assert "10 records of it in totals/2" in str(refusal)


def test_a_fence_that_the_coordinator_knows_nothing_of_stays_what_the_producer_said() -> None:
    ground = Ground(described())
    ground.producer.fails = SinkFencedError("fenced by a partition")
    assert "fenced by a partition" in str(ground.refusal())


def test_T21_a_flush_that_fails_prepares_nothing() -> None:
    ground = Ground(described())
    ground.producer.fails = InvalidError("a record of 2,000,000 bytes")
    assert isinstance(ground.refusal(), InvalidError)


def test_T21_what_could_not_be_flushed_ahead_is_never_prepared() -> None:
    ground = Ground(described())
    ground.producer.fails = UnavailableError("not every record was accepted")
    with pytest.raises(UnavailableError, match="accepted"):
        ground.writer.flush(ground.txn)
    ground.producer.fails = None
    assert "accepted" in ground.refusal().failure.message


def test_what_was_flushed_ahead_is_prepared() -> None:
    ground = Ground(described())
    ground.writer.flush(ground.txn)
    assert ground.writer.prepare(ground.txn) == PREPARED.committable()


@pytest.mark.parametrize(
    ("value", "kind", "raised"), [("a", UnavailableError, TypeError), (None, InvalidError, InvalidError)]
)
def test_a_write_that_failed_is_never_prepared(value: Any, kind: type[Exception], raised: type[Exception]) -> None:
    ground = Ground(described())
    if value is None:
        ground.producer.fails = InvalidError("refused")
        value = b"a"
    with pytest.raises(raised):
        ground.writer.write(ground.txn, Batch([value]))
    ground.producer.fails = None
    assert ground.writer.has_room(ground.txn)
    with pytest.raises(kind):
        ground.writer.write(ground.txn, Batch([b"a"]))
    assert isinstance(ground.refusal(), kind)


def test_after_prepare_and_abandon_nothing_is_written() -> None:
    ground = Ground(described())
    ground.writer.prepare(ground.txn)
    with pytest.raises(InternalError, match="after it had been prepared"):
        ground.writer.write(ground.txn, Batch([b"a"]))
    other = Ground(described())
    other.writer.abandon(other.txn)
    assert other.producer.is_dropped
    with pytest.raises(UnavailableError, match="abandoned"):
        other.writer.write(other.txn, Batch([b"a"]))


def test_room_is_what_the_producer_says() -> None:
    ground = Ground(described())
    ground.producer.has_room = False
    assert not ground.writer.has_room(ground.txn)


# ---- check ---------------------------------------------------------------------------------------------------------


def test_check_passes_what_is_pending_and_asks_the_partitions_once() -> None:
    ground = Ground(described())
    before = len(ground.admin.asked)
    ground.writer.check([])
    assert len(ground.admin.asked) == before
    ground.writer.check([PREPARED.committable(), PREPARED.committable()])
    assert ground.admin.asked[before:] == ["describe", "describe", "producers"]


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (None, "does not know"),
        (described(S.COMPLETE_ABORT, epoch=4), "timeout"),
        (described(S.COMPLETE_COMMIT), "committed by another process"),
        (described(S.PREPARE_EPOCH_FENCE), "PrepareEpochFence"),
    ],
)
def test_check_says_what_became_of_a_transaction_that_is_not_pending(
    found: TransactionDescription | None, words: str
) -> None:
    with pytest.raises(LostDataError, match=words):
        Ground(found).writer.check([PREPARED.committable()])


def test_check_finds_markers_behind_the_coordinators_back() -> None:
    ground = Ground(described())
    ground.admin.rows = [leaders(first_open_offset=None)]
    with pytest.raises(LostDataError, match="totals/2"):
        ground.writer.check([PREPARED.committable()])


def test_a_pending_transaction_past_half_its_timeout_is_mentioned_once(caplog: pytest.LogCaptureFixture) -> None:
    ground = Ground(described())
    prepared = ground.writer.prepare(ground.txn)
    assert prepared is not None
    written_at = ground.clock.wall
    with caplog.at_level(logging.WARNING, "tidegate.kafka.sink"):
        for age, lines in ((29, 0), (31, 1), (40, 1)):
            ground.clock.wall = written_at + age
            ground.writer.check([prepared])
            assert len(caplog.records) == lines
    assert prepared.id in caplog.text
    assert "31 s old" in caplog.text


def test_the_age_of_a_transaction_is_not_told_by_the_clocks_of_two_machines(caplog: pytest.LogCaptureFixture) -> None:
    ground = Ground(described())
    ground.clock.wall = STARTED + 1000
    ground.txn.wrote_at = (ground.clock.now().monotonic, STARTED + 1000)
    prepared = ground.writer.prepare(ground.txn)
    assert prepared is not None
    ground.writer.check([prepared])
    assert caplog.records == []
