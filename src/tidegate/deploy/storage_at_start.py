"""Opens the job's checkpoint storage when the job starts: a full disk or a server that is away for a moment is waited
for, as everything else is that a start asks."""

import time
from collections.abc import Callable

from tidegate.clock import Clock, SystemClock
from tidegate.metrics import Reporter
from tidegate.scheduling.protocol import Tell
from tidegate.scheduling.waiting import Wait
from tidegate.storage.port import Storage, StorageUnavailable

PATIENCE = 60.0
"""Seconds for which it is asked again."""
PAUSE = 1.0
"""Seconds between two tries."""
SYSTEM_CLOCK = SystemClock()


def open_when_it_answers(
    open_it: Callable[[], Storage],
    place: str,
    reporter: Reporter,
    clock: Clock = SYSTEM_CLOCK,
    sleep: Callable[[float], None] = time.sleep,
) -> Storage:
    """What `open_it` gives. Raises StorageUnavailable when it has not answered for `PATIENCE` seconds, and whatever
    else it raises at once: asking again mends none of that."""
    start = clock.now()
    wait = Wait(f"the storage of checkpoints, {place}", start)
    while True:
        try:
            return open_it()
        except StorageUnavailable as error:
            now = clock.now()
            if wait.seconds(now) >= PATIENCE:
                raise
            wait.failed(error.failure.message)
            for told in wait.told(now):
                if isinstance(told, Tell):
                    reporter.event(told.level, told.text)
        sleep(PAUSE)
