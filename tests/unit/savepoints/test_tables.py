"""Stored state as Arrow tables and Parquet files: one row a key, one column a state, typed by what was declared."""

import datetime as dt
import sys
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest

import tidegate as tg
from tests.unit.savepoints.checkpoints import Job
from tests.unit.savepoints.test_reading import MOMENT, ORDER, Everything, Place, Shop, Sparse, Tree
from tidegate.errors import InvalidError
from tidegate.savepoints import tables
from tidegate.savepoints.reading import read_state


def filled(tmp_path: Path) -> Job:
    job = Job(tmp_path / "flows", Everything)
    ann = job.at("ann")
    ann["count"].update(3)
    ann["order"].update(ORDER)
    ann["place"].update(Place("Rome", 184))
    ann["tree"].update(Tree("a", (Tree("b"),)))
    ann["sparse"].update(Sparse(1))
    ann["orders"].extend([ORDER])
    ann["by_day"].put(dt.date(2024, 2, 29), 5)
    ann["by_pair"].put(("x", 1), Place("Oslo", 2))
    ann["model"].update(1 + 2j)
    job.at("bob")["count"].update(4)
    job.complete()
    return job


def test_a_table_has_a_row_for_each_key_and_a_column_for_each_state(tmp_path: Path) -> None:
    table = read_state(filled(tmp_path).folder, "totals").arrow()
    assert table.column_names == ["key", *(one.name for one in vars(Everything).values() if hasattr(one, "kind"))]
    rows = {row["key"]: row for row in table.to_pylist()}
    assert sorted(rows) == ["ann", "bob"]
    ann = rows["ann"]
    assert ann["count"] == 3
    assert ann["order"] == {"item": "tea", "price": "1.50", "at": MOMENT, "colour": "blue"}
    assert ann["orders"] == [ann["order"]]
    assert ann["place"] == {"city": "Rome", "zip": 184}
    assert ann["sparse"] == {"kept": 1, "left_out": 7}
    assert ann["by_day"] == [(dt.date(2024, 2, 29), 5)]
    assert ann["by_pair"] == [({"0": "x", "1": 1}, {"city": "Oslo", "zip": 2})]
    assert ann["tree"] == '{"name":"a","children":[{"name":"b","children":[]}]}'
    assert type(ann["model"]) is bytes
    assert rows["bob"] == {name: {"key": "bob", "count": 4}.get(name) for name in table.column_names}


def test_columns_have_the_declared_types(tmp_path: Path) -> None:
    schema = read_state(filled(tmp_path).folder, "totals").arrow().schema
    moment = pa.timestamp("us", "UTC")
    order = pa.struct([("item", pa.string()), ("price", pa.string()), ("at", moment), ("colour", pa.string())])
    assert schema.field("key").type == pa.string()
    assert schema.field("count").type == schema.field("maybe-none").type == pa.int64()
    assert schema.field("order").type == order
    assert schema.field("orders").type == pa.list_(order)
    assert schema.field("by_day").type == pa.map_(pa.date32(), pa.int64())
    assert schema.field("tree").type == pa.string()
    assert schema.field("model").type == pa.binary()
    assert schema.field("models").type == pa.list_(pa.binary())


class Kind(Enum):
    ONE = 1
    TWO = 2


class Rare(tg.KeyedProcessFunction[Any, Any, Any]):
    either = tg.ValueState(int | str)
    number = tg.ValueState(int | float)
    took = tg.ValueState(dt.timedelta)
    at = tg.ValueState(dt.time)
    id = tg.ValueState(UUID)
    kinds = tg.ValueState(frozenset[Kind])
    empty = tg.ValueState(tuple[()])
    key = tg.ValueState(bool)


