"""`OperatorHarness`: one function, or a piece of a job, between sources that a test feeds and a sink that it reads.

It is a job of its own in a `JobHarness`, so that everything is the engine's: keys, state, timers, snapshots.
"""

import inspect
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

from tidegate.api.functions import (
    BroadcastProcessFunction,
    CoProcessFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    ProcessFunction,
    SideOutput,
)
from tidegate.api.job import Job
from tidegate.api.stream import Stream
from tidegate.errors import InvalidError
from tidegate.event_time.strategies import WatermarkStrategy
from tidegate.graph.logical import InputEdge, LogicalGraph, LogicalNode, Partitioning
from tidegate.ids import OperatorName
from tidegate.state.key_groups import DEFAULT_MAX_PARALLELISM
from tidegate.testing.harness.elements import CollectSink, Record, ScriptedSource
from tidegate.testing.harness.job_harness import JobHarness
from tidegate.testing.harness.watching import States

Fragment = Callable[..., Stream[Any]]
"""From one stream or several to the stream that comes of them."""
Key = Callable[[Any], Any]
OPERATOR = "operator"
"""What a function is called as an operator."""
OUTPUT = "output"


class OperatorHarness:
    """Runs `under_test`: an object of a process function's class, or a function that makes a stream of streams, as
    `lambda orders: orders.key_by(user).window(...).aggregate(...)`.

    key: of a keyed function, what gives the key of a record; of one with two keyed inputs a pair of them. batch_size,
    max_parallelism, processing_time: as for `JobHarness`. Everything that is sent has a timestamp: left out, it is the
    time on the clock. Raises InvalidError for what is no function, and for a key that is missing.
    """

    def __init__(
        self,
        under_test: Any,
        *,
        key: Key | tuple[Key, Key] | None = None,
        parallelism: int = 1,
        max_parallelism: int = DEFAULT_MAX_PARALLELISM,
        batch_size: int = 1,
        processing_time: int = 0,
    ) -> None:
        self._program = _Program(under_test, key)
        self.harness = JobHarness(
            self._program,
            parallelism=parallelism,
            max_parallelism=max_parallelism,
            batch_size=batch_size,
            processing_time=processing_time,
        )
        """The job around it."""
        self._told = 0

    # -- input --

    def process_element(self, value: Any, timestamp: int | None = None, *, input: int = 1) -> None:
        """A record comes. `input`: through which input, from 1, of what has several."""
        at = self.harness.processing_time if timestamp is None else timestamp
        self.harness.send(_input(input), Record(value, at))

    def process_element1(self, value: Any, timestamp: int | None = None) -> None:
        """A record comes through the first of two inputs."""
        self.process_element(value, timestamp, input=1)

    def process_element2(self, value: Any, timestamp: int | None = None) -> None:
        """A record comes through the second of two inputs."""
        self.process_element(value, timestamp, input=2)

    def process_broadcast_element(self, value: Any, timestamp: int | None = None) -> None:
        """A record is broadcast."""
        self.process_element(value, timestamp, input=2)

    def advance_watermark(self, timestamp: int, *, input: int | None = None) -> None:
        """Event time comes to `timestamp`, in one input or in all."""
        self.harness.advance_watermark(timestamp, None if input is None else _input(input))

    def advance_processing_time(self, by: str | timedelta) -> None:
        """As `JobHarness.advance_processing_time`."""
        self.harness.advance_processing_time(by)

    @property
    def processing_time(self) -> int:
        """Milliseconds since 1970."""
        return self.harness.processing_time

    def end_input(self) -> None:
        """All inputs end, and with them event time."""
        self.harness.finish()

    # -- what came of it --

    def output(self) -> list[Any]:
        """All that came of it, in order."""
        return self.harness.output(OUTPUT)

    def records(self) -> list[Record]:
        """As `output`, with timestamps."""
        return self.harness.sink(OUTPUT).records

    def take_output(self) -> list[Any]:
        """What came of it since this was called last."""
        values = self.output()
        new, self._told = values[self._told :], len(values)
        return new

    def side_output(self, tag: SideOutput[Any] | str) -> list[Any]:
        """All that came into the side output `tag`, of whatever operator. Raises InvalidError when none declares
        it."""
        return [record.value for record in self.side_records(tag)]

    def side_records(self, tag: SideOutput[Any] | str) -> list[Record]:
        """As `side_output`, with timestamps."""
        name = tag if isinstance(tag, str) else tag.name
        sinks = self._program.side_sinks
        if name not in sinks:
            there = ", ".join(sinks) or "none"
            raise InvalidError(f"there is no side output {name!r}", remedy=f"There are: {there}.")
        return [record for sink in sinks[name] for record in self.harness.sink(sink).records]

    def state(self, name: str, operator: str = OPERATOR) -> dict[Any, Any]:
        """What it has in one of its states now, by key; by subtask where the state has no keys. `operator`: the name
        of the operator in a piece of a job."""
        return self.harness.state(operator, name)

    def states(self, operator: str = OPERATOR) -> States:
        """All that it keeps now, by name of the state. Names that begin with a dot are the engine's own."""
        return self.harness.states(operator)

    def records_skipped(self, operator: str = OPERATOR) -> int:
        """As `JobHarness.records_skipped`."""
        return self.harness.records_skipped(operator)

    # -- over restarts --

    def snapshot(self) -> None:
        """Take a checkpoint."""
        self.harness.checkpoint()

    def restore(self, *, parallelism: int | None = None) -> None:
        """A new operator, with the state of the newest snapshot, perhaps in more or fewer subtasks. What came since is
        forgotten, and so are the outputs that came of it."""
        self.harness.rewind(parallelism=parallelism)
        self._told = min(self._told, len(self.output()))

    # -- life --

    def close(self) -> None:
        """Let go of everything."""
        self.harness.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, frames: TracebackType | None
    ) -> None:
        self.close()


