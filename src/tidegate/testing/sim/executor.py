"""The side threads of a simulated process: lanes of blocking work, each piece one event, its answer a later one.

A crash may fall between effect and answer. What stood at the head of a lane when the process died may still reach the
outside, once, long afterwards, as a request that was already on the wire; its answer is lost.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from tidegate.testing.sim.scheduler import Killed, Process
from tidegate.testing.sim.swarm import Swarm

LATEST_REQUEST = 3.0
"""Seconds after its process died at which a request arrives at the latest."""
Work = Callable[[], Any]
Done = Callable[[Any, BaseException | None], None]


class SimExecutor:
    """`after` is called behind each `done`, on the stepping thread: there may be something to do now."""

    def __init__(self, process: Process, swarm: Swarm, after: Callable[[], None]) -> None:
        self._process = process
        self._swarm = swarm
        self._after = after
        self._random = process.scheduler.random(f"{process.name}/executor")
        self._lanes: dict[str, deque[tuple[Work, Done]]] = {}
        self._busy: set[str] = set()
        self._unanswered = 0
        process.on_death(self._leave_requests)

    @property
    def is_idle(self) -> bool:
        """Whether every piece of work is done and answered."""
        return self._unanswered == 0

    def submit(self, lane: str, work: Work, done: Done) -> None:
        self._unanswered += 1
        self._lanes.setdefault(lane, deque()).append((work, done))
        if lane not in self._busy:
            self._begin(lane)

    def _begin(self, lane: str) -> None:
        self._busy.add(lane)
        self._process.plan(self._delay(), f"works at {lane}", lambda: self._run(lane))

    def _run(self, lane: str) -> None:
        work, done = self._lanes[lane].popleft()
        result, error = None, None
        try:
            with self._process.scheduler.working(self._process):
                result = work()
        except Killed:
            return
        except Exception as raised:
            error = raised
        self._process.plan(self._delay(), f"learns of {lane}", lambda: self._answer(done, result, error))
        if self._lanes[lane]:
            self._begin(lane)
        else:
            self._busy.discard(lane)

    def _answer(self, done: Done, result: Any, error: BaseException | None) -> None:
        self._unanswered -= 1
        done(result, error)
        self._after()

    def _delay(self) -> float:
        if self._random.random() < self._swarm.slow_work:
            return self._process.pace * self._random.uniform(0.0, self._swarm.slow_work_seconds)
        return self._process.pace * self._random.uniform(0.0, 0.004)

    def _leave_requests(self) -> None:
        for lane, queue in self._lanes.items():
            if queue and self._random.random() < self._swarm.late_requests:
                what = f"a request of {self._process.name} at {lane} comes late"
                delay = self._random.uniform(0.0, LATEST_REQUEST)
                self._process.scheduler.plan(delay, what, partial(_late, queue[0][0]))


def _late(work: Work) -> None:
    try:
        work()
    except Exception:
        # The process that would have handled it is gone.
        return
