"""Merging of stored runs in the background: which neighbours, and the work itself.

Runs of similar size become one, so that a byte is written again as often as the logarithm of what has changed, and
changes go into the full run only when together they are a good part of it. So a chain stays short, and what is written
stays in proportion to what changes. The work reads and writes files, group by group; it never looks at live state.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tidegate.ids import KeyGroup
from tidegate.state.backend import SnapshotFiles
from tidegate.state.chain import ChainReader
from tidegate.state.increments import Merged
from tidegate.state.runs import Run, RunWriter, handles_of

MAX_CHANGES = 16
"""At most how many runs with changes a chain has for long."""

FAN_IN = 6
"""How many runs of similar size are merged at once."""

FULL_SHARE = 0.5
"""Changes go into the full run when together they have more than so many times its size,"""

FULL_SHARE_OF_FEW = 2.0
"""and this many times as long as there are fewer than `FAN_IN` of them."""


def choose(chain: Sequence[Run]) -> range:
    """The neighbours of `chain` that should be merged now; empty for none. The first run of a chain is the full one."""
    changes = [run.size for run in chain[1:]]
    share = FULL_SHARE if len(changes) >= FAN_IN else FULL_SHARE_OF_FEW
    if changes and sum(changes) > share * chain[0].size:
        return range(len(chain))
    if len(changes) < FAN_IN:
        return range(0)
    start = _similar(changes)
    if len(changes) - start < FAN_IN:
        if len(changes) <= MAX_CHANGES:
            return range(0)
        start = _cheapest(changes)
    return range(start + 1, len(chain))


def _similar(sizes: Sequence[int]) -> int:
    """Where the newest runs begin of which none is larger than all that are newer together."""
    start, together = len(sizes) - 1, sizes[-1]
    while start > 0 and sizes[start - 1] <= together:
        start -= 1
        together += sizes[start]
    return start


def _cheapest(sizes: Sequence[int]) -> int:
    """Where the newest runs begin that cost the fewest bytes for each run that is saved; at least two."""
    return min(range(len(sizes) - 1), key=lambda start: sum(sizes[start:]) / (len(sizes) - start - 1))


class Content(NamedTuple):
    """What the pieces of a chain are said to hold."""

    groups: range
    max_parallelism: int
    key_type: str
    states: tuple[str, ...]


class Merge:
    """Makes one run of some neighbours of a chain. See `Maintenance`.

    part: begins the names of the files that it writes. is_full: nothing older is below the neighbours, so that removed
    keys need not be remembered. finished: told what came of it, None when nothing did.
    """

    def __init__(
        self,
        part: str,
        old: tuple[Run, ...],
        content: Content,
        *,
        is_full: bool,
        finished: Callable[[Merged | None], None],
    ) -> None:
        self._part = part
        self._old = old
        self._content = content
        self._is_full = is_full
        self._finished = finished
        self._merged: Merged | None = None

    def run(self, files: SnapshotFiles) -> None:
        """Raises CorruptError, StorageUnavailable; nothing will name the files that were written by then."""
        content = self._content
        reader = ChainReader(handles_of(self._old), files, keep_removals=not self._is_full, states=content.states)
        writer = RunWriter(
            files,
            self._part,
            content.groups,
            content.max_parallelism,
            content.key_type,
            content.states,
            is_full=self._is_full,
        )
        for group in content.groups:
            for state, entries in reader.read(KeyGroup(group)).items():
                writer.add(KeyGroup(group), state, entries.items())
        run = writer.finish()
        self._merged = Merged(self._old, () if run is None else (run,))

    def finish(self, error: BaseException | None) -> None:
        self._finished(None if error is not None else self._merged)
