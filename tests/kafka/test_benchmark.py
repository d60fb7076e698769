"""The benchmark of the running totals measures only what is right: a fast wrong run fails."""

from collections import Counter

import msgspec
import pytest

from benchmarks import kafka_totals
from tests.kafka.brokers import Broker

pytestmark = pytest.mark.slow
RECORDS = 3 * kafka_totals.USERS


def answer() -> list[kafka_totals.Total]:
    totals: Counter[str] = Counter()
    written = []
    for number in range(RECORDS):
        user = kafka_totals.user_of(number)
        totals[user] += kafka_totals.amount_of(number)
        written.append(kafka_totals.Total(user, totals[user]))
    return written


def write(kafka: Broker, totals: list[kafka_totals.Total]) -> str:
    topic = kafka.create_topic(partitions=kafka_totals.PARTITIONS)
    kafka.produce(topic, list(map(msgspec.json.encode, totals)), keys=[total.user for total in totals])
    return topic


def test_an_order_has_sixty_bytes() -> None:
    assert {len(kafka_totals.order(number)) for number in (0, 10_006, 3_999_999)} == {60}


def test_the_right_answer_passes(kafka: Broker) -> None:
    kafka_totals.check(kafka.bootstrap, write(kafka, answer()), RECORDS)


@pytest.mark.parametrize("change", ["removed", "doubled", "changed", "swapped"])
def test_a_wrong_answer_is_refused(kafka: Broker, change: str) -> None:
    totals = answer()
    first, last = totals[5], totals[-1]
    match change:
        case "removed":
            totals.remove(last)
        case "doubled":
            totals.append(last)
        case "changed":
            totals[-1] = kafka_totals.Total(last.user, last.total + 1)
        case "swapped":
            totals[5], totals[5 + kafka_totals.USERS] = totals[5 + kafka_totals.USERS], first
    with pytest.raises(SystemExit, match=r"no measure|out of order"):
        kafka_totals.check(kafka.bootstrap, write(kafka, totals), RECORDS)
