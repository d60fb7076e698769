"""Delays by carrier, always up to date: each flight that comes in changes the totals of its carrier and puts them out.

The flights are read from the topic `flights`, the totals go to the topic `carriers`, each exactly once. With `--load`
the same program is another job, which brings flights from a CSV file into the topic. The topics are those of an
embedded log:

    gunzip --keep examples/data/flights-2013-01.csv.gz
    tidegate run examples/flights.py -- --log flights-log --load examples/data/flights-2013-01.csv
    tidegate run examples/flights.py --parallelism 2 -- --log flights-log --bounded

or, with `--bootstrap localhost:9092` in place of `--log flights-log`, those of Kafka:

    tidegate dev-kafka --topic flights:4 --topic carriers:4
"""

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from typing import Any

import msgspec

import tidegate as tg
from tidegate.files import CsvSource

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


def source_of(options: Namespace) -> Any:
    if options.log is not None:
        from tidegate.local import LocalSource

        return LocalSource(options.log, "flights", value=tg.Json(Flight), bounded=options.bounded)
    from tidegate.kafka import KafkaSource

    return KafkaSource(options.bootstrap, "flights", value=tg.Json(Flight), bounded=options.bounded)


def sink_to(options: Namespace, topic: str, type: type) -> Any:
    """Records of one carrier go to one partition, so that their order is kept."""
    if options.log is not None:
        from tidegate.local import LocalSink

        return LocalSink(options.log, topic, key=carrier_of, value=tg.Json(type), partitions=PARTITIONS)
    from tidegate.kafka import KafkaSink

    return KafkaSink(options.bootstrap, topic, key=carrier_of, value=tg.Json(type))


def job_called(name: str, options: Namespace) -> tg.Job:
    """What a job has read belongs to one log: with the other one it is another job."""
    return tg.Job(name if options.log is not None else f"{name}-kafka")


def loading_job(options: Namespace) -> tg.Job:
    """CSV file to topic."""
    job = job_called("flights-load", options)
    rows = job.source(CsvSource(options.load, type=Flight, null_values=("NA", "")), name="rows")
    rows.sink(sink_to(options, "flights", Flight), name="topic")
    return job


def totals_job(options: Namespace) -> tg.Job:
    """Topic to topic. Unless bounded, it goes on with whatever comes, until it is stopped."""
    job = job_called("flights", options)
    flights = job.source(source_of(options), name="flights")
    totals = flights.key_by(carrier_of, key_type=str).process(TotalsByCarrier(), name="totals")
    totals.sink(sink_to(options, "carriers", CarrierTotals), name="carriers")
    return job


def build(argv: list[str]) -> tg.Job:
    parser = ArgumentParser(prog="flights.py", description="Delays by carrier, on an embedded log or on Kafka.")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--log", metavar="DIR", help="folder of the embedded log")
    where.add_argument("--bootstrap", metavar="HOST:PORT", help="a broker, or several with commas")
    parser.add_argument("--load", metavar="CSV", help="bring the flights of this file into the topic, and end")
    parser.add_argument("--bounded", action="store_true", help="end where the topic ends now")
    options = parser.parse_args(argv)
    return loading_job(options) if options.load else totals_job(options)


if __name__ == "__main__":
    tg.main(build)
