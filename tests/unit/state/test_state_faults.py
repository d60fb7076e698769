"""Faults of keyed state, on the backend of each preset with one text: keys that move, values that grow, values that are
None (B05, B09, B10)."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest

import tidegate as tg
from tests.unit.operators.bench import HandClock, context
from tests.unit.state.rocksdb.tools import make_folder
from tidegate.elements import Batch
from tidegate.errors import InvalidError
from tidegate.ids import SubtaskIndex
from tidegate.operators.keyed import KeyedProcessOperator
from tidegate.state.backend import KeyedStateBackend
from tidegate.state.descriptors import AggregatingState, ListState, MapState, ReducingState, ValueState
from tidegate.state.key_groups import key_group, subtask_of
from tidegate.state.object_backend import ObjectStateBackend
from tidegate.state.object_capture import MAX_VALUE_BYTES
from tidegate.state.rocksdb import RocksMemory, RocksStateBackend
from tidegate.testing.conformance.state_kit import MAX_PARALLELISM, OPERATOR, StateBackendKit

PRESETS = ("memory", "fs", "rocksdb")


class Presets(StateBackendKit):
    """Backends as `preset` says; those of RocksDB in `folder`."""

    def __init__(self, preset: str, folder: Path) -> None:
        self.preset = preset
        self.folders = (folder / str(number) / "1" / "under-test.0" for number in count(1))
        self.made: list[KeyedStateBackend] = []

    @cached_property
    def memory(self) -> RocksMemory:
        return RocksMemory(RocksMemory.LIMIT_MIN)

    def backend(
        self, subtask: SubtaskIndex, parallelism: int, max_parallelism: int, limit: int = MAX_VALUE_BYTES
    ) -> KeyedStateBackend:
        made: KeyedStateBackend
        place = (OPERATOR, subtask, parallelism, max_parallelism)
        if self.preset == "rocksdb":
            made = RocksStateBackend(*place, next(self.folders), self.memory, value_limit=limit)
        else:
            made = ObjectStateBackend(*place, is_incremental=self.preset == "fs", max_value_bytes=limit)
        self.made.append(made)
        return made

    def limited(self, max_value_bytes: int) -> KeyedStateBackend:
        return self.backend(SubtaskIndex(0), 1, MAX_PARALLELISM, max_value_bytes)


@pytest.fixture(params=PRESETS)
def kit(request: pytest.FixtureRequest) -> Iterator[Presets]:
    folder: tempfile.TemporaryDirectory[str]
    with make_folder() as folder:  # type: ignore[assignment]
        made = Presets(request.param, Path(str(folder)))
        yield made
        for backend in made.made:
            backend.close()


# ---- keys that move ------------------------------------------------------------------------------------------------


class Alarm(tg.KeyedProcessFunction[str, int, tuple[str, int, int]]):
    """Keeps its key's number and says it when a timer of that time fires."""

    number = tg.ValueState(int, default=0)

    def process_element(self, value: int, ctx: tg.KeyedContext[str]) -> None:
        self.number.update(value)
        ctx.timer_service.register_processing_time_timer(value + 1)

    def on_timer(self, timestamp: int, ctx: tg.KeyedContext[str]) -> Iterator[tuple[str, int, int]]:
        yield ctx.key, timestamp, self.number.value()


def opened(backends: Sequence[KeyedStateBackend], clock: HandClock) -> list[KeyedProcessOperator]:
    operators = [KeyedProcessOperator(Alarm(), timers=True) for _ in backends]
    for operator, backend in zip(operators, backends, strict=True):
        operator.open(context(1000, backend, clock=clock))
    return operators


def owner(key: str, parallelism: int) -> int:
    return subtask_of(key_group(key, MAX_PARALLELISM), parallelism, MAX_PARALLELISM)


