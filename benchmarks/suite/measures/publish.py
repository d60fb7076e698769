"""What a measure leaves behind: lines of JSON that say by themselves what was measured, where and how, and a table in
Markdown, in the document where that is asked for.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

import msgspec

from benchmarks.suite import report, results
from benchmarks.suite.measures.quantiles import NoMeasure
from benchmarks.suite.places import ROOT
from tidegate.errors import TidegateError

DOCUMENT = ROOT / "docs" / "benchmarks.md"


def parser_of(name: str, about: str | None, takes: str) -> argparse.ArgumentParser:
    """With what all measures can be asked for. `takes`: how long, on two cores that nobody else uses."""
    epilog = f"On two cores it takes about {takes}."
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.suite.{name}", description=about, epilog=epilog)
    parser.add_argument("--write", action="store_true", help=f"the table into {DOCUMENT.relative_to(ROOT)}")
    return parser


def publish(name: str, rows: Sequence[msgspec.Struct], text: str, *, write: bool) -> Path:
    """Print `text`, and write it between the marks of `name` in the document if asked to. The file of the rows."""
    now = datetime.now().astimezone()
    session = results.this_session(f"{now:%Y-%m-%d %H:%M %z}", ())
    command = " ".join([f"python -m benchmarks.suite.{name}", *sys.argv[1:]])
    session = msgspec.structs.replace(session, command=command)
    path = results.FOLDER / name / f"{now:%Y-%m-%dT%H%M%S}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        for row in rows:
            file.write(msgspec.json.encode({"session": session, "measure": name, "row": row}) + b"\n")
    print(text, flush=True)
    if write:
        report.write_between(DOCUMENT, name, f"{text}\n\n```sh\n{command}\n```")
    return path


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Numbers stand on the right: all columns but the first."""
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms" if seconds < 0.1 else f"{seconds * 1000:,.0f} ms"


def ended(measure: Callable[[Sequence[str] | None], None]) -> int:
    """What a command ends with; an error is one line, not a traceback."""
    try:
        measure(None)
        return 0
    except (TidegateError, NoMeasure) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
