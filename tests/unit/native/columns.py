"""Columns of records for tests, of every kind that both writers take: as hypothesis makes them, and as what goes
wrong."""

from collections import UserList
from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import strategies as st

from tidegate.connectors.kafka.batches.writers import Columns, Producing

LOWEST, HIGHEST = -(1 << 63), (1 << 63) - 1

contents = (
    st.none()
    | st.just(b"")
    | st.binary(max_size=20)
    | st.sampled_from([b"x" * size for size in (63, 64, 127, 128, 8191, 8192, 20_000)])
)
views: st.SearchStrategy[Any] = st.builds(memoryview, st.binary(max_size=5))
keys = contents | st.builds(bytearray, st.binary(max_size=5)) | views
times = (
    st.integers(1, 1 << 45) | st.integers(LOWEST, HIGHEST) | st.sampled_from([LOWEST, HIGHEST, 0, -1, -2, 1, 1 << 31])
)
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=6) | st.sampled_from(["", "größe", "\x00", "🜁" * 40])
headers = st.none() | st.lists(st.tuples(names, st.none() | st.binary(max_size=8) | st.just(b"h" * 200)), max_size=4)
rows = st.lists(st.tuples(contents, keys, times, headers), max_size=12)

shapes: st.SearchStrategy[Callable[[Sequence[Any]], Sequence[Any]]] = st.sampled_from([list, tuple, UserList])
who = st.sampled_from([Producing(), Producing(7, 3, True), Producing((1 << 63) - 1, 32_767, False)])
limits = st.integers(0, 600) | st.integers(600, 40_000) | st.just(1 << 30)


@st.composite
def columns(draw: st.DrawFn) -> Columns:
    """Any; each column may be of another kind of sequence."""
    found = draw(rows)
    values, keys, times = ([row[index] for row in found] for index in range(3))
    shape = draw(shapes)
    headers = [row[3] if row[3] is None else shape(row[3]) for row in found]
    return Columns(
        draw(shapes)(values),
        draw(shapes)(keys) if draw(st.booleans()) else None,
        draw(shapes)(times),
        draw(shapes)(headers) if draw(st.booleans()) else None,
    )


parts = st.lists(st.tuples(columns(), st.sampled_from([0, 0, 0, 1, 3, 12, 13])), min_size=1, max_size=4)
"""What is added to one batch, each from an index on."""
