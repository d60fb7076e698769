"""Compares Tidegate with a real Apache Flink: `python -m benchmarks.oracle`.

Both run the same programs over the same flights and weather, and their rows are compared as multisets. Flink is fetched
by Maven at the first run; nothing is installed. Ends with 1 when a case differs.
"""

import argparse
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from benchmarks.oracle.cases import CASES, Case
from benchmarks.oracle.data import FLIGHTS, WEATHER, Prepared, make, prepare
from benchmarks.oracle.run import Outcome, compare_all
from tidegate.errors import TidegateError

MADE_ROWS = 2000
LINE = "{:25} {:43} {:>7} {:>6} {:>9} {:>6} {:>7} {:>10}"


def main() -> int:
    options = _parser().parse_args()
    try:
        with ExitStack() as stack:
            folder = options.keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tidegate-oracle-")))
            folder.mkdir(parents=True, exist_ok=True)
            prepared = _prepared(options, folder)
            _say(f"{prepared.flights:,} flights, {prepared.weather:,} reports of the weather")
            outcomes = compare_all(_chosen(options), folder, _say)
    except TidegateError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.failure.exit_code
    _show(outcomes)
    return 1 if any(outcome.difference for outcome in outcomes) else 0


def _prepared(options: argparse.Namespace, folder: Path) -> Prepared:
    if options.made is None:
        return prepare(folder, options.flights, options.weather, options.rows)
    return make(folder, options.made, options.rows or MADE_ROWS, before_1970=options.before_1970)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.oracle", description=__doc__)
    parser.add_argument("--rows", type=int, metavar="N", help="only the first N flights")
    parser.add_argument(
        "--only", action="append", default=[], metavar="TEXT", help="cases whose name contains it; may be given again"
    )
    parser.add_argument("--flights", type=Path, default=FLIGHTS, metavar="CSV", help="also .gz and .zip")
    parser.add_argument("--weather", type=Path, default=WEATHER, metavar="CSV")
    parser.add_argument("--made", type=int, metavar="SEED", help="rows of chance on the edges of windows instead")
    parser.add_argument("--before-1970", action="store_true", help="with --made: the first days are in 1969")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="where input, rows and Flink's log stay")
    return parser


def _chosen(options: argparse.Namespace) -> list[Case]:
    only = options.only
    chosen = [case for case in CASES if not only or any(text in case.name for text in only)]
    if not chosen:
        raise SystemExit(f"no case is called so; there are {', '.join(case.name for case in CASES)}")
    return [case for case in chosen if not (options.before_1970 and case.needs_1970)]


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _show(outcomes: list[Outcome]) -> None:
    """The table, as the document has it, and what nothing explains."""
    print(LINE.format("case", "what", "rows", "late", "by design", "differ", "Flink s", "Tidegate s"))
    for outcome in outcomes:
        counts = (outcome.rows, outcome.late, outcome.by_design, outcome.difference.rows)
        seconds = (f"{duration:.1f}" for duration in (outcome.flink_seconds, outcome.tidegate_seconds))
        print(LINE.format(outcome.case.name, outcome.case.about, *(f"{count:,}" for count in counts), *seconds))
        for line in outcome.difference.told():
            print(f"    {line}")


if __name__ == "__main__":
    sys.exit(main())
