"""The checker of the counting job notices every way in which output can be wrong."""

import random

import pytest

from tests.integration.jobs import In, Out, assert_exactly_once

RECORDS = [In(f"key-{number % 3}", number) for number in range(12)]


def right() -> list[Out]:
    return [Out(record.key, record.number, index // 3 + 1) for index, record in enumerate(RECORDS)]


def test_right_output_passes_whatever_the_order_between_keys() -> None:
    output = right()
    random.Random(1).shuffle(output)
    assert_exactly_once(RECORDS, sorted(output, key=lambda out: out.number))
    assert_exactly_once(RECORDS, sorted(output, key=lambda out: (out.key, out.number)))


@pytest.mark.parametrize("place", range(12))
def test_a_removed_record_is_noticed(place: int) -> None:
    output = right()
    del output[place]
    with pytest.raises(AssertionError, match="1 keys differ"):
        assert_exactly_once(RECORDS, output)


@pytest.mark.parametrize("place", range(12))
def test_a_doubled_record_is_noticed(place: int) -> None:
    output = right()
    output.append(output[place])
    with pytest.raises(AssertionError, match="1 keys differ"):
        assert_exactly_once(RECORDS, output)


@pytest.mark.parametrize("changed", [Out("key-1", 99, 2), Out("key-1", 4, 3), Out("key-9", 4, 2)])
def test_a_changed_record_is_noticed(changed: Out) -> None:
    output = right()
    output[4] = changed
    with pytest.raises(AssertionError, match="keys differ"):
        assert_exactly_once(RECORDS, output)


def test_exchanged_records_of_a_key_are_noticed() -> None:
    output = right()
    output[0], output[3] = output[3], output[0]
    with pytest.raises(AssertionError, match="1 keys differ"):
        assert_exactly_once(RECORDS, output)
