"""The checker of a chaos run passes right output and names each way in which it can be wrong, at the first record."""

from collections.abc import Iterator

import msgspec
import pytest

from tests.chaos.checker import Checker, Seen, Violation, check_all
from tests.chaos.records import OUTPUT_PARTITIONS, Total, order, partition_of, right_total

USERS = 7
COUNT = 100
VICTIM = 40


def right_output(count: int = COUNT) -> list[Seen]:
    """As one partition after another is read."""
    totals = [right_total(number, USERS) for number in range(count)]
    placed = [(int(total.user[1:]) % OUTPUT_PARTITIONS, total) for total in totals]
    return [
        Seen(partition, offset, msgspec.json.encode(total))
        for partition in range(OUTPUT_PARTITIONS)
        for offset, total in enumerate(total for place, total in placed if place == partition)
    ]


def place_of(records: list[Seen], number: int) -> int:
    encoded = msgspec.json.encode(right_total(number, USERS))
    return next(place for place, record in enumerate(records) if record.value == encoded)


def first_violation(records: list[Seen]) -> Violation:
    checker = Checker(USERS)
    for record in records:
        try:
            checker.check(record)
        except Violation as violation:
            return violation
    raise AssertionError("nothing was found wrong")


def test_the_right_totals_are_what_a_loop_over_the_orders_gives() -> None:
    sums: dict[str, list[int]] = {}
    for number in range(COUNT):
        one = order(number, USERS)
        numbers = sums.setdefault(one.user, [])
        numbers.append(one.number)
        ages = sum(range(min(3, len(numbers))))
        assert right_total(number, USERS) == Total(one.user, number, len(numbers), sum(numbers), ages)


def test_one_user_is_in_one_partition() -> None:
    places: dict[str, set[int]] = {}
    for number in range(COUNT):
        places.setdefault(order(number, USERS).user, set()).add(partition_of(number, USERS))
    assert all(len(found) == 1 for found in places.values())


@pytest.mark.parametrize("count", [0, 1, USERS - 1, USERS, COUNT])
def test_right_output_is_right_and_complete(count: int) -> None:
    checker = Checker(USERS)
    for record in right_output(count):
        checker.check(record)
    assert checker.has_all(count)
    assert not checker.has_all(count + 1)
    check_all(right_output(count), count, USERS)


def test_a_removed_record_is_found_at_the_next_of_its_user() -> None:
    records = right_output()
    removed = records.pop(place_of(records, VICTIM))
    found = first_violation(records)
    assert found.what == "lost"
    assert f"order {VICTIM} " in str(found)
    assert [record.partition for record in found.records] == [removed.partition] * 2
    with pytest.raises(Violation, match="lost"):
        check_all(records, COUNT, USERS)


def test_a_removed_last_record_is_found_at_the_end() -> None:
    records = right_output()
    records.pop(place_of(records, COUNT - 1))
    checker = Checker(USERS)
    for record in records:
        checker.check(record)
    assert not checker.has_all(COUNT)
    with pytest.raises(Violation, match="lost"):
        check_all(records, COUNT, USERS)


@pytest.mark.parametrize("later", [1, 20])
def test_a_doubled_record_is_found_where_it_comes_again(later: int) -> None:
    records = right_output()
    place = place_of(records, VICTIM)
    records.insert(min(place + later, len(records)), records[place])
    found = first_violation(records)
    assert found.what == "doubled"
    assert found.records[-1] == records[place]
    with pytest.raises(Violation, match="doubled"):
        check_all(records, COUNT, USERS)


@pytest.mark.parametrize("field", ["orders", "total", "ages"])
def test_a_changed_record_is_found_with_what_it_should_be(field: str) -> None:
    records = right_output()
    place = place_of(records, VICTIM)
    right = right_total(VICTIM, USERS)
    changed = msgspec.structs.replace(right, **{field: getattr(right, field) + 1})
    records[place] = Seen(records[place].partition, records[place].offset, msgspec.json.encode(changed))
    found = first_violation(records)
    assert found.what == "wrong"
    assert msgspec.json.encode(right).decode() in str(found)
    with pytest.raises(Violation):
        check_all(records, COUNT, USERS)


def test_a_record_that_is_no_total_is_found() -> None:
    assert first_violation([Seen(0, 5, b"{}")]).what == "wrong"
    with pytest.raises(Violation, match="wrong"):
        check_all([Seen(0, 5, b"{}")], 0, USERS)


def test_two_records_of_a_user_in_the_wrong_order_are_found() -> None:
    records = right_output()
    first, second = place_of(records, VICTIM), place_of(records, VICTIM + USERS)
    records[first], records[second] = records[second], records[first]
    assert first_violation(records).what == "lost"


def test_a_user_in_two_partitions_is_found() -> None:
    records = right_output()
    place = place_of(records, VICTIM)
    old = records[place]
    records[place] = Seen((old.partition + 1) % OUTPUT_PARTITIONS, old.offset, old.value)
    assert first_violation(records).what == "misplaced"


def test_a_violation_says_where_its_records_lie() -> None:
    records = right_output()
    place = place_of(records, VICTIM)
    records.insert(place + 1, records[place])
    text = str(first_violation(records))
    assert f"partition {records[place].partition}, offset {records[place].offset}: " in text
    assert records[place].value.decode() in text


def test_order_between_users_is_free() -> None:
    def by_number() -> Iterator[Seen]:
        places = {record.value: record for record in right_output()}
        for number in range(COUNT):
            yield places[msgspec.json.encode(right_total(number, USERS))]

    checker = Checker(USERS)
    for record in by_number():
        checker.check(record)
    assert checker.has_all(COUNT)
