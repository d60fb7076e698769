"""The JobManager in the process that the user started, and its loop: workers are its children on this machine.

The first Ctrl-C or SIGTERM stops cleanly; the second kills the workers and ends the process at once.
"""

import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import zmq

from tidegate.deploy.cluster import LocalCluster
from tidegate.deploy.executor import ThreadExecutor, WakeUp
from tidegate.scheduling import protocol as p
from tidegate.scheduling.performer import JobManagerPerformer

STATUS_SECONDS = 0.25
KILLED_BY_USER = 130


class LocalLoop:
    """Drives one performer over a cluster until the JobManager ends."""

    def __init__(
        self, performer: JobManagerPerformer, cluster: LocalCluster, executor: ThreadExecutor, wake_up: WakeUp
    ) -> None:
        self._performer = performer
        self._cluster = cluster
        self._executor = executor
        self._wake_up = wake_up
        self._stops_wanted = 0
        self._stops_told = 0
        self._status_at = 0.0

    def run(self) -> None:
        """Returns when the JobManager has ended; its `failure` says how."""
        poller = self._cluster.poller
        poller.register(self._wake_up, zmq.POLLIN)
        with self._signals():
            self._performer.start()
            while not self._performer.is_done:
                poller.poll(math.ceil(self._seconds_to_wait() * 1000))
                self._wake_up.clear()
                self._round()
        self._performer.show_status()

    def _round(self) -> None:
        if self._stops_wanted > 1:
            self._cluster.kill_all()
            os._exit(KILLED_BY_USER)
        if self._stops_wanted > self._stops_told:
            self._stops_told = self._stops_wanted
            self._performer.deliver(p.StopWanted())
        self._executor.drain()
        self._cluster.step()
        while self._cluster.events:
            self._performer.deliver(self._cluster.events.popleft())
        self._performer.wake()
        if time.monotonic() >= self._status_at:
            self._status_at = time.monotonic() + STATUS_SECONDS
            self._performer.show_status()

    def _seconds_to_wait(self) -> float:
        if self._cluster.events:
            return 0.0
        deadlines = [self._status_at, self._performer.wake_at, self._cluster.wake_at]
        return max(0.0, min(at for at in deadlines if at is not None) - time.monotonic())

    @contextmanager
    def _signals(self) -> Iterator[None]:
        with stop_signals(self._stop, self._wake_up):
            yield

    def _stop(self) -> None:
        self._stops_wanted += 1


@contextmanager
def stop_signals(stop: Callable[[], None], wake_up: WakeUp | None = None) -> Iterator[None]:
    """While it lasts, Ctrl-C and SIGTERM call `stop`. Only in the main thread, where Python delivers signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, lambda *_: stop()) for number in (signal.SIGINT, signal.SIGTERM)}
    old_descriptor = signal.set_wakeup_fd(wake_up.signal_fileno, warn_on_full_buffer=False) if wake_up else -1
    try:
        yield
    finally:
        if wake_up:
            signal.set_wakeup_fd(old_descriptor)
        for number, handler in before.items():
            signal.signal(number, handler)
