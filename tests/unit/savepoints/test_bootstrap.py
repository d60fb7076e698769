"""A savepoint is written from rows, checked as a running job would, or from another one with parts replaced."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import tidegate as tg
from tests.unit.savepoints.checkpoints import SPLITS, Job, restored
from tidegate.errors import InvalidError
from tidegate.ids import OperatorName, is_name
from tidegate.savepoints.bootstrap import write_savepoint
from tidegate.savepoints.exporting import export_savepoint
from tidegate.savepoints.operator_rows import OperatorRows
from tidegate.savepoints.places import open_savepoint
from tidegate.savepoints.reading import StateRow, list_states, read_state
from tidegate.savepoints.sorting import sort_by_group
from tidegate.state.descriptors import InternalMapState
from tidegate.state.key_groups import group_of_bytes
from tidegate.state.operator_descriptors import BroadcastState, OperatorListState
from tidegate.state.pieces import StoredRow
from tidegate.storage.local import LocalStorage


class Order(msgspec.Struct, frozen=True):
    item: str
    price: float = 0.0


class Shop(tg.KeyedProcessFunction[Any, Any, Any]):
    total = tg.ValueState(int, default=0)
    orders = tg.ListState(Order)
    stock = tg.MapState(str, float)
    model = tg.ValueState(tg.pickled(complex))


def row(key: Any, state: str, value: Any) -> StateRow:
    return {"key": key, "state": state, "value": value}


ROWS = [
    row("ann", "total", 3),
    row("ann", "orders", [Order("tea"), Order("rice", 2.5)]),
    row("ann", "stock", {"tea": 4, "rice": 1.5}),
    row("ann", "model", 1 + 2j),
    row("bob", "total", 4),
    row("bob", "orders", []),
]


def rows_of(path: Path, operator: str = "totals", **options: Any) -> list[Any]:
    return sorted(read_state(path, operator, **options), key=lambda one: (str(one["key"]), one["state"]))


def test_rows_become_state_that_a_job_restores(tmp_path: Path) -> None:
    write_savepoint(
        tmp_path / "save", job="shop", max_parallelism=16, operators={"totals": OperatorRows(Shop, ROWS, key=str)}
    )
    savepoint = open_savepoint(str(tmp_path / "save"))
    assert (savepoint.manifest().job, savepoint.manifest().max_parallelism) == ("shop", 16)
    found: dict[str, Any] = {}
    for backend, handles in restored(savepoint.manifest(), savepoint, Shop, 3):
        for key in backend.keys("total"):
            backend.set_current_key(key)
            found[key] = (handles["total"].value(), handles["orders"].get(), handles["stock"].items())
            assert handles["model"].value() == (1 + 2j if key == "ann" else None)
    assert found == {
        "ann": (3, [Order("tea"), Order("rice", 2.5)], [("tea", 4.0), ("rice", 1.5)]),
        "bob": (4, [], []),
    }


def test_declarations_may_be_given_by_name_and_the_first_key_says_the_type(tmp_path: Path) -> None:
    states = {"seen": tg.ValueState(bool), "best": tg.ReducingState(int, max, name="best")}
    rows = [row(("a", 1), "seen", True), row(("b", 2), "best", 7)]
    write_savepoint(tmp_path / "save", job="shop", operators={"totals": OperatorRows(states, rows)})
    assert rows_of(tmp_path / "save") == rows
    assert {listing.key_type for listing in list_states(tmp_path / "save")} == {"tuple[str, int]"}


def test_what_was_read_can_be_written_again(tmp_path: Path) -> None:
    write_savepoint(tmp_path / "one", job="shop", operators={"totals": OperatorRows(Shop, ROWS)})
    again = OperatorRows(Shop, read_state(tmp_path / "one", "totals", decode=Shop))
    write_savepoint(tmp_path / "two", job="shop", operators={"totals": again})
    assert rows_of(tmp_path / "two", decode=Shop) == rows_of(tmp_path / "one", decode=Shop)
    assert len(rows_of(tmp_path / "two")) == len(ROWS) - 1


WRONG: list[tuple[StateRow | dict[str, Any], str]] = [
    (row("ann", "total", "3"), r"operator totals, key 'ann': .*state total"),
    (row("ann", "total", None), r"key 'ann'.*None"),
    (row("ann", "orders", "tea"), r"state orders is a list and was given a str"),
    (row("ann", "stock", [("tea", 1)]), r"state stock is a map and was given a list"),
    (row("ann", "stock", {1: 1.0}), r"state stock"),
    (row("ann", "totl", 3), r"not one of operator totals\n.*total, orders, stock, model"),
    (row(7, "total", 3), r"key of type int where keys are of type str"),
    (row(1.5, "total", 3), r"float cannot be a key"),
    ({"state": "total", "value": 3}, r"not one of operator totals"),
    ({"key": "ann", "state": "total"}, r"not one of operator totals"),
    (row("bob", "total", 5), r"two rows give state total of one key"),
]


@pytest.mark.parametrize(("wrong", "message"), WRONG)
def test_a_row_that_does_not_fit_is_named_and_nothing_is_left(tmp_path: Path, wrong: Any, message: str) -> None:
    with pytest.raises(InvalidError, match=f"(?s){message}"):
        write_savepoint(tmp_path / "save", job="shop", operators={"totals": OperatorRows(Shop, [*ROWS, wrong])})
    assert LocalStorage(tmp_path / "save").list("") == []


def test_what_is_missing_or_wrong_around_the_rows_is_said(tmp_path: Path) -> None:
    with pytest.raises(InvalidError, match="'' cannot name a job"):
        write_savepoint(tmp_path / "save", operators={})
    with pytest.raises(InvalidError, match="'a b' cannot name an operator"):
        write_savepoint(tmp_path / "save", job="shop", operators={"a b": OperatorRows(Shop, ROWS)})
    with pytest.raises(InvalidError, match="declares no state"):
        OperatorRows(int, ROWS)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    with pytest.raises(InvalidError, match="holds x and perhaps more"):
        write_savepoint(tmp_path / "full", job="shop", operators={"totals": OperatorRows(Shop, ROWS)})


class Keyless(tg.KeyedProcessFunction[Any, Any, Any]):
    total = tg.ValueState(int)
    seen = OperatorListState(int)
    rules = BroadcastState(str, int)


def test_state_without_keys_is_written_for_one_subtask(tmp_path: Path) -> None:
    rows: list[Any] = [
        row("ann", "total", 1),
        {"state": "seen", "value": [1, 2]},
        {"state": "seen", "value": [3], "subtask": 5},
        {"state": "rules", "value": {"a": 1}},
        {"state": "rules", "value": {"a": 1}},
    ]
    write_savepoint(tmp_path / "save", job="shop", operators={"totals": OperatorRows(Keyless, rows)})
    found = {one["state"]: one["value"] for one in read_state(tmp_path / "save", "totals", decode=Keyless)}
    assert found == {"total": 1, "seen": [1, 2, 3], "rules": {"a": 1}}
    rows.append({"state": "rules", "value": {"a": 2}})
    with pytest.raises(InvalidError, match="two rows give broadcast state rules of operator totals, and not the same"):
        write_savepoint(tmp_path / "two", job="shop", operators={"totals": OperatorRows(Keyless, rows)})


# ---- from another savepoint ------------------------------------------------------------------------------------------


class Totals(tg.KeyedProcessFunction[Any, Any, Any]):
    total = tg.ValueState(int)
    name = tg.ValueState(str)


class OnlyTotal(tg.KeyedProcessFunction[Any, Any, Any]):
    total = tg.ValueState(int)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    job = Job(tmp_path / "flows", Totals)
    for number in range(50):
        handles = job.at(f"user-{number}")
        handles["total"].update(number)
        handles["name"].update(str(number))
    manifest = job.complete(lists=[[1], [2, 3]])
    export_savepoint(manifest, job.store, LocalStorage(tmp_path / "base"), tmp_path / "scratch")
    return tmp_path / "base"


def doubled(path: Path) -> Iterator[StateRow]:
    for one in read_state(path, "totals", state="total"):
        yield {**one, "value": one["value"] * 2}


def test_one_state_is_changed_and_all_else_stays(base: Path, tmp_path: Path) -> None:
    write_savepoint(tmp_path / "new", base=base, operators={"totals": OperatorRows(OnlyTotal, doubled(base))})
    new = open_savepoint(str(tmp_path / "new"))
    assert new.verify() == []
    found = {(one["key"], one["state"]): one["value"] for one in read_state(tmp_path / "new", "totals", key="user-7")}
    assert found == {("user-7", "total"): 14, ("user-7", "name"): "7"}
    assert [one["value"] for one in read_state(tmp_path / "new", "totals", state="seen")] == [[1], [2, 3]]
    source = new.manifest().operator(OperatorName("orders"))
    assert source is not None
    assert source.splits == SPLITS
    (old,) = [open_savepoint(str(base)).manifest()]
    assert [record.sink for record in new.manifest().operators] == [record.sink for record in old.operators]
    restored_totals = {}
    for backend, handles in restored(new.manifest(), new, Totals, 3):
        for key in backend.keys("total"):
            backend.set_current_key(key)
            restored_totals[key] = (handles["total"].value(), handles["name"].value())
    assert restored_totals == {f"user-{number}": (2 * number, str(number)) for number in range(50)}


class Timed(tg.KeyedProcessFunction[Any, Any, Any]):
    total = tg.ValueState(int)
    timers = InternalMapState(int, bool, name=".timers")


def test_the_engines_own_state_is_shown_by_name_only_and_stays(tmp_path: Path) -> None:
    job = Job(tmp_path / "flows", Timed)
    job.at("user-1")["total"].update(1)
    job.at("user-1")["timers"].put(1_700_000_000_000, True)
    job.complete()
    rows = OperatorRows(OnlyTotal, doubled(job.folder))
    write_savepoint(tmp_path / "new", base=job.folder, operators={"totals": rows})
    for place in (job.folder, tmp_path / "new"):
        assert [one["state"] for one in read_state(place, "totals")] == ["total"]
        assert [one["value"] for one in read_state(place, "totals", state=".timers")] == [{1_700_000_000_000: True}]
    assert [one["value"] for one in read_state(tmp_path / "new", "totals")] == [2]
    table = read_state(tmp_path / "new", "totals").arrow()
    assert table.column_names == ["key", "total"]


def test_a_state_may_change_its_type(base: Path, tmp_path: Path) -> None:
    texts = (row(one["key"], "total", f"{one['value']} EUR") for one in read_state(base, "totals", state="total"))
    states = {"total": tg.ValueState(str)}
    write_savepoint(tmp_path / "new", base=base, operators={"totals": OperatorRows(states, texts)})
    assert [one["value"] for one in read_state(tmp_path / "new", "totals", key="user-3", state="total")] == ["3 EUR"]
    assert {listing.state: listing.type for listing in list_states(tmp_path / "new")}["total"] == "str"


def test_an_operator_is_added_and_another_left_out(base: Path, tmp_path: Path) -> None:
    write_savepoint(
        tmp_path / "new", base=base, operators={"shop": OperatorRows(Shop, ROWS)}, drop=["totals", "orders"]
    )
    manifest = open_savepoint(str(tmp_path / "new")).manifest()
    assert [record.name for record in manifest.operators] == ["out", "shop"]
    assert len(rows_of(tmp_path / "new", "shop")) == len(ROWS) - 1


def test_an_operator_that_is_left_out_may_come_back_with_other_keys(base: Path, tmp_path: Path) -> None:
    rows = OperatorRows(OnlyTotal, [row(7, "total", 7)])
    write_savepoint(tmp_path / "new", base=base, operators={"totals": rows}, drop=["totals"])
    assert [dict(one) for one in read_state(tmp_path / "new", "totals")] == [row(7, "total", 7)]


def test_keys_keep_their_type_and_groups(base: Path, tmp_path: Path) -> None:
    rows = OperatorRows(OnlyTotal, [row(7, "total", 7)])
    with pytest.raises(InvalidError, match="key of type int where keys are of type str"):
        write_savepoint(tmp_path / "new", base=base, operators={"totals": rows})
    with pytest.raises(InvalidError, match="max_parallelism 16, which cannot become 32"):
        write_savepoint(tmp_path / "new", base=base, operators={}, max_parallelism=32)
    with pytest.raises(InvalidError, match=r"has no operator 'total'\nIt has: orders, totals, out"):
        write_savepoint(tmp_path / "new", base=base, operators={}, drop=["total"])


def test_a_checkpoint_with_something_to_commit_is_no_base(tmp_path: Path) -> None:
    job = Job(tmp_path / "flows", Totals)
    job.complete()
    job.complete(pending=True)
    with pytest.raises(InvalidError, match=r"transactions of out that are still to be committed\nTake a savepoint"):
        write_savepoint(tmp_path / "new", base=job.folder, operators={})
    write_savepoint(tmp_path / "new", base=job.folder, checkpoint=1, operators={}, job="other")
    assert open_savepoint(str(tmp_path / "new")).manifest().job == "other"


def test_each_savepoint_that_is_written_is_known_from_all_others(base: Path, tmp_path: Path) -> None:
    for number in (1, 2):
        rows = OperatorRows(Shop, [row("ann", "total", number)])
        write_savepoint(tmp_path / f"new-{number}", job="shop", operators={"totals": rows})
    write_savepoint(tmp_path / "same", base=base, operators={})
    paths = (base, tmp_path / "new-1", tmp_path / "new-2", tmp_path / "same")
    instances = [open_savepoint(str(path)).manifest().instance for path in paths]
    assert len(set(instances)) == 4
    assert all(map(is_name, instances))


# ---- more rows than memory holds -------------------------------------------------------------------------------------


def stored(number: int) -> StoredRow:
    key = b"s%d" % number
    return StoredRow("total", group_of_bytes(key, 128), key, b"v" * 50)


@pytest.mark.parametrize("memory", [1, 1000, 1 << 30])
def test_rows_are_sorted_by_group_whatever_fits_into_memory(tmp_path: Path, memory: int) -> None:
    rows = [stored(number) for number in range(500)]
    ordered = list(sort_by_group(iter(rows), 128, tmp_path, memory))
    assert [one.group for one in ordered] == sorted(one.group for one in rows)
    assert sorted(ordered) == sorted(rows)
    assert list(tmp_path.iterdir()) == []


def test_a_key_that_comes_twice_is_noticed_also_on_the_disk(tmp_path: Path) -> None:
    rows = [*map(stored, range(50)), stored(3)._replace(value=b"other")]
    with pytest.raises(InvalidError, match="two rows give state total"):
        list(sort_by_group(rows, 128, tmp_path, 100))
