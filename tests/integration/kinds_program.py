"""A job with every kind of state that is no plain keyed state, and what must come out of it whatever happens.

Events go through a function without keys that holds them back in a list of its subtask and counts them in a list of
all, then by key through one that multiplies each by a factor that was broadcast and waits for a timer to emit it. An
event names the rule that holds its factor, and is written only when a checkpoint covers that rule: so its result is
known. Results of one key have no order: held back, its events may change the subtask.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from tests.integration.programs import log_of
from tests.integration.user_programs import Project, Running
from tidegate.checkpoint.manifest import Manifest
from tidegate.local import LocalLog

JOB = "kinds"
PARTITIONS = 4
FLUSH = "flush"
PROGRAM = """\
from pathlib import Path

import msgspec

import tidegate as tg
from tidegate.local import LocalSink, LocalSource

LOG = Path(__file__).parent / "log"
DELAY = 150


class Event(msgspec.Struct, frozen=True):
    key: str
    number: int
    rule: str


class Rule(msgspec.Struct, frozen=True):
    name: str
    factor: int


class Result(msgspec.Struct, frozen=True):
    key: str
    amount: int


class Count(msgspec.Struct, frozen=True):
    subtask: int
    events: int


class Hold(tg.ProcessFunction[Event, Event]):
    held = tg.OperatorListState(Event)
    counts = tg.OperatorListState(int, redistribution="union")
    counted = tg.SideOutput[Count]("counted")

    def open(self, ctx):
        # Of what all had counted, one takes over the sum.
        self.count = sum(self.counts.get()) if ctx.subtask == 0 else 0
        self.counts.update([self.count])

    def process_element(self, value, ctx):
        if value.key == "flush":
            ctx.output(self.counted, Count(ctx.subtask, self.count))
        else:
            self.count += 1
            self.counts.update([self.count])
            self.held.add(value)
            if len(self.held.get()) < 20:
                return
        yield from self.held
        self.held.clear()


class Price(tg.KeyedBroadcastProcessFunction[str, Event, Rule, Result]):
    rules = tg.BroadcastState(str, int)
    waiting = tg.MapState(int, list[int])

    def process_element(self, value, ctx):
        amount = value.number * self.rules.get(value.rule)
        at = ctx.timer_service.current_processing_time() + DELAY + value.number % 7
        self.waiting.put(at, [*self.waiting.get(at, []), amount])
        ctx.timer_service.register_processing_time_timer(at)

    def process_broadcast_element(self, value, ctx):
        self.rules.put(value.name, value.factor)

    def on_timer(self, timestamp, ctx):
        # Where a timer fires twice, the second finds nothing and the job fails.
        for amount in [*self.waiting.get(timestamp)]:
            yield Result(ctx.key, amount)
        self.waiting.remove(timestamp)


job = tg.Job("kinds")
rules = job.source(LocalSource(LOG, "rules", value=tg.Json(Rule)), name="rules", parallelism=1)
events = job.source(LocalSource(LOG, "events", value=tg.Json(Event)), name="events")
hold = events.process(Hold(), name="hold")
counts = hold.side_output(Hold.counted)
counts.sink(LocalSink(LOG, "counts", value=tg.Json(Count), partitions=1), name="counts-out")
priced = hold.key_by(lambda event: event.key).connect(rules.broadcast()).process(Price(), name="price")
priced.sink(LocalSink(LOG, "results", key=lambda r: r.key, value=tg.Json(Result), partitions=2), name="out")

if __name__ == "__main__":
    job.run()
"""

Result = tuple[str, int]


def differences(wanted: Iterable[Result], found: Iterable[Result]) -> list[str]:
    """In what `found` is not exactly what was wanted, each once; [] when it is."""
    missing, more = Counter(wanted), Counter(found)
    lines = [f"{count} x {result} missing" for result, count in sorted((missing - more).items())]
    return lines + [f"{count} x {result} too many" for result, count in sorted((more - missing).items())]


class KindsProject(Project):
    """The program, its topics, and what was written so far."""

    def __init__(self, folder: Path, state_home: Path) -> None:
        super().__init__(folder, {"XDG_STATE_HOME": str(state_home)})
        self.write(program=PROGRAM)
        self.rules: dict[str, int] = {}
        self.wanted: list[Result] = []
        self._written = Counter[str]()
        with LocalLog(self.folder / "log") as log:
            log.create_topic("events", PARTITIONS)
            log.create_topic("rules", 1)

    # -- writing --

    def feed_rule(self, running: Running, factor: int) -> str:
        """One more rule, which a checkpoint covers; its name."""
        name = f"rule-{len(self.rules)}"
        self.rules[name] = factor
        self._append("rules", [{"name": name, "factor": factor}])
        self.wait_until_covered(running, "rules")
        return name

    def feed_events(self, rule: str, count: int) -> None:
        begin = len(self.wanted)
        events = [{"key": f"k{number % 13}", "number": number, "rule": rule} for number in range(begin, begin + count)]
        self.wanted += [(f"k{number % 13}", number * self.rules[rule]) for number in range(begin, begin + count)]
        self._append("events", events)

    def flush(self) -> None:
        """What is held back comes out: one word to each partition."""
        data = msgspec.json.encode({"key": FLUSH, "number": 0, "rule": ""})
        with LocalLog(self.folder / "log") as log:
            for partition in range(PARTITIONS):
                log.append("events", partition, [data])
        self._written["events"] += PARTITIONS

    def _append(self, topic: str, values: Sequence[dict[str, object]]) -> None:
        keys = [str(value.get("key", "")).encode() for value in values]
        with LocalLog(self.folder / "log") as log:
            log.append(topic, None, [msgspec.json.encode(value) for value in values], keys)
        self._written[topic] += len(values)

    # -- looking --

    @property
    def newest(self) -> Manifest | None:
        return log_of(self.checkpoints, JOB).newest if self.checkpoints.exists() else None

    def wait_until_covered(self, running: Running, source: str) -> None:
        """Until a completed checkpoint covers all that was written to the source."""
        running.wait_for(lambda: self._covered(source) >= self._written[source], f"a checkpoint of all {source}")

    def _covered(self, source: str) -> int:
        newest = self.newest
        splits = [] if newest is None else [r.splits for r in newest.operators if r.name == source]
        return sum(split.position for of_one in splits for split in of_one)

    @property
    def results(self) -> list[Result]:
        decoded = map(msgspec.json.decode, self.raw("results") if self._has("results") else ())
        return [(result["key"], result["amount"]) for result in decoded]

    @property
    def counted(self) -> dict[int, int]:
        """The last count of each subtask."""
        decoded = map(msgspec.json.decode, self.raw("counts") if self._has("counts") else ())
        last: dict[int, int] = {}
        for count in decoded:
            last[count["subtask"]] = max(last.get(count["subtask"], 0), count["events"])
        return last

    def _has(self, topic: str) -> bool:
        with LocalLog(self.folder / "log", create=False) as log:
            return topic in log.topics()

    def assert_exactly_once(self) -> None:
        found = differences(self.wanted, self.results)
        assert not found, f"{len(self.wanted)} results wanted, {len(self.results)} found: {found[:5]}"
        assert sum(self.counted.values()) == len(self.wanted), self.counted
