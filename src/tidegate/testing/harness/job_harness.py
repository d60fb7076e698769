"""`JobHarness`: a user's own job, run step by step.

After each call everything has happened that can happen without more input and more time. What a job does is the
engine's; the harness only says when.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any, Protocol, Self

from msgspec.structs import replace

from tidegate.checkpoint.store import CheckpointStore
from tidegate.config.values import parse_positive_duration
from tidegate.errors import InternalError, InvalidError, TidegateError, UnavailableError, raise_failure
from tidegate.event_time.durations import seconds_of
from tidegate.graph.logical import LogicalGraph
from tidegate.runtime.control import AssignSplits, RuntimeOptions
from tidegate.scheduling import protocol as p
from tidegate.state.key_groups import DEFAULT_MAX_PARALLELISM
from tidegate.storage.memory import MemoryStorage
from tidegate.testing.harness.elements import (
    AdvanceProcessingTime,
    Checkpoint,
    Crash,
    Element,
    EndOfInput,
    Marker,
    Record,
    Restart,
    ScriptedSource,
    Watermark,
)
from tidegate.testing.harness.engine import Engine, HarnessClock
from tidegate.testing.harness.feed import Fed, Feed
from tidegate.testing.harness.sink import Collected
from tidegate.testing.harness.stand_ins import StandIns, scripts_of
from tidegate.testing.harness.watching import States, state_named


class HasGraph(Protocol):
    """What a `Job` is to a harness."""

    def graph(self, max_parallelism: int) -> LogicalGraph: ...


Program = HasGraph | Callable[[], HasGraph]
"""A job, or a function that makes it: each start then has its own, as processes of their own have."""


class JobHarness:
    """Runs `program` in one thread and in memory. Its sources bring what `send` and their scripts say, its sinks
    collect.

    sources: a script by name of a source, a `ScriptedSource` or its entries. batch_size: how many records of a source
    are read at once, and how many the engine puts into a batch at most. snapshot_every_element: take a checkpoint
    behind each element and start again from it; what the job commits must not change by it. processing_time: where the
    clock begins, in milliseconds since 1970.

    Raises InvalidError for what names no source, and what the job raises: an exception of a user's function is a
    UserCodeError at the call that led to it.
    """

    def __init__(
        self,
        program: Program,
        *,
        sources: Mapping[str, ScriptedSource | Iterable[Any]] | None = None,
        parallelism: int = 1,
        max_parallelism: int = DEFAULT_MAX_PARALLELISM,
        batch_size: int = 1,
        snapshot_every_element: bool = False,
        processing_time: int = 0,
    ) -> None:
        self._program = program
        self._parallelism = parallelism
        self._max_parallelism = max_parallelism
        self._batch_size = batch_size
        self._options = RuntimeOptions(batch_size=batch_size, linger=0.0, watermark_interval=0.0, checks_mutation=True)
        self.snapshot_every_element = snapshot_every_element
        self._clock = HarnessClock(processing_time)
        own = self._own_graph()
        given = {name: _as_source(script) for name, script in (sources or {}).items()}
        self._scripts = scripts_of(own, given)
        self._played = dict.fromkeys(self._scripts, 0)
        """How much of each script is done."""
        self._feed = Feed()
        self._stand_ins = StandIns(self._feed)
        self._store = CheckpointStore(MemoryStorage(), own.job)
        self._starts = 0
        self._restored_to = 0
        """How far the sources had come where the job was started last."""
        self._engine = self._start(own)

    # -- input --

    def send(self, source: str, *values: Any, timestamp: int | None = None, split: int = 0) -> None:
        """`source` reads these, and the job does with them what it does. A value may be a `Record`, which says its own
        timestamp and split. timestamp: the one that the source reads with each of them, in milliseconds since 1970; a
        watermark strategy with an assigner takes its own."""
        self._feed_in(source, [v if isinstance(v, Record) else Record(v, timestamp, split) for v in values])

    def advance_watermark(self, timestamp: int, source: str | None = None) -> None:
        """The watermark of `source`, of each that has one when left out, is at least `timestamp` from now on, whatever
        its strategy makes of the records. `source` may also be an operator in the middle of the job that makes
        watermarks."""
        known = self._stand_ins.watermarked
        names = known if source is None else (source,)
        if not names or any(name not in known for name in names):
            what = f"source {source!r} has no watermarks" if source is not None else "no source has watermarks"
            remedy = f"These have: {', '.join(known)}." if known else "Give a source watermarks=, also for a test."
            raise InvalidError(f"job {self._store.job}: {what}", remedy=remedy)
        for name in names:
            if source is not None or name not in self._feed.ends:
                self._feed_in(name, [Watermark(timestamp)])

    def advance_processing_time(self, by: str | timedelta) -> None:
        """The clock goes on by so much ('5s'). Whatever falls due on the way happens at its own moment, in order."""
        seconds = seconds_of("advance_processing_time", by, parse_positive_duration)
        self._require_running()
        self._engine.advance(self._clock.milliseconds + round(seconds * 1000))
        self._check()

    @property
    def processing_time(self) -> int:
        """Milliseconds since 1970."""
        return self._clock.milliseconds

    def end_input(self, source: str | None = None) -> None:
        """`source` ends here; all of them when left out. When all have ended, the job commits everything and
        finishes."""
        for name in self._scripts if source is None else (source,):
            if source is not None or name not in self._feed.ends:
                self._feed_in(name, [EndOfInput()])

    def run(self) -> None:
        """Play what is left of the scripts. Sources take turns, entry by entry."""
        while any(self._played.get(name, 0) < len(script.script) for name, script in self._scripts.items()):
            for name in self._scripts:
                self._play_next(name)

    def finish(self) -> None:
        """Play what is left of the scripts, end all inputs, and see the job finish. Raises UnavailableError when it
        waits for something that only time brings."""
        self.run()
        self.end_input()
        if not self._engine.is_done:
            raise UnavailableError(
                f"job {self._store.job} does not finish: it waits for processing time",
                remedy="Call advance_processing_time.",
            )

    # -- what happens to the job --

    def checkpoint(self) -> int:
        """Take a whole checkpoint, commits included. Its number."""
        self._require_running()
        before = self._engine.checkpoint
        self._engine.deliver(p.CheckpointWanted())
        self._check()
        if self._engine.checkpoint == before:
            raise UnavailableError(
                f"a checkpoint of job {self._store.job} is not complete: it waits for processing time",
                remedy="Call advance_processing_time.",
            )
        return self._engine.checkpoint

    def crash(self, *, parallelism: int | None = None) -> None:
        """Every process is killed, and the job starts again from its newest checkpoint, or from its beginning: what it
        has written since is gone, and what it has read since it reads again. Also after a failure."""
        self._engine.kill()
        self._begin_again(parallelism)
        self._read_on()

    def rewind(self, *, parallelism: int | None = None) -> None:
        """As `crash`, but what was sent since that checkpoint is forgotten, and not read again."""
        self._engine.kill()
        self._begin_again(parallelism)
        self._feed.forget(self._restored_to)

    def restart(
        self,
        *,
        parallelism: int | None = None,
        program: Program | None = None,
        allow_non_restored_state: bool = False,
    ) -> None:
        """Take a checkpoint, and start again from it, perhaps at another parallelism or with another version of the
        program. Raises InvalidError when that cannot take over the state; with `allow_non_restored_state`, here as on
        the command line, what it has no place for is dropped. Behind an error `crash` goes on as before."""
        self.checkpoint()
        self._engine.close()
        before = self._options, self._program, self._parallelism
        self._options = replace(self._options, allow_non_restored_state=allow_non_restored_state)
        self._program = self._program if program is None else program
        try:
            self._begin_again(parallelism)
        except TidegateError:
            self._options, self._program, self._parallelism = before
            raise

    # -- what came of it --

    def output(self, sink: str | None = None) -> list[Any]:
        """What the job has written, committed or not, and did not lose. `sink` may be left out where there is one."""
        return self.sink(sink).output

    def committed(self, sink: str | None = None) -> list[Any]:
        """What readers of the output can see."""
        return self.sink(sink).committed

    @property
    def sinks(self) -> Mapping[str, Collected]:
        """All of them, by name."""
        return self._stand_ins.sinks

    def sink(self, name: str | None = None) -> Collected:
        """The sink called so, or the only one; with its records' timestamps. Raises InvalidError."""
        sinks = self.sinks
        if name is None and len(sinks) == 1:
            return next(iter(sinks.values()))
        if name is None or name not in sinks:
            what = "has several sinks" if name is None else f"has no sink {name!r}"
            raise InvalidError(f"job {self._store.job} {what}", remedy=f"Name one of: {', '.join(sinks)}.")
        return sinks[name]

    def state(self, operator: str, name: str) -> dict[Any, Any]:
        """What an operator has in one of its states now, by key; by subtask where the state has no keys. Raises
        InvalidError where there is no such state."""
        return state_named(self.states(operator), operator, name)

    def states(self, operator: str) -> States:
        """All that an operator keeps now, by name of the state. Names that begin with a dot are the engine's own."""
        return self._stand_ins.states(operator)

    def records_skipped(self, operator: str) -> int:
        """How many records an operator has left out since the job was started last: late ones, say."""
        return self._stand_ins.records_skipped(operator)

    @property
    def is_finished(self) -> bool:
        """Whether all inputs have ended and everything is committed."""
        return self._engine.is_done and self._engine.failure is None

    # -- life --

    def close(self) -> None:
        """Let go of everything. What is not committed stays so."""
        self._engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, frames: TracebackType | None
    ) -> None:
        self.close()

    def _own_graph(self) -> LogicalGraph:
        program = self._program
        return (program() if callable(program) else program).graph(self._max_parallelism)

    def _start(self, own: LogicalGraph) -> Engine:
        """Up to where it would read on."""
        self._starts += 1
        self._scripts = scripts_of(own, {n.name: self._scripts[n.name] for n in own.sources if n.name in self._scripts})
        self._feed.allowed, self._feed.watermarks = 0, {}
        positions: list[int] = []

        def assigned(message: AssignSplits) -> None:
            positions.extend(split.position for split in message.splits if not split.finished)

        self._engine = Engine(
            self._stand_ins.graph(own, self._scripts),
            self._parallelism,
            self._max_parallelism,
            self._options,
            self._store,
            self._clock,
            self._starts,
            assigned,
        )
        self._engine.start()
        self._check()
        everything = len(self._feed.elements)
        self._restored_to, self._feed.allowed = max(positions, default=everything), min(positions, default=everything)
        return self._engine

    def _begin_again(self, parallelism: int | None) -> None:
        self._parallelism = self._parallelism if parallelism is None else parallelism
        self._start(self._own_graph())

    # -- reading --

    def _play_next(self, name: str) -> None:
        """The next entry of a script; of records as many as are read at once."""
        script, begin = self._scripts[name].script, self._played.get(name, 0)
        entries = script[begin : begin + self._batch_size]
        records: list[Element] = []
        for entry in entries:
            if not isinstance(entry, Record):
                break
            records.append(entry)
        self._played[name] = begin + max(len(records), len(entries[:1]))
        if records:
            self._feed_in(name, records)
        elif entries:
            self._carry_out(name, entries[0])

    def _carry_out(self, name: str, entry: Element | Marker) -> None:
        match entry:
            case Record() | EndOfInput():
                self._feed_in(name, [entry])
            case Watermark(timestamp):
                self.advance_watermark(timestamp, name)
            case Checkpoint():
                self.checkpoint()
            case Crash(parallelism):
                self.crash(parallelism=parallelism)
            case Restart(parallelism):
                self.restart(parallelism=parallelism)
            case AdvanceProcessingTime(by):
                self.advance_processing_time(by)

    def _feed_in(self, source: str, elements: Sequence[Element]) -> None:
        self._require_running()
        for element in elements:
            self._check_element(source, element)
        for element in elements:
            self._feed.add(source, element)
        self._read_on()

    def _check_element(self, source: str, element: Element) -> None:
        if source not in self._scripts and not isinstance(element, Watermark):
            there = ", ".join(self._scripts)
            raise InvalidError(f"job {self._store.job} has no source {source!r}", remedy=f"It has: {there}.")
        if isinstance(element, Record) and not 0 <= element.split < self._scripts[source].splits:
            raise InvalidError(
                f"source {source} has no split {element.split}",
                remedy=f"Say sources={{{source!r}: ScriptedSource(splits={element.split + 1})}}.",
            )
        if source in self._feed.ends:
            raise InvalidError(f"source {source} has ended", remedy="Send before end_input and finish.")

    def _read_on(self) -> None:
        """Everything that is there, a piece at a time."""
        while self._feed.allowed < len(self._feed.elements):
            self._read_piece()
            if self.snapshot_every_element and self._engine.is_running:
                self.checkpoint()
                self._engine.kill()
                self._begin_again(None)

    def _read_piece(self) -> None:
        feed, begin = self._feed, self._feed.allowed
        fed = feed.elements[begin]
        if isinstance(fed.element, Watermark):
            feed.watermarks[fed.source] = max(fed.element.timestamp, feed.watermark(fed.source))
        feed.allowed += 1
        while feed.allowed < min(len(feed.elements), begin + self._batch_size) and _goes_on(
            fed, feed.elements[feed.allowed]
        ):
            feed.allowed += 1
        self._engine.look_again()
        self._check()

    # -- failures --

    def _require_running(self) -> None:
        if self._engine.is_done:
            failed = self._engine.failure is not None
            remedy = "crash() starts it again from its newest checkpoint." if failed else "Make a new harness."
            raise InvalidError(f"job {self._store.job} has {'failed' if failed else 'finished'}", remedy=remedy)

    def _check(self) -> None:
        """Raise what the job has failed with."""
        if self._engine.failure is not None:
            raise_failure(self._engine.failure)
        if not self._engine.is_done and not self._engine.is_running:
            raise InternalError(f"job {self._store.job} does not run, and has not ended")


def _as_source(script: ScriptedSource | Iterable[Any]) -> ScriptedSource:
    return script if isinstance(script, ScriptedSource) else ScriptedSource(script)


def _goes_on(first: Fed, other: Fed) -> bool:
    """Whether both may be read at once."""
    return first.source == other.source and isinstance(first.element, Record) and isinstance(other.element, Record)
