"""A job in which each of very many keys registers one timer, and says so when it fires.

The records are made here, without end, so that timers may fire when all are read. `--ahead` lets every process of the
job believe that so many seconds have passed: timers of a long time are due without waiting for them.
"""

import argparse
import time
from collections.abc import Iterator, Sequence

import tidegate as tg
from tidegate.checkpoint.protocol import RecoverySpec, SplitState
from tidegate.clock import Now, SystemClock
from tidegate.connectors.rotation import RotatingReader
from tidegate.local import LocalSink
from tidegate.operators.contracts import Deserializer, Fetched, SourceContext, SourceReader

SPLITS = 8
LIFE = 3_600_000
"""Milliseconds until a timer fires."""


class Numbers:
    """The numbers from 0 to before `count`, dealt to `SPLITS` splits; it has no end. See `Source`."""

    bounded = False
    deserializer: Deserializer | None = None
    discovery_interval: float | None = None
    inspection_spec: RecoverySpec | None = None

    def __init__(self, count: int) -> None:
        self._count = count

    def discover(self, known: frozenset[str] | None) -> list[SplitState]:
        return [SplitState(str(number), number) for number in range(SPLITS) if str(number) not in (known or ())]

    def open_reader(self, context: SourceContext) -> SourceReader:
        return RotatingReader(self._read)

    def _read(self, split: SplitState, max_records: int) -> Fetched | None:
        end = min(split.position + max_records * SPLITS, self._count + split.position % SPLITS)
        numbers = [number for number in range(split.position, end, SPLITS) if number < self._count]
        return Fetched(split.id, numbers, numbers[-1] + SPLITS) if numbers else None


class Alarm(tg.KeyedProcessFunction[int, int, str]):
    """One timer for each key, and how often it has fired."""

    fired = tg.ValueState(int, default=0)

    def process_element(self, value: int, ctx: tg.KeyedContext[int]) -> Sequence[str]:
        timers = ctx.timer_service
        timers.register_processing_time_timer(timers.current_processing_time() + LIFE)
        return ()

    def on_timer(self, timestamp: int, ctx: tg.KeyedContext[int]) -> Iterator[str]:
        self.fired.update(self.fired.value() + 1)
        yield f"{ctx.key} {self.fired.value()}"


def build(argv: list[str]) -> tg.Job:
    parser = argparse.ArgumentParser()
    parser.add_argument("--log", required=True, help="the folder of an embedded log")
    parser.add_argument("--out", required=True, help="topic")
    parser.add_argument("--job", required=True)
    parser.add_argument("--keys", type=int, required=True)
    parser.add_argument("--ahead", type=float, default=0.0, help="seconds")
    options = parser.parse_args(argv)

    def now(self: SystemClock) -> Now:
        return Now(time.monotonic(), time.time() + options.ahead)

    SystemClock.now = now  # type: ignore[method-assign]
    job = tg.Job(options.job)
    (
        job.source(Numbers(options.keys), name="numbers")
        .key_by(lambda number: number, key_type=int)
        .process(Alarm(), name="alarms")
        .sink(LocalSink(options.log, options.out, value=tg.String()), name="out")
    )
    return job


if __name__ == "__main__":
    tg.main(build)
