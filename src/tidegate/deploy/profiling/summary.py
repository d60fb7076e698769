"""A profile in a few lines: each operator's share of the working time, and its hottest functions.

A function counts with all that it calls of libraries and of the engine, but not with what other functions of the
program below it take: what stands there is where the program's own time goes.
"""

import sysconfig
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import PurePath

import msgspec

from tidegate.deploy.profiling.places import ENGINE, OPERATOR, PART, REST, THREAD
from tidegate.deploy.profiling.recording import Place, Profile

FUNCTIONS_SHOWN = 3
LEAST_SHARE = 0.005
"""Of the working time, for a row of its own."""


class HotFunction(msgspec.Struct, frozen=True):
    """`share`: of the whole working time."""

    name: str
    file: str
    line: int
    share: float


class Row(msgspec.Struct, frozen=True):
    """What one operator, part of the engine or other thread took of the time in which tasks were worked on."""

    name: str
    share: float
    functions: tuple[HotFunction, ...]


class Summary(msgspec.Struct, frozen=True):
    """`working`, `waiting`: seconds, of all workers together. Rows are the largest first, other threads last."""

    working: float
    waiting: float
    rows: tuple[Row, ...]


def summary_of(profile: Profile, is_own: Callable[[str], bool] | None = None) -> Summary:
    """`is_own` says of a file whether it is the program's; where it is left out, what is no library's is."""
    is_own = of_program if is_own is None else is_own
    rows: dict[str, dict[Place | None, float]] = {}
    for worker in profile.workers:
        for seen in worker.seen:
            places = [profile.places[number] for number in seen.places]
            functions = [place for place in places if place.file]
            own = [place for place in functions if is_own(place.file)]
            hot = next(reversed(own or functions), None)
            of_row = rows.setdefault(_row_of(places), {})
            of_row[hot] = of_row.get(hot, 0.0) + seen.seconds
    seconds = {name: sum(found.values()) for name, found in rows.items()}
    working = sum(taken for name, taken in seconds.items() if not name.startswith(THREAD))
    waiting = sum(worker.waiting for worker in profile.workers)
    names = sorted(rows, key=lambda name: (name.startswith(THREAD), -seconds[name], name))
    shown = [name for name in names if working and seconds[name] >= LEAST_SHARE * working]
    return Summary(
        working, waiting, tuple(Row(name, seconds[name] / working, _hottest(rows[name], working)) for name in shown)
    )


def _row_of(places: Sequence[Place]) -> str:
    for place in places:
        if not place.file and place.name.startswith((OPERATOR, PART, THREAD)):
            return place.name.removeprefix(OPERATOR)
    return PART + REST


def _hottest(found: dict[Place | None, float], working: float) -> tuple[HotFunction, ...]:
    known = sorted(((taken, place) for place, taken in found.items() if place is not None), key=_order)
    hot = [HotFunction(place.name, place.file, place.line, taken / working) for taken, place in known]
    return tuple(function for function in hot[:FUNCTIONS_SHOWN] if function.share >= LEAST_SHARE)


def _order(found: tuple[float, Place]) -> tuple[float, str, str]:
    return -found[0], found[1].name, found[1].file


def of_program(file: str) -> bool:
    """Whether it is none of the engine's, of Python's or of an installed library."""
    return not file.startswith(("<", ENGINE, *_libraries()))


@cache
def _libraries() -> tuple[str, ...]:
    return tuple(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))


def render_summary(summary: Summary, file: str) -> str:
    """For a terminal."""
    head = f"profile of {summary.working:.1f} s of work ({summary.waiting:.1f} s of waiting left out): {file}"
    rows = [("operator", "share", "hottest functions")]
    rows += [(row.name, f"{row.share:.0%}", ", ".join(map(_render_function, row.functions))) for row in summary.rows]
    widths = [max(len(cells[column]) for cells in rows) for column in (0, 1)]
    lines = [f"  {name:<{widths[0]}}  {share:>{widths[1]}}  {functions}".rstrip() for name, share, functions in rows]
    return "\n".join([head, *lines, "  Open the file at https://www.speedscope.app to look into it."])


def _render_function(function: HotFunction) -> str:
    name = function.name.replace(".<locals>", "")
    return f"{name} ({PurePath(function.file).name}:{function.line}) {function.share:.0%}"
