"""The JobManager in the process that the user started, and its loop: workers are its children on this machine.

The first Ctrl-C or SIGTERM stops cleanly; the second ends everything at once, as KeyboardInterrupt. The loop must never
block but in its wait: what blocks is the executor's.
"""

import math
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import zmq

from tidegate.deploy.cluster import LocalCluster
from tidegate.deploy.executor import ThreadExecutor, WakeUp
from tidegate.deploy.requests import RequestServer
from tidegate.scheduling import protocol as p
from tidegate.scheduling.performer import JobManagerPerformer

STATUS_SECONDS = 0.25
"""Between two looks at the status; what becomes of one is the reporter's choice."""


ONE_STOP_SECONDS = 0.5
"""What comes so soon after the first request to stop is that request once more: `timeout` and other wrappers signal
their child and then its whole group."""


CLEAN_UP_SECONDS = 5.0
"""How long a job that ends well may go on deleting what old checkpoints have left."""


class LocalLoop:
    """Drives one performer over a cluster until the JobManager ends."""

    def __init__(
        self,
        performer: JobManagerPerformer,
        cluster: LocalCluster,
        executor: ThreadExecutor,
        wake_up: WakeUp,
        requests: RequestServer,
    ) -> None:
        self._requests = requests
        self._performer = performer
        self._cluster = cluster
        self._executor = executor
        self._wake_up = wake_up
        self._is_stop_wanted = False
        self._status_at = 0.0

    def run(self) -> None:
        """Returns when the JobManager has ended; its `failure` says how. Raises KeyboardInterrupt when somebody does
        not want to wait for that."""
        poller = self._cluster.poller
        poller.register(self._wake_up, zmq.POLLIN)
        poller.register(self._requests, zmq.POLLIN)
        with stop_signals(self._stop, self._wake_up):
            self._performer.start()
            while not self._performer.is_done:
                poller.poll(math.ceil(self._seconds_to_wait() * 1000))
                self._wake_up.clear()
                self._round()
            if self._performer.failure is None:
                self._finish_cleaning_up()
        self._performer.show_status()

    def _finish_cleaning_up(self) -> None:
        deadline = time.monotonic() + CLEAN_UP_SECONDS
        while self._performer.is_cleaning_up and (left := deadline - time.monotonic()) > 0:
            select.select([self._wake_up], [], [], left)
            self._wake_up.clear()
            self._executor.drain()

    def _stop(self) -> None:
        self._is_stop_wanted = True

    def _round(self) -> None:
        if self._is_stop_wanted:
            self._is_stop_wanted = False
            self._performer.deliver(p.StopWanted())
        for request in self._requests.step():
            self._performer.deliver(request)
        self._executor.drain()
        self._cluster.step()
        while self._cluster.events:
            self._performer.deliver(self._cluster.events.popleft())
        self._performer.wake()
        if time.monotonic() >= self._status_at:
            self._status_at = time.monotonic() + STATUS_SECONDS
            self._performer.show_status()

    def _seconds_to_wait(self) -> float:
        if self._cluster.events or self._is_stop_wanted:
            return 0.0
        deadlines = [self._status_at, self._performer.wake_at, self._cluster.wake_at]
        return max(0.0, min(at for at in deadlines if at is not None) - time.monotonic())


@contextmanager
def stop_signals(stop: Callable[[], None], wake_up: WakeUp) -> Iterator[None]:
    """While it lasts, the first Ctrl-C or SIGTERM calls `stop` and makes `wake_up` readable; each further one raises
    KeyboardInterrupt. Only in the main thread, where Python delivers signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came_at = math.inf

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal came_at
        if time.monotonic() > came_at + ONE_STOP_SECONDS:
            raise KeyboardInterrupt
        if came_at == math.inf:
            came_at = time.monotonic()
            stop()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    descriptor = signal.set_wakeup_fd(wake_up.signal_fileno, warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(descriptor)
        for number, handler in before.items():
            # None: it was no handler of Python's, and cannot be put back.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
