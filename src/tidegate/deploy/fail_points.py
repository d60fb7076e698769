"""Arms fail points from the environment, so that a test can kill a process exactly where it wants.

    TIDEGATE_FAIL_POINT=NAME[:N][@PROCESS][=ACTION][,…]    TIDEGATE_FAIL_POINT_MARK=PATH

At the N-th time (default 1) that PROCESS (`jobmanager`, `worker`, `worker-1`; default: any) reaches NAME, it kills
itself (SIGKILL; ACTION `stop` sends SIGSTOP, `delay-MILLISECONDS` lets the thread sleep that long, as a slow disk
does). Each acts once over all processes and restarts: it creates the file PATH.<index> first, and does nothing when the
file is there. With `*` as N it acts each time, in every process, and leaves no file.
"""

import os
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from tidegate.errors import InvalidError
from tidegate.failpoints import NAMES, arm

VARIABLE = "TIDEGATE_FAIL_POINT"
MARK_VARIABLE = "TIDEGATE_FAIL_POINT_MARK"
_FORM = re.compile(
    r"(?P<name>[a-z-]+:[a-z]+)(:(?P<times>[1-9]\d*|\*))?"
    r"(@(?P<process>jobmanager|worker(-\d+)?))?(=(?P<action>kill|stop|delay-(?P<milliseconds>\d{1,6})))?"
)


@dataclass(frozen=True)
class FailPoint:
    """One of them. `mark` is the path of its file, empty for none. `times` 0: each time. `delay`, in seconds, is slept
    in place of the signal."""

    name: str
    times: int
    process: str
    action: signal.Signals
    mark: str
    delay: float | None = None

    def is_at(self, name: str, count: int) -> bool:
        return self.name == name and self.times in (0, count)

    def is_meant(self, process: str) -> bool:
        return self.process in ("", process, process.partition("-")[0])

    def act(self) -> None:
        if self.mark and self.times:
            try:
                os.close(os.open(self.mark, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            except FileExistsError:
                return
        if self.delay is not None:
            time.sleep(self.delay)
            return
        # To this thread, not to the process: another thread may take that, and this one goes on for a while before it
        # stops, beyond the place and perhaps with a lock.
        signal.raise_signal(self.action)


def arm_from(environment: Mapping[str, str], process: str) -> None:
    """Arm what `environment` asks of the process called `process` ('jobmanager', 'worker-0'). Raises as `parse`."""
    points = [point for point in parse(environment) if point.is_meant(process)]
    if not points:
        return
    counts: Counter[str] = Counter()
    lock = threading.Lock()

    def hook(name: str) -> None:
        with lock:
            counts[name] += 1
            count = counts[name]
        for point in points:
            if point.is_at(name, count):
                point.act()

    arm(hook)


def parse(environment: Mapping[str, str]) -> tuple[FailPoint, ...]:
    """Raises InvalidError for what is not of the form, or no fail point."""
    mark = environment.get(MARK_VARIABLE, "")
    texts = [text for text in environment.get(VARIABLE, "").split(",") if text]
    return tuple(_parse_one(text, mark and f"{mark}.{index}") for index, text in enumerate(texts))


def _parse_one(text: str, mark: str) -> FailPoint:
    match = _FORM.fullmatch(text)
    if match is None or match["name"] not in NAMES:
        raise InvalidError(
            f"{VARIABLE}: {text!r} is not a fail point",
            remedy=f"Write NAME[:N][@PROCESS][=kill|stop|delay-MILLISECONDS]; there are {', '.join(NAMES)}.",
        )
    action = signal.SIGSTOP if match["action"] == "stop" else signal.SIGKILL
    times = 0 if match["times"] == "*" else int(match["times"] or 1)
    delay = None if match["milliseconds"] is None else int(match["milliseconds"]) / 1000
    return FailPoint(match["name"], times, match["process"] or "", action, mark, delay)
