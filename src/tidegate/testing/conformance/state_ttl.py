"""What time to live must do over any keyed state backend, as tests: derive a class from `StateTtlConformance`.

The clock is the test's: nothing here waits.
"""

from typing import Any, Literal

import pytest

from tidegate.state.backend import KeyedStateBackend
from tidegate.state.descriptors import AggregatingState, ListState, MapState, ReducingState, ValueState
from tidegate.state.ttl import Ttl, TtlTime
from tidegate.state.ttl_handles import TtlCleaner, register
from tidegate.testing.conformance.state_kit import StateBackendKit

SECOND = 1000
Update = Literal["write", "read-and-write"]


def _add(accumulator: list[int], value: int) -> list[int]:
    return [*accumulator, value]


class _Live:
    """All kinds of state of one backend, with a time to live of ten seconds."""

    def __init__(self, backend: KeyedStateBackend, *, at: int = 0, ttl: Ttl | None = None, key: Any = "k") -> None:
        self.backend = backend
        self.time = TtlTime()
        self.at(at)
        ttl = ttl if ttl is not None else Ttl("10s")
        self.value = register(backend, ValueState(int, default=-1, name="value", ttl=ttl), self.time)
        self.numbers = register(
            backend, ValueState(list[int], default_factory=list, name="numbers", ttl=ttl), self.time
        )
        self.elements = register(backend, ListState(int, name="list", ttl=ttl), self.time)
        self.entries = register(backend, MapState(str, int, name="map", ttl=ttl), self.time)
        self.sum = register(backend, ReducingState(int, lambda one, other: one + other, name="sum", ttl=ttl), self.time)
        self.all = register(backend, AggregatingState(list[int], list, _add, sum, name="all", ttl=ttl), self.time)
        self.backend.set_current_key(key)

    def at(self, second: float) -> None:
        self.time.wall = self.time.event = 1_700_000_000_000 + round(second * SECOND)

    def write(self, number: int) -> None:
        self.value.update(number)
        self.numbers.value().append(number)
        self.elements.add(number)
        self.entries.put(str(number), number)
        self.sum.add(number)
        self.all.add(number)

    def read(self) -> tuple[Any, ...]:
        return (
            self.value.value(),
            list(self.numbers.value()),
            self.elements.get(),
            self.entries.items(),
            self.sum.get(),
            self.all.get(),
        )


NOTHING: tuple[Any, ...] = (-1, [], [], [], None, None)


