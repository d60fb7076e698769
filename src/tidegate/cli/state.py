"""`tidegate state`: what operators had stored in a checkpoint or a savepoint, as rows, without running the job.

It only reads: nothing stored is ever changed here, so it may be used while the job runs.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Annotated

import typer

from tidegate.cli.stored import DirOption, PlaceArgument, find_state, print_json
from tidegate.cli.text import render_plural, render_table
from tidegate.errors import InvalidError
from tidegate.savepoints.json_text import json_text
from tidegate.savepoints.keys import key_from_text
from tidegate.savepoints.reading import NO_KEY, StateRows, key_layout_of, listings_of
from tidegate.savepoints.tables import FORMATS

commands = typer.Typer(help="State that is stored, as rows.", no_args_is_help=True)

JSONL = "jsonl"


@commands.command("read")
def read_state(
    job: PlaceArgument,
    operator: Annotated[
        str | None, typer.Option(metavar="NAME", help="Whose state; without it, what there is is listed.")
    ] = None,
    state: Annotated[str | None, typer.Option(metavar="NAME", help="Only this state.")] = None,
    key: Annotated[str | None, typer.Option(metavar="KEY", help="Only this key, as the rows show it.")] = None,
    checkpoint: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="The checkpoint; the newest if left out.")
    ] = None,
    file_format: Annotated[
        str, typer.Option("--format", metavar="jsonl|parquet|arrow", help="JSON lines, or a file of a table.")
    ] = JSONL,
    output: Annotated[Path | None, typer.Option(metavar="FILE", help="Instead of standard output.")] = None,
    checkpoint_dir: DirOption = None,
    only_list: Annotated[bool, typer.Option("--list", help="List the operators and their states.")] = False,
    json: Annotated[bool, typer.Option("--json", help="The list for machines.")] = False,
) -> None:
    """The state of one operator, a row for each key and state."""
    _check_format(file_format, output)
    stored = find_state(job, checkpoint_dir, checkpoint)
    if operator is None or only_list:
        if state is not None or key is not None:
            raise InvalidError("--state and --key need --operator", remedy="Name the operator whose state it is.")
        listings = [one._asdict() for one in listings_of(stored) if operator in (None, one.operator)]
        print_json(listings) if json else print(_listing(stored.location, listings))
        return
    wanted = NO_KEY if key is None else key_from_text(key, key_layout_of(stored, operator))
    rows = StateRows(stored, operator, state, wanted)
    if file_format == JSONL:
        _write_lines(rows, output)
    else:
        assert output is not None, "checked above"
        print(f"{output}: {render_plural(rows.write(output, file_format), 'row')}")


def _check_format(file_format: str, output: Path | None) -> None:
    if file_format not in (JSONL, *FORMATS):
        raise InvalidError(f"--format {file_format} is not known", remedy=f"Use {JSONL}, {' or '.join(FORMATS)}.")
    if file_format != JSONL and output is None:
        raise InvalidError(f"--format {file_format} needs --output FILE", remedy="It is no text to be shown.")


def _listing(location: str, listings: list[dict[str, str]]) -> str:
    if not listings:
        return f"{location} holds no state"
    headers = ("operator", "state", "kind", "type", "serializer", "key_type")
    return f"{location}\n\n{render_table(headers, [[row[name] for name in headers] for row in listings])}"


def _write_lines(rows: StateRows, output: Path | None) -> None:
    with _opened(output) as file:
        for row in rows:
            file.write(json_text(row) + "\n")


@contextmanager
def _opened(output: Path | None) -> Iterator[IO[str]]:
    """Where lines go. A file comes under its name when it is whole; whoever reads a pipe may stop early."""
    if output is None:
        try:
            yield sys.stdout
            sys.stdout.flush()
        except BrokenPipeError:
            # The interpreter flushes once more when it ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return
    draft = output.with_name(f"{output.name}.part")
    try:
        with draft.open("w", encoding="utf-8") as file:
            yield file
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    draft.replace(output)
