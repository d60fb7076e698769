"""Lists and maps as rows of their own: what is touched, what is written, and how it becomes canonical."""

import datetime as dt
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import pytest

from tests.unit.state.rocksdb.test_cache import calls
from tests.unit.state.rocksdb.tools import GROUPS, OPERATOR, Attempts, clip, snapshot_of
from tidegate.checkpoint.protocol import StateInfo
from tidegate.errors import CorruptError
from tidegate.ids import CheckpointId, SubtaskIndex
from tidegate.serializers import pickled
from tidegate.state.chain import read_rows as read_pieces
from tidegate.state.descriptors import ListState, MapState, ReducingState, StateDescriptor, ValueState
from tidegate.state.key_groups import groups_of
from tidegate.state.object_backend import ObjectStateBackend
from tidegate.state.pieces import StoredRow
from tidegate.state.rocksdb import read_rows
from tidegate.state.rocksdb.database import after
from tidegate.state.rocksdb.rows import by_key, join_parts, key_prefix, layout_of
from tidegate.testing.conformance.state_kit import Basket, Point

__all__ = ["calls"]

ALL_GROUPS = range(GROUPS)


# ---- what is touched -----------------------------------------------------------------------------------------------


def test_adding_to_a_list_reads_nothing(attempts: Attempts, calls: dict[str, int]) -> None:
    backend = attempts.backend(cache_bytes=0)
    seen = backend.register(ListState(int, name="seen"))
    for number in range(200):
        backend.set_current_key(number % 4)
        seen.add(number)
    assert calls["get"] == 0
    assert calls.get("scan", 0) == 0
    backend.set_current_key(3)
    assert seen.get() == list(range(3, 200, 4))


def test_a_look_at_one_entry_of_a_large_map_reads_one_row(attempts: Attempts, calls: dict[str, int]) -> None:
    backend = attempts.backend(cache_bytes=4096)
    counts = backend.register(MapState(str, int, name="counts"))
    backend.set_current_key("k")
    for number in range(2000):
        counts.put(str(number), number)
    attempts.take(backend)
    for other in range(50):
        backend.set_current_key(f"other-{other}")
        counts.put("x", 1)
    backend.set_current_key("k")
    for key in ("get", "scan"):
        calls[key] = 0
    assert counts.get("1999") == 1999
    assert "7" in counts
    counts.put("8", 80)
    counts.remove("9")
    assert "new" not in counts
    assert not counts.is_empty()
    assert (calls["get"], calls["scan"]) == (4, 0)


def test_a_list_of_many_short_rows_is_written_anew_when_it_is_read(attempts: Attempts) -> None:
    backend = attempts.backend()
    seen = backend.register(ListState(int, name="seen"))
    backend.set_current_key("k")
    snapshots = []
    for number in range(50):
        seen.add(number)
        snapshots.append(attempts.take(backend))
    assert len(list(seen._parts("k"))) == 50
    attempts.crash()
    backend = attempts.restored(snapshots[-1:])
    seen = backend.register(ListState(int, name="seen"))
    backend.set_current_key("k")
    seen.add(50)
    assert seen.get() == list(range(51))
    attempts.take(backend)
    assert len(list(seen._parts("k"))) == 1
    assert seen.get() == list(range(51))


def test_clearing_a_large_map_leaves_nothing(attempts: Attempts) -> None:
    backend = attempts.backend()
    counts = backend.register(MapState(int, int, name="counts"))
    backend.set_current_key("k")
    for number in range(1000):
        counts.put(number, number)
    attempts.take(backend)
    counts.clear()
    counts.put(5, 5)
    assert counts.items() == [(5, 5)]
    snapshot = attempts.take(backend)
    attempts.crash()
    after_crash = attempts.restored([snapshot])
    counts = after_crash.register(MapState(int, int, name="counts"))
    after_crash.set_current_key("k")
    assert counts.items() == [(5, 5)]
    counts.clear()
    assert attempts.take(after_crash).handles == ()


