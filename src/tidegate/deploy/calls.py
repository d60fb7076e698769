"""Makes the calls of asynchronous operators: coroutines on one event loop, which has a thread of its own, plain
functions on threads of their operator. Answers wait until the thread that steps takes them with `drain`.

Threads are daemons, and nobody waits for one: a call that never returns must not keep a process alive whose work is
over. Nothing here may run an `answered` anywhere but in `drain`, on the stepping thread.
"""

import asyncio
import concurrent.futures
import inspect
import queue
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any

from tidegate.runtime.ports import Answered

CLOSE_SECONDS = 2.0
"""How long a group waits for its calls to be cancelled and for its farewell, and the loop for what is left."""
Function = Callable[[], Any]
Finish = Callable[[int, Any, BaseException | None], None]


class LoopAndThreads:
    """See `runtime.ports.AsyncCalls`. `wake` is called from any thread when `drain` has something to do. There is no
    thread before there is a group."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._finished: deque[Callable[[], None]] = deque()
        self._is_told = False
        """Whether the thread that steps is going to look at what is answered."""
        self._loop: _LoopThread | None = None
        self._groups: list[_LoopGroup | _ThreadGroup] = []

    def group(self, name: str, threads: int | None, answered: Answered) -> "_LoopGroup | _ThreadGroup":
        heard = _Heard(answered)
        finish = partial(self._finish, heard)
        group: _LoopGroup | _ThreadGroup
        if threads is not None:
            group = _ThreadGroup(name, threads, heard, finish)
        else:
            if self._loop is None:
                self._loop = _LoopThread()
            group = _LoopGroup(self._loop.loop, heard, finish)
        self._groups.append(group)
        return group

    def drain(self) -> bool:
        """Bring back what is answered by now; on the stepping thread. False when there was nothing."""
        # First: an answer that comes from now on wakes the thread that steps again.
        self._is_told = False
        count = len(self._finished)
        for _ in range(count):
            self._finished.popleft()()
        return count > 0

    def close(self) -> None:
        """Forget all calls, and end the loop."""
        for group in self._groups:
            group.forget()
        self._groups = []
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.end()

    def _finish(self, heard: "_Heard", call: int, result: Any, error: BaseException | None) -> None:
        """From any thread."""
        self._finished.append(partial(heard, call, result, error))
        if not self._is_told:
            self._is_told = True
            self._wake()


class _Heard:
    """Gives answers to whom they are for, until that is over."""

    def __init__(self, answered: Answered) -> None:
        self._answered: Answered | None = answered

    def __call__(self, call: int, result: Any, error: BaseException | None) -> None:
        if self._answered is not None:
            self._answered(call, result, error)

    def stop(self) -> None:
        self._answered = None


class _LoopGroup:
    """Calls on the event loop. Orders go there in bundles: waking the loop costs more than a call."""

    def __init__(self, loop: asyncio.AbstractEventLoop, heard: _Heard, finish: Finish) -> None:
        self._loop = loop
        self._heard = heard
        self._finish = finish
        self._orders: deque[tuple[int, Function | None]] = deque()
        """Calls to be begun, and calls to be cancelled (None)."""
        self._is_told = False
        """Whether the loop is going to look at the orders."""
        self._tasks: dict[int, asyncio.Task[Any]] = {}
        """On the loop's thread only."""

    def start(self, call: int, function: Function) -> None:
        self._order(call, function)

    def cancel(self, call: int) -> None:
        self._order(call, None)

    def close(self, farewell: Callable[[], Any] | None) -> None:
        self.forget()
        ending = asyncio.run_coroutine_threadsafe(self._end(farewell), self._loop)
        try:
            ending.result(CLOSE_SECONDS)
        except (concurrent.futures.TimeoutError, concurrent.futures.CancelledError):
            # Whatever it waits for, the attempt is over.
            ending.cancel()

    def forget(self) -> None:
        """Nobody hears of these calls any more."""
        self._heard.stop()

    def _order(self, call: int, function: Function | None) -> None:
        self._orders.append((call, function))
        if not self._is_told:
            self._is_told = True
            self._loop.call_soon_threadsafe(self._carry_out)

    def _carry_out(self) -> None:
        # First: an order that comes from now on wakes the loop again.
        self._is_told = False
        while self._orders:
            call, function = self._orders.popleft()
            if function is not None:
                task = self._tasks[call] = self._loop.create_task(_outcome(function))
                task.add_done_callback(partial(self._done, call))
            elif call in self._tasks:
                self._tasks[call].cancel()

    def _done(self, call: int, task: asyncio.Task[Any]) -> None:
        del self._tasks[call]
        result, error = (None, asyncio.CancelledError()) if task.cancelled() else task.result()
        self._finish(call, result, error)

    async def _end(self, farewell: Callable[[], Any] | None) -> None:
        self._orders.clear()
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSE_SECONDS / 2)
        _, error = (None, None) if farewell is None else await _outcome(farewell)
        if isinstance(error, Exception):
            raise error


