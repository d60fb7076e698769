"""Watermark alignment: no split of a group of sources is read far ahead of the others (in Flink: FLIP-182, FLIP-217).

Every task of an aligned source tells how far it has come, again and again, and is answered how far its group lets it
read. So what gets lost is made good by the next answer. A split beyond that bound waits; the slowest one never does,
whatever was told late, so that the group always goes on. Pure: nothing here knows of messages, and none of clocks.

Old records may go by at hours of event time in a second: then a group would wait most of the time for the next report.
So tasks also report, and all of a group are told, when there is a good part of `max_drift` to be gained by it.
"""

from collections.abc import Collection
from dataclasses import dataclass

from tidegate.config.values import format_duration
from tidegate.elements import MAX_WATERMARK, MIN_WATERMARK, Watermark
from tidegate.event_time.watermarks import merge
from tidegate.ids import TaskId


@dataclass(frozen=True)
class WatermarkAlignment:
    """What a watermark strategy says of it. max_drift: milliseconds that a split may be ahead of its group.
    update_interval: seconds between two reports of a task."""

    group: str
    max_drift: int
    update_interval: float

    @property
    def worth_telling(self) -> int:
        """Milliseconds of progress that are news before it is time."""
        return max(1, self.max_drift // 4)

    def __str__(self) -> str:
        drift, interval = format_duration(self.max_drift / 1000), format_duration(self.update_interval)
        return f"aligned in {self.group} within {drift} every {interval}"


class AlignedGroup:
    """How far the tasks of a group have come together. A task that has not told yet is waited for; one that is idle, or
    has ended, is not. worth_telling: as of a `WatermarkAlignment`."""

    def __init__(self, tasks: Collection[TaskId], worth_telling: int) -> None:
        self._told = dict.fromkeys(tasks, Watermark(MIN_WATERMARK))
        self._merged = Watermark(MIN_WATERMARK)
        self._worth_telling = worth_telling
        self._known_to_all = MIN_WATERMARK

    @property
    def reached(self) -> int:
        """How far the group has come. It never goes back, as event time behind these sources does not: whoever wakes up
        far behind is read as it comes, and the others wait until it has caught up with this."""
        return self._merged.timestamp

    def take_news(self) -> bool:
        """Whether all tasks are to be told where the group is, which it says once."""
        is_news = self.reached >= self._known_to_all + self._worth_telling
        if is_news:
            self._known_to_all = self.reached
        return is_news

    def told(self, task: TaskId, watermark: Watermark) -> None:
        """A task has come so far."""
        self._told[task] = watermark
        told = self._told.values()
        idle = [watermark.is_idle for watermark in told]
        self._merged = merge([watermark.timestamp for watermark in told], idle, self.reached)

    def ended(self, task: TaskId) -> None:
        """Nothing of it follows."""
        self.told(task, Watermark(self._told[task].timestamp, is_idle=True))


def bound_of(reached: int, alignment: WatermarkAlignment) -> int:
    """The watermark beyond which a split of this source waits while its group has come to `reached`."""
    return min(reached + alignment.max_drift, MAX_WATERMARK)