def _input(number: int) -> str:
    return f"input{number}"


class _Program:
    """The job around what is under test: one source for each input, a sink behind it and one behind each side output
    that nobody reads."""

    def __init__(self, under_test: Any, key: Key | tuple[Key, Key] | None) -> None:
        self._make = _fragment(under_test, key)
        self.side_sinks: dict[str, list[str]] = {}
        """Sinks by the name of the side output."""

    def graph(self, max_parallelism: int) -> LogicalGraph:
        """As that of a job."""
        job = Job("operator-harness")
        strategy: WatermarkStrategy[Any] = WatermarkStrategy.no_watermarks()
        names = [_input(number + 1) for number in range(_inputs(self._make))]
        streams = [job.source(ScriptedSource(), name=name, watermarks=strategy) for name in names]
        self._make(*streams).sink(CollectSink(), name=OUTPUT)
        return self._with_side_sinks(job.graph(max_parallelism))

    def _with_side_sinks(self, graph: LogicalGraph) -> LogicalGraph:
        read = {(edge.upstream, edge.tag) for node in graph.nodes for edge in node.inputs}
        unread = [(n.name, tag) for n in graph.nodes for tag in n.side_outputs if (n.name, tag) not in read]
        self.side_sinks = {}
        sinks: list[LogicalNode] = []
        for index, (operator, tag) in enumerate(unread):
            name = OperatorName(f"side-output-{index}")
            self.side_sinks.setdefault(tag, []).append(name)
            edge = InputEdge(operator, Partitioning.FORWARD, tag)
            sinks.append(LogicalNode(name, "sink", (edge,), sink=CollectSink()))
        return replace(graph, nodes=(*graph.nodes, *sinks))


def _inputs(fragment: Fragment) -> int:
    return len(inspect.signature(fragment).parameters)


def _fragment(under_test: Any, key: Key | tuple[Key, Key] | None) -> Fragment:
    """What makes the streams of all inputs into the output's."""
    match under_test:
        case ProcessFunction():
            return lambda stream: stream.process(under_test, name=OPERATOR)
        case KeyedProcessFunction():
            (of,) = _keys(under_test, key, 1)
            return lambda stream: stream.key_by(of).process(under_test, name=OPERATOR)
        case CoProcessFunction():
            return lambda one, other: one.connect(other).process(under_test, name=OPERATOR)
        case KeyedCoProcessFunction():
            of_one, of_other = _keys(under_test, key, 2)
            return lambda one, other: (
                one.key_by(of_one).connect(other.key_by(of_other)).process(under_test, name=OPERATOR)
            )
        case BroadcastProcessFunction():
            return lambda one, other: one.connect(other.broadcast()).process(under_test, name=OPERATOR)
        case KeyedBroadcastProcessFunction():
            (of,) = _keys(under_test, key, 1)
            return lambda one, other: one.key_by(of).connect(other.broadcast()).process(under_test, name=OPERATOR)
        case _ if callable(under_test) and not isinstance(under_test, type):
            made: Fragment = under_test
            return made
        case _:
            raise InvalidError(
                f"an OperatorHarness was given {under_test!r}",
                remedy="Give an object of a process function's class, or a function from streams to a stream.",
            )


def _keys(function: object, key: Key | tuple[Key, Key] | None, count: int) -> tuple[Key, ...]:
    keys = key if isinstance(key, tuple) else (key,) * count
    if len(keys) != count or not all(callable(of) for of in keys):
        what = "key=, a function of a record" if count == 1 else "key=, a pair of functions of a record"
        raise InvalidError(f"{type(function).__name__} works on records with keys", remedy=f"Give {what}.")
    return tuple(of for of in keys if of is not None)
