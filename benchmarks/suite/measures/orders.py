"""Orders at a fixed rate, the same cycle again and again, and for each total that comes out the order that made it.

Pure. The totals of a user come out in the order of that user's orders, so the n-th total of a user belongs to the n-th
order; what it has to be is known, and so is the moment at which that order was due. Nothing has to be written into the
records for that, and the job that is measured is the example as it is.
"""

from collections import defaultdict
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import msgspec

from benchmarks.suite.workloads import Data
from tidegate.connectors.kafka.batches.partitioning import Partitioner

TICK = 0.01
"""Seconds: orders go out in small crowds."""
CYCLE_TICKS_MIN = 100


class WrongTotal(Exception):
    """What came out is not what had to come."""


class Total(msgspec.Struct, frozen=True, gc=False):
    user: str
    total: int


class Orders(NamedTuple):
    """`rate` orders a second, a multiple of 100."""

    rate: int
    users: int

    @property
    def per_tick(self) -> int:
        return max(1, round(self.rate * TICK))

    @property
    def cycle_ticks(self) -> int:
        """After so many the first one comes again; by then every user has had an order."""
        return max(CYCLE_TICKS_MIN, -(-self.users // self.per_tick))

    @property
    def cycle(self) -> int:
        """Orders of a cycle."""
        return self.per_tick * self.cycle_ticks

    @property
    def data(self) -> Data:
        return Data(records=self.cycle, users=self.users)

    def tick(self, tick: int) -> range:
        """The numbers of the orders of one tick of the cycle."""
        return range(tick * self.per_tick, (tick + 1) * self.per_tick)

    def columns(self, tick: int, partitions: int) -> dict[int, tuple[list[bytes], list[bytes]]]:
        """By partition, the keys and values of one tick of the cycle. A key is where other producers put it."""
        data, found = self.data, defaultdict[int, tuple[list[bytes], list[bytes]]](lambda: ([], []))
        keys = [data.key(number) for number in self.tick(tick)]
        for number, key, partition in zip(self.tick(tick), keys, Partitioner(partitions).of(keys), strict=True):
            found[partition][0].append(key)
            found[partition][1].append(data.value(number))
        return dict(found)


class _OfUser(NamedTuple):
    totals: Sequence[int]
    """After each of the user's orders in the first cycle."""
    ticks: Sequence[int]
    """In which each of them goes out."""


class Expected:
    """What has to come next of each user."""

    def __init__(self, orders: Orders) -> None:
        self._cycle_ticks = orders.cycle_ticks
        self._decode = msgspec.json.Decoder(list[Total]).decode
        self._users: dict[str, _OfUser] = {}
        self._next: dict[str, int] = {}
        self.outputs = 0
        data = orders.data
        for user in range(orders.users):
            numbers = data.numbers(user)
            totals = list(accumulate(map(data.amount, numbers)))
            self._users[data.user(user)] = _OfUser(totals, [number // orders.per_tick for number in numbers])
            self._next[data.user(user)] = 0

    def ticks_of(self, values: Sequence[bytes | None]) -> list[int]:
        """For each total that came, in order, the tick since the beginning in which its order went out. Raises
        WrongTotal for one that is missing, doubled, out of order or wrong."""
        ticks = []
        for row in self._decode(b"[%s]" % b",".join(value or b"null" for value in values)):
            count = self._next[row.user]
            totals, own = self._users[row.user]
            cycle, place = divmod(count, len(totals))
            wanted = cycle * totals[-1] + totals[place]
            if row.total != wanted:
                raise WrongTotal(f"{row.user}: its total number {count + 1} is {row.total} and not {wanted}")
            self._next[row.user] = count + 1
            ticks.append(cycle * self._cycle_ticks + own[place])
        self.outputs += len(ticks)
        return ticks
