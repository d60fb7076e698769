"""Lookup joins in running tasks: rows and their absence, and what a cache asks for."""

from typing import Any

import tidegate as tg
from tests.unit.runtime.asking import Asking, Build

# ---- lookups -------------------------------------------------------------------------------------------------------


def row_of(key: int) -> str | None:
    if key == 3:
        raise LookupError("three")
    return None if key == 0 else f"row {key}"


def looking(**options: Any) -> Build:
    settings: dict[str, Any] = {"name": "look", "type": int, "by": lambda n: n % 10, "capacity": 10} | options
    return lambda stream: stream.lookup_join(row_of, lambda n, row: (n, row), **settings)


def test_records_without_a_row_are_left_out_or_kept() -> None:
    inner, left = Asking(looking()), Asking(looking(how="left"))
    for asking in (inner, left):
        asking.put(20, 21, 22)
        asking.answer_all()
    assert inner.out == [(21, "row 1"), (22, "row 2")]
    assert left.out == [(20, None), (21, "row 1"), (22, "row 2")]


def test_a_lookup_that_fails_leaves_its_record_out_where_that_is_wanted() -> None:
    asking = Asking(looking(on_error="skip"))
    asking.put(1, 3, 5)
    asking.answer_all()
    assert asking.out == [(1, "row 1"), (5, "row 5")]


def test_what_the_join_raises_is_the_failure_of_its_record() -> None:
    def join(number: int, row: str) -> str:
        if number == 11:
            raise ValueError("eleven")
        return row

    def build(on_error: Any) -> Build:
        return lambda stream: stream.lookup_join(
            row_of, join, name="look", type=int, by=lambda n: n % 10, on_error=on_error
        )

    fails, skips = Asking(build("fail")), Asking(build("skip"))
    for asking in (fails, skips):
        asking.put(1, 11, 2)
        asking.answer_all()
    assert fails.bench.failure.message == "ValueError on record 11: eleven"
    assert skips.out == ["row 1", "row 2"]
    assert skips.bench.task("look").metrics()[0].records_skipped == 1


def test_with_a_cache_a_key_is_asked_for_once_while_its_row_is_young() -> None:
    asking = Asking(looking(cache=tg.LookupCache(size=2, ttl="60s")))
    asking.put(1, 11, 2)
    assert asking.calls.records == [1, 2]
    asking.answer_all()
    asking.put(21, 31)
    assert asking.out == [(1, "row 1"), (11, "row 1"), (2, "row 2"), (21, "row 1"), (31, "row 1")]
    asking.put(4)
    assert asking.calls.records == [4]
    asking.answer_all()
    # Two are kept: the row of 2 was used the longest time ago.
    asking.put(41, 12)
    assert asking.calls.records == [12]
    asking.answer_all()
    asking.bench.clock.time += 60.0
    asking.put(51)
    assert asking.calls.records == [51]


def test_a_key_without_a_row_is_kept_too_and_an_error_is_not() -> None:
    asking = Asking(looking(how="left", on_error="skip", cache=tg.LookupCache()))
    asking.put(10, 13, 23)
    asking.answer_all()
    asking.put(20, 33)
    assert asking.calls.records == [33]
    assert asking.out == [(10, None), (20, None)]


def test_a_call_that_others_wait_for_goes_on_when_one_of_them_has_waited_too_long() -> None:
    asking = Asking(looking(cache=tg.LookupCache(), timeout="10s", on_error="skip"))
    asking.put(1)
    asking.bench.clock.time += 6.0
    asking.put(11)
    asking.bench.clock.time += 6.0
    asking.come()
    (group,) = asking.calls.groups
    assert group.cancelled == []
    asking.answer_all()
    assert asking.out == [(11, "row 1")]
    asking.put(2)
    asking.bench.clock.time += 11.0
    asking.come()
    assert len(group.cancelled) == 1
    asking.put(12)
    assert asking.calls.records == [2, 12]


def test_a_key_that_cannot_be_taken_is_the_failure_of_its_record() -> None:
    asking = Asking(looking(by=lambda n: 1 // (n - 5), cache=tg.LookupCache(), on_error="skip"))
    asking.put(5, 6)
    asking.answer_all()
    assert asking.out == [(6, "row 1")]
