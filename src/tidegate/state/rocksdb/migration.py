"""Stored values of a state under the type that is declared now: refused, left as they are, or all rewritten before the
first record, so that only the newest form is ever stored.

Rewriting goes from key to key: the canonical value is made of its rows, decoded, encoded and cut into rows again. That
serves a changed type, a new version of a serializer and another layout of rows alike.
"""

from collections.abc import Iterator
from typing import Any

from tidegate.checkpoint.protocol import StateInfo
from tidegate.errors import CorruptError
from tidegate.serializers.evolution import Outcome, check_evolution, migration, unfit
from tidegate.state.descriptors import StateDescriptor
from tidegate.state.rocksdb.database import Database, after
from tidegate.state.rocksdb.rows import (
    StateRows,
    by_key,
    cut_parts,
    join_parts,
    key_prefix,
    layout_of,
    state_prefix,
)

_BATCH_BYTES = 1 << 20


def claim(
    database: Database,
    stored: StateInfo,
    rows: StateRows,
    descriptor: StateDescriptor[Any],
    groups: range,
    numbers: Iterator[int],
    where: str,
) -> StateRows:
    """Make the rows of `stored` those of what is declared; where these are.

    Raises InvalidError, naming state, old and new type, when they do not fit, CorruptError for what cannot be read.
    """
    declared = descriptor.info
    evolution = check_evolution(stored, declared, where)
    wanted = StateRows(rows.name, rows.number, layout_of(declared))
    if evolution.outcome is Outcome.SAME and wanted == rows:
        return rows
    try:
        for group in groups:
            _rewrite(database, group, (rows, stored), (wanted, descriptor), numbers)
    except CorruptError as error:
        if stored.value_type == declared.value_type:
            raise
        raise unfit(stored, declared, error.failure.message, where=where) from error
    return wanted


def _rewrite(
    database: Database,
    group: int,
    old: tuple[StateRows, StateInfo],
    new: tuple[StateRows, StateDescriptor[Any]],
    numbers: Iterator[int],
) -> None:
    (rows, stored), (wanted, descriptor) = old, new
    migrate = migration(descriptor.stored, stored.serializer)
    prefix = state_prefix(group, rows.number)
    batch, size = database.batch(), 0
    for found in by_key(database.scan(prefix, after(prefix))):
        whole = migrate(join_parts(rows.layout, found.parts, stored.serializer))
        name = key_prefix(group, rows.number, found.key)
        for part, _ in found.parts:
            batch.delete(name + part)
        for part, value in cut_parts(wanted.layout, whole, descriptor.stored.id, numbers):
            batch.put(name + part, value)
        size += len(whole)
        if size >= _BATCH_BYTES:
            database.write(batch)
            batch, size = database.batch(), 0
    database.write(batch)