def test_types_that_arrow_lacks_are_text_and_a_state_may_be_called_key(tmp_path: Path) -> None:
    job = Job(tmp_path / "flows", Rare)
    one, two = job.at(Shop("it", 1)), UUID(int=7)
    for name, value in (("either", "x"), ("number", 1), ("took", dt.timedelta(days=1)), ("at", dt.time(1, 2))):
        one[name].update(value)
    for name, value in (("id", two), ("kinds", frozenset({Kind.TWO})), ("empty", ()), ("key", True)):
        one[name].update(value)
    job.at(Shop("no", None))["either"].update(5)
    job.complete()
    table = read_state(job.folder, "totals").arrow()
    rows = {row["_key"]["country"]: row for row in table.to_pylist()}
    assert rows["no"]["_key"] == {"country": "no", "number": None}
    assert (rows["it"]["either"], rows["no"]["either"]) == ('"x"', "5")
    del rows["it"]["_key"], rows["it"]["either"]
    assert rows["it"] == {
        "number": 1.0,
        "took": dt.timedelta(days=1),
        "at": dt.time(1, 2),
        "id": str(two),
        "kinds": [2],
        "empty": "[]",
        "key": True,
    }


@pytest.mark.parametrize("file_format", tables.FORMATS)
def test_a_file_is_written_batch_by_batch_and_comes_whole(
    tmp_path: Path, file_format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "BATCH_ROWS", 50)
    job = Job(tmp_path / "flows", Rare)
    for number in range(120):
        job.at(number)["number"].update(number)
    job.complete()
    path = tmp_path / "rows"
    assert read_state(job.folder, "totals", state="number").write(path, file_format) == 120
    if file_format == "parquet":
        table, batches = pq.read_table(path), pq.ParquetFile(path).num_row_groups
    else:
        table, batches = pyarrow.ipc.open_file(path).read_all(), pyarrow.ipc.open_file(path).num_record_batches
    assert batches == 3
    assert {row["key"]: row["number"] for row in table.to_pylist()} == {number: number for number in range(120)}
    assert [other.name for other in tmp_path.iterdir() if other.is_file()] == ["rows"]


def test_a_value_that_no_column_takes_is_refused_by_name_and_leaves_no_file(tmp_path: Path) -> None:
    job = Job(tmp_path / "flows", Rare)
    job.at(2**70)["either"].update(1)
    job.complete()
    rows = read_state(job.folder, "totals")
    with pytest.raises(InvalidError, match=r"column _key of operator totals cannot be written as int64: .*\n.*jsonl"):
        rows.write(tmp_path / "rows.parquet")
    assert not any(path.is_file() for path in tmp_path.iterdir())
    with pytest.raises(InvalidError, match="'csv' is not a format"):
        rows.write(tmp_path / "rows.csv", "csv")


def test_state_without_keys_has_a_row_for_each_subtask(tmp_path: Path) -> None:
    job = Job(tmp_path / "flows", Everything)
    job.complete(lists=[[1, 2], [3]])
    table = read_state(job.folder, "totals", state="seen").arrow()
    assert table.to_pylist() == [{"subtask": 0, "seen": [1, 2]}, {"subtask": 1, "seen": [3]}]


def test_a_table_of_nothing_has_its_columns(tmp_path: Path) -> None:
    job = Job(tmp_path / "flows", Everything)
    job.complete()
    table = read_state(job.folder, "totals", state="count").arrow()
    assert (table.num_rows, table.column_names) == (0, ["key", "count"])


@pytest.mark.parametrize(("package", "remedy"), [("pyarrow", r"tidegate\[arrow\]"), ("pandas", "pip install pandas")])
def test_a_package_that_is_missing_is_named_with_what_installs_it(
    tmp_path: Path, package: str, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = read_state(filled(tmp_path).folder, "totals")
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InvalidError, match=f"the package {package} is not installed\n.*{remedy}"):
        rows.dataframe() if package == "pandas" else rows.arrow()


def test_struct_names_survive_a_rename(tmp_path: Path) -> None:
    class Renamed(msgspec.Struct, rename="camel"):
        unit_price: int

    class Holder(tg.KeyedProcessFunction[Any, Any, Any]):
        renamed = tg.ValueState(Renamed)

    job = Job(tmp_path / "flows", Holder)
    job.at("a")["renamed"].update(Renamed(5))
    job.complete()
    assert read_state(job.folder, "totals").arrow().to_pylist() == [{"key": "a", "renamed": {"unitPrice": 5}}]
