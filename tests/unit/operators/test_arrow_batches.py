"""Functions of Arrow tables: which columns records become, what comes back as records, and what is refused."""

import datetime as dt
import enum
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal, NamedTuple, TypedDict
from uuid import UUID

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.unit.operators.bench import rows
from tests.unit.operators.test_batches import Order, Score, operator_of, run
from tidegate.elements import Batch
from tidegate.errors import InvalidError, UserCodeError


def shares(table: pa.Table) -> pa.Table:
    amounts = pc.fill_null(table["amount"], 0)
    return pa.table({"user": table["user"], "share": pc.divide(pc.cast(amounts, pa.float64()), 10.0)})


def test_records_become_a_table_and_its_rows_records() -> None:
    batch = Batch([Order("ada", 4), Order("bob", None)], None, [7, 8])
    (given,) = run("map_batch", shares, batch, format="arrow", types=(Order, Score))
    assert given.values == [Score("ada", 0.4), Score("bob", 0.0)]
    assert given.timestamps == [7, 8]


def test_columns_have_the_declared_types_whatever_a_batch_holds() -> None:
    schemas = []

    def seen(table: pa.Table) -> pa.Table:
        schemas.append(table.schema)
        return table

    batch = Batch([Order("ada", None), Order("bob", 3)])
    run("process_batch", seen, batch, size=1, format="arrow", types=(Order, Order))
    assert schemas == [pa.schema([("user", pa.string()), ("amount", pa.int64())])] * 2


class Color(enum.Enum):
    RED = "red"


class Everything(msgspec.Struct, frozen=True):
    flag: bool
    number: int
    real: float
    text: str
    data: bytes
    moment: dt.datetime
    day: dt.date
    time: dt.time
    wait: dt.timedelta
    id: UUID
    price: Decimal
    color: Color
    size: Literal["s", "m"]
    tags: list[str]
    colors: list[Color]
    maybe: int | None
    rate: int | float


EVERYTHING = Everything(
    True,
    -(2**62),
    0.1,
    "ä",
    b"\x00\xff",
    dt.datetime(2013, 1, 1, 5, 15, tzinfo=dt.UTC),
    dt.date(2013, 1, 1),
    dt.time(5, 15, 0, 7),
    dt.timedelta(days=1, microseconds=1),
    UUID(int=5),
    Decimal("0.10"),
    Color.RED,
    "m",
    ["a", "b"],
    [Color.RED],
    None,
    1.5,
)


def test_values_of_every_kind_come_through_a_table_unchanged() -> None:
    (given,) = run(
        "map_batch", lambda table: table, Batch([EVERYTHING]), format="arrow", types=(Everything, Everything)
    )
    assert given.values == [EVERYTHING]


@dataclass(frozen=True)
class DataOrder:
    user: str
    amount: int


class NamedOrder(NamedTuple):
    user: str
    amount: int


class DictOrder(TypedDict):
    user: str
    amount: int


class ArrayOrder(msgspec.Struct, frozen=True, array_like=True):
    user: str
    amount: int = 1


class RenamedOrder(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    user_name: str = "nobody"
    amount: int = 0


@pytest.mark.parametrize(
    ("cls", "record"),
    [
        (DataOrder, DataOrder("ada", 1)),
        (NamedOrder, NamedOrder("ada", 1)),
        (ArrayOrder, ArrayOrder("ada")),
        (DictOrder, {"user": "ada", "amount": 1}),
        (RenamedOrder, RenamedOrder()),
        (RenamedOrder, RenamedOrder("ada", 1)),
    ],
)
def test_every_class_of_records_has_columns_by_the_names_of_its_fields(cls: type, record: Any) -> None:
    (given,) = run("map_batch", lambda table: table, Batch([record]), format="arrow", types=(cls, cls))
    assert given.values == [record]


class Nested(msgspec.Struct):
    order: Order


class Tagged(msgspec.Struct):
    by_name: dict[str, int]


class Mixed(msgspec.Struct):
    value: int | str


@pytest.mark.parametrize(("cls", "field"), [(Nested, "order"), (Tagged, "by_name"), (Mixed, "value")])
def test_a_field_without_a_column_is_refused_when_the_job_is_described(cls: type, field: str) -> None:
    for types in ((cls, Score), (Score, cls)):
        with pytest.raises(InvalidError, match=f"operator it: field {field} of {cls.__name__}"):
            operator_of("map_batch", list, format="arrow", types=types)


def test_a_record_that_does_not_fit_its_column_is_refused_with_the_field() -> None:
    for record in (Order(5, 1), Order("ada", 2**70), Score("ada", 1.0), {"user": "ada"}):  # type: ignore[arg-type]
        with pytest.raises(InvalidError, match=r"field (user|amount) of a record does not fit its column of type"):
            run("map_batch", shares, Batch([record]), format="arrow", types=(Order, Score))


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda table: [1], "list and not a pyarrow.Table"),
        (lambda table: None, "NoneType and not a pyarrow.Table"),
        (lambda table: table.drop(["amount"]), "a table without the column share"),
        (lambda table: pa.table({"user": ["ada"], "share": [None]}), r"Expected `float`, got `null`.*\$\[0\]\.share"),
        (lambda table: shares(table).slice(0, 0), "returned 0 results"),
    ],
)
def test_a_table_that_does_not_fit_is_refused_with_what_is_wrong(function: Callable[[Any], Any], said: str) -> None:
    with pytest.raises(UserCodeError, match=f"on a batch of 1 records: .*{said}"):
        run("map_batch", function, Batch([Order("ada", 1)]), format="arrow", types=(Order, Score))


def test_process_batch_may_give_another_number_of_rows_and_a_record_batch() -> None:
    def large(table: pa.Table) -> Sequence[Any]:
        (batch,) = table.filter(pc.greater(table["amount"], 1)).to_batches()
        return batch  # type: ignore[no-any-return]

    batch = Batch([Order("ada", 1), Order("bob", 2)])
    assert rows(run("process_batch", large, batch, format="arrow", types=(Order, Order))) == [(None, [Order("bob", 2)])]


def test_without_pyarrow_the_job_is_refused_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InvalidError, match=r"(?s)operator it: the package pyarrow is not installed.*tidegate\[arrow\]"):
        operator_of("map_batch", shares, format="arrow", types=(Order, Score))
