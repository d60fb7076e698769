"""What a keyed state backend promises over many checkpoints, of which some complete and some do not, as tests.

A checkpoint's files are deleted here as soon as they may be, so that whoever names one that it must not finds nothing.
"""

import random
from collections.abc import Callable
from typing import Any

import pytest

from tidegate.errors import InvalidError
from tidegate.serializers import pickled
from tidegate.state.descriptors import (
    AggregatingState,
    ListState,
    MapState,
    ReducingState,
    StateDescriptor,
    ValueState,
)
from tidegate.testing.conformance.state_kit import USERS, Basket
from tidegate.testing.conformance.state_rescaling import NUMBER, StateRescalingConformance

ENTRIES = MapState(str, int, name="entries")


def _extended(basket: Basket, item: str) -> Basket:
    basket.items.append(item)
    return basket


def _changing(declared: Any) -> dict[str, tuple[StateDescriptor[Any], Callable[[Any], Any], Callable[[Any], Basket]]]:
    """For each kind of state: its descriptor, how to write a Basket, and how to get at what is kept."""
    return {
        "value": (ValueState(declared, name="s"), lambda s: s.update(Basket(["1"])), lambda s: s.value()),
        "made": (ValueState(declared, default_factory=Basket, name="s"), lambda s: s.value(), lambda s: s.value()),
        "list": (ListState(declared, name="s"), lambda s: s.add(Basket(["1"])), lambda s: s.get()[0]),
        "list, iterated": (ListState(declared, name="s"), lambda s: s.add(Basket(["1"])), lambda s: next(iter(s))),
        "map": (MapState(str, declared, name="s"), lambda s: s.put("x", Basket(["1"])), lambda s: s.get("x")),
        "map, values": (
            MapState(str, declared, name="s"),
            lambda s: s.put("x", Basket(["1"])),
            lambda s: s.values()[0],
        ),
        "map, items": (
            MapState(str, declared, name="s"),
            lambda s: s.put("x", Basket(["1"])),
            lambda s: s.items()[0][1],
        ),
        "reducing": (
            ReducingState[Any](declared, lambda one, other: other, name="s"),
            lambda s: s.add(Basket(["1"])),
            lambda s: s.get(),
        ),
        "aggregating": (
            AggregatingState[Any, Any](declared, Basket, _extended, lambda basket: basket, name="s"),
            lambda s: s.add("1"),
            lambda s: s.get(),
        ),
    }


KINDS = tuple(_changing(Basket))
"""All ways to get at a value that can change."""


