"""All cases with both systems, one after the other, and what came of each."""

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.oracle import engine, flink
from benchmarks.oracle.cases import Case
from benchmarks.oracle.comparison import Difference, compare, read_rows, without_explained


class Outcome(NamedTuple):
    """Of one case. Seconds are those of the whole job, with its start."""

    case: Case
    rows: int
    """Flink's."""
    late: int
    """Those of them that are a record that was too late."""
    by_design: int
    """Rows of one of both that a known difference explains."""
    difference: Difference
    """What nothing explains."""
    flink_seconds: float
    tidegate_seconds: float


def compare_all(cases: Sequence[Case], folder: Path, say: Callable[[str], None]) -> list[Outcome]:
    """What comes of `cases` over the data in `folder`. Raises TidegateError when one of the systems cannot be run."""
    seconds: dict[str, float] = {}

    def told(name: str, duration: float) -> None:
        seconds[name] = duration
        say(f"Flink {len(seconds)}/{len(cases)}: {name}, {duration:.1f} s")

    flink.run(cases, folder, told)
    return [_compared(case, folder, seconds[case.name], say) for case in cases]


def _compared(case: Case, folder: Path, flink_seconds: float, say: Callable[[str], None]) -> Outcome:
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix=f"{case.name}-", dir=folder) as own:
        found = engine.run(case, folder, Path(own))
    duration = time.monotonic() - begin
    expected = read_rows(flink.rows_file(case, folder))
    late = sum(row[0] == "late" for row in expected)
    whole = compare(expected, found)
    difference = without_explained(whole, case.explained)
    by_design = whole.rows - difference.rows
    outcome = Outcome(case, len(expected), late, by_design, difference, flink_seconds, duration)
    verdict = f"{difference.rows} differ" if difference else "the same"
    verdict += f" but for {by_design} by design" if by_design else ""
    say(f"Tidegate: {case.name}, {len(expected):,} rows, {verdict}, {duration:.1f} s")
    return outcome