def fired(operator: KeyedProcessOperator, clock: HandClock, now: int) -> list[Any]:
    clock.milliseconds = now
    found: list[Any] = []
    while operator.next_timer is not None and operator.next_timer <= now:
        for batch in operator.fire_timers(now, lambda: False):
            found += batch.values
    return found


@pytest.mark.parametrize("keys", [1500, pytest.param(100_000, marks=pytest.mark.slow)])
def test_B05_keys_and_timers_that_move_from_two_to_three_to_one_to_four_subtasks_are_each_in_one(
    kit: Presets, keys: int
) -> None:
    clock = HandClock()
    numbers = {f"key-{number}": number for number in range(keys)}
    backends = [kit.backend(SubtaskIndex(i), 2, MAX_PARALLELISM) for i in range(2)]
    operators = opened(backends, clock)
    for subtask, operator in enumerate(operators):
        own = [key for key in numbers if owner(key, 2) == subtask]
        list(operator.process(Batch([numbers[key] for key in own], own, None)))
    for parallelism in (3, 1, 4):
        taken = [kit.complete(backend) for backend in backends]
        backends = [kit.restored(*taken, subtask=i, parallelism=parallelism) for i in range(parallelism)]
        operators = opened(backends, clock)
        found = [list(backend.keys("number")) for backend in backends]
        assert sorted(key for part in found for key in part) == sorted(numbers)
        for subtask, part in enumerate(found):
            assert {owner(key, parallelism) for key in part} == {subtask}
    alarms = [fired(operator, clock, keys + 1) for operator in operators]
    for subtask, part in enumerate(alarms):
        assert {owner(key, 4) for key, _, _ in part} == {subtask}
    together = sorted(alarm for part in alarms for alarm in part)
    assert together == sorted((key, number + 1, number) for key, number in numbers.items())


# ---- values that grow ----------------------------------------------------------------------------------------------

LIMIT, PIECE = 20_000, b"x" * 500


