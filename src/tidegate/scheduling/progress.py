"""What the status line shows: records as workers report them, what tasks do with their time, restarts, the newest
checkpoint. Decides nothing; a lost report does no harm."""

from collections.abc import Mapping, Sequence

import msgspec

from tidegate.checkpoint.manifest import Manifest
from tidegate.ids import Attempt, JobName, OperatorName, TaskId, VertexName
from tidegate.metrics import CheckpointStatus, JobStatus, OperatorStatus, VertexStatus
from tidegate.runtime.control import OperatorMetrics, TaskTimes, WorkerMetrics

RATE_SECONDS = 3.0
"""Rates are means over about this long."""


class Totals(msgspec.Struct, frozen=True):
    """Since this process began; rates in records a second."""

    records_in: int
    records_out: int
    records_skipped: int
    records_in_rate: float
    records_out_rate: float


class Progress:
    """`sources` and `sinks`: whose records count as in and out."""

    def __init__(self, sources: frozenset[OperatorName], sinks: frozenset[OperatorName]) -> None:
        self._sources = sources
        self._sinks = sinks
        self._of_attempt: dict[tuple[TaskId, OperatorName], tuple[int, int, int]] = {}
        self._operators: dict[VertexName, dict[OperatorName, dict[TaskId, OperatorMetrics]]] = {}
        self._tasks: dict[TaskId, TaskTimes] = {}
        self._before = (0, 0, 0)
        """Totals of the attempts that are over."""
        self._samples: list[tuple[float, int, int]] = []
        self._newest: tuple[Manifest, float] | None = None
        """The newest checkpoint completed by this process, and when."""
        self.restarts = 0

    def report(self, metrics: WorkerMetrics, now: float) -> None:
        for row in metrics.operators:
            taken = row.records_out if row.operator in self._sources else 0
            given = row.records_in if row.operator in self._sinks else 0
            self._of_attempt[row.task, row.operator] = (taken, given, row.records_skipped)
            self._operators.setdefault(row.task.vertex, {}).setdefault(row.operator, {})[row.task] = row
        self._tasks |= {times.task: times for times in metrics.tasks}
        taken, given, _ = self._sum()
        self._samples.append((now, taken, given))
        while len(self._samples) > 2 and self._samples[1][0] <= now - RATE_SECONDS:
            self._samples.pop(0)

    def completed(self, manifest: Manifest, now: float) -> None:
        self._newest = (manifest, now)

    def attempt_over(self) -> None:
        """Another follows, whose reports count from zero."""
        self.restarts += 1
        self._before = self._sum()
        self._of_attempt, self._operators, self._tasks = {}, {}, {}

    def totals(self, now: float) -> Totals:
        taken, given, skipped = self._sum()
        if not self._samples or now <= self._samples[0][0]:
            return Totals(taken, given, skipped, 0.0, 0.0)
        since, taken_then, given_then = self._samples[0]
        seconds = now - since
        return Totals(taken, given, skipped, (taken - taken_then) / seconds, (given - given_then) / seconds)

    def status(self, job: JobName, attempt: Attempt, state: str, now: float) -> JobStatus:
        totals = self.totals(now)
        return JobStatus(
            job=job,
            attempt=attempt,
            state=state,
            records_in=totals.records_in,
            records_out=totals.records_out,
            records_in_rate=totals.records_in_rate,
            records_out_rate=totals.records_out_rate,
            restarts=self.restarts,
            checkpoint=self._checkpoint(now),
            note=f"{totals.records_skipped} records skipped" if totals.records_skipped else "",
            vertices=tuple(self._vertex(name, rows) for name, rows in self._operators.items()),
        )

    def _vertex(self, name: VertexName, rows: Mapping[OperatorName, Mapping[TaskId, OperatorMetrics]]) -> VertexStatus:
        tasks = [times for task, times in self._tasks.items() if task.vertex == name]
        busy = [times.busy_time_ms_per_second for times in tasks]
        held = [times.back_pressured_time_ms_per_second for times in tasks]
        mean_busy, mean_held = _mean(busy), _mean(held)
        return VertexStatus(
            name=name,
            subtasks=len(tasks),
            busy_time_ms_per_second=mean_busy,
            idle_time_ms_per_second=max(0, 1000 - mean_busy - mean_held) if tasks else 0,
            back_pressured_time_ms_per_second=mean_held,
            max_busy_time_ms_per_second=max(busy, default=0),
            max_back_pressured_time_ms_per_second=max(held, default=0),
            operators=tuple(self._operator(operator, of_task) for operator, of_task in rows.items()),
        )

    def _operator(self, name: OperatorName, of_task: Mapping[TaskId, OperatorMetrics]) -> OperatorStatus:
        known = [(self._tasks[task], row) for task, row in of_task.items() if task in self._tasks]
        return OperatorStatus(
            name,
            sum(row.records_in for row in of_task.values()),
            sum(row.records_out for row in of_task.values()),
            _mean([times.busy_time_ms_per_second * row.busy_share / 1000 for times, row in known]),
        )

    def _checkpoint(self, now: float) -> CheckpointStatus | None:
        if self._newest is None:
            return None
        manifest, since = self._newest
        return CheckpointStatus(manifest.checkpoint, now - since, manifest.duration, manifest.state_bytes)

    def _sum(self) -> tuple[int, int, int]:
        rows = [self._before, *self._of_attempt.values()]
        return (sum(r[0] for r in rows), sum(r[1] for r in rows), sum(r[2] for r in rows))


def _mean(numbers: Sequence[float]) -> int:
    return round(sum(numbers) / len(numbers)) if numbers else 0
