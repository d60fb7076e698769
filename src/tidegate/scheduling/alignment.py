"""The alignment of watermarks in the JobManager: which source tasks belong to which group, and how far each may read.

Every report is answered; nothing is sent by time. When a group has come further by so much that somebody may wait for
it, all of its tasks are told at once, and none has to wait for its next report.
"""

from collections.abc import Iterator, Sequence

from tidegate.elements import Watermark
from tidegate.event_time.alignment import AlignedGroup, WatermarkAlignment, bound_of
from tidegate.graph.logical import LogicalGraph
from tidegate.graph.physical import PhysicalGraph
from tidegate.ids import TaskId
from tidegate.runtime.control import AlignWatermarks, WatermarkReported


class SourceAlignment:
    """Of one attempt."""

    def __init__(self, graph: LogicalGraph, physical: PhysicalGraph) -> None:
        self._aligned = dict(_aligned_tasks(graph, physical))
        names = dict.fromkeys(alignment.group for alignment in self._aligned.values())
        self._groups = {name: self._group(name) for name in names}

    def _group(self, name: str) -> AlignedGroup:
        tasks = self._tasks(name)
        return AlignedGroup(tasks, min(self._aligned[task].worth_telling for task in tasks))

    def reported(self, report: WatermarkReported) -> list[AlignWatermarks]:
        """What its tasks are to be told now."""
        name = self._aligned[report.task].group
        self._groups[name].told(report.task, Watermark(report.watermark, report.is_idle))
        return self._news(name) or self._bounds([report.task])

    def ended(self, task: TaskId) -> list[AlignWatermarks]:
        """Nothing of this task follows; it need not be one of an aligned source. As `reported`."""
        if task not in self._aligned:
            return []
        name = self._aligned[task].group
        self._groups[name].ended(task)
        return self._news(name)

    def _news(self, group: str) -> list[AlignWatermarks]:
        return self._bounds(self._tasks(group)) if self._groups[group].take_news() else []

    def _bounds(self, tasks: Sequence[TaskId]) -> list[AlignWatermarks]:
        aligned = ((task, self._aligned[task]) for task in tasks)
        return [AlignWatermarks(task, bound_of(self._groups[one.group].reached, one)) for task, one in aligned]

    def _tasks(self, group: str) -> list[TaskId]:
        return [task for task, alignment in self._aligned.items() if alignment.group == group]


def _aligned_tasks(graph: LogicalGraph, physical: PhysicalGraph) -> Iterator[tuple[TaskId, WatermarkAlignment]]:
    strategies = {node.name: node.watermarks for node in graph.sources}
    for task in physical.tasks:
        strategy = strategies.get(physical.vertex(task.vertex).operators[0])
        if strategy is not None and strategy.alignment is not None:
            yield task, strategy.alignment
