"""What processes and folders hold while a job runs for long, and whether it goes on growing.

Figures are taken by checkpoint. The first quarter of a run is its warm-up; the medians of the second and the last are
compared, so that a figure taken in the middle of something says nothing, and one that creeps does. Nothing here waits
or signals.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import NamedTuple

QUARTERS = 4


class Held(NamedTuple):
    """What one process holds at a moment."""

    rss: int
    """KiB."""
    threads: int
    files: int
    sockets: int
    clients: int
    """Instances of librdkafka."""


def held_by(pid: int) -> Held:
    process = Path(f"/proc/{pid}")
    status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
    links = [_link_of(entry) for entry in (process / "fd").iterdir()]
    names = [_name_of(thread) for thread in (process / "task").iterdir()]
    return Held(
        rss=int(status["VmRSS"].split()[0]),
        threads=len(names),
        files=len(links),
        sockets=sum(link.startswith("socket:") for link in links),
        clients=names.count("rdk:main"),
    )


def peak_of(pid: int) -> int:
    """KiB that the process has held at most."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(status["VmHWM"].split()[0])


def files_under(folder: Path) -> int:
    """Also while files come and go."""
    return sum(len(names) for _, _, names in os.walk(folder))


def _link_of(entry: Path) -> str:
    with suppress(OSError):
        return str(entry.readlink())
    return ""


def _name_of(thread: Path) -> str:
    with suppress(OSError):
        return (thread / "comm").read_text().strip()
    return ""


class Course:
    """Figures of one run by name, in the order in which they were taken. `allowed`: by the last word of a name, how
    much its median may grow between the second quarter and the last; what is not named may not grow at all."""

    def __init__(self, allowed: Mapping[str, int]) -> None:
        self._allowed = allowed
        self._figures: dict[str, dict[int, int]] = {}

    def take(self, checkpoint: int, figures: Mapping[str, int]) -> None:
        for name, figure in figures.items():
            self._figures.setdefault(name, {})[checkpoint] = figure

    def take_process(self, checkpoint: int, name: str, pid: int) -> None:
        self.take(checkpoint, {f"{name} {field}": value for field, value in held_by(pid)._asdict().items()})

    def growths(self) -> list[str]:
        """What has grown by more than is allowed."""
        found = []
        for name in self._figures:
            _, before, _, after = self._medians(name)
            if after > before + self._allowed.get(name.split()[-1], 0):
                found.append(f"{name}: from {before:g} to {after:g}")
        return found

    def table(self) -> str:
        """For people: the median of each figure in each quarter."""
        return "\n".join(f"{name:28}" + "".join(f"{one:>10g}" for one in self._medians(name)) for name in self._figures)

    def _medians(self, name: str) -> list[float]:
        return [median(self._quarter(name, number)) for number in range(QUARTERS)]

    def _quarter(self, name: str, number: int) -> list[int]:
        figures = self._figures[name]
        first, last = min(figures), max(figures) + 1
        length = (last - first) / QUARTERS
        return [one for at, one in figures.items() if number <= (at - first) / length < number + 1]
