"""Delays and the weather: of each hour and carrier the mean delay of its departures, and the wind and the visibility
that they had, with the report of the weather that held at the airport when they left.

Flights and reports come from two topics and are joined by event time: a departure with the newest report of its airport
that is not newer. Delays go to a third topic, one record a carrier and hour, when the hour is complete. Departures
that come later than --out-of-orderness are left out, counted by airport, and go to a fourth. The flights of a day stand
in the order of the clock, also those that left behind midnight: they are up to a day too early.

With `--load` the same program is another job, which brings the files into the topics. These are of an embedded log:

    gunzip --keep examples/data/*.csv.gz
    tidegate run examples/flights_weather.py -- --log weather-log --load
    tidegate run examples/flights_weather.py --parallelism 2 -- --log weather-log --bounded

or, with `--bootstrap localhost:9092` in place of `--log weather-log`, those of Kafka:

    tidegate dev-kafka --topic departures:4 --topic weather:1 --topic delays:4 --topic late:1
"""

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import msgspec

import tidegate as tg
from tidegate.files import CsvSource

DATA = Path(__file__).parent / "data"
NEW_YORK = ZoneInfo("America/New_York")
YEAR = 2013
PARTITIONS = {"flights": 4, "weather": 1, "output": 4, "late": 1}
"""Of the topics of the embedded log. Event time waits for each partition: none of the input may stay empty."""
LATE = tg.SideOutput[Any]("late")


class Flight(msgspec.Struct, frozen=True):
    """What the job needs of a row. Times are by the clock in New York."""

    month: int
    day: int
    sched_dep_time: int
    """Hours and minutes: 515 is a quarter past five."""
    dep_delay: int | None
    """Minutes, negative when it left early; None when it was cancelled."""
    carrier: str
    flight: int
    origin: str


class Weather(msgspec.Struct, frozen=True):
    """The report of an hour, which is by the clock in New York."""

    origin: str
    month: int
    day: int
    hour: int
    wind_speed: float | None
    """Miles per hour."""
    visib: float | None
    """Miles."""


class Departure(msgspec.Struct, frozen=True):
    """A flight that left, in the weather that it had; None where no report held."""

    carrier: str
    delay: int
    wind: float | None
    visibility: float | None


class Delays(msgspec.Struct, frozen=True):
    """Departures of a carrier in an hour."""

    flights: int
    mean_delay: float
    mean_wind: float | None
    lowest_visibility: float | None


class HourlyDelays(msgspec.Struct, frozen=True):
    carrier: str
    start: int
    """Of the hour, in milliseconds since 1970."""
    delays: Delays


class LateFlight(msgspec.Struct, frozen=True):
    """A departure that came too late to be counted elsewhere."""

    origin: str
    number: int
    """How many there were at this airport, with this one."""
    flight: Flight


DELAYS: tg.Aggregate[Departure, Any, Delays] = tg.aggregates.combine(
    Delays,
    flights=tg.aggregates.count(),
    mean_delay=tg.aggregates.mean(lambda departure: departure.delay, type=int),
    mean_wind=tg.aggregates.mean(lambda departure: departure.wind),
    lowest_visibility=tg.aggregates.min(lambda departure: departure.visibility, type=float),
)


class CountLate(tg.KeyedProcessFunction[str, Flight, LateFlight]):
    number = tg.ValueState(int, default=0)

    def process_element(self, value: Flight, ctx: tg.KeyedContext[str]) -> Iterator[LateFlight]:
        number = self.number.value() + 1
        self.number.update(number)
        yield LateFlight(ctx.key, number, value)


def moment(month: int, day: int, hour: int, minute: int, later: int = 0) -> int:
    """So many minutes later than that by the clock in New York, in milliseconds since 1970."""
    at = datetime(YEAR, month, day, tzinfo=NEW_YORK) + timedelta(hours=hour, minutes=minute)
    return round(at.timestamp() * 1000) + later * 60_000


def departed_at(flight: Flight) -> int:
    """When it left; a cancelled one when it should have left."""
    return moment(flight.month, flight.day, *divmod(flight.sched_dep_time, 100), flight.dep_delay or 0)


def reported_at(weather: Weather) -> int:
    return moment(weather.month, weather.day, weather.hour, 0)


def in_weather(flight: Flight, weather: Weather | None) -> Departure:
    delay = flight.dep_delay or 0
    if weather is None:
        return Departure(flight.carrier, delay, None, None)
    return Departure(flight.carrier, delay, weather.wind_speed, weather.visib)


def hourly(carrier: str, window: tg.TimeWindow, delays: Delays) -> HourlyDelays:
    return HourlyDelays(carrier, window.start, delays)