async def _outcome(function: Function) -> tuple[Any, BaseException | None]:
    """Result and error. What ends processes is told as well: raised here, it would end the loop."""
    try:
        return await function(), None
    except BaseException as error:
        return None, error


class _LoopThread:
    """An event loop and the thread that runs it."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._has_ended = False
        threading.Thread(target=self._run, name="calls", daemon=True).start()

    def end(self) -> None:
        """Waits for nothing."""
        self._has_ended = True
        self.loop.call_soon_threadsafe(self.loop.stop)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        while not self._has_ended:
            # Raised by what user code leaves to the loop, it stops the loop, and all calls with it.
            with suppress(SystemExit, KeyboardInterrupt):
                self.loop.run_forever()
        try:
            self.loop.run_until_complete(_cancel_all())
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        finally:
            self.loop.close()


async def _cancel_all() -> None:
    """Of the running loop, also what user code has left behind; for a short while."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    if left:
        await asyncio.wait(left, timeout=CLOSE_SECONDS)


class _ThreadGroup:
    """Calls on at most `threads` threads, which begin when they are needed."""

    def __init__(self, name: str, threads: int, heard: _Heard, finish: Finish) -> None:
        self._name = name
        self._threads = threads
        self._heard = heard
        self._finish = finish
        self._begun = 0
        self._orders: queue.SimpleQueue[tuple[int, Function] | None] = queue.SimpleQueue()

    def start(self, call: int, function: Function) -> None:
        self._orders.put((call, function))
        if self._begun < self._threads:
            threading.Thread(target=self._run, name=f"{self._name}/{self._begun}", daemon=True).start()
            self._begun += 1

    def cancel(self, call: int) -> None:
        """A thread cannot be stopped: it answers when it is done."""

    def close(self, farewell: Callable[[], Any] | None) -> None:
        self.forget()
        if farewell is not None:
            farewell()

    def forget(self) -> None:
        self._heard.stop()
        # What was not begun is not called any more.
        with suppress(queue.Empty):
            while self._orders.get_nowait() is not None:
                pass
        self._orders.put(None)

    def _run(self) -> None:
        while (order := self._orders.get()) is not None:
            self._finish(order[0], *_called(order[1]))
            # What it holds, a record, must not live until there is another one.
            del order
        # For the next of them.
        self._orders.put(None)


def _called(function: Function) -> tuple[Any, BaseException | None]:
    try:
        result = function()
        if inspect.isawaitable(result):
            if isinstance(result, Coroutine):
                result.close()
            raise TypeError(
                f"the function returned a {type(result).__name__}, which nobody awaits; define it with `async def`"
            )
    # Whatever it is: an end of this thread would leave the call without an answer.
    except BaseException as error:
        return None, error
    return result, None
