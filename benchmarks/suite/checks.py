"""Compares what a system has written with the exact answer: for each key the same records, none missing, none twice,
and in order. A fast wrong run is no result.

Pure: it takes columns and knows nothing of brokers. Guarantees make no difference here, because nothing is killed while
rates are measured: at least once must come to the same as exactly once.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence

import msgspec

from benchmarks.suite.contracts import Workload
from benchmarks.suite.workloads import Data, answer

TOLD = 5
"""Differences that are told of, one a user."""

Column = Sequence[bytes | None]
Items = Callable[[Column, Column], Sequence[object]]
"""Of keys and values: what is compared, one for each record."""


class WrongResult(Exception):
    """What came out is not the answer."""


class Total(msgspec.Struct, frozen=True, gc=False):
    """A record of W1. How JSON is spaced, and in which order fields stand, is not compared."""

    user: str
    total: int


class WindowTotal(msgspec.Struct, frozen=True, gc=False):
    """A record of W2."""

    user: str
    start: int
    total: int


class Check:
    """Of one run. `add` takes what each partition has, in order; `finish` says whether it is the answer."""

    def __init__(self, workload: Workload, data: Data) -> None:
        self._workload = workload
        self._data = data
        self._items = _ITEMS[workload]
        self._found: dict[int, defaultdict[bytes | None, list[object]]] = {}
        self.records = 0

    def add(self, partition: int, keys: Column, values: Column) -> None:
        """Some records of one partition, which follow upon those that were given before. Raises WrongResult for one
        that cannot be read."""
        if len(keys) != len(values):
            raise WrongResult(f"{len(keys)} keys for {len(values)} values")
        found = self._found.setdefault(partition, defaultdict(list))
        for key, item in zip(keys, self._items(keys, values), strict=True):
            found[key].append(item)
        self.records += len(keys)

    def finish(self) -> None:
        """Raises WrongResult."""
        found = self._joined()
        data = self._data
        problems = []
        for user in range(min(data.users, data.records)):
            key = data.key(user)
            expected, own = answer(self._workload, data, user), found.pop(key, [])
            if self._workload is Workload.WINDOWS:
                own = sorted(own)  # type: ignore[type-var]
            if own != expected:
                problems.append(f"{key.decode()}: {_difference(expected, own)}")
        problems += [f"{key!r}: nobody has this key" for key in found]
        if problems:
            told = "\n  ".join(problems[:TOLD])
            raise WrongResult(f"{self._workload}: {len(problems)} keys have a wrong output:\n  {told}")

    def _joined(self) -> dict[bytes | None, list[object]]:
        joined: dict[bytes | None, list[object]] = {}
        for partition, of_keys in self._found.items():
            for key, items in of_keys.items():
                if key in joined:
                    raise WrongResult(f"{key!r}: in partition {partition} and in another one, so there is no order")
                joined[key] = items
        self._found.clear()
        return joined


def _difference(expected: Sequence[object], found: Sequence[object]) -> str:
    pairs = enumerate(zip(expected, found, strict=False), start=1)
    first = next((f"record {at} is {own} and not {wanted}" for at, (wanted, own) in pairs if wanted != own), "")
    count = f"{len(found):,} records instead of {len(expected):,}" if len(found) != len(expected) else ""
    return ", ".join(filter(None, (count, first)))


# ---- what is compared ----------------------------------------------------------------------------------------------


def _as_they_are(keys: Column, values: Column) -> Sequence[object]:
    return values


def _totals(keys: Column, values: Column) -> Sequence[object]:
    rows: list[Total] = _decoded(_TOTALS, keys, values)
    return [row.total for row in rows]


def _window_totals(keys: Column, values: Column) -> Sequence[object]:
    rows: list[WindowTotal] = _decoded(_WINDOW_TOTALS, keys, values)
    return [(row.start, row.total) for row in rows]


def _decoded(decoder: msgspec.json.Decoder[list], keys: Column, values: Column) -> list:  # type: ignore[type-arg]
    """One row for each value. All at once, which takes a third of the time."""
    try:
        rows = decoder.decode(b"[%s]" % b",".join(values))  # type: ignore[arg-type]
    except (TypeError, msgspec.MsgspecError) as error:
        raise WrongResult(f"a value that is no result: {error}") from error
    if len(rows) != len(values):
        raise WrongResult(f"{len(values)} values make {len(rows)} results")
    if [row.user.encode() for row in rows] != list(keys):
        at, row = next((at, row) for at, row in enumerate(rows) if row.user.encode() != keys[at])
        raise WrongResult(f"{row} has the key {keys[at]!r}")
    return rows


_TOTALS = msgspec.json.Decoder(list[Total])
_WINDOW_TOTALS = msgspec.json.Decoder(list[WindowTotal])
_ITEMS: dict[Workload, Items] = {
    Workload.FORWARD: _as_they_are,
    Workload.TOTALS: _totals,
    Workload.WINDOWS: _window_totals,
}
