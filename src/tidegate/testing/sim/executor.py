"""The side threads of a simulated process: lanes of blocking work, each piece one event, its answer a later one.

A crash may fall between effect and answer. What stood at the head of a lane when the process died may still reach the
outside, once, long afterwards, as a request that was already on the wire; its answer is lost.
"""

from collections import deque
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import Any

from tidegate.errors import InternalError
from tidegate.runtime.ports import Answered
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


class Pause:
    """What a coroutine of a simulated world may await: so many seconds pass."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __await__(self) -> Generator[float, None, None]:
        yield self._seconds


class SimCalls:
    """Calls of asynchronous operators in a simulated process: each is some events, its answer one more, in whatever
    order the seed wants. A call that was cancelled ends when its next event comes. `after` is called behind each
    answer."""

    def __init__(self, process: Process, swarm: Swarm, after: Callable[[], None]) -> None:
        self._process = process
        self._swarm = swarm
        self._after = after
        self._random = process.scheduler.random(f"{process.name}/calls")

    def group(self, name: str, threads: int | None, answered: Answered) -> "SimCallGroup":
        return SimCallGroup(self._process, name, self._delay, answered, self._after)

    def _delay(self) -> float:
        if self._random.random() < self._swarm.slow_work:
            return self._process.pace * self._random.uniform(0.0, self._swarm.slow_work_seconds)
        return self._process.pace * self._random.uniform(0.0, 0.01)


class SimCallGroup:
    """See `runtime.ports.CallGroup`."""

    def __init__(
        self,
        process: Process,
        name: str,
        delay: Callable[[], float],
        answered: Answered,
        after: Callable[[], None],
    ) -> None:
        self._process = process
        self._name = name
        self._delay = delay
        self._answered: Answered | None = answered
        self._after = after
        self._cancelled: set[int] = set()

    def start(self, call: int, function: Work) -> None:
        self._process.plan(self._delay(), f"begins {self._name} {call}", lambda: self._begin(call, function))

    def cancel(self, call: int) -> None:
        self._cancelled.add(call)

    def close(self, farewell: Work | None) -> None:
        self._answered = None
        if farewell is not None:
            _, error = _result_of(lambda: farewell().send(None))
            if not isinstance(error, StopIteration):
                raise InternalError(f"what closes {self._name} in a simulated world waits, or failed: {error!r}")

    def _begin(self, call: int, function: Work) -> None:
        with self._process.scheduler.working(self._process):
            result, error = _result_of(function)
        if isinstance(result, Coroutine):
            self._go_on(call, result)
        else:
            self._end(call, result, error)

    def _go_on(self, call: int, coroutine: Coroutine[float, None, Any]) -> None:
        if call in self._cancelled:
            coroutine.close()
            self._end(call, None, None)
            return
        with self._process.scheduler.working(self._process):
            seconds, error = _result_of(lambda: coroutine.send(None))
        if error is None:
            self._process.plan(seconds, f"goes on with {self._name} {call}", lambda: self._go_on(call, coroutine))
        elif isinstance(error, StopIteration):
            self._end(call, error.value, None)
        else:
            self._end(call, None, error)

    def _end(self, call: int, result: Any, error: BaseException | None) -> None:
        self._process.plan(self._delay(), f"learns of {self._name} {call}", lambda: self._answer(call, result, error))

    def _answer(self, call: int, result: Any, error: BaseException | None) -> None:
        if self._answered is not None:
            self._answered(call, result, error)
            self._after()


def _result_of(work: Work) -> tuple[Any, Exception | None]:
    try:
        return work(), None
    except Exception as error:
        return None, error
