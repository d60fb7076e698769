"""What Linux says about processes: who is whose child, CPU seconds, memory. It only looks, and what has ended in the
meantime counts as nothing.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_PROC = Path("/proc")


class Process(NamedTuple):
    pid: int
    parent: int
    command: str
    """Its arguments, with spaces between."""


class _Stat(NamedTuple):
    parent: int
    own: float
    waited_for: float
    """CPU seconds of children that have ended."""


def _stat(pid: int) -> _Stat | None:
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    # The name, in parentheses, may have spaces and parentheses of its own.
    fields = text[text.rindex(")") + 2 :].split()
    user, system, children_user, children_system = map(int, fields[11:15])
    return _Stat(int(fields[1]), (user + system) / _TICKS, (children_user + children_system) / _TICKS)


def descendants(pid: int) -> list[int]:
    """All that come from `pid`, without itself; also those that have ended and wait for their parents."""
    children: dict[int, list[int]] = {}
    for name in os.listdir(_PROC):
        if name.isdecimal() and (stat := _stat(int(name))) is not None:
            children.setdefault(stat.parent, []).append(int(name))
    found: list[int] = []
    left = [pid]
    while left:
        left = [child for parent in left for child in children.get(parent, ())]
        found += left
    return found


def processes(pid: int) -> list[Process]:
    """All that come from `pid`, with their commands."""
    found = []
    for child in descendants(pid):
        stat = _stat(child)
        try:
            command = (_PROC / str(child) / "cmdline").read_bytes()
        except OSError:
            continue
        if stat is not None:
            found.append(Process(child, stat.parent, command.replace(b"\0", b" ").decode(errors="replace").strip()))
    return found


def cpu_seconds(pid: int) -> float:
    """Of this process until now, with its ended children; 0 when it is gone."""
    stat = _stat(pid)
    return 0.0 if stat is None else stat.own + stat.waited_for


def ended_children_seconds(pid: int) -> float:
    """CPU seconds of the children that it has waited for, with theirs."""
    stat = _stat(pid)
    return 0.0 if stat is None else stat.waited_for


def resident(pids: Iterable[int]) -> int:
    """Bytes, with shared pages once for each process that has them. Quick, other than `memory`."""
    return sum(map(_resident_set_size, pids))


def _resident_set_size(pid: int) -> int:
    try:
        return int((_PROC / str(pid) / "statm").read_text().split()[1]) * _PAGE
    except OSError:
        return 0


def memory(pids: Iterable[int]) -> int:
    """Bytes: the sum of their proportional set sizes, in which each shared page counts once. The kernel
    looks at all pages for it, which takes some 20 ms for a gigabyte."""
    return sum(map(_proportional_set_size, pids))


def _proportional_set_size(pid: int) -> int:
    try:
        lines = (_PROC / str(pid) / "smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)


def busy_seconds() -> float:
    """CPU seconds of all processes of this machine since its start."""
    user, nice, system, _, _, interrupts, soft_interrupts = map(int, (_PROC / "stat").read_text().split()[1:8])
    return (user + nice + system + interrupts + soft_interrupts) / _TICKS
