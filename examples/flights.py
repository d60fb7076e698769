"""Delays by carrier, always up to date: each flight that comes in changes the totals of its carrier and puts them out.

The flights are read from the topic `flights` of an embedded log, the totals go to its topic `carriers`, each exactly
once. With `--load` the same program is another job, which brings flights from a CSV file into the topic:

    gunzip --keep examples/data/flights-2013-01.csv.gz
    tidegate run examples/flights.py -- --log flights-log --load examples/data/flights-2013-01.csv
    tidegate run examples/flights.py --parallelism 2 -- --log flights-log --bounded
"""

from argparse import ArgumentParser
from collections.abc import Iterator

import msgspec

import tidegate as tg
from tidegate.files import CsvSource
from tidegate.local import LocalSink, LocalSource

PARTITIONS = 4


class Flight(msgspec.Struct, frozen=True):
    """What the job needs of a row; the other columns are passed over."""

    carrier: str
    flight: int
    dep_delay: int | None
    """Minutes, negative when it left early; None when it was cancelled."""


class Delays(msgspec.Struct, frozen=True):
    """What is remembered of a carrier."""

    flights: int = 0
    cancelled: int = 0
    total: int = 0
    """Sum of all delays."""
    worst: int | None = None


class CarrierTotals(msgspec.Struct, frozen=True):
    """What is put out after each flight of a carrier. Delays in minutes; None before the first flight that left."""

    carrier: str
    flights: int
    cancelled: int
    mean_delay: float | None
    worst_delay: int | None


class TotalsByCarrier(tg.KeyedProcessFunction[str, Flight, CarrierTotals]):
    delays = tg.ValueState(Delays, default=Delays())

    def process_element(self, value: Flight, ctx: tg.KeyedContext[str]) -> Iterator[CarrierTotals]:
        delays = add(self.delays.value(), value)
        self.delays.update(delays)
        left = delays.flights - delays.cancelled
        mean = delays.total / left if left else None
        yield CarrierTotals(ctx.key, delays.flights, delays.cancelled, mean, delays.worst)


def add(delays: Delays, flight: Flight) -> Delays:
    flights, delay = delays.flights + 1, flight.dep_delay
    if delay is None:
        return Delays(flights, delays.cancelled + 1, delays.total, delays.worst)
    worst = delay if delays.worst is None else max(delays.worst, delay)
    return Delays(flights, delays.cancelled, delays.total + delay, worst)


def carrier_of(record: Flight | CarrierTotals) -> str:
    return record.carrier


def loading_job(log: str, csv: str) -> tg.Job:
    """CSV file to topic. Flights of one carrier go to one partition, so that their order is kept."""
    job = tg.Job("flights-load")
    rows = job.source(CsvSource(csv, type=Flight, null_values=("NA", "")), name="rows")
    topic = LocalSink(log, "flights", key=carrier_of, value=tg.Json(Flight), partitions=PARTITIONS)
    rows.sink(topic, name="topic")
    return job


def totals_job(log: str, *, bounded: bool) -> tg.Job:
    """Topic to topic. Unless `bounded`, it goes on with whatever comes, until it is stopped."""
    job = tg.Job("flights")
    flights = job.source(LocalSource(log, "flights", value=tg.Json(Flight), bounded=bounded), name="flights")
    totals = flights.key_by(carrier_of, key_type=str).process(TotalsByCarrier(), name="totals")
    totals.sink(
        LocalSink(log, "carriers", key=carrier_of, value=tg.Json(CarrierTotals), partitions=PARTITIONS), name="carriers"
    )
    return job


def build(argv: list[str]) -> tg.Job:
    parser = ArgumentParser(prog="flights.py", description="Delays by carrier on an embedded log.")
    parser.add_argument("--log", required=True, metavar="DIR", help="folder of the embedded log")
    parser.add_argument("--load", metavar="CSV", help="bring the flights of this file into the log, and end")
    parser.add_argument("--bounded", action="store_true", help="end where the topic ends now")
    options = parser.parse_args(argv)
    return loading_job(options.log, options.load) if options.load else totals_job(options.log, bounded=options.bounded)


if __name__ == "__main__":
    tg.main(build)
