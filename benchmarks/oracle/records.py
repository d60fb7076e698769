"""Records of the two inputs, and how the programs in Tidegate read them."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

import tidegate as tg
from benchmarks.oracle.cases import Case
from tidegate.files import CsvSource

Row = list[Any]


class Flight(msgspec.Struct, frozen=True):
    """A row of flights.csv."""

    at: int
    carrier: str
    flight: int
    origin: str
    dest: str
    delay: int | None
    """Minutes; None when it was cancelled."""

    @property
    def called(self) -> str:
        return f"{self.carrier}{self.flight}"

    @property
    def route(self) -> str:
        return f"{self.origin}-{self.dest}"


class Weather(msgspec.Struct, frozen=True):
    """A row of weather.csv: degrees Fahrenheit and miles per hour, None where it was not measured."""

    at: int
    origin: str
    temp: float | None
    wind: float | None


class Stamped(tg.ProcessFunction[Row, Row]):
    """With the timestamp that the engine has given to each row."""

    def process_element(self, value: Row, ctx: tg.Context) -> Iterator[Row]:
        yield [*value, ctx.timestamp]


def read(job: tg.Job, case: Case, data: Path, name: str, type: type[Any]) -> tg.Stream[Any]:
    source = CsvSource(data / f"{name}.csv", type=type, null_values=("",))
    bounded = tg.WatermarkStrategy.for_bounded_out_of_orderness(milliseconds(case, "bound"))
    return job.source(source, name=name, watermarks=bounded.with_timestamp_assigner(lambda row: row.at))


def milliseconds(case: Case, parameter: str) -> timedelta:
    return timedelta(milliseconds=case.number(parameter))
