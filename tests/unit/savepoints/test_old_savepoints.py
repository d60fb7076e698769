"""Savepoints that earlier versions wrote are kept in `old/`, one folder for each format, and can be read for ever."""

from fractions import Fraction
from pathlib import Path
from typing import Any

import msgspec
import pytest

import tidegate as tg
from tests.unit.savepoints.checkpoints import SPLITS, restored
from tidegate.ids import OperatorName
from tidegate.savepoints.format import FORMAT
from tidegate.savepoints.places import open_savepoint
from tidegate.savepoints.reading import read_state

OLD = Path(__file__).parent / "old"


class Order(msgspec.Struct, frozen=True):
    item: str
    price: float = 0.0


class Everything(tg.KeyedProcessFunction[Any, Any, Any]):
    """What the job had declared whose savepoints these are."""

    count = tg.ValueState(int)
    orders = tg.ListState(Order)
    stock = tg.MapState(str, float)
    best = tg.ReducingState(int, max)
    share = tg.ValueState(tg.pickled(Fraction))
    shares = tg.ListState(tg.pickled(Fraction))


def expected(number: int) -> dict[str, Any]:
    """What key `("user", number)` has."""
    return {
        "count": number,
        "orders": [Order("tea"), Order("rice", number)],
        "stock": {"tea": 1.5, f"item-{number}": 2.0},
        "best": number + 1,
        "share": Fraction(number, 7),
        "shares": [Fraction(1, 3)] * (number % 3 + 1),
    }


def test_there_is_one_of_each_format() -> None:
    assert [path.name for path in sorted(OLD.iterdir())] == [f"format-{number}" for number in range(1, FORMAT + 1)]


@pytest.mark.parametrize("old", sorted(OLD.iterdir()), ids=lambda path: path.name)
def test_an_old_savepoint_is_whole_and_read(old: Path) -> None:
    assert open_savepoint(str(old)).verify() == []
    found: dict[Any, dict[str, Any]] = {}
    for row in read_state(old, "totals", decode=Everything):
        found.setdefault(row["key"], {})[row["state"]] = row["value"]
    assert found.pop(None) == {"seen": [4, 5, 6]}
    assert found == {("user", number): expected(number) for number in range(40)}


@pytest.mark.parametrize("backend", ["object", "rocksdb"])
@pytest.mark.parametrize("old", sorted(OLD.iterdir()), ids=lambda path: path.name)
def test_an_old_savepoint_is_restored(old: Path, backend: str, tmp_path: Path) -> None:
    reader = open_savepoint(str(old))
    found = {}
    for one, handles in restored(reader.manifest(), reader, Everything, 3, backend, tmp_path):
        for key in list(one.keys("count")):
            one.set_current_key(key)
            values = {name: handle.value() for name, handle in handles.items() if hasattr(handle, "value")}
            values |= {name: handles[name].get() for name in ("orders", "best", "shares")}
            found[key] = values | {"stock": dict(handles["stock"].items())}
        one.close()
    assert found == {("user", number): expected(number) for number in range(40)}
    source = reader.manifest().operator(OperatorName("orders"))
    assert source is not None
    assert source.splits == SPLITS
