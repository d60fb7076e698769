"""Looks a hundred times a second at what the threads of this process are at, by a timer's signal (SIGALRM).

The signal interrupts the thread that steps tasks between two of its instructions, wherever it is, and in its waits. A
thread that looks from beside would have to wait for the interpreter's lock, and most of its looks would fall on calls
that let the lock go by themselves, such as those of a socket or a database, however short they are.
"""

import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from types import FrameType

from tidegate.deploy.profiling.places import stack_of, thread_stack
from tidegate.deploy.profiling.recording import Recording
from tidegate.errors import InvalidError

LOOK_SECONDS = 0.01
HAND_OVER_SECONDS = 1.0
"""Between two times that the recording is handed over, at least: a process that is killed loses no more."""
HAND_OVER_PART = 200
"""And so many times as long as handing over took: of a large recording it must not become the work itself."""
_log = logging.getLogger(__name__)


class Sampler:
    """Of this process. `worker`: whose it is, if it is one's. `hand_over` is called now and then by a thread of the
    sampler's own, and at the end by whoever stops it. All else runs in the main thread, which must be the one that
    steps tasks."""

    def __init__(self, worker: int | None, hand_over: Callable[[Recording], None]) -> None:
        self._worker = worker
        self._hand_over = hand_over
        self._recording = Recording()
        self._names: dict[int, str] = {}
        self._looked_at: float | None = None
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._hand_over_now_and_then, name="profiler", daemon=True)

    def start(self) -> None:
        """Raises InvalidError where the signal cannot be used."""
        is_free = signal.getsignal(signal.SIGALRM) is signal.SIG_DFL
        if not is_free or threading.current_thread() is not threading.main_thread():
            raise InvalidError(
                "the profiler needs SIGALRM, and the main thread for the job: the program uses one of them itself",
                remedy="Run it without --profile, or without --in-process.",
            )
        self._looked_at = time.monotonic()
        signal.signal(signal.SIGALRM, self._alarm)
        # Calls that are interrupted go on by themselves where the system can do that.
        signal.siginterrupt(signal.SIGALRM, False)
        signal.setitimer(signal.ITIMER_REAL, LOOK_SECONDS, LOOK_SECONDS)
        self._thread.start()

    def stop(self) -> None:
        """The last look was taken, and all is handed over."""
        self._end_looking()
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        self._is_over.set()
        self._thread.join()
        self._hand_over(self._recording)

    def look(self, frame: FrameType, others: Mapping[int, FrameType], now: float) -> None:
        """At the frame of the main thread, and those of others. The time since the last look counts for what is seen
        now."""
        before, self._looked_at = self._looked_at, now
        if before is None:
            return
        stack = stack_of(frame, self._worker)
        if stack is None:
            self._recording.add_waiting(self._worker, now - before)
        else:
            self._recording.add(stack, now - before)
        for thread, at in others.items():
            stack = thread_stack(at, self._names.get(thread, "without a name"), self._worker)
            if stack is not None:
                self._recording.add(stack, now - before)

    def _alarm(self, number: int, frame: FrameType | None) -> None:
        """Runs in the midst of any function of the main thread: it must take no lock, and raise nothing."""
        try:
            others = sys._current_frames()
            others.pop(threading.get_ident())
            others.pop(self._thread.ident or 0, None)
            if frame is not None:
                self.look(frame, others, time.monotonic())
        except Exception:
            self._end_looking()
            _log.exception("the profiler failed; what follows is missing in the profile")

    def _end_looking(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)

    def _hand_over_now_and_then(self) -> None:
        pause = HAND_OVER_SECONDS
        while True:
            self._names = {one.ident: one.name for one in threading.enumerate() if one.ident is not None}
            if self._is_over.wait(pause):
                return
            began = time.monotonic()
            self._hand_over(self._recording)
            pause = max(HAND_OVER_SECONDS, HAND_OVER_PART * (time.monotonic() - began))
