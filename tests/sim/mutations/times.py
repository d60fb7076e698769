"""Errors in event time: watermarks that run ahead, get lost, or overtake what they stand behind."""

from typing import Any

import pytest

from tidegate.elements import Watermark
from tidegate.event_time import progress, watermarks
from tidegate.event_time.progress import EventTimeProgress
from tidegate.operators.timers import TimerQueue
from tidegate.runtime import router


def waits_for_the_fastest_split(patch: pytest.MonkeyPatch) -> None:
    def wrong(known: Any, idle: Any, least: int) -> Watermark:
        active = [watermark for watermark, is_idle in zip(known, idle, strict=True) if not is_idle]
        return Watermark(max(least, *(active or known)) if known else least, not active)

    patch.setattr(progress, "merge", wrong)
    patch.setattr(watermarks, "merge", wrong)


def takes_a_reader_without_splits_yet_for_idle(patch: pytest.MonkeyPatch) -> None:
    right = EventTimeProgress.__init__

    def wrong(self: Any, *arguments: Any) -> None:
        right(self, *arguments)
        self._is_assigned = True

    patch.setattr(EventTimeProgress, "__init__", wrong)


def forgets_the_watermark_of_a_split_at_a_restore(patch: pytest.MonkeyPatch) -> None:
    right = EventTimeProgress.assigned

    def wrong(self: Any, restored: Any) -> None:
        right(self, dict.fromkeys(restored))

    patch.setattr(EventTimeProgress, "assigned", wrong)


def lets_a_watermark_overtake_what_waits_for_company(patch: pytest.MonkeyPatch) -> None:
    right = router.Output.broadcast

    def wrong(self: Any, element: Any) -> None:
        if not isinstance(element, Watermark):
            right(self, element)
            return
        for buffer in self._buffers:
            buffer.channel.put(element)

    patch.setattr(router.Output, "broadcast", wrong)


def fires_event_timers_before_their_time(patch: pytest.MonkeyPatch) -> None:
    right = TimerQueue.take_due

    def wrong(self: Any, now: int, *arguments: Any, stamped: bool = False) -> Any:
        return right(self, now + 40 if stamped else now, *arguments, stamped=stamped)

    patch.setattr(TimerQueue, "take_due", wrong)
