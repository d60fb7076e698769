"""Runs blocking work on threads, one per lane, and brings the results back to the thread that steps.

Threads are daemons: a call that never returns must not keep a process alive whose work is over. Nothing here may run a
`done` anywhere but in `drain`, on the stepping thread.
"""

import queue
import socket
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

Done = Callable[[Any, BaseException | None], None]
_Work = tuple[Callable[[], Any], Done]


class WakeUp:
    """A file descriptor on which the loop waits, and which any thread or signal handler can make readable."""

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)

    def fileno(self) -> int:
        return self._reader.fileno()

    @property
    def signal_fileno(self) -> int:
        """For `signal.set_wakeup_fd`."""
        return self._writer.fileno()

    def set(self) -> None:
        # Full: it is readable already. Closed: nobody waits any more, only a thread is late.
        with suppress(OSError):
            self._writer.send(b"\0")

    def clear(self) -> None:
        """Before looking at what it announced, never after."""
        with suppress(BlockingIOError):
            while self._reader.recv(4096):
                pass

    def close(self) -> None:
        self._reader.close()
        self._writer.close()


class ThreadExecutor:
    """See `runtime.ports.Executor`. `wake_up` becomes readable when `drain` has something to do."""

    def __init__(self, wake_up: WakeUp) -> None:
        self._wake_up = wake_up
        self._lanes: dict[str, queue.SimpleQueue[_Work | None]] = {}
        self._finished: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    def submit(self, lane: str, work: Callable[[], Any], done: Done) -> None:
        if lane not in self._lanes:
            self._lanes[lane] = queue.SimpleQueue()
            threading.Thread(target=self._run, args=(self._lanes[lane],), name=lane, daemon=True).start()
        self._lanes[lane].put((work, done))

    def drain(self) -> bool:
        """Bring back what is finished by now; on the stepping thread. False when there was nothing."""
        count = self._finished.qsize()
        for _ in range(count):
            self._finished.get()()
        return count > 0

    def close(self) -> None:
        """Let the threads end when they have done what was submitted; waits for none of them."""
        for lane in self._lanes.values():
            lane.put(None)
        self._lanes = {}

    def _run(self, lane: "queue.SimpleQueue[_Work | None]") -> None:
        while (item := lane.get()) is not None:
            self._finish(*item)
            # What it holds, a snapshot perhaps, must not live until there is something else to do.
            del item

    def _finish(self, work: Callable[[], Any], done: Done) -> None:
        try:
            result = work()
        # Whatever it is: an end of this thread would silence the lane.
        except BaseException as error:
            self._finished.put(partial(done, None, error))
        else:
            self._finished.put(partial(done, result, None))
        self._wake_up.set()


class InlineExecutor:
    """Runs work when it is drained, on the one thread that there is; lanes are in order because everything is."""

    def __init__(self) -> None:
        self._waiting: deque[_Work] = deque()

    def submit(self, lane: str, work: Callable[[], Any], done: Done) -> None:
        self._waiting.append((work, done))

    def drain(self) -> bool:
        """Run what waits now; what that submits waits for the next time. False when there was nothing."""
        count = len(self._waiting)
        for _ in range(count):
            work, done = self._waiting.popleft()
            try:
                result = work()
            # `sys.exit()` too, as on a thread; but Ctrl-C is for the loop, whose thread this is.
            except (Exception, SystemExit) as error:
                done(None, error)
            else:
                done(result, None)
        return count > 0