# ---- keys of maps --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("declared", "one", "equal", "other"),
    [
        (Decimal, Decimal("1.5"), Decimal("1.50"), Decimal(2)),
        (float, 0.0, -0.0, 1.0),
        (
            dt.datetime,
            dt.datetime(2024, 1, 1, 12, tzinfo=dt.UTC),
            dt.datetime(2024, 1, 1, 13, tzinfo=dt.timezone(dt.timedelta(hours=1))),
            dt.datetime(2025, 1, 1, tzinfo=dt.UTC),
        ),
        (frozenset[str], frozenset("abcdefgh"), frozenset("hgfedcba"), frozenset("a")),
        (tuple[float, str], (0.0, "a"), (-0.0, "a"), (1.0, "a")),
        (str, "a", "a", "b"),
        (tuple[int, str], (1, "a"), (1, "a"), (2, "a")),
        (bool, True, True, False),
        (Point, Point(1, "a"), Point(1, "a"), Point(2, None)),
    ],
)
def test_equal_map_keys_are_one_entry_whatever_their_bytes(
    attempts: Attempts, declared: Any, one: Any, equal: Any, other: Any
) -> None:
    descriptor = MapState(declared, int, name="counts")
    backend = attempts.backend()
    for _ in range(2):
        counts = backend.register(descriptor)
        backend.set_current_key("k")
        counts.put(one, 1)
        counts.put(other, 2)
        counts.put(equal, 3)
        assert counts.items() == [(one, 3), (other, 2)]
        assert counts.get(one) == counts.get(equal) == 3
        snapshot = attempts.take(backend)
        attempts.crash()
        backend = attempts.restored([snapshot])


def test_maps_by_keys_that_bytes_decide_have_a_row_for_each_entry() -> None:
    def layout(key: Any) -> str:
        return layout_of(MapState(key, int, name="m").info)

    assert {layout(key) for key in (str, int, bytes, int | None, tuple[str, int], tuple[str, ...], dt.date)} == {
        "entries"
    }
    assert {layout(key) for key in (float, Decimal, bool, frozenset[str], dt.datetime, tuple[str, float], Point)} == {
        "whole"
    }
    assert layout_of(StateInfo("m", "map", "str -> pickled(x)", "pickle/1")) == "whole"


# ---- canonical rows ------------------------------------------------------------------------------------------------

EVERYTHING: tuple[StateDescriptor[Any], ...] = (
    ValueState(int, name="value"),
    ListState(Basket, name="list"),
    ListState(pickled(Basket), name="pickles"),
    MapState(str, Basket, name="map"),
    MapState(str, pickled(Basket), name="pickled-map"),
    MapState(Decimal, int, name="decimals"),
    ReducingState(int, max, name="reducing"),
)


def fill(backend: Any) -> None:
    value, elements, pickles, entries, pickled_entries, decimals, reduced = (
        backend.register(descriptor) for descriptor in EVERYTHING
    )
    for round in range(3):
        for key in range(40):
            backend.set_current_key(f"user-{key}")
            value.update(key)
            elements.add(Basket([str(round)]))
            pickles.add(Basket([str(round)]))
            entries.put(str(round * key % 5), Basket([str(key)]))
            pickled_entries.put(str(round), Basket([str(key)]))
            decimals.put(Decimal(round) / 2, key)
            reduced.add(key)


def canonical(rows: Iterable[StoredRow]) -> list[StoredRow]:
    return sorted(rows)


