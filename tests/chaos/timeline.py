"""What happened in a chaos run and when: one line each, kept, written to a file at once, and counted.

Seconds are monotonic, since the run began.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

Action = Callable[[], None]


class Timeline:
    """Lines may come from any thread."""

    def __init__(self, path: Path) -> None:
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._file = path.open("w")
        self.lines: list[str] = []
        self.kills: Counter[str] = Counter()
        """By who died of SIGKILL; at fail points: 'fail point'."""
        self.faults: Counter[str] = Counter()
        """By kind: those that struck somebody."""

    @property
    def now(self) -> float:
        return time.monotonic() - self._began

    def seconds(self, monotonic: float) -> float:
        return monotonic - self._began

    def tell(self, text: str) -> None:
        line = f"{self.now:8.2f}  {text}"
        with self._lock:
            self.lines.append(line)
            if not self._file.closed:
                self._file.write(line + "\n")
                self._file.flush()

    def killed(self, who: str, text: str) -> None:
        self.kills[who] += 1
        self.tell(f"kill {text}")

    def struck(self, kind: str, text: str) -> None:
        self.faults[kind] += 1
        self.tell(f"{kind}: {text}")

    def close(self) -> None:
        with self._lock:
            self._file.close()


class _Entry(NamedTuple):
    at: float
    action: Action


class Agenda:
    """What is to be done later, by the one thread that asks what is due: mostly what ends a fault."""

    def __init__(self) -> None:
        self._entries: list[_Entry] = []

    def after(self, seconds: float, action: Action) -> None:
        self._entries.append(_Entry(time.monotonic() + seconds, action))

    def run_due(self) -> None:
        now = time.monotonic()
        due = [entry for entry in self._entries if entry.at <= now]
        self._entries = [entry for entry in self._entries if entry.at > now]
        for entry in sorted(due, key=lambda entry: entry.at):
            entry.action()

    def run_all(self) -> None:
        """All at once, also what these put on it."""
        while self._entries:
            entries, self._entries = sorted(self._entries, key=lambda entry: entry.at), []
            for entry in entries:
                entry.action()