class StateTtlConformance(StateBackendKit):
    """The suite: each test is one promise."""

    def test_what_is_young_is_there_and_what_is_old_is_not(self) -> None:
        live = _Live(self.one())
        live.write(1)
        live.at(9.999)
        assert live.read() == (1, [1], [1], [("1", 1)], 1, 1)
        live.at(10)
        assert live.read() == NOTHING

    def test_writing_lets_it_live_on_and_elements_and_entries_live_each_for_itself(self) -> None:
        live = _Live(self.one())
        live.write(1)
        live.at(6)
        live.write(2)
        live.at(12)
        # A list that a default_factory made is written when it is made, not when somebody appends to it.
        assert live.value.value() == 2
        assert (live.elements.get(), live.entries.items()) == ([2], [("2", 2)])
        assert (live.sum.get(), live.all.get()) == (3, 3)

    @pytest.mark.parametrize(("update", "expected"), [("write", -1), ("read-and-write", 7)])
    def test_reading_lets_it_live_on_only_where_that_is_asked_for(self, update: Update, expected: int) -> None:
        live = _Live(self.one(), ttl=Ttl("10s", update=update))
        live.value.update(7)
        live.elements.add(7)
        live.entries.put("x", 7)
        live.sum.add(7)
        live.at(6)
        live.read()
        live.at(12)
        lives = expected == 7
        assert live.value.value() == expected
        assert live.elements.get() == ([7] if lives else [])
        assert live.entries.get("x") == (7 if lives else None)
        assert ("x" in live.entries, live.entries.is_empty()) == (lives, not lives)
        assert live.sum.get() == (7 if lives else None)

    def test_expired_values_are_visible_once_more_where_that_is_asked_for(self) -> None:
        live = _Live(self.one(), ttl=Ttl("10s", expired="visible"))
        live.write(5)
        live.at(20)
        assert live.read() == (5, [5], [5], [("5", 5)], 5, 5)
        assert live.read() == NOTHING

    def test_an_expired_value_is_no_part_of_what_is_added_to_it(self) -> None:
        live = _Live(self.one(), ttl=Ttl("10s", expired="visible"))
        live.sum.add(100)
        live.all.add(100)
        live.at(10)
        live.sum.add(1)
        live.all.add(1)
        assert (live.sum.get(), live.all.get()) == (1, 1)

    def test_event_time_goes_by_the_records_and_nothing_expires_before_the_first(self) -> None:
        live = _Live(self.one(), ttl=Ttl("10s", clock="event"))
        live.value.update(1)
        live.time.wall += 3_600_000
        assert live.value.value() == 1
        live.time.event += 10 * SECOND
        assert live.value.value() == -1

    def test_a_restored_value_has_the_age_that_it_had(self) -> None:
        live = _Live(self.one())
        live.write(1)
        taken = self.take(live.backend)
        young = _Live(self.restored(taken), at=9)
        assert young.read()[0] == 1
        old = _Live(self.restored(taken), at=10)
        assert old.read() == NOTHING

    def test_what_nobody_reads_goes_too_and_is_in_no_later_checkpoint(self) -> None:
        backend = self.one()
        live = _Live(backend)
        for number in range(100):
            backend.set_current_key(f"k{number}")
            live.write(number)
        live.at(5)
        backend.set_current_key("young")
        live.write(1)
        handles = {
            "value": live.value,
            "numbers": live.numbers,
            "list": live.elements,
            "map": live.entries,
            "sum": live.sum,
            "all": live.all,
        }
        cleaner = TtlCleaner(backend, handles, least=7, share=1000)
        live.at(11)
        for _ in range(40):
            cleaner.after_batch(1)
        for name in handles:
            assert list(backend.keys(name)) == ["young"]
        taken = self.take(backend)
        restored = _Live(self.restored(taken), at=11, key="k50")
        assert restored.read() == NOTHING
        assert list(restored.backend.keys("value")) == ["young"]

    def test_a_value_that_lives_on_is_not_changed_by_cleaning(self) -> None:
        backend = self.one()
        live = _Live(backend, at=3)
        live.write(1)
        before = {name: list(backend.keys(name)) for name in ("value", "map")}
        cleaner = TtlCleaner(backend, {"value": live.value, "map": live.entries}, least=7, share=1000)
        live.at(12)
        cleaner.after_batch(1)
        assert {name: list(backend.keys(name)) for name in ("value", "map")} == before
        live.at(13)
        assert live.value.value() == -1

    def test_time_to_live_is_switched_on_over_values_that_have_no_time(self) -> None:
        plain = self.one()
        value = plain.register(ValueState(int, name="value"))
        elements = plain.register(ListState(int, name="list"))
        entries = plain.register(MapState(str, int, name="map"))
        plain.set_current_key("k")
        value.update(1)
        elements.extend([1, 2])
        entries.put("x", 1)
        live = _Live(self.restored(self.take(plain)), at=0)
        assert (live.value.value(), live.elements.get(), live.entries.items()) == (1, [1, 2], [("x", 1)])
        live.at(9)
        assert (live.value.value(), live.elements.get(), live.entries.items()) == (1, [1, 2], [("x", 1)])
        live.at(10)
        assert (live.value.value(), live.elements.get(), live.entries.items()) == (-1, [], [])

    def test_time_to_live_is_switched_off_and_everything_stays(self) -> None:
        live = _Live(self.one())
        live.write(1)
        live.write(2)
        plain = self.restored(self.take(live.backend))
        value = plain.register(ValueState(int, name="value"))
        numbers = plain.register(ValueState(list[int], default_factory=list, name="numbers"))
        elements = plain.register(ListState(int, name="list"))
        entries = plain.register(MapState(str, int, name="map"))
        total = plain.register(ReducingState(int, lambda one, other: one + other, name="sum"))
        plain.set_current_key("k")
        assert (value.value(), numbers.value(), elements.get(), entries.items(), total.get()) == (
            2,
            [1, 2],
            [1, 2],
            [("1", 1), ("2", 2)],
            3,
        )