def test_rows_are_the_same_whichever_backend_stored_them(attempts: Attempts) -> None:
    ours, theirs = attempts.backend(cache_bytes=1000), ObjectStateBackend(OPERATOR, SubtaskIndex(0), 1, GROUPS)
    fill(ours)
    fill(theirs)
    snapshot = attempts.take(ours)
    pieces = snapshot_of(theirs.capture(CheckpointId(attempts.checkpoint + 1)), attempts.files)
    found = list(read_rows(snapshot, attempts.files, ALL_GROUPS, attempts.folder / "scratch"))
    assert [row.group for row in found] == sorted(row.group for row in found)
    expected = canonical(read_pieces(pieces, attempts.files, ALL_GROUPS))
    opaque = ("pickles", "pickled-map")
    assert [r for r in canonical(found) if r.state not in opaque] == [r for r in expected if r.state not in opaque]
    assert [row[:3] for row in canonical(found)] == [row[:3] for row in expected]
    assert not (attempts.folder / "scratch").exists()


@pytest.mark.parametrize("width", [(1, 1), (1, 3), (3, 2)])
def test_state_moves_between_the_backends_both_ways(attempts: Attempts, width: tuple[int, int]) -> None:
    ours = attempts.backend(cache_bytes=1000)
    fill(ours)
    snapshot = attempts.take(ours)
    rows = canonical(read_rows(snapshot, attempts.files, ALL_GROUPS, attempts.folder / "scratch"))
    pieces = []
    for subtask in range(width[0]):
        theirs = ObjectStateBackend(OPERATOR, SubtaskIndex(subtask), width[0], GROUPS)
        theirs.restore([clip(snapshot, groups_of(SubtaskIndex(subtask), width[0], GROUPS))], attempts.files)
        for descriptor in EVERYTHING:
            theirs.register(descriptor)
        pieces.append(snapshot_of(theirs.capture(CheckpointId(attempts.checkpoint + 1)), attempts.files))
    attempts.crash()
    back: list[StoredRow] = []
    for subtask in range(width[1]):
        again = attempts.restored(pieces, subtask, width[1])
        for descriptor in EVERYTHING:
            again.register(descriptor)
        back += read_rows(attempts.take(again), attempts.files, ALL_GROUPS, attempts.folder / "scratch")
    opaque = ("pickles", "pickled-map")  # the same objects pickle to different bytes
    assert [row for row in canonical(back) if row.state not in opaque] == [r for r in rows if r.state not in opaque]
    assert [row[:3] for row in canonical(back)] == [row[:3] for row in rows]


def test_reading_needs_only_the_groups_that_are_wanted_and_gives_no_others(attempts: Attempts) -> None:
    backend = attempts.backend()
    fill(backend)
    snapshot = attempts.take(backend)
    rows = list(read_rows(snapshot, attempts.files, ALL_GROUPS, attempts.folder / "scratch"))
    some = list(read_rows(snapshot, attempts.files, range(3, 7), attempts.folder / "scratch"))
    assert some == [row for row in rows if row.group in range(3, 7)]
    assert some


def test_reading_that_is_given_up_leaves_no_files(attempts: Attempts) -> None:
    backend = attempts.backend()
    fill(backend)
    rows = read_rows(attempts.take(backend), attempts.files, ALL_GROUPS, attempts.folder / "scratch")
    next(rows)
    assert (attempts.folder / "scratch").exists()
    rows.close()  # type: ignore[attr-defined]
    assert not (attempts.folder / "scratch").exists()


def test_a_row_that_is_none_of_state_is_corrupt() -> None:
    for name in (b"", b"\x00" * 7, key_prefix(1, 2, b"key")[:-1]):
        with pytest.raises(CorruptError):
            list(by_key([(name, b"")]))


def test_two_values_where_one_is_kept_are_corrupt() -> None:
    with pytest.raises(CorruptError, match="several values"):
        join_parts("whole", [(b"", b"1"), (b"x", b"2")], "msgpack/1")


def test_what_comes_after_a_prefix_is_behind_all_that_begin_with_it() -> None:
    for prefix in (b"a", b"a\xff", b"\x00\xff\xff", b"\xfe"):
        assert prefix + b"\xff" * 9 < after(prefix)
        assert after(prefix) > prefix
