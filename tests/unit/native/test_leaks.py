"""The compiled part gives back all that it takes: after thousands of calls, of those that it refuses, too, there are no
more objects, no more memory and no more references to what it was given."""

import gc
import sys
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest

from tests.unit.native.calls import OWN, call
from tidegate.native import native

pytestmark = pytest.mark.skipif(native is None, reason="the compiled part was not built")

TIMES = 3000
FEW = 200
"""Objects, and bytes each, that may come and go with Python's own caches: a leak in each call makes thousands."""


def objects_in(given: Any) -> Iterator[Any]:
    """All of it that is counted: each object once for each place where it is."""
    yield given
    if isinstance(given, tuple | list):
        for one in given:
            yield from objects_in(one)


def counts(given: tuple[Any, ...]) -> list[int]:
    return [sys.getrefcount(one) for one in objects_in(given)]


@pytest.mark.parametrize("name", sorted({name for name, _ in OWN}))
def test_no_reference_to_what_was_given_is_kept(name: str) -> None:
    for _, given in (own for own in OWN if own[0] == name):
        batch = bytearray(9)
        call(native, name, given, batch)
        # Of what is everywhere (None, small numbers) others may take some meanwhile.
        before = counts(given)
        for _ in range(50):
            del batch[9:]
            call(native, name, given, batch)
        grown = [now - then for now, then in zip(counts(given), before, strict=True)]
        assert max(map(abs, grown)) < 25, (given, grown)
        assert sys.getrefcount(batch) == 2


@pytest.mark.parametrize("name", sorted({name for name, _ in OWN}))
def test_thousands_of_calls_leave_no_objects_and_no_memory(name: str) -> None:
    own = [given for other, given in OWN if other == name]
    each = TIMES // len(own) + 1

    def round() -> None:
        for given in own:
            batch = bytearray(9)
            for _ in range(each):
                del batch[9:]
                call(native, name, given, batch)

    round()
    gc.collect()
    tracemalloc.start()
    try:
        round()
        gc.collect()
        blocks, (bytes_before, _) = sys.getallocatedblocks(), tracemalloc.get_traced_memory()
        round()
        gc.collect()
        more_blocks = sys.getallocatedblocks() - blocks
        more_bytes = tracemalloc.get_traced_memory()[0] - bytes_before
    finally:
        tracemalloc.stop()
    assert more_blocks < FEW
    assert more_bytes < FEW * 100


class Leaky:
    """The compiled part, if it kept something in each call."""

    def __init__(self, right: Any) -> None:
        self.right = right
        self.kept: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        def kept(*given: Any) -> Any:
            self.kept.append(given[0])
            return getattr(self.right, name)(*given)

        return kept


def test_what_is_kept_in_each_call_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    leaky = Leaky(native)
    monkeypatch.setitem(globals(), "native", leaky)
    with pytest.raises(AssertionError):
        test_no_reference_to_what_was_given_is_kept("partitions_of")
    assert leaky.kept
    with pytest.raises(AssertionError):
        test_thousands_of_calls_leave_no_objects_and_no_memory("read_records")
