"""The joins in Tidegate, each the twin of one in Java."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

import tidegate as tg
from benchmarks.oracle.cases import HOUR, Case
from benchmarks.oracle.records import Flight, Row, Stamped, Weather, milliseconds, read
from benchmarks.oracle.windows import assigner

LATE = tg.SideOutput[Any]("late")


def pair(flight: Flight | None, weather: Weather | None) -> Row:
    left = [None, None] if flight is None else [flight.called, flight.at]
    right = [None, None, None] if weather is None else [weather.at, weather.origin, weather.temp]
    return ["pair", *left, *right]


def interval(case: Case, flights: tg.Stream[Flight], weather: tg.Stream[Weather]) -> tg.Stream[Row]:
    """Each flight with the reports of its airport that are near to it in time."""
    left, right = by_airport(flights, weather)
    lower, upper, types = milliseconds(case, "lower"), milliseconds(case, "upper"), (Flight, Weather)
    pairs: tg.Stream[Row] = left.interval_join(
        right, pair, lower=lower, upper=upper, name="pairs", types=types, how=how(case), late=LATE
    )
    return pairs


def plain_interval(job: tg.Job, case: Case, data: Path) -> tg.Stream[Row]:
    return interval(case, *both(job, case, data))


def stamped_interval(job: tg.Job, case: Case, data: Path) -> tg.Stream[Row]:
    return plain_interval(job, case, data).process(Stamped(), name="stamped")


def rivals(job: tg.Job, case: Case, data: Path) -> tg.Stream[Row]:
    """Flights of two airports to the same destination that leave at about the same time."""
    flights = read(job, case, data, "flights", Flight)

    def of(airport: str) -> tg.KeyedStream[str, Flight]:
        found = flights.filter(lambda flight: flight.origin == airport, name=f"of-{airport}")
        return found.key_by(lambda flight: flight.dest, key_type=str)

    left, right = of(case.text("left")), of(case.text("right"))
    lower, upper, types = milliseconds(case, "lower"), milliseconds(case, "upper"), (Flight, Flight)
    pairs = left.interval_join(right, rival, lower=lower, upper=upper, name="pairs", types=types)
    return pairs.process(Stamped(), name="stamped")


def rival(one: Flight, other: Flight) -> Row:
    return ["pair", one.dest, one.called, one.at, other.called, other.at]


def window(job: tg.Job, case: Case, data: Path) -> tg.Stream[Row]:
    """Flights and reports of the same airport and window."""
    left, right = by_airport(*both(job, case, data))
    pairs: tg.Stream[Row] = left.window_join(
        right, assigner(case), pair, name="pairs", types=(Flight, Weather), how=how(case)
    )
    return pairs.process(Stamped(), name="stamped")


def temporal(case: Case, flights: tg.Stream[Flight], weather: tg.Stream[Weather]) -> tg.Stream[Row]:
    """Each flight with the report that was the newest of its airport."""
    left, versions = by_airport(flights, weather.flat_map(Corrections(case), name="corrections"))
    options: dict[str, Any] = {}
    if "within" in case.parameters:
        options["within"] = milliseconds(case, "within")
    if "deleted" in case.parameters:
        options["deleted"] = Calm(case.number("deleted"))
    types = (Flight, Weather)
    pairs: tg.Stream[Row] = left.temporal_join(
        versions, pair, name="pairs", types=types, how=how(case), late=LATE, **options
    )
    return pairs


def plain_temporal(job: tg.Job, case: Case, data: Path) -> tg.Stream[Row]:
    return temporal(case, *both(job, case, data))


class Calm:
    """Whether the wind was slower than `wind`: such a report ends what was known before."""

    def __init__(self, wind: int) -> None:
        self._wind = wind

    def __call__(self, weather: Weather) -> bool:
        return weather.wind is not None and weather.wind < self._wind


class Corrections:
    """Some reports are followed by another one of the same time."""

    def __init__(self, case: Case) -> None:
        self._every = case.number("corrected")
        self._ends = Calm(case.number("deleted"))

    def __call__(self, weather: Weather) -> Iterator[Weather]:
        yield weather
        if self._every and not self._ends(weather) and weather.at // HOUR % self._every == 0:
            temp = None if weather.temp is None else weather.temp + 1
            yield msgspec.structs.replace(weather, temp=temp)


def both(job: tg.Job, case: Case, data: Path) -> tuple[tg.Stream[Flight], tg.Stream[Weather]]:
    return read(job, case, data, "flights", Flight), read(job, case, data, "weather", Weather)


def by_airport(
    flights: tg.Stream[Flight], weather: tg.Stream[Weather]
) -> tuple[tg.KeyedStream[str, Flight], tg.KeyedStream[str, Weather]]:
    by_origin = flights.key_by(lambda flight: flight.origin, key_type=str)
    return by_origin, weather.key_by(lambda report: report.origin, key_type=str)


def how(case: Case) -> Any:
    return case.text("how")


PROGRAMS: dict[str, Callable[[tg.Job, Case, Path], tg.Stream[Row]]] = {
    "interval-join": stamped_interval,
    "interval-join-sql": plain_interval,
    "rivals": rivals,
    "window-join": window,
    "temporal-join": plain_temporal,
}
