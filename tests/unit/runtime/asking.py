"""A job with an asynchronous operator on a bench, whose calls end when a test says so, and its further attempts."""

from collections.abc import Callable
from typing import Any, cast

import tidegate as tg
from tests.unit.runtime.hand_calls import HandCalls
from tests.unit.runtime.harness import AT_ONCE, Bench, HandSource
from tidegate.checkpoint.protocol import SplitState
from tidegate.connectors.collections import CollectionSink
from tidegate.ids import TransactionalId
from tidegate.runtime.control import RuntimeOptions

Build = Callable[[tg.Stream[int]], tg.Stream[Any]]
STRATEGY: tg.WatermarkStrategy[int] = tg.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(int)


def tenfold(number: int) -> int:
    return number * 10


def by_hand(stream: tg.Stream[int]) -> tg.Stream[int]:
    return stream.async_map(tenfold, name="ask", type=int, capacity=4)


class Asking:
    """A job with an asynchronous operator. Attempt n takes checkpoint n, from which n + 1 goes on."""

    def __init__(
        self,
        build: Build = by_hand,
        parallelism: int = 1,
        before: "Asking | None" = None,
        *,
        splits: tuple[str, ...] = ("a",),
        options: RuntimeOptions = AT_ONCE,
        strategy: tg.WatermarkStrategy[int] | None = STRATEGY,
    ) -> None:
        self.calls = HandCalls()
        self.sink: CollectionSink = CollectionSink() if before is None else before.sink
        self.source: HandSource = HandSource() if before is None else before.source
        job = tg.Job("asking")
        stream = job.source(self.source, name="src", watermarks=strategy)
        build(stream).sink(self.sink, name="out")
        attempt = 1 if before is None else before.bench.attempt + 1
        self.bench: Bench = Bench(
            job,
            parallelism,
            options=options,
            storage=None if before is None else before.bench.storage,
            restored=[] if before is None else before.bench.restorable(attempt - 1),
            attempt=attempt,
            last_checkpoint=attempt - 1,
            calls=self.calls,
        )
        for id in self.sink.open:
            self.sink.open_recovery().abort(cast(TransactionalId, id))
        self.bench.clock.time = 100.0 if before is None else before.bench.clock.time
        for split in splits:
            self.source.put(split)
        self.bench.deploy()
        self.calls.open()
        kept = [] if before is None else before.kept(attempt - 1)
        self.bench.assign(kept or [SplitState(split, 0) for split in splits], no_more=False)
        self.come()

    def kept(self, checkpoint: int) -> list[SplitState]:
        return [split for snapshot in self.bench.snapshots(checkpoint, "src") for split in snapshot.splits]

    def put(self, *numbers: int, split: str = "a") -> None:
        self.source.put(split, *numbers)
        self.come()

    def end(self) -> None:
        for split in list(self.source._ends):
            self.source.put(split, ends=True)
        self.bench.assign([], no_more=True)
        self.come()

    def come(self) -> None:
        """What is there is read, and a watermark has time to be made of it."""
        for _ in range(4):
            self.bench.finish()
            self.bench.clock.time += AT_ONCE.watermark_interval / 2
        self.bench.finish()

    def answer(self, *records: Any) -> None:
        self.calls.answer(*records)
        self.come()

    def answer_all(self) -> None:
        while self.calls.answer_all():
            self.come()

    def checkpoint(self) -> None:
        """A whole one. Where its barrier waits for room, calls end."""
        number = self.bench.attempt
        self.bench.trigger(number)
        self.come()
        while len(self.bench.acknowledged(number)) < len(self.bench.physical.tasks):
            self.answer(self.calls.records[0])
        self.bench.complete(number)
        self.come()

    @property
    def out(self) -> list[Any]:
        return [*self.sink.committed, *(record for records in self.sink.open.values() for record in records)]


class Lateness(tg.KeyedProcessFunction[int, int, tuple[int, str]]):
    """Says of each record whether it is late."""

    def process_element(self, value: int, ctx: tg.KeyedContext[int]) -> list[tuple[int, str]]:
        assert ctx.timestamp is not None
        return [(value, "late" if ctx.timestamp <= ctx.timer_service.current_watermark() else "in time")]

    def on_timer(self, timestamp: int, ctx: tg.KeyedContext[int]) -> None:
        """There are none; but only those that may have some hear of event time."""


def with_lateness(stream: tg.Stream[int]) -> tg.Stream[Any]:
    same = stream.async_map(lambda number: number, name="ask", type=int, capacity=4, ordered=False)
    return same.key_by(lambda _: 0, name="key").process(Lateness(), name="lateness")


BOUNDED: tg.WatermarkStrategy[int] = tg.WatermarkStrategy.for_bounded_out_of_orderness("5ms").with_timestamp_assigner(
    int
)
