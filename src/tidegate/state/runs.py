"""Runs: pieces that were written together, one behind another over all groups of a subtask, and how they are written.

A chain is a full run and then runs with changes. Pieces are cut between groups, so that no two pieces of a run speak of
one group: seen from outside, handles whose groups ascend are one run, and a new run begins where they step back.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from tidegate.checkpoint.protocol import StateHandle
from tidegate.ids import KeyGroup
from tidegate.state.backend import SnapshotFiles
from tidegate.state.pieces import Column, PieceWriter

PIECE_BYTES = 16 * 1024 * 1024
"""About how much one piece holds: whoever reads it has it in memory."""

CHUNK_BYTES = 256 * 1024
"""About how much of a piece is encoded or decoded at once, which holds the interpreter."""

CHUNK_ROWS = 8192
"""At most how many keys of one state a chunk has."""


class Run(msgspec.Struct, frozen=True):
    """What was written together, in order of groups."""

    pieces: tuple[StateHandle, ...]
    size: int
    """Bytes, as far as they concern the groups of the subtask."""


def handles_of(runs: Iterable[Run]) -> tuple[StateHandle, ...]:
    return tuple(handle for run in runs for handle in run.pieces)


class RunWriter:
    """Writes a run for `groups`. Side threads only; groups come in ascending order, each once.

    part: what begins the name of each file; others follow behind it.
    """

    def __init__(
        self,
        files: SnapshotFiles,
        part: str,
        groups: range,
        max_parallelism: int,
        key_type: str,
        states: Sequence[str],
        *,
        is_full: bool,
    ) -> None:
        self._files = files
        self._part = part
        self._groups = groups
        self._begin: dict[str, Any] = {
            "max_parallelism": max_parallelism,
            "key_type": key_type,
            "states": tuple(states),
            "is_full": is_full,
        }
        self._numbers = {name: number for number, name in enumerate(states)}
        self._piece = PieceWriter(**self._begin)
        self._start = groups.start
        """The first group of the piece that is being made."""
        self._last = groups.start
        self._handles: list[StateHandle] = []

    def add(self, group: KeyGroup, state: str, rows: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Key and value of each row of one state; None for a key that has nothing any more."""
        number, size = self._numbers[state], 0
        if self._piece.size >= PIECE_BYTES and group > self._last:
            self._write(range(self._start, group))
        self._last = group
        column = Column(number, [], [], [])
        for key, value in rows:
            if value is None:
                column.removed.append(key)
            else:
                column.keys.append(key)
                column.values.append(value)
                size += len(value)
            size += len(key)
            if size >= CHUNK_BYTES or len(column.keys) + len(column.removed) >= CHUNK_ROWS:
                self._piece.add(group, [column])
                column, size = Column(number, [], [], []), 0
        if column.keys or column.removed:
            self._piece.add(group, [column])

    def finish(self) -> Run | None:
        """The whole run; None when nothing was added. Raises StorageUnavailable, as `add` does."""
        if self._piece.size:
            self._write(range(self._start, self._groups.stop))
        size = sum(handle.size for handle in self._handles)
        return Run(tuple(self._handles), size) if self._handles else None

    def _write(self, groups: range) -> None:
        data = self._piece.finish(groups)
        self._handles.append(self._files.write(f"{self._part}-{len(self._handles)}", data, groups))
        self._piece = PieceWriter(**self._begin)
        self._start = groups.stop
