"""The heap of future events, which is the only clock of a simulated world, and the processes to which events belong.

One thread, one event at a time. What happens next depends on the seed and on nothing else: events of one moment go in
the order in which they were planned. An event of a dead process never happens; one of a paused process waits for it
to wake up. Every event leaves a line, and the hash of all lines is what two runs of one seed must agree on.
"""

import heapq
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random

import xxhash

from tidegate.clock import Now

WALL_ORIGIN = 1_700_000_000.0
"""Seconds since 1970 at which a simulated world begins."""
DEEPEST = 6
"""Pieces of blocking work that may stand in one another; one more goes on without letting others in."""


class Killed(BaseException):
    """Unwinds a piece of blocking work whose process died meanwhile. No handler of errors may catch it."""


class Process:
    """A simulated process: a name to which events belong, alive until `kill`, and sometimes paused."""

    def __init__(self, scheduler: "Scheduler", name: str) -> None:
        self.scheduler = scheduler
        self.name = name
        self.is_alive = True
        self.is_paused = False
        self.is_elsewhere = False
        """On a machine that cannot be reached: nobody but its own kind can end it."""
        self.pace = 1.0
        """How many times longer than usual everything takes here."""
        self._waiting: list[tuple[str, Callable[[], None]]] = []
        self._on_death: list[Callable[[], None]] = []

    def plan(self, delay: float, what: str, act: Callable[[], None]) -> None:
        """`act` happens in this process after `delay` seconds, if it is alive then."""
        self.scheduler.plan(delay, what, act, self)

    def on_death(self, act: Callable[[], None]) -> None:
        """`act` is done when the process dies, by whatever cause; it is outside the process."""
        self._on_death.append(act)

    def kill(self, why: str) -> None:
        """SIGKILL: its memory is gone at once."""
        if not self.is_alive:
            return
        self.scheduler.note(f"{self.name} dies: {why}")
        self.is_alive = False
        self._waiting = []
        for act in self._on_death:
            act()
        self._on_death = []

    def pause(self, seconds: float) -> None:
        """SIGSTOP, and SIGCONT after `seconds`."""
        if not self.is_alive or self.is_paused:
            return
        self.scheduler.note(f"{self.name} is paused")
        self.is_paused = True
        self.scheduler.plan(seconds, f"{self.name} wakes up", self.resume)

    def resume(self) -> None:
        if not self.is_alive or not self.is_paused:
            return
        self.is_paused = False
        waiting, self._waiting = self._waiting, []
        for what, act in waiting:
            self.plan(0.0, what, act)

    def hold_back(self, what: str, act: Callable[[], None]) -> None:
        """An event came while the process is paused."""
        self._waiting.append((what, act))


class Scheduler:
    """`show` gets each line of the trace as it is written."""

    def __init__(self, seed: int, show: Callable[[str], None] | None = None) -> None:
        self._seed = seed
        self._show = show
        self._events: list[tuple[float, int, Process | None, str, Callable[[], None]]] = []
        self._planned = 0
        self._digest = xxhash.xxh3_128()
        self._working: Process | None = None
        """Whose side thread is running now; None while a stepping thread does."""
        self._depth = 0
        self.seconds = 0.0
        self.happened = 0
        """Events so far."""
        self.violation: str | None = None
        """What was found to be wrong, first of all."""

    def random(self, name: str) -> Random:
        """The chance of one actor: what others draw does not change what it draws."""
        return Random(f"{self._seed}/{name}")

    def now(self) -> Now:
        return Now(self.seconds, WALL_ORIGIN + self.seconds)

    def note(self, text: str) -> None:
        """A line of the trace."""
        line = f"{self.seconds:.6f} {text}"
        self._digest.update(line.encode())
        if self._show is not None:
            self._show(line)

    @property
    def digest(self) -> str:
        """The hash of the trace so far."""
        return self._digest.hexdigest()

    def violated(self, text: str) -> None:
        """Something must not be as it is; the run ends with this event."""
        if self.violation is None:
            self.note(f"VIOLATION {text}")
            self.violation = text

    def plan(self, delay: float, what: str, act: Callable[[], None], process: Process | None = None) -> None:
        self._planned += 1
        heapq.heappush(self._events, (self.seconds + delay, self._planned, process, what, act))

    def run(self, is_over: Callable[[], bool], until: float, most_events: int) -> bool:
        """Let events happen until `is_over`. False when that did not come by `until` or within `most_events`."""
        while not is_over():
            if self.violation is not None:
                return True
            if not self._events or self._events[0][0] > until or self.happened >= most_events:
                return False
            self._next()
        return True

    def _next(self) -> None:
        at, _, process, what, act = heapq.heappop(self._events)
        self.seconds = max(self.seconds, at)
        if process is not None and not process.is_alive:
            return
        if process is not None and process.is_paused:
            process.hold_back(what, act)
            return
        self.happened += 1
        self.note(f"{process.name} {what}" if process else what)
        try:
            act()
        except Exception as error:
            where = process.name if process else "the world"
            self.violated(f"{where} broke down at {self.seconds:.6f}:\n{''.join(traceback.format_exception(error))}")

    # -- blocking work --

    @contextmanager
    def working(self, process: Process) -> Iterator[None]:
        """What is done inside is done by a side thread of `process`: it may block."""
        before, self._working = self._working, process
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            self._working = before

    @property
    def may_block(self) -> bool:
        return self._working is not None and self._depth < DEEPEST

    def block(self, seconds: float) -> None:
        """The side thread that runs now waits so long, and while its process is paused; everything else goes on.

        Raises Killed when its process died meanwhile.
        """
        process = self._working
        if process is None:
            return
        self._working = None
        until = self.seconds + seconds
        try:
            while self._events and self.violation is None and process.is_alive:
                if self._events[0][0] > until and not process.is_paused:
                    break
                self._next()
        finally:
            self._working = process
        self.seconds = max(self.seconds, until) if process.is_alive else self.seconds
        if not process.is_alive or self.violation is not None:
            raise Killed