@pytest.mark.parametrize("kind", ["list", "map", "value"])
def test_B09_what_grows_beyond_the_limit_is_refused_when_it_is_written_or_stored_and_never_when_it_is_read(
    kit: Presets, kind: str
) -> None:
    descriptors: dict[str, Any] = {
        "list": ListState(bytes, name="grows"),
        "map": MapState(int, bytes, name="grows"),
        "value": ValueState(list[bytes], default_factory=list, name="grows"),
    }
    writes: dict[str, Any] = {
        "list": lambda state, _: state.add(PIECE),
        "map": lambda state, number: state.put(number, PIECE),
        "value": lambda state, _: state.update([*state.value(), PIECE]),
    }
    backend = kit.limited(LIMIT)
    state = backend.register(descriptors[kind])
    taken, size, refusal = kit.complete(backend), 0, ""
    for number in range(2 * LIMIT // len(PIECE)):
        backend.set_current_key("large")
        try:
            writes[kind](state, number)
            taken = kit.complete(backend)
        except InvalidError as error:
            refusal = str(error)
            break
        size = number + 1
        if number % 8 == 7:
            assert pieces(kit, taken, descriptors[kind]) == size
    assert pieces(kit, taken, descriptors[kind]) == size
    may_be_larger = kit.preset == "rocksdb" and kind != "value"
    assert (refusal == "") is may_be_larger
    if refusal:
        assert "state grows" in refusal
        assert "'large'" in refusal
        assert size >= LIMIT * 0.9 // len(PIECE)


def pieces(kit: Presets, taken: Any, descriptor: Any) -> int:
    """How many a restored backend has."""
    after = kit.restored(taken)
    state = after.register(descriptor)
    after.set_current_key("large")
    found = state.values() if isinstance(descriptor, MapState) else None
    found = found if found is not None else state.get() if isinstance(descriptor, ListState) else state.value()
    assert set(found) <= {PIECE}
    with suppress(Exception):
        after.close()
        kit.made.remove(after)
    return len(found)


# ---- values that are None ------------------------------------------------------------------------------------------


class Part(msgspec.Struct, frozen=True):
    """A value with something missing."""

    name: str | None
    sizes: tuple[int | None, ...] = ()


def states() -> list[Any]:
    return [
        ValueState(int | None, default=5, name="value"),
        ValueState(Part, name="part"),
        ListState(int | None, name="list"),
        MapState(str | None, int | None, name="map"),
        ReducingState[Any](int | None, lambda one, other: other, name="reduced"),  # type: ignore[arg-type]
        AggregatingState[Any, Any](
            list[int | None], list, lambda made, value: [*made, value], lambda made: made, name="joined"
        ),
    ]


def fill(handles: Sequence[Any]) -> None:
    value, part, elements, entries, reduced, joined = handles
    value.update(None)
    part.update(Part(None, (1, None)))
    elements.extend([None, 1, None])
    entries.put(None, 1)
    entries.put("there", None)
    entries.put("gone", None)
    entries.remove("gone")
    for one in (1, None):
        reduced.add(one)
        joined.add(one)


def seen(backend: KeyedStateBackend, handles: Sequence[Any]) -> list[Any]:
    """All that user code can see of it."""
    value, part, elements, entries, reduced, joined = handles
    found = [value.value(), part.value(), elements.get(), list(elements), entries.items(), entries.is_empty()]
    found += [entries.get("there", 7), entries.get("gone", 7), entries.get(None, 7)]
    found += ["there" in entries, "gone" in entries, None in entries, reduced.get(), joined.get()]
    return [*found, *([*backend.keys(descriptor.name)] for descriptor in states())]


FILLED = [
    *(None, Part(None, (1, None)), [None, 1, None], [None, 1, None], [(None, 1), ("there", None)], False),
    *(None, 7, 1, True, False, True, None, [1, None]),
    *[["k"]] * 6,
]
UNTOUCHED: list[Any] = [5, None, [], [], [], True, 7, 7, 7, False, False, False, None, None]


def test_B10_none_is_a_value_like_others_in_every_state_before_and_after_a_restore(kit: Presets) -> None:
    backend = kit.one()
    handles = [backend.register(descriptor) for descriptor in states()]
    backend.set_current_key("k")
    fill(handles)
    assert seen(backend, handles) == FILLED
    for _ in range(2):
        backend = kit.restored(kit.complete(backend))
        handles = [backend.register(descriptor) for descriptor in states()]
        backend.set_current_key("k")
        assert seen(backend, handles) == FILLED
    backend.set_current_key("another")
    assert seen(backend, handles)[: len(UNTOUCHED)] == UNTOUCHED
    backend.set_current_key("k")
    for handle in handles:
        handle.clear()
    backend = kit.restored(kit.complete(backend))
    handles = [backend.register(descriptor) for descriptor in states()]
    backend.set_current_key("k")
    assert seen(backend, handles) == [*UNTOUCHED, *[[]] * 6]


UNDECLARED: list[tuple[Any, Any]] = [
    (ValueState(int, name="s"), None),
    (ListState(int, name="s"), None),
    (ValueState(list[int], name="s"), [None]),
    (ValueState(dict[str, int], name="s"), {"x": None}),
    (ListState(tuple[int, str], name="s"), (1, None)),
    (ValueState(tuple[int, ...], name="s"), (None,)),
]


@pytest.mark.parametrize(("descriptor", "wrong"), UNDECLARED, ids=str)
def test_B10_none_where_it_is_not_declared_is_in_no_checkpoint(kit: Presets, descriptor: Any, wrong: Any) -> None:
    """Refused when it is written, or at the barrier where it could have come into a value afterwards."""
    backend = kit.one()
    handle = backend.register(descriptor)
    backend.set_current_key("k")
    with pytest.raises(InvalidError, match="state s "):  # noqa: PT012 - either may refuse
        (handle.update if isinstance(descriptor, ValueState) else handle.add)(wrong)
        kit.complete(backend)
