"""Random rows, changes and types: what is written is read, what differs is told, and every key and value comes back."""

import datetime as dt
import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypedDict
from uuid import UUID

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidegate as tg
from tests.unit.savepoints.checkpoints import Job, restored
from tidegate.checkpoint.protocol import StateInfo
from tidegate.ids import OperatorName, SubtaskIndex
from tidegate.savepoints.bootstrap import write_savepoint
from tidegate.savepoints.comparing import key_changes
from tidegate.savepoints.exporting import export_savepoint
from tidegate.savepoints.json_text import json_text
from tidegate.savepoints.keys import key_from_text, plain_key, stored_key
from tidegate.savepoints.operator_rows import OperatorRows
from tidegate.savepoints.places import open_savepoint, open_stored, stored_checkpoint
from tidegate.savepoints.reading import read_state
from tidegate.savepoints.values import plain_value, typed_value
from tidegate.state.key_types import layout_of
from tidegate.state.keys import encode_key
from tidegate.state.object_backend import ObjectStateBackend
from tidegate.state.ttl import TtlTime
from tidegate.state.ttl_handles import register, stamped
from tidegate.storage.local import LocalStorage


class Counts(tg.KeyedProcessFunction[Any, Any, Any]):
    count = tg.ValueState(int)
    words = tg.ListState(str)
    by_word = tg.MapState(str, int)


Model = dict[str, tuple[int | None, list[str], dict[str, int]]]
SMALL = st.integers(-3, 3)
MODELS: st.SearchStrategy[Model] = st.dictionaries(
    st.text("abc", max_size=2),
    st.tuples(
        st.none() | SMALL, st.lists(st.text("xy", max_size=2), max_size=3), st.dictionaries(st.text("xy"), SMALL)
    ),
    max_size=12,
)


def rows_of(model: Model) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for key, (count, words, by_word) in model.items():
        if count is not None:
            rows.append({"key": key, "state": "count", "value": count})
        rows += [{"key": key, "state": "words", "value": words}, {"key": key, "state": "by_word", "value": by_word}]
    return rows


def kept(rows: list[dict[str, Any]]) -> dict[tuple[str, str], Any]:
    """Without what leaves nothing behind."""
    return {(row["key"], row["state"]): row["value"] for row in rows if row["value"] not in ([], {})}


@given(MODELS, st.sampled_from([1, 3, 16, 128]))
@settings(max_examples=40, deadline=None)
def test_what_is_written_is_read(model: Model, max_parallelism: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder, "save")
        operators = {"totals": OperatorRows(Counts, rows_of(model), key=str)}
        write_savepoint(place, job="job", max_parallelism=max_parallelism, operators=operators)
        found = [dict(row) for row in read_state(place, "totals")]
        assert kept(found) == kept(rows_of(model))
        assert len(found) == len(kept(found))
        assert open_savepoint(str(place)).verify() == []


def apply(job: Job, before: Model, after: Model) -> None:
    """What a function would do to come from the one to the other."""
    for key in before.keys() - after.keys():
        for handle in job.at(key).values():
            handle.clear()
    for key, (count, words, by_word) in after.items():
        handles = job.at(key)
        handles["count"].clear() if count is None else handles["count"].update(count)
        handles["words"].update(words)
        handles["by_word"].clear()
        for word, number in by_word.items():
            handles["by_word"].put(word, number)


def differences(before: Mapping[Any, Any], after: Mapping[Any, Any]) -> set[tuple[str, str, str]]:
    """Maps in another order are other bytes."""

    def as_stored(value: Any) -> Any:
        return list(value.items()) if isinstance(value, dict) else value

    removed = {(state, key, "removed") for key, state in before.keys() - after.keys()}
    added = {(state, key, "added") for key, state in after.keys() - before.keys()}
    both = before.keys() & after.keys()
    changed = {key for key in both if as_stored(before[key]) != as_stored(after[key])}
    return removed | added | {(state, key, "changed") for key, state in changed}


