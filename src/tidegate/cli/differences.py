"""`tidegate checkpoints diff`: what happened between two checkpoints, by keys of states and positions of sources.

It only reads.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import msgspec
import typer

from tidegate.cli.stored import DirOption, JobArgument, JsonOption, print_json, store_and_view
from tidegate.cli.text import render_table
from tidegate.savepoints.comparing import ADDED, CHANGED, REMOVED, KeyChange, SplitChange, key_changes, split_changes
from tidegate.savepoints.json_text import json_text
from tidegate.savepoints.places import StoredState, choose_manifest, stored_checkpoint
from tidegate.savepoints.reading import listings_of


class StateCounts(msgspec.Struct, frozen=True):
    """Keys of one state that are not as they were; of state without keys, subtasks."""

    operator: str
    state: str
    added: int
    removed: int
    changed: int


def count_changes(states: Iterable[tuple[str, str]], changes: Iterable[KeyChange]) -> list[StateCounts]:
    """Of each state (operator and name), also of those of which nothing has changed."""
    counts = Counter((change.operator, change.state, change.how) for change in changes)
    return [
        StateCounts(operator, state, *(counts[operator, state, how] for how in (ADDED, REMOVED, CHANGED)))
        for operator, state in dict.fromkeys(states)
    ]


def render_difference(
    before: StoredState, after: StoredState, splits: Sequence[SplitChange], counts: Sequence[StateCounts]
) -> str:
    """Headline, splits, states."""
    parts = [f"from {before.location}\nto   {after.location}"]
    if splits:
        rows = [(one.operator, one.split, _text(one.before), _text(one.after), _moved(one)) for one in splits]
        parts.append(f"splits\n{render_table(('operator', 'split', 'from', 'to', 'moved'), rows)}")
    if counts:
        cells = [
            (one.operator, one.state, *(str(count) for count in (one.added, one.removed, one.changed)))
            for one in counts
        ]
        parts.append(f"keys\n{render_table(('operator', 'state', ADDED, REMOVED, CHANGED), cells)}")
    return "\n\n".join(parts)


def _text(position: int | None) -> str:
    return "" if position is None else str(position)


def _moved(split: SplitChange) -> str:
    if split.before is None or split.after is None:
        return "new" if split.before is None else "gone"
    return f"{split.after - split.before:+d}"


def diff_checkpoints(
    job: JobArgument,
    before: Annotated[int, typer.Argument(metavar="N", min=1, help="The earlier checkpoint.")],
    after: Annotated[int, typer.Argument(metavar="M", min=1, help="The later one.")],
    keys: Annotated[bool, typer.Option("--keys", help="Name each key, too, one a line.")] = False,
    checkpoint_dir: DirOption = None,
    json: JsonOption = False,
) -> None:
    """What is different between two checkpoints: keys that came, went or changed, and how far the sources moved."""
    store, view = store_and_view(job, checkpoint_dir)
    old, new = (stored_checkpoint(store, choose_manifest(store, view, number)) for number in (before, after))
    states = [(listing.operator, listing.state) for stored in (old, new) for listing in listings_of(stored)]
    with TemporaryDirectory(prefix="tidegate-") as scratch:
        changes = key_changes(old, new, Path(scratch))
        counts = count_changes(states, _shown(changes, json) if keys else changes)
    splits = split_changes(old.manifest, new.manifest)
    if json and not keys:
        print_json({"splits": [one._asdict() for one in splits], "states": counts})
    elif not json:
        print(("\n" if keys else "") + render_difference(old, new, splits, counts))


def _shown(changes: Iterable[KeyChange], json: bool) -> Iterator[KeyChange]:
    """Each of them, after it was written out: lines of JSON, or lines for people."""
    for change in changes:
        as_text = f"{change.how} {change.operator} {change.state} {json_text(change.key)}"
        print(json_text(change._asdict()) if json else as_text)
        yield change