class StateCheckpointConformance(StateRescalingConformance):
    """The suite of checkpoints: each test is one promise."""

    def test_what_was_cleared_after_a_checkpoint_does_not_come_back(self) -> None:
        backend = self.restored(self.complete(self.filled(NUMBER)[0]))
        number, entries = backend.register(NUMBER), backend.register(ENTRIES)
        backend.set_current_key(USERS[0])
        number.clear()
        entries.put("x", 1)
        self.complete(backend)
        entries.remove("x")
        taken = self.complete(backend)
        after = self.restored(taken)
        number, entries = after.register(NUMBER), after.register(ENTRIES)
        after.set_current_key(USERS[0])
        assert (number.value(), entries.is_empty()) == (None, True)
        assert sorted(after.keys("number")) == sorted(USERS[1:])
        assert list(after.keys("entries")) == []

    def test_a_completion_that_is_never_heard_of_loses_nothing(self) -> None:
        backend = self.filled(NUMBER)[0]
        handle = backend.register(ValueState(int, name="other"))
        taken = self.take(backend)
        for round_, user in enumerate(USERS[:12]):
            backend.set_current_key(user)
            handle.update(round_)
            taken = self.take(backend)
            _ = taken.handles
            if round_ % 4 == 3:
                backend.completed(taken.checkpoint)
        after = self.restored(taken)
        other = after.register(ValueState(int, name="other"))
        for round_, user in enumerate(USERS[:12]):
            after.set_current_key(user)
            assert other.value() == round_
        assert self.numbers(after) == {user: number for number, user in enumerate(USERS)}

    def test_files_that_only_an_earlier_checkpoint_names_may_be_gone_before_the_later_one_is_heard_of(self) -> None:
        backend = self.filled(NUMBER)[0]
        handle = backend.register(ValueState(int, name="other"))
        kept = self.complete(backend)
        for round_ in range(40):
            backend.set_current_key(USERS[round_ % 20])
            handle.update(round_)
            taken = self.take(backend)
            assert taken.paths <= self.files.contents.keys()
            self.files.delete(kept.paths - taken.paths)
            kept, late = taken, taken
            backend.set_current_key(USERS[20 + round_ % 20])
            handle.update(round_)
            if round_ % 2:
                backend.completed(late.checkpoint)
                if (work := backend.maintenance()) is not None:
                    work.run(self.files)
                    work.finish(None)
        assert len(self.numbers(self.restored(kept))) == len(USERS)

    def test_a_checkpoint_writes_in_proportion_to_what_changed(self) -> None:
        backend = self.one()
        handle = backend.register(ValueState(bytes, name="data"))
        for number in range(2000):
            backend.set_current_key(number)
            handle.update(random.Random(number).randbytes(200))
        self.complete(backend)
        whole = sum(self.files.sizes)
        for number in range(10):
            backend.set_current_key(number)
            handle.update(b"changed")
            self.complete(backend)
        assert whole > 400_000
        assert sum(self.files.sizes) - whole < whole / 2

    @pytest.mark.parametrize("declared", [Basket, pickled(Basket)], ids=["msgpack", "pickle"])
    @pytest.mark.parametrize("kind", KINDS)
    def test_a_value_that_was_read_and_changed_is_in_the_next_checkpoint(self, kind: str, declared: Any) -> None:
        descriptor, write, read = _changing(declared)[kind]
        backend = self.one()
        handle = backend.register(descriptor)
        backend.set_current_key("k")
        write(handle)
        items = list(read(handle).items)
        for item in ("2", "3"):
            self.complete(backend)
            read(handle).items.append(item)
            items.append(item)
            after = self.restored(self.complete(backend))
            fresh = after.register(descriptor)
            after.set_current_key("k")
            assert read(fresh).items == items

    def test_a_map_keeps_its_order_over_checkpoints(self) -> None:
        backend = self.one()
        entries = backend.register(ENTRIES)
        backend.set_current_key("k")
        for name in "dbca":
            entries.put(name, 1)
            self.complete(backend)
        entries.put("b", 2)
        entries.remove("c")
        self.complete(backend)
        entries.put("c", 3)
        after = self.restored(self.complete(backend))
        entries = after.register(ENTRIES)
        after.set_current_key("k")
        assert entries.items() == [("d", 1), ("b", 2), ("a", 1), ("c", 3)]
        entries.put("e", 5)
        assert entries.keys() == ["d", "b", "a", "c", "e"]

    def test_a_restored_state_that_changes_its_type_is_stored_in_the_new_one(self) -> None:
        backend = self.filled(NUMBER)[0]
        self.complete(backend)
        wider = ValueState(int | str, name="number")
        after = self.restored(self.complete(backend))
        after.register(wider)
        taken = self.complete(after)
        assert [state.value_type for state in taken.states] == [wider.type_name]
        again = self.restored(taken)
        number = again.register(wider)
        again.set_current_key(USERS[5])
        assert number.value() == 5

    def test_a_value_that_is_too_large_is_refused_with_state_and_key_at_the_latest_when_it_is_stored(self) -> None:
        cases: list[tuple[StateDescriptor[Any], Callable[[Any, bytes], None]]] = [
            (ValueState(bytes, name="data"), lambda handle, data: handle.update(data)),
            (ListState(bytes, name="data"), lambda handle, data: handle.add(data)),
            (MapState(int, bytes, name="data"), lambda handle, data: handle.put(1, data)),
            (ValueState(list[bytes], name="data"), lambda handle, data: handle.update([data])),
        ]
        for descriptor, write in cases:
            backend = self.limited(1000)
            handle = backend.register(descriptor)
            backend.set_current_key("small")
            write(handle, b"x")
            self.complete(backend)
            backend.set_current_key("large")
            with pytest.raises(InvalidError, match=r"state data.*'large'"):  # noqa: PT012 - either may refuse
                write(handle, b"x" * 2000)
                _ = self.take(backend).handles

    def test_every_key_that_stays_is_met_once_in_each_round_of_a_sweep(self) -> None:
        backend = self.filled(NUMBER)[0]
        rounds = 3
        met: dict[str, int] = {}
        for _ in range(1000):
            for user in backend.sweep("number", 7):
                met[user] = met.get(user, 0) + 1
            if min(met.values()) >= rounds and len(met) == len(USERS):
                break
        assert sorted(met) == sorted(USERS)
        assert max(met.values()) <= rounds + 1

    def test_a_sweep_of_nothing_ends(self) -> None:
        backend = self.one()
        number = backend.register(NUMBER)
        assert backend.sweep("number", 5) == []
        backend.set_current_key("a")
        number.update(1)
        assert backend.sweep("number", 5) == ["a"]
        number.clear()
        assert backend.sweep("number", 5) == []

    def test_a_look_does_not_change_what_the_next_checkpoint_writes(self) -> None:
        backend = self.one()
        basket = backend.register(ValueState(Basket, name="basket"))
        for number in range(200):
            backend.set_current_key(number)
            basket.update(Basket(["x" * 500]))
        self.complete(backend)
        written = sum(self.files.sizes)
        for number in range(200):
            backend.set_current_key(number)
            assert basket.peek() == Basket(["x" * 500])
        self.complete(backend)
        assert sum(self.files.sizes) - written < 50_000
