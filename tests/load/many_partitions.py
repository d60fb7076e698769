"""Thousands of partitions and four subtasks: who reads what, how long checkpoints and starts take, and whether looking
for new partitions holds anything up. The same on every medium; the topics are the tests'."""

import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from tests.integration.running import KILLED, Bench, Started
from tests.load import many_partitions_program
from tidegate.checkpoint.log import Completed, Entry
from tidegate.checkpoint.manifest import Manifest
from tidegate.ids import OperatorName

SUBTASKS = 4
INTERVAL = 0.5
"""Seconds between two checkpoints."""


SPREAD = 25
"""One partition in so many gets a record later."""
QUIET, BUSY = 3600.0, 1.0
"""Seconds between two looks for new partitions: never, and all the time."""
SLOWER, GRACE = 3.0, 0.5
"""So many times as long a checkpoint may take while somebody looks for new partitions all the time, and so many seconds
that other processes of the machine may take from it. A look that compares all with all takes seconds."""


class Figures(NamedTuple):
    """Of one start. Seconds, bytes."""

    start: float
    """Until the first checkpoint with all partitions has completed."""
    checkpoint: float
    """The median from trigger to completion."""
    slowest: float
    entry: int
    """Of the checkpoint log."""


class ManyPartitions:
    """One job over `topics`. `append` puts values into a partition of one of them."""

    def __init__(self, bench: Bench, topics: Sequence[str], append: Callable[[str, dict[int, str]], None]) -> None:
        self.bench = bench
        self.name = bench.medium.name("wide")
        self.output_topic = bench.medium.name("wide-out")
        self.topics = list(topics)
        self._append = append
        self.fed: Counter[str] = Counter()
        bench.medium.create_topic(self.output_topic, SUBTASKS)

    def feed(self, topic: str, partitions: Sequence[int], mark: str) -> None:
        """One record each."""
        values = {partition: f"{topic}/{partition} {mark}" for partition in partitions}
        self._append(topic, values)
        self.fed.update(values.values())

    # -- running --

    def start(self, discovery: float, *options: str) -> Started:
        arguments = [*self.bench.medium.arguments, "--job", self.name, "--out", self.output_topic]
        arguments += [word for topic in self.topics for word in ("--topic", topic)]
        arguments += ["--discovery", str(discovery)]
        usual = ["-p", str(SUBTASKS), "--checkpoint-interval", f"{INTERVAL}s", *options]
        return self.bench.start_program(many_partitions_program.__file__, arguments, self.name, options=usual)

    def measured_start(self, discovery: float, partitions: int) -> tuple[Started, Figures]:
        """Until five checkpoints of it have completed."""
        before = self.newest.checkpoint if self.newest else 0
        begun = time.monotonic()
        started = self.start(discovery)
        started.wait_until(lambda: self._is_covered(before, partitions), "a checkpoint with all partitions")
        took = time.monotonic() - begun
        return started, self.figures(started, took)

    def _is_covered(self, before: int, partitions: int) -> bool:
        newest = self.newest
        return newest is not None and newest.checkpoint > before and len(splits_of(newest)) == partitions

    def figures(self, started: Started, start: float = 0.0, count: int = 5) -> Figures:
        """From the next so many checkpoints."""
        assert self.newest is not None
        durations: dict[int, float] = {}
        first = self.newest.checkpoint + 1

        def has_enough() -> bool:
            durations.update({one.checkpoint: one.duration for one in self.completed if one.checkpoint >= first})
            return len(durations) >= count

        started.wait_until(has_enough, f"{count} checkpoints")
        ordered = sorted(durations.values())
        return Figures(start, ordered[len(ordered) // 2], ordered[-1], self.entry_bytes())

    def kill(self, started: Started) -> None:
        started.send_to_all(signal.SIGKILL)
        assert started.wait() == KILLED

    def stop(self, started: Started) -> None:
        started.process.send_signal(signal.SIGTERM)
        assert started.wait() == 0, started.said

    # -- looking --

    @property
    def completed(self) -> list[Manifest]:
        view = self.bench.view(self.name)
        bodies = [entry.body for entry in view.entries if isinstance(entry, Entry)]
        return [body.manifest for body in bodies if isinstance(body, Completed)]

    @property
    def newest(self) -> Manifest | None:
        return self.bench.view(self.name).newest if self.bench.checkpoints.exists() else None

    def entry_bytes(self) -> int:
        """Of the largest entry of the log."""
        sizes = [0]
        for path in (self.bench.checkpoints / self.name / "log").iterdir():
            # Old ones go meanwhile.
            with suppress(FileNotFoundError):
                sizes.append(path.stat().st_size)
        return max(sizes)

    def output(self) -> list[tuple[int, str]]:
        """Subtask and value."""
        lines = [value.decode() for values in self.bench.medium.read(self.output_topic) for value in values]
        return [(int(subtask), value) for subtask, _, value in (line.partition(" ") for line in lines)]

    def wait_for_all(self, started: Started) -> float:
        """Until everything is out once; the seconds that it took."""
        begun = time.monotonic()
        started.wait_until(lambda: len(self.output()) >= self.fed.total(), "the output")
        assert Counter(value for _, value in self.output()) == self.fed
        return time.monotonic() - begun

    def shares(self, mark: str) -> list[int]:
        """How many of the records with this mark each subtask has read, fewest first."""
        counts = Counter(subtask for subtask, value in self.output() if value.endswith(f" {mark}"))
        return sorted(counts.get(subtask, 0) for subtask in range(SUBTASKS))


def splits_of(manifest: Manifest) -> tuple[str, ...]:
    record = manifest.operator(OperatorName("records"))
    assert record is not None
    return tuple(split.id for split in record.splits)


def assert_shared_out_and_read_on(job: ManyPartitions, each: int) -> None:
    """`each`: the partitions of one topic; one record goes into every one of them, later into some."""
    partitions = each * len(job.topics)
    for topic in job.topics:
        job.feed(topic, range(each), "first")
    started, quiet = job.measured_start(QUIET, partitions)
    first = job.wait_for_all(started)
    assert job.shares("first") == [partitions // SUBTASKS] * SUBTASKS
    job.kill(started)

    started, busy = job.measured_start(BUSY, partitions)
    latencies = []
    for mark in ("second", "third", "fourth"):
        for topic in job.topics:
            job.feed(topic, range(0, each, SPREAD), mark)
        latencies.append(job.wait_for_all(started))
    assert job.newest is not None
    assert sorted(splits_of(job.newest)) == sorted(
        f"{topic}/{number}" for topic in job.topics for number in range(each)
    )
    job.stop(started)
    print(f"\n{partitions} partitions\nno looks    {quiet}, all out {first:.1f} s later\nlooks every {BUSY:g} s {busy}")
    print(f"later records were out after {', '.join(f'{one:.2f}' for one in latencies)} s")
    assert busy.checkpoint <= SLOWER * quiet.checkpoint + GRACE
