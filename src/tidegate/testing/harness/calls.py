"""The calls of asynchronous operators under test: coroutines on an event loop that is run only between two steps, and
whose time is the harness's; plain functions one after another, each in its turn.

What a coroutine waits for must come by time (`asyncio.sleep`), or from the test itself; nothing here waits for the
outside. Answers are given between two steps, in the order in which they were found.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import Context
from functools import partial
from heapq import heappop, heappush
from typing import Any, TypeVarTuple

from tidegate.clock import Clock
from tidegate.runtime.ports import Answered, CallGroup

RESOLUTION = 1e-6
"""Seconds by which sums of times may be wrong."""
Arguments = TypeVarTuple("Arguments")
Function = Callable[[], Any]
Finish = Callable[[int, Any, BaseException | None], None]


class _Loop(asyncio.SelectorEventLoop):
    """An event loop that runs what is ready and never waits."""

    def __init__(self, clock: Clock) -> None:
        self._harness_clock = clock
        self._is_active = False
        self._deadlines: list[float] = []
        super().__init__()
        self._clock_resolution = RESOLUTION

    def time(self) -> float:
        return self._harness_clock.now().monotonic

    def call_soon(
        self, callback: Callable[[*Arguments], object], *args: *Arguments, context: Context | None = None
    ) -> asyncio.Handle:
        self._is_active = True
        return super().call_soon(callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Arguments], object], *args: *Arguments, context: Context | None = None
    ) -> asyncio.TimerHandle:
        heappush(self._deadlines, when)
        return super().call_at(when, callback, *args, context=context)

    @property
    def due_at(self) -> float | None:
        """When it has something to do although nobody calls."""
        return self._deadlines[0] if self._deadlines else None

    def run_ready(self) -> bool:
        """What is ready, and what that makes ready. False when there was nothing."""
        worked = False
        while self._is_active or self._pass_deadlines():
            worked, self._is_active = True, False
            # Not through `call_soon`, which would make it active again.
            super().call_soon(self.stop)
            self.run_forever()
        return worked

    def _pass_deadlines(self) -> bool:
        is_due = False
        while self._deadlines and self._deadlines[0] < self.time() + RESOLUTION:
            is_due = True
            heappop(self._deadlines)
        return is_due


class HarnessCalls:
    """See `runtime.ports.AsyncCalls`. Those of one start of a job."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._loop: _Loop | None = None
        self._waiting: deque[Callable[[], None]] = deque()
        """Calls of plain functions that are to be made, and answers that are to be given."""

    def group(self, name: str, threads: int | None, answered: Answered) -> CallGroup:
        if threads is not None:
            return _PlainGroup(self._waiting, answered)
        if self._loop is None:
            self._loop = _Loop(self._clock)
        return _LoopGroup(self._loop, self._waiting, answered)

    @property
    def due_at(self) -> float | None:
        """When a coroutine goes on by itself; monotonic seconds."""
        return None if self._loop is None else self._loop.due_at

    def step(self) -> bool:
        """Run what can run and give the answers. False when there was nothing."""
        worked = self._loop is not None and self._loop.run_ready()
        count = len(self._waiting)
        for _ in range(count):
            self._waiting.popleft()()
        return worked or count > 0

    def close(self) -> None:
        """Cancel what still runs, and forget it."""
        self._waiting.clear()
        loop, self._loop = self._loop, None
        if loop is not None:
            for task in asyncio.all_tasks(loop):
                task.cancel()
            loop.run_ready()
            loop.close()


class _Group:
    """What both kinds share: answers wait for the next step, and nobody gets them after `close`."""

    def __init__(self, waiting: deque[Callable[[], None]], answered: Answered) -> None:
        self._waiting = waiting
        self._answered: Answered | None = answered

    def _finish(self, call: int, result: Any, error: BaseException | None) -> None:
        self._waiting.append(partial(self._answer, call, result, error))

    def _answer(self, call: int, result: Any, error: BaseException | None) -> None:
        if self._answered is not None:
            self._answered(call, result, error)


class _PlainGroup(_Group):
    """Calls of plain functions. Each runs to its end at once, so that none can be cancelled or be late."""

    def start(self, call: int, function: Function) -> None:
        self._waiting.append(partial(self._call, call, function))

    def cancel(self, call: int) -> None:
        """Its answer is coming already."""

    def close(self, farewell: Callable[[], Any] | None) -> None:
        self._answered = None
        if farewell is not None:
            farewell()

    def _call(self, call: int, function: Function) -> None:
        if self._answered is None:
            return
        try:
            result = function()
        except Exception as error:
            self._finish(call, None, error)
        else:
            self._finish(call, result, None)


class _LoopGroup(_Group):
    """Calls of coroutine functions."""

    def __init__(self, loop: _Loop, waiting: deque[Callable[[], None]], answered: Answered) -> None:
        super().__init__(waiting, answered)
        self._loop = loop
        self._tasks: dict[int, asyncio.Task[Any]] = {}

    def start(self, call: int, function: Function) -> None:
        task = self._tasks[call] = self._loop.create_task(_outcome(function))
        task.add_done_callback(partial(self._done, call))

    def cancel(self, call: int) -> None:
        if call in self._tasks:
            self._tasks[call].cancel()

    def close(self, farewell: Callable[[], Any] | None) -> None:
        self._answered = None
        for task in list(self._tasks.values()):
            task.cancel()
        self._loop.run_ready()
        if farewell is not None:
            ending = self._loop.create_task(_outcome(farewell))
            self._loop.run_ready()
            error = ending.result()[1] if ending.done() else None
            if error is not None:
                raise error

    def _done(self, call: int, task: asyncio.Task[Any]) -> None:
        del self._tasks[call]
        result, error = (None, asyncio.CancelledError()) if task.cancelled() else task.result()
        self._finish(call, result, error)


async def _outcome(function: Function) -> tuple[Any, BaseException | None]:
    """Result and error: what is raised in a task would be told by the loop, too."""
    try:
        return await function(), None
    except Exception as error:
        return None, error
