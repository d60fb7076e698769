"""The write-back cache: what is in use does not touch the database, and what is not is not kept."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.state.rocksdb.tools import Attempts
from tidegate.errors import InvalidError
from tidegate.ids import CheckpointId
from tidegate.state.descriptors import AggregatingState, ListState, MapState, ReducingState, ValueState
from tidegate.state.rocksdb.cache import CachedState
from tidegate.state.rocksdb.database import Database
from tidegate.testing.conformance.state_kit import Basket

TOTAL = ValueState(int, default=0, name="total")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often the database was called, by method."""
    counted: Counter[str] = Counter()

    def counting(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            counted[name] += 1
            return method(*arguments)

        return call

    for name in ("get", "scan", "write"):
        monkeypatch.setattr(Database, name, counting(name, getattr(Database, name)))
    return counted


def objects_of(handle: CachedState) -> int:
    return len(handle._young) + len(handle._old)


def test_keys_in_use_touch_the_database_once_a_checkpoint(attempts: Attempts, calls: Counter[str]) -> None:
    backend = attempts.backend()
    total = backend.register(TOTAL)
    for record in range(3000):
        backend.set_current_key(record % 100)
        total.update(total.value() + 1)
    assert calls == {"get": 100}
    attempts.take(backend)
    assert calls["write"] == 1
    calls.clear()
    for record in range(3000):
        backend.set_current_key(record % 100)
        total.update(total.value() + 1)
    assert not calls


def test_keys_in_use_stay_while_others_come_and_go(attempts: Attempts, calls: Counter[str]) -> None:
    backend = attempts.backend(cache_bytes=200_000)
    total = backend.register(TOTAL)
    for record in range(20_000):
        backend.set_current_key(("cold", record) if record % 10 else ("hot", 0))
        total.update(total.value() + 1)
    assert calls["get"] == 18_000 + 1
    backend.set_current_key(("hot", 0))
    assert total.value() == 2000


@pytest.mark.parametrize("size", [10, 1000])
def test_the_cache_is_bounded_in_bytes_and_not_in_keys(attempts: Attempts, size: int) -> None:
    backend = attempts.backend(cache_bytes=500_000)
    text = backend.register(ValueState(str, name="text"))
    most = 0
    for key in range(5000):
        backend.set_current_key(key)
        text.update("x" * size)
        most = max(most, objects_of(text))
    assert most * (size + 100) < 1_000_000
    assert most > 100
    for key in range(5000):
        backend.set_current_key(key)
        assert text.value() == "x" * size


def test_one_budget_serves_all_states(attempts: Attempts) -> None:
    backend = attempts.backend(cache_bytes=100_000)
    one = backend.register(TOTAL)
    alone = one.budget
    other = backend.register(ValueState(int, name="other"))
    assert one.budget == other.budget == alone // 2


def test_a_long_list_or_map_of_one_key_does_not_stay_in_memory(attempts: Attempts) -> None:
    backend = attempts.backend(cache_bytes=100_000)
    seen, counts = backend.register(ListState(int, name="seen")), backend.register(MapState(int, int, name="counts"))
    most = 0
    for number in range(10_000):
        backend.set_current_key("only")
        seen.add(number)
        counts.put(number, number)
        cached = seen._young.get("only")
        entries = counts._young.get("only")
        most = max(most, len(cached.added), len(entries.known))
    assert most < 6000
    assert seen.get() == list(range(10_000))
    assert counts.keys() == list(range(10_000))


@pytest.mark.parametrize("cache_bytes", [0, 1 << 20])
def test_what_was_read_and_then_changed_is_not_lost(attempts: Attempts, cache_bytes: int) -> None:
    kinds: list[Any] = [
        ValueState(Basket, default_factory=Basket, name="value"),
        ListState(Basket, name="list"),
        MapState(str, Basket, name="map"),
        ReducingState[Any](Basket, lambda one, other: other, name="reducing"),
        AggregatingState[Any, Any](Basket, Basket, lambda basket, item: basket, lambda basket: basket, name="all"),
    ]
    backend = attempts.backend(cache_bytes=cache_bytes)
    value, elements, entries, reduced, aggregated = (backend.register(kind) for kind in kinds)

    def baskets() -> list[Basket]:
        return [
            value.value(),
            elements.get()[0],
            entries.get("x"),
            entries.values()[0],
            reduced.get(),
            aggregated.get(),
        ]

    backend.set_current_key("k")
    elements.add(Basket())
    entries.put("x", Basket())
    reduced.add(Basket())
    aggregated.add("x")
    for round in range(3):
        backend.set_current_key("k")
        for basket in baskets():
            basket.items.append(str(round))
        for other in range(20):
            backend.set_current_key(f"other-{other}")
            value.value()
        attempts.take(backend)
    backend.set_current_key("k")
    one, doubled = ["0", "1", "2"], ["0", "0", "1", "1", "2", "2"]
    assert [basket.items for basket in baskets()] == [one, one, doubled, doubled, one, one]


def test_peeking_keeps_nothing_and_marks_nothing(attempts: Attempts) -> None:
    backend = attempts.backend()
    kinds: list[Any] = [ValueState(Basket, name="a"), ListState(int, name="b"), MapState(str, int, name="c")]
    value, elements, entries = handles = [backend.register(kind) for kind in kinds]
    backend.set_current_key("k")
    assert [handle.peek() for handle in handles] == [None, None, None]
    value.update(Basket(["x"]))
    elements.add(1)
    entries.put("one", 1)
    entries.put("two", 2)
    entries.remove("one")
    for _ in range(2):
        assert [handle.peek() for handle in handles] == [Basket(["x"]), [1], {"two": 2}]
        snapshot = attempts.take(backend)
        attempts.crash()
        backend = attempts.restored([snapshot])
        value, elements, entries = handles = [backend.register(kind) for kind in kinds]
        backend.set_current_key("k")
    assert sum(map(objects_of, handles)) == 0
    assert not any(handle.has_changes for handle in handles)


def test_B09_a_value_that_is_too_large_is_refused_by_name_at_the_checkpoint_at_the_latest(attempts: Attempts) -> None:
    for kind in (ValueState(bytes, name="big"), ListState(bytes, name="big"), MapState(str, bytes, name="big")):
        attempts.crash()
        backend = attempts.backend(value_limit=1000)
        handle: Any = backend.register(kind)
        backend.set_current_key("k")
        write = {"value": "update", "list": "add", "map": "put"}[kind.kind]
        key = ["x"] if kind.kind == "map" else []
        getattr(handle, write)(*key, b"x" * 900)
        attempts.take(backend)
        backend.set_current_key("k")
        getattr(handle, write)(*key, b"x" * 1001)
        with pytest.raises(InvalidError, match=r"state big .*'k'"):
            attempts.take(backend)


def test_sweeping_goes_round_and_sees_what_is_only_in_the_cache(attempts: Attempts) -> None:
    backend = attempts.backend()
    seen = backend.register(ListState(int, name="seen"))
    for key in range(25):
        for number in range(3):
            backend.set_current_key(key)
            seen.add(number)
    for _ in range(2):
        found: list[int] = []
        while len(chunk := backend.sweep("seen", 10)) == 10:
            found += chunk
        assert sorted(found + chunk) == list(range(25))


def test_sweeping_never_makes_the_cut(attempts: Attempts) -> None:
    backend = attempts.backend()
    total = backend.register(TOTAL)
    backend.set_current_key(1)
    total.update(1)
    attempts.checkpoint += 1
    capture = backend.capture(CheckpointId(attempts.checkpoint))
    total.update(2)
    assert backend.sweep("total", 10) == []
    assert not capture.cut.is_made
    capture.store(attempts.files)
    assert backend.sweep("total", 10) == [1]
