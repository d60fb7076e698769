"""Looks a hundred times a second at what the threads of this process are at. One thread, which sleeps in between.

A thread that wants the interpreter's lock gets it when the one that has it lets go, at the latest after Python's switch
interval: with the usual 5 ms, most looks would fall on calls that let it go by themselves, such as those of a socket or
a database, however short they are. While a sampler runs the interval is therefore `SWITCH_SECONDS`.
"""

import sys
import threading
import time
from collections.abc import Callable, Mapping
from types import FrameType

from tidegate.deploy.profiling.places import stack_of, thread_stack
from tidegate.deploy.profiling.recording import Recording

LOOK_SECONDS = 0.01
SWITCH_SECONDS = 0.0002
HAND_OVER_SECONDS = 1.0
"""Between two times that the recording is handed over, at least: a process that is killed loses no more."""
HAND_OVER_PART = 50
"""And so many times as long as handing over took: of a large recording it must not become the work itself."""


class Sampler:
    """Of this process. `stepping`: the thread that steps tasks; `worker`: whose process this is, if it is one's.
    `hand_over` is called on the sampler's thread now and then, and at the end by whoever stops it."""

    def __init__(self, worker: int | None, stepping: int, hand_over: Callable[[Recording], None]) -> None:
        self._worker = worker
        self._stepping = stepping
        self._hand_over = hand_over
        self._recording = Recording()
        self._names: dict[int, str] = {}
        self._looked_at: float | None = None
        self._hand_over_at = 0.0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="profiler", daemon=True)
        self._switch_seconds = sys.getswitchinterval()

    def start(self) -> None:
        sys.setswitchinterval(SWITCH_SECONDS)
        self._looked_at = time.monotonic()
        self._thread.start()

    def stop(self) -> None:
        """The last look was taken, and all is handed over."""
        self._is_over.set()
        self._thread.join()
        sys.setswitchinterval(self._switch_seconds)
        self._hand_over(self._recording)

    def look(self, frames: Mapping[int, FrameType], now: float) -> None:
        """At the frame of each thread, at `now`. The time since the last look counts for what is seen now."""
        before, self._looked_at = self._looked_at, now
        if before is None:
            return
        for thread, frame in frames.items():
            if thread == self._stepping:
                stack = stack_of(frame, self._worker)
                if stack is None:
                    self._recording.add_waiting(self._worker, now - before)
            else:
                stack = thread_stack(frame, self._name_of(thread), self._worker)
            if stack is not None:
                self._recording.add(stack, now - before)

    def _run(self) -> None:
        own = threading.get_ident()
        while not self._is_over.wait(LOOK_SECONDS):
            frames = sys._current_frames()
            del frames[own]
            self.look(frames, time.monotonic())
            # What threads have in their variables must not live until the next look.
            del frames
            self._hand_over_now_and_then()

    def _hand_over_now_and_then(self) -> None:
        began = time.monotonic()
        if began >= self._hand_over_at:
            self._hand_over(self._recording)
            ended = time.monotonic()
            self._hand_over_at = ended + max(HAND_OVER_SECONDS, HAND_OVER_PART * (ended - began))

    def _name_of(self, thread: int) -> str:
        if thread not in self._names:
            self._names = {one.ident: one.name for one in threading.enumerate() if one.ident is not None}
        return self._names.get(thread, "without a name")
