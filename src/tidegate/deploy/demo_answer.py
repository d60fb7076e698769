"""The demo's answer: what the job must have put out, computed in plain Python, and how that differs from what it did.

Nothing of the engine or of the job's program is used here: what both got wrong would go unnoticed.
"""

import csv
import gzip
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

EXAMPLES = Path(__file__).parent / "examples"
"""The project's folder of examples, which the package contains."""
FLIGHTS = EXAMPLES / "data" / "flights-2013-01.csv.gz"
NOT_KNOWN = "NA"


class Change(msgspec.Struct, frozen=True):
    """The totals of one carrier after one of its flights: one record of the job's output. Delays in minutes."""

    carrier: str
    flights: int
    cancelled: int
    mean_delay: float | None
    worst_delay: int | None

    def __str__(self) -> str:
        return (
            f"{self.carrier} after {self.flights} flights: {self.cancelled} cancelled, mean delay {self.mean_delay}, "
            f"worst {self.worst_delay}"
        )


Changes = Mapping[str, Sequence[Change]]
"""All changes of each carrier, in order."""


class Difference(msgspec.Struct, frozen=True):
    """One thing that is wrong with the output."""

    carrier: str
    what: Literal["missing", "too many", "out of order"]
    """'too many': the job put out what it should not have, or not once more."""
    place: int
    """Where it should be or is among the carrier's records; 0 is the first."""
    change: Change

    def __str__(self) -> str:
        return f"{self.what}, carrier {self.carrier}, record {self.place}: {self.change}"


def read_flights(path: Path = FLIGHTS) -> list[dict[str, str]]:
    """The rows of the shipped slice."""
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def expected_changes(rows: Iterable[Mapping[str, str]]) -> dict[str, list[Change]]:
    """What the job must put out for `rows`."""
    delays: dict[str, list[int]] = {}
    changes: dict[str, list[Change]] = {}
    for row in rows:
        carrier, delay = row["carrier"], row["dep_delay"]
        known = delays.setdefault(carrier, [0, 0])
        before = changes.setdefault(carrier, [])
        worst = before[-1].worst_delay if before else None
        if delay != NOT_KNOWN:
            known[0] += 1
            known[1] += int(delay)
            worst = int(delay) if worst is None or int(delay) > worst else worst
        left, total = known
        flights = len(before) + 1
        before.append(Change(carrier, flights, flights - left, total / left if left else None, worst))
    return changes


def compare(expected: Changes, actual: Changes) -> list[Difference]:
    """Every way in which `actual` is not `expected`, by carrier; [] when it is, record for record."""
    return [
        difference
        for carrier in sorted(expected.keys() | actual.keys())
        for difference in _compare_carrier(carrier, expected.get(carrier, ()), actual.get(carrier, ()))
    ]


def _compare_carrier(carrier: str, expected: Sequence[Change], actual: Sequence[Change]) -> list[Difference]:
    missing = [Difference(carrier, "missing", place, change) for place, change in _surplus(expected, actual)]
    surplus = [Difference(carrier, "too many", place, change) for place, change in _surplus(actual, expected)]
    if missing or surplus:
        return missing + surplus
    misplaced = [place for place, change in enumerate(expected) if actual[place] != change]
    return [Difference(carrier, "out of order", place, actual[place]) for place in misplaced[:1]]


def _surplus(these: Sequence[Change], those: Sequence[Change]) -> list[tuple[int, Change]]:
    """What `these` have more often than `those`, and where."""
    left = Counter(those)
    surplus = []
    for place, change in enumerate(these):
        if left[change] > 0:
            left[change] -= 1
        else:
            surplus.append((place, change))
    return surplus
