"""Arms fail points from the environment, so that a test can kill a process exactly where it wants.

    TIDEGATE_FAIL_POINT=NAME[:N][@PROCESS][=ACTION][,…]    TIDEGATE_FAIL_POINT_MARK=PATH

At the N-th time (default 1) that PROCESS (`jobmanager`, `worker`, `worker-1`; default: any) reaches NAME, it kills itself
(SIGKILL; ACTION `stop` sends SIGSTOP). Each acts once over all processes and restarts: it creates the file PATH.<index>
first, and does nothing when the file is there.
"""

import os
import re
import signal
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from tidegate.errors import InvalidError
from tidegate.failpoints import NAMES, arm

VARIABLE = "TIDEGATE_FAIL_POINT"
MARK_VARIABLE = "TIDEGATE_FAIL_POINT_MARK"
_FORM = re.compile(r"(?P<name>[a-z-]+:[a-z]+)(:(?P<times>\d+))?(@(?P<process>[a-z]+(-\d+)?))?(=(?P<action>kill|stop))?")


@dataclass(frozen=True)
class FailPoint:
    """One of them."""

    name: str
    times: int
    process: str
    action: signal.Signals
    mark: str


def arm_from(environment: Mapping[str, str], process: str) -> None:
    """Arm what `environment` asks of the process called `process` ('jobmanager', 'worker-0')."""
    points = parse(environment)
    if not points:
        return
    counts: Counter[str] = Counter()

    def hook(name: str) -> None:
        counts[name] += 1
        for point in points:
            if point.name == name and point.times == counts[name] and _is_meant(point.process, process):
                _act(point)

    arm(hook)


def parse(environment: Mapping[str, str]) -> tuple[FailPoint, ...]:
    """Raises InvalidError for what is not of the form, or no fail point."""
    mark = environment.get(MARK_VARIABLE, "")
    found = []
    for index, text in enumerate(part for part in environment.get(VARIABLE, "").split(",") if part):
        match = _FORM.fullmatch(text)
        if match is None or match["name"] not in NAMES:
            raise InvalidError(
                f"{VARIABLE}: {text!r} is not a fail point",
                remedy=f"Write NAME[:N][@PROCESS][=kill|stop]; there are {', '.join(NAMES)}.",
            )
        action = signal.SIGSTOP if match["action"] == "stop" else signal.SIGKILL
        found.append(
            FailPoint(match["name"], int(match["times"] or 1), match["process"] or "", action, mark and f"{mark}.{index}")
        )
    return tuple(found)


def _is_meant(wanted: str, process: str) -> bool:
    return wanted in ("", process, process.partition("-")[0])


def _act(point: FailPoint) -> None:
    if point.mark:
        try:
            os.close(os.open(point.mark, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError:
            return
    os.kill(os.getpid(), point.action)