@pytest.mark.parametrize("backend", ["object", "rocksdb"])
@given(st.lists(MODELS, min_size=2, max_size=4), st.integers(1, 4))
@settings(max_examples=15, deadline=None)
def test_checkpoints_savepoints_and_their_differences_are_those_of_the_model(
    backend: str, models: list[Model], parallelism: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        job = Job(Path(folder, "flows"), Counts, backend=backend)
        manifests, before = [], Model()
        for model in models:
            apply(job, before, model)
            before = model
            manifests.append(job.complete())
        stored = [stored_checkpoint(job.store, manifest) for manifest in manifests]
        for (old, one), (new, other) in zip(
            zip(models, stored, strict=True), zip(models[1:], stored[1:], strict=False), strict=False
        ):
            changes = list(key_changes(one, other, Path(folder, "scratch")))
            found = {(change.state, change.key, change.how) for change in changes}
            assert found == differences(kept(rows_of(old)), kept(rows_of(new)))
            assert len(found) == len(changes)
        export_savepoint(manifests[-1], job.store, LocalStorage(Path(folder, "save")), Path(folder, "scratch"))
        savepoint = open_stored(str(Path(folder, "save")))
        assert list(key_changes(stored[-1], savepoint, Path(folder, "scratch"))) == []
        live = {}
        for one_backend, handles in restored(savepoint.manifest, savepoint.files, Counts, parallelism):
            for key in one_backend.keys("words"):
                one_backend.set_current_key(key)
                live[key] = handles["words"].get()
        assert live == {key: words for key, (_, words, _) in models[-1].items() if words}
        for closed in job.backends:
            closed.close()


# ---- keys ------------------------------------------------------------------------------------------------------------


class Level(Enum):
    LOW = 1
    HIGH = 2


class Spot(msgspec.Struct, frozen=True):
    name: str
    level: Level
    inner: tuple[int, bytes] | None


SCALARS: list[st.SearchStrategy[Any]] = [
    st.text(),
    st.integers(),
    st.booleans(),
    st.binary(),
    st.dates(),
    st.datetimes(timezones=st.just(dt.UTC)),
    st.datetimes(),
    st.uuids(),
    st.decimals(allow_nan=False, allow_infinity=False),
    st.sampled_from(Level),
    st.builds(Spot, st.text(), st.sampled_from(Level), st.none() | st.tuples(st.integers(), st.binary())),
]
KEYS = st.one_of(*SCALARS, st.tuples(*SCALARS[:4]), st.tuples(SCALARS[4], SCALARS[8], st.none()))


@given(KEYS)
@settings(max_examples=300, deadline=None)
def test_every_key_comes_back_from_its_plain_form_and_from_text(key: Any) -> None:
    encoded, layout = encode_key(key), layout_of(key)
    plain = plain_key(encoded, layout)
    assert stored_key(plain, layout) == encoded
    assert stored_key(key, layout) == encoded
    text = json_text(plain)
    shown = json.loads(text)
    assert stored_key(key_from_text(shown if isinstance(shown, str) else text, layout), layout) == encoded


# ---- values ----------------------------------------------------------------------------------------------------------


class Cat(msgspec.Struct, frozen=True, tag="cat"):
    lives: int


class Dog(msgspec.Struct, frozen=True, tag="dog"):
    name: str
    age: int = 3


class Row(msgspec.Struct, frozen=True, tag="row", array_like=True):
    cells: list[int]


class Column(msgspec.Struct, frozen=True, tag="column", array_like=True):
    cells: list[str]
    width: int = 0


class Bare(msgspec.Struct, frozen=True, omit_defaults=True):
    names: list[str] = []
    size: float = 1.5
    label: str = "it's, a {label}"


class Pair(NamedTuple):
    left: Decimal
    right: UUID


class Opening(TypedDict, total=False):
    at: dt.time
    lasts: dt.timedelta


@dataclass(frozen=True)
class Shelf:
    pets: tuple[Cat | Dog, ...]
    openings: dict[str, Opening]


ONE = UUID(int=1)
NAIVE = dt.datetime.fromisoformat("2024-01-01T12:00:00")
VALUES: list[tuple[Any, Any, Any]] = [
    (Cat, Cat(9), {"type": "cat", "lives": 9}),
    (Dog, Dog("rex"), {"type": "dog", "name": "rex", "age": 3}),
    (Cat | Dog, Dog("rex", 4), {"type": "dog", "name": "rex", "age": 4}),
    (Row, Row([1]), {"type": "row", "cells": [1]}),
    (Row | Column, Column(["a"], 7), {"type": "column", "cells": ["a"], "width": 7}),
    (Bare, Bare(), {"names": [], "size": 1.5, "label": "it's, a {label}"}),
    (Pair, Pair(Decimal("1.50"), ONE), {"left": Decimal("1.50"), "right": ONE}),
    (set[int], {1}, [1]),
    (tuple[int, str], (1, "a"), (1, "a")),
    (dict[int, tuple[dt.date, ...]], {1: (dt.date(2024, 1, 1),)}, {1: (dt.date(2024, 1, 1),)}),
    (Literal["a", 1] | None, "a", "a"),
    (Level, Level.HIGH, 2),
    (dt.datetime, dt.datetime(2024, 1, 1, tzinfo=dt.UTC), dt.datetime(2024, 1, 1, tzinfo=dt.UTC)),
    (dt.datetime, NAIVE, NAIVE),
    (bytes, b"\x00", b"\x00"),
    (
        Shelf,
        Shelf((Cat(1), Dog("a")), {"mon": {"at": dt.time(9), "lasts": dt.timedelta(hours=2)}}),
        {
            "pets": ({"type": "cat", "lives": 1}, {"type": "dog", "name": "a", "age": 3}),
            "openings": {"mon": {"at": dt.time(9), "lasts": dt.timedelta(hours=2)}},
        },
    ),
]


@pytest.mark.parametrize(("declared", "value", "plain"), VALUES, ids=lambda one: str(one)[:30])
def test_a_value_is_plain_by_the_text_of_its_type(declared: Any, value: Any, plain: Any) -> None:
    state = tg.ValueState(declared, name="state")
    assert plain_value(state.info)(state.stored.encode(value)) == plain
    several = tg.ListState(declared, name="state")
    assert plain_value(several.info)(several.stored.encode([value, value])) == [plain, plain]
    by_name = tg.MapState(str, declared, name="state")
    assert plain_value(by_name.info)(by_name.stored.encode([("a", value)])) == {"a": plain}


def test_what_a_text_does_not_tell_stays_as_it_was_stored() -> None:
    stored = msgspec.msgpack.encode([1, "a"])
    for text in ("fixed Old{a: int, b: str}", "a type of tomorrow{", "pickled(app.Model)"):
        value = plain_value(StateInfo("state", "value", text, "msgpack/1"))(stored)
        assert value == ({"a": 1, "b": "a"} if text.startswith("fixed") else [1, "a"])
    assert plain_value(StateInfo("state", "list", "pickled(app.Model)", "pickle/1"))(b"\x80x") == b"\x80x"


def test_times_of_last_use_are_left_out() -> None:
    stamp, five = (7).to_bytes(8, "big", signed=True), msgspec.msgpack.encode(5)
    assert plain_value(StateInfo("state", "value", "int", "stamped[msgpack/1]"))(stamp + five) == 5
    listed = msgspec.msgpack.encode([stamp + five, stamp + five])
    assert plain_value(StateInfo("state", "list", "int", "list[stamped[msgpack/1]]"))(listed) == [5, 5]
    mapped = msgspec.msgpack.encode([("a", stamp + five)])
    assert plain_value(StateInfo("state", "map", "str -> int", "map[stamped[msgpack/1]]"))(mapped) == {"a": 5}


TIMED = {
    "one": (tg.ValueState(Decimal, name="one", ttl=tg.Ttl("1h")), (7, Decimal(5)), Decimal(5)),
    "several": (tg.ListState(Decimal, name="several", ttl=tg.Ttl("1h")), [(7, Decimal(5))] * 2, [Decimal(5)] * 2),
    "by_name": (
        tg.MapState(str, Decimal, name="by_name", ttl=tg.Ttl("1h")),
        [("a", (7, Decimal(5)))],
        {"a": Decimal(5)},
    ),
}


@pytest.mark.parametrize("name", TIMED)
def test_values_with_a_time_to_live_are_read_with_the_programs_types_and_written_without_a_time(
    name: str, tmp_path: Path
) -> None:
    declared, kept_value, value = TIMED[name]
    form = stamped(declared)
    stored = form.stored.encode(kept_value)
    assert "stamped[" in form.info.serializer
    assert plain_value(form.info)(stored) == value
    assert typed_value(form.info, declared)(stored) == value
    rows = [{"key": "a", "state": name, "value": value}]
    write_savepoint(tmp_path / "save", job="job", operators={"totals": OperatorRows({name: declared}, rows)})
    savepoint = open_savepoint(str(tmp_path / "save"))
    operator = savepoint.manifest().operator(OperatorName("totals"))
    assert operator is not None
    backend = ObjectStateBackend(OperatorName("totals"), SubtaskIndex(0), 1, 128)
    backend.restore(operator.snapshots, savepoint)
    time = TtlTime()
    handle = register(backend, declared, time)
    time.wall = 1_700_000_000_000
    backend.set_current_key("a")
    read = handle.value() if name == "one" else handle.get() if name == "several" else dict(handle.items())
    assert read == value