def origin_of(record: Flight | Weather | LateFlight) -> str:
    return record.origin


def carrier_of(record: Flight | Departure | HourlyDelays) -> str:
    return record.carrier


def source_of(options: Namespace, what: str, type: type) -> Any:
    topic = getattr(options, what)
    if options.log is not None:
        from tidegate.local import LocalSource

        return LocalSource(options.log, topic, value=tg.Json(type), bounded=options.bounded)
    from tidegate.kafka import KafkaSource

    return KafkaSource(options.bootstrap, topic, value=tg.Json(type), start=options.start, bounded=options.bounded)


def sink_to(options: Namespace, what: str, type: type, key: Any) -> Any:
    """Records of one key go to one partition, so that their order is kept."""
    topic = getattr(options, what)
    if options.log is not None:
        from tidegate.local import LocalSink

        return LocalSink(options.log, topic, key=key, value=tg.Json(type), partitions=PARTITIONS[what])
    from tidegate.kafka import KafkaSink

    return KafkaSink(options.bootstrap, topic, key=key, value=tg.Json(type))


def job_called(name: str, options: Namespace) -> tg.Job:
    """What a job has read belongs to one log: with the other one it is another job."""
    return tg.Job(name if options.log is not None else f"{name}-kafka")


def loading_job(options: Namespace) -> tg.Job:
    """CSV files to topics."""
    job = job_called("flights-weather-load", options)
    load(job, options, "flights", Flight, carrier_of)
    load(job, options, "weather", Weather, origin_of)
    return job


def load(job: tg.Job, options: Namespace, what: str, type: type, key: Any) -> None:
    rows = CsvSource(options.load / f"{what}-2013-01.csv", type=type, null_values=("NA", ""))
    job.source(rows, name=f"{what}-file").sink(sink_to(options, what, type, key), name=what)


def delays_job(options: Namespace) -> tg.Job:
    """Topics to topics. Unless bounded, it goes on with whatever comes, until it is stopped."""
    job = job_called("flights-weather", options)
    in_time = tg.WatermarkStrategy.for_bounded_out_of_orderness(options.out_of_orderness)
    flights: tg.Stream[Flight] = job.source(
        source_of(options, "flights", Flight),
        name="flights",
        watermarks=in_time.with_timestamp_assigner(departed_at),
    )
    weather: tg.Stream[Weather] = job.source(
        source_of(options, "weather", Weather),
        name="weather",
        watermarks=in_time.with_timestamp_assigner(reported_at),
    )
    departures = (
        flights.filter(lambda flight: flight.dep_delay is not None, name="departures")
        .key_by(origin_of, key_type=str)
        .temporal_join(
            weather.key_by(origin_of, key_type=str),
            in_weather,
            name="in-weather",
            types=(Flight, Weather),
            how="left",
            within=options.weather_age,
            late=LATE,
        )
    )
    hours = departures.key_by(carrier_of, key_type=str).window(tg.TumblingEventTimeWindows(options.window))
    delays = hours.aggregate(DELAYS, hourly, name="delays")
    delays.sink(sink_to(options, "output", HourlyDelays, carrier_of), name="output")
    late = departures.side_output(LATE).filter(lambda record: isinstance(record, Flight), name="late-flights")
    counted = late.key_by(origin_of, key_type=str).process(CountLate(), name="late")
    counted.sink(sink_to(options, "late", LateFlight, origin_of), name="late-output")
    return job


def build(argv: list[str]) -> tg.Job:
    parser = ArgumentParser(prog="flights_weather.py", description="Delays by hour and carrier, and the weather.")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--log", metavar="DIR", help="folder of the embedded log")
    where.add_argument("--bootstrap", metavar="HOST:PORT", help="a broker, or several with commas")
    parser.add_argument(
        "--load", metavar="DIR", type=Path, nargs="?", const=DATA, help="bring the files of this folder in, and end"
    )
    parser.add_argument("--flights", default="departures", metavar="TOPIC")
    parser.add_argument("--weather", default="weather", metavar="TOPIC")
    parser.add_argument("--output", default="delays", metavar="TOPIC")
    parser.add_argument("--late", default="late", metavar="TOPIC")
    parser.add_argument("--bounded", action="store_true", help="end where the input ends now")
    parser.add_argument("--from", dest="start", choices=("earliest", "latest"), default="earliest")
    parser.add_argument("--window", default="1h", metavar="DURATION")
    parser.add_argument("--out-of-orderness", default="36h", metavar="DURATION")
    parser.add_argument("--weather-age", default="2h", metavar="DURATION", help="for how long a report holds")
    options = parser.parse_args(argv)
    return loading_job(options) if options.load else delays_job(options)


if __name__ == "__main__":
    tg.main(build)
