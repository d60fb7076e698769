"""A job whose inputs are as unequal as a test wants: one partition is slow, and what was seen of each is counted.

What is counted must at every checkpoint be exactly what was read, whichever barrier came first and how long ago.
"""

import argparse
import time
from pathlib import Path

import msgspec

import tidegate as tg
from tidegate.local import LocalSink, LocalSource

OPERATOR = "count"
KEYS = 20


class Record(msgspec.Struct, frozen=True):
    """One record of the input. `origin` is the partition it lies in, `number` its offset there."""

    origin: int
    number: int


class Count(tg.KeyedProcessFunction[str, Record, Record]):
    """Passes everything on."""

    records = tg.MapState(int, int)
    sums = tg.MapState(int, int)

    def process_element(self, value: Record, ctx: tg.KeyedContext[str]):  # type: ignore[no-untyped-def]
        self.records.put(value.origin, self.records.get(value.origin, 0) + 1)
        self.sums.put(value.origin, self.sums.get(value.origin, 0) + value.number)
        yield value


def build(argv: list[str]) -> tg.Job:
    """The job that the arguments describe."""
    parser = argparse.ArgumentParser()
    for name in ("--log", "--input", "--output", "--job"):
        parser.add_argument(name, required=True)
    parser.add_argument("--slow", type=int, default=-1, help="the partition whose records take time")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds that each of them takes")
    parser.add_argument("--start-up", type=float, default=0.0, help="seconds for which subtask 1 is not ready")
    parser.add_argument("--ready", default="", help="a file that subtask 1 makes when it is ready")
    arguments = parser.parse_args(argv)

    class Pace(tg.ProcessFunction[Record, Record]):
        def open(self, ctx: tg.Context) -> None:
            if ctx.subtask == 1:
                time.sleep(arguments.start_up)
                if arguments.ready:
                    Path(arguments.ready).touch()

        def process_element(self, value: Record, ctx: tg.Context):  # type: ignore[no-untyped-def]
            if value.origin == arguments.slow:
                time.sleep(arguments.pause)
            yield value

    job = tg.Job(arguments.job)
    (
        job.source(LocalSource(arguments.log, arguments.input, value=tg.Json(Record), bounded=True), name="in")
        .process(Pace(), name="pace")
        .key_by(lambda record: str(record.number % KEYS))
        .process(Count(), name=OPERATOR)
        .sink(LocalSink(arguments.log, arguments.output, value=tg.Json(Record), partitions=2), name="out")
    )
    return job


if __name__ == "__main__":
    tg.main(build)
