"""Records for topics that are not known yet wait in order, and fail where the topic cannot be written to."""

import pytest

from tidegate.connectors.kafka.batches.grouping import Given
from tidegate.connectors.kafka.batches.parking import UNKNOWN_WITHIN, Parking
from tidegate.connectors.kafka.messages import Cluster
from tidegate.errors import InvalidError, UnavailableError


def given(topic: str, *values: bytes) -> Given:
    return Given(topic, values, None, None, None, None)


def parked(*topics: str) -> Parking:
    made = Parking("Kafka at host:9092")
    for index, topic in enumerate(topics):
        made.add(given(topic, b"%d" % index), now=0.0)
    return made


def test_what_is_known_is_released_in_order_and_the_rest_waits() -> None:
    made = parked("a", "b", "a")
    assert made.to_ask(0.0) == ["a", "b"]
    assert made.to_ask(0.0) == []
    assert made.told(Cluster({}, {}, {"b": 5}), 0.0) == []
    assert [one.values for one in made.released({"a": 1})] == [(b"0",), (b"2",)]
    assert made
    assert made.to_ask(1.0) == ["b"]
    assert [one.values for one in made.released({"b": 1})] == [(b"1",)]
    assert not made


def test_it_is_asked_less_and_less_often() -> None:
    made = parked("a")
    asked = 0
    for step in range(1000):
        if made.to_ask(step / 100):
            asked += 1
            assert made.told(UnavailableError("nobody"), step / 100) == []
    assert asked < 20


def test_a_topic_that_stays_unknown_fails_with_its_records() -> None:
    made = parked("a", "b", "a")
    made.to_ask(0.0)
    assert made.told(Cluster({}, {}, {"a": 3}), UNKNOWN_WITHIN - 1) == []
    failed = made.told(Cluster({}, {}, {"a": 3}), UNKNOWN_WITHIN + 1)
    assert [(type(error), records) for error, records in failed] == [(InvalidError, 1), (InvalidError, 1)]
    assert "writing to topic a" in failed[0][0].failure.message
    assert [one.topic for one in made.released({"a": 1, "b": 1})] == ["b"]


@pytest.mark.parametrize("code", [29, 17])
def test_a_topic_that_may_not_be_written_to_fails_at_once(code: int) -> None:
    made = parked("a")
    made.to_ask(0.0)
    ((error, records),) = made.told(Cluster({}, {}, {"a": code}), 0.0)
    assert (type(error), records) == (InvalidError, 1)


def test_a_login_that_is_refused_fails_all() -> None:
    made = parked("a", "b")
    made.to_ask(0.0)
    assert len(made.told(InvalidError("no"), 0.0)) == 2
    assert not made
