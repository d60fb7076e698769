"""Aligned sources in a small world: real inputs and real groups, with records that come when they like, subtasks that
are held up, and control messages that are late, overtake each other or are lost."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import tidegate as tg
from tidegate.checkpoint.protocol import SplitState
from tidegate.connectors.collections import CollectionSink, CollectionSource
from tidegate.connectors.rotation import RotatingReader
from tidegate.elements import Watermark
from tidegate.event_time.progress import EventTimeProgress
from tidegate.graph.physical import build_physical
from tidegate.ids import TaskId
from tidegate.operators.contracts import Fetched, SourceReader
from tidegate.operators.source import SourceInput
from tidegate.runtime.control import AlignWatermarks, WatermarkReported
from tidegate.runtime.event_time import WatermarkReports
from tidegate.scheduling.alignment import SourceAlignment

TICK = 0.1
"""Seconds."""


@dataclass
class Script:
    """Of one split. steps: the differences of its timestamps. rate: records in a tick, from 0 up. pause: ticks before
    each record whose number can be divided by seven. ends: whether it says so."""

    steps: Sequence[int]
    rate: float
    pause: int
    ends: bool


class AlwaysPolled:
    """A reader that cannot pause splits."""

    def __init__(self, reader: SourceReader) -> None:
        self.add_splits = reader.add_splits
        self.poll = reader.poll
        self.notify_checkpoint_complete = reader.notify_checkpoint_complete
        self.close = reader.close


class AlignedTask:
    """One task and its splits."""

    def __init__(self, world: "AlignedWorld", id: TaskId, strategy: tg.WatermarkStrategy[int], can_pause: bool) -> None:
        self.id = id
        self.progress = EventTimeProgress(strategy)
        self.scripts: dict[str, Script] = {}
        self.ended: set[str] = set()
        self._world = world
        self._timestamps: dict[str, list[int]] = {}
        self._came: dict[str, float] = {}
        reader = RotatingReader(self._read)
        self.input = SourceInput(reader if can_pause else AlwaysPolled(reader), self.progress)
        assert strategy.alignment is not None
        self.max_drift = strategy.alignment.max_drift
        self.reports = WatermarkReports(self.progress, strategy.alignment, self._tell)

    def assign(self, scripts: dict[str, Script]) -> None:
        for id, script in scripts.items():
            self._timestamps[id] = [sum(script.steps[: n + 1]) for n in range(len(script.steps))]
            self._came[id] = 0.0
        self.scripts |= scripts
        self.input.assign([SplitState(id, 0, len(s.steps) if s.ends else None) for id, s in scripts.items()], True)

    def _read(self, split: SplitState, most: int) -> Fetched | None:
        self._world.about_to_read(self, split.id)
        if split.position == split.stop:
            return Fetched(split.id, [], split.position, finished=True)
        end = min(split.position + most, int(self._came[split.id]))
        found = self._timestamps[split.id][split.position : end]
        return Fetched(split.id, found, end, timestamps=found, finished=end == split.stop) if found else None

    def _tell(self, watermark: Watermark) -> None:
        self._world.send(WatermarkReported(self.id, watermark.timestamp, watermark.is_idle))

    def tick(self, polls: int) -> None:
        """Records come; so often may it read. Not being read, it is held up."""
        for id, script in self.scripts.items():
            waits = script.pause and self._world.ticks % (script.pause + 7) < script.pause
            self._came[id] = min(self._came[id] + (0 if waits else script.rate), len(script.steps))
        for _ in range(polls):
            batch = self.input.poll(3)
            if batch is not None and batch.values:
                self.progress.observe(batch.values, batch.values)
            self.ended |= {split.id for split in self.input.splits if split.finished} - self.ended
        if polls:
            self.progress.able += TICK
        self.reports.stepped(self._world.ticks * TICK)

    @property
    def is_done(self) -> bool:
        """Everything of it was read."""
        return all(split.position == len(self.scripts[split.id].steps) for split in self.input.splits)

    def active(self) -> list[int]:
        """The watermarks of its splits that have not ended."""
        marks = [(id, self.progress.watermark_of(id)) for id in self.scripts if id not in self.ended]
        return [-(2**63) if mark is None else mark for _, mark in marks]


class AlignedWorld:
    """`strategies`, one for each source of one subtask; `loss`, the chance that a message is lost; `delay`, the ticks
    that one takes at most."""

    def __init__(
        self,
        strategies: Sequence[tg.WatermarkStrategy[int]],
        random: Random,
        loss: float = 0.0,
        delay: int = 0,
        can_pause: bool = True,
    ) -> None:
        self.ticks = 0
        self.worst_lead = 0
        """By how much the watermark of a split that was read was ahead of the slowest one, at most, beyond what its
        source allows."""
        self._random, self._loss, self._delay = random, loss, delay
        self._on_the_way: list[tuple[int, WatermarkReported | AlignWatermarks]] = []
        job = tg.Job("aligned")
        for number, strategy in enumerate(strategies):
            source = job.source(CollectionSource([]), name=f"s{number}", watermarks=strategy)
            source.sink(CollectionSink(), name=f"out{number}")
        graph = job.graph(8)
        physical = build_physical(graph, 1, 8)
        self.alignment = SourceAlignment(graph, physical)
        self.tasks = {
            id: AlignedTask(self, id, strategy, can_pause)
            for number, strategy in enumerate(strategies)
            for id in physical.tasks
            if physical.vertex(id.vertex).operators[0] == f"s{number}"
        }

    def about_to_read(self, task: AlignedTask, split: str) -> None:
        """A split is read: how far ahead of the slowest one is it?"""
        slowest = min(mark for each in self.tasks.values() for mark in each.active())
        own = task.progress.watermark_of(split)
        if own is not None:
            self.worst_lead = max(self.worst_lead, own - slowest - task.max_drift)

    def send(self, message: WatermarkReported | AlignWatermarks) -> None:
        if self._random.random() >= self._loss:
            self._on_the_way.append((self.ticks + self._random.randint(0, self._delay), message))

    def _deliver(self) -> None:
        due = [message for at, message in self._on_the_way if at <= self.ticks]
        self._on_the_way = [(at, message) for at, message in self._on_the_way if at > self.ticks]
        self._random.shuffle(due)
        for message in due:
            if isinstance(message, AlignWatermarks):
                self.tasks[message.task].input.align(message.bound)
            else:
                for answer in self.alignment.reported(message):
                    self.send(answer)

    def run(self, most_ticks: int) -> bool:
        """Whether everything was read in so many ticks."""
        while self.ticks < most_ticks:
            self.ticks += 1
            self._deliver()
            for task in self.tasks.values():
                task.tick(self._random.choice((0, 1, 1, 4)))
            if all(task.is_done for task in self.tasks.values()):
                return True
        return False
