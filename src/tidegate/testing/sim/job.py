"""The program that the simulated world runs: running totals per key of numbered input, with state of every kind that
can go wrong differently, and outputs from which one can see what became of each input record.
"""

from collections.abc import Callable, Iterable
from random import Random

import msgspec

from tidegate.api.asynchronous import AsyncFunction, Retries
from tidegate.api.functions import Context, KeyedContext, KeyedProcessFunction
from tidegate.api.job import Job
from tidegate.api.stream import Stream
from tidegate.event_time.strategies import WatermarkStrategy
from tidegate.graph.logical import LogicalGraph
from tidegate.operators.contracts import Sink, Source
from tidegate.state.descriptors import ListState, MapState, ValueState
from tidegate.state.operator_descriptors import OperatorListState
from tidegate.testing.sim.executor import Pause
from tidegate.testing.sim.swarm import JobShape

JOB = "sim"
TOTALS = "totals"
ASK = "ask"
TIMER_DELAY = 700
"""Milliseconds."""
STEP = 10
"""Milliseconds of event time between two events; in each partition they are in order."""


class Event(msgspec.Struct, frozen=True):
    """An input record; `id` is its number among all of the job's input."""

    id: int
    key: str
    amount: int

    @property
    def timestamp(self) -> int:
        return self.id * STEP

    @property
    def waits_until(self) -> int:
        """The time of its timer on event time."""
        return self.timestamp + STEP // 2


class Total(msgspec.Struct, frozen=True):
    """What is emitted for event `id`: how many events its key has had with it, and their sum, three times over."""

    id: int
    key: str
    count: int
    total: int
    remembered: int
    """The length of a list that is changed in place."""
    listed: int
    """The sum over a list state."""


class RunningTotals(KeyedProcessFunction[str, Event, Total]):
    """`count` and `total` are replaced, `history` is changed in place without `update`, `amounts` is added to. Without
    keys, each subtask lists the events that it has seen, and how many these were; of all counts, one takes over the
    sum. Each event waits in `due` for a timer of its time, which moves it on to `fired`: a timer that fired twice would
    find nothing there. Another waits for event time, and is counted in `passed`."""

    count = ValueState(int, default=0)
    total = ValueState(int, default=0)
    history = ValueState(list[int], default_factory=list)
    amounts = ListState(int)
    seen = OperatorListState(int)
    counts = OperatorListState(int, redistribution="union")

    due = MapState(int, int)
    fired = ValueState(int, default=0)
    passed = ValueState(int, default=0)

    def open(self, ctx: Context) -> None:
        self.counts.update([sum(self.counts.get()) if ctx.subtask == 0 else 0])

    def process_element(self, value: Event, ctx: KeyedContext[str]) -> Iterable[Total]:
        self.count.update(self.count.value() + 1)
        self.total.update(self.total.value() + value.amount)
        self.history.value().append(value.id)
        self.amounts.add(value.amount)
        self.seen.add(value.id)
        self.counts.update([sum(self.counts.get()) + 1])
        self._wait(value, ctx)
        count, total = self.count.value(), self.total.value()
        yield Total(value.id, value.key, count, total, len(self.history.value()), sum(self.amounts))

    def _wait(self, value: Event, ctx: KeyedContext[str]) -> None:
        if ctx.timestamp != value.timestamp or ctx.timer_service.current_watermark() >= value.timestamp:
            raise LookupError(f"{value} came late: at {ctx.timer_service.current_watermark()}, stamped {ctx.timestamp}")
        ctx.timer_service.register_event_time_timer(value.waits_until)
        at = ctx.timer_service.current_processing_time() + TIMER_DELAY
        self.due.put(at, self.due.get(at, 0) + 1)
        ctx.timer_service.register_processing_time_timer(at)

    def on_timer(self, timestamp: int, ctx: KeyedContext[str]) -> None:
        if ctx.time_domain == "event":
            if ctx.timer_service.current_watermark() < timestamp:
                raise LookupError(f"a timer of {ctx.key} fired at {timestamp} before its time")
            self.passed.update(self.passed.value() + 1)
            return
        waiting = self.due.get(timestamp)
        if waiting is None:
            raise LookupError(f"nothing of {ctx.key} waits for its timer at {timestamp}")
        self.due.remove(timestamp)
        self.fired.update(self.fired.value() + waiting)


def build_graph(
    shape: JobShape, max_parallelism: int, source: Callable[[str], Source], sink: Callable[[str], Sink]
) -> LogicalGraph:
    """The job's graph; `source` and `sink` make the connectors of a topic for the process that builds it."""
    job = Job(JOB)
    times = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda event: event.timestamp)
    if shape.max_drift is not None:
        times = times.with_watermark_alignment("inputs", shape.max_drift, "50ms")
    streams: list[Stream[Event]] = [
        job.source(source(topic), name=topic, watermarks=times) for topic in shape.input_topics
    ]
    stream = streams[0] if len(streams) == 1 else streams[0].union(*streams[1:])
    if shape.has_map:
        stream = stream.map(_same, name="same")
    if shape.calls:
        retries = Retries(attempts=3, delay="5ms", on=ConnectionError)
        stream = stream.async_map(Unsteady(), name=ASK, type=Event, capacity=shape.calls, retries=retries)
    if shape.is_co_partitioned:
        keyed = stream.key_by(_key, key_type=str, partitions=shape.partitions)
    else:
        keyed = stream.key_by(_key)
    totals = keyed.process(RunningTotals(), name=TOTALS)
    for topic in shape.output_topics:
        totals.sink(sink(topic), name=topic, parallelism=shape.sink_parallelism)
    return job.graph(max_parallelism)


class Unsteady(AsyncFunction[Event, Event]):
    """Gives back what it is given, after a while and two pauses; of some records only a second call does."""

    def __init__(self) -> None:
        self._failed: set[int] = set()

    async def call(self, value: Event) -> Event:
        await Pause(0.001 * (value.id % 20))
        if value.id % 5 == 0 and value.id not in self._failed:
            self._failed.add(value.id)
            raise ConnectionError(f"no answer for {value.id}")
        await Pause(0.001)
        return value


def _same(event: Event) -> Event:
    return event


def _key(event: Event) -> str:
    return event.key


def key_of(total: Total) -> str:
    return total.key


def make_input(shape: JobShape, random: Random) -> dict[str, list[list[Event]]]:
    """Events by topic and partition."""
    found: dict[str, list[list[Event]]] = {topic: [[] for _ in range(shape.partitions)] for topic in shape.input_topics}
    for id in range(shape.records):
        event = Event(id, f"k{random.randrange(shape.keys)}", random.randrange(1, 100))
        topic, partition = random.choice(shape.input_topics), random.randrange(shape.partitions)
        if shape.key_partitions is not None:
            partition = shape.key_partitions.of(event.key)
        found[topic][partition].append(event)
    return found
