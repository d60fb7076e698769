"""Joins of which records are late, in Tidegate: one record of both.csv after the other, each with the watermark that it
brings for both inputs, by the harness in which everything has happened that a record brings about before the next one
comes."""

import csv
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

import tidegate as tg
from benchmarks.oracle.cases import AT_WATERMARK, LATE_REPORT, LATE_ROW, Case
from benchmarks.oracle.comparison import Row
from benchmarks.oracle.data import FLIGHT, FLIGHT_COLUMNS, WEATHER_COLUMNS
from benchmarks.oracle.joins import interval, temporal
from benchmarks.oracle.records import Flight, Weather
from tidegate.elements import MIN_WATERMARK
from tidegate.testing import OperatorHarness

Join = Callable[[Case, tg.Stream[Flight], tg.Stream[Weather]], tg.Stream[Any]]
Kind = TypeVar("Kind")
LATE = "late"


def run(case: Case, data: Path) -> list[Row]:
    """Its pairs, and the late records that its join tells of."""
    join = JOINS[case.program]
    watermark, bound, at_watermark = MIN_WATERMARK, case.number("bound"), set[Flight | Weather]()
    with OperatorHarness(lambda flights, weather: join(case, flights, weather)) as harness:
        for row in _rows(data / "both.csv"):
            harness.process_element(row, row.at, input=1 if isinstance(row, Flight) else 2)
            if row.at == watermark:
                at_watermark.add(row)
            if row.at - bound - 1 > watermark:
                watermark = row.at - bound - 1
                harness.advance_watermark(watermark)
        harness.end_input()
        late = [_told(case, row, row in at_watermark) for row in harness.side_output(LATE)]
        return [*map(tuple, harness.output()), *(row for row in late if row is not None)]


def _told(case: Case, row: Flight | Weather, is_at_watermark: bool) -> Row | None:
    """The row of a late record; None for what Flink tells nothing of, where nothing is to be explained by it."""
    if isinstance(row, Weather) and case.program == "temporal-join-late":
        return (LATE_REPORT, row.origin, row.at) if case.explained == LATE_REPORT else None
    kind = AT_WATERMARK if is_at_watermark and case.explained == AT_WATERMARK else LATE_ROW
    return (kind, row.called if isinstance(row, Flight) else row.origin, row.at)


def _rows(path: Path) -> Iterator[Flight | Weather]:
    with path.open(encoding="utf-8", newline="") as file:
        for kind, *fields in list(csv.reader(file))[1:]:
            yield _row(FLIGHT_COLUMNS, fields, Flight) if kind == FLIGHT else _row(WEATHER_COLUMNS, fields, Weather)


def _row(columns: Sequence[str], fields: Sequence[str], type: type[Kind]) -> Kind:
    named = {name: field or None for name, field in zip(columns, fields, strict=True)}
    return msgspec.convert(named, type, strict=False)


JOINS: dict[str, Join] = {"interval-join-late": interval, "temporal-join-late": temporal}
