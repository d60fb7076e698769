"""The data of every benchmark and the exact answer of each workload, both computed from numbers alone: order 0, 1, 2
and so on, one a millisecond, users in turn.

Nothing is random, and nothing is kept: what a user's output has to be is computed when it is asked for.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate, groupby, pairwise
from typing import NamedTuple

from benchmarks.suite.contracts import Workload
from tidegate.errors import InvalidError

RECORDS = 4_000_000
USERS = 10_007
VALUE_BYTES = 60
PARTITIONS = 4
FIRST_TS = 1_760_000_000_000
WINDOW = 60_000
"""Milliseconds, of W2."""
PADDED_MIN = VALUE_BYTES + len(',"note":""')
"""Bytes of the smallest order with a field more."""


class Data(NamedTuple):
    """The orders of an input topic. `value_bytes`: 60, or from 70 on, with a field that nobody reads; below 60 it is no
    JSON, and only W0 can take it."""

    records: int = RECORDS
    users: int = USERS
    value_bytes: int = VALUE_BYTES
    partitions: int = PARTITIONS

    @property
    def topic(self) -> str:
        """A name that says all of this."""
        return f"bench-orders-{self.records}-{self.users}-{self.value_bytes}-{self.partitions}"

    def user(self, number: int) -> str:
        return f"customer-{number % self.users:08}"

    def key(self, number: int) -> bytes:
        return b"customer-%08d" % (number % self.users)

    def amount(self, number: int) -> int:
        return 100 + number * 31 % 900

    def ts(self, number: int) -> int:
        """Milliseconds since 1970."""
        return FIRST_TS + number

    def value(self, number: int) -> bytes:
        if self.value_bytes < VALUE_BYTES:
            return b"%0*d" % (self.value_bytes, number)
        order = b'{"user":"%s","amount":%d,"ts":%d' % (self.key(number), self.amount(number), self.ts(number))
        if self.value_bytes == VALUE_BYTES:
            return order + b"}"
        return order + b',"note":"' + b"." * (self.value_bytes - PADDED_MIN) + b'"}'

    def numbers(self, user: int) -> range:
        """The orders of one user, the first of whom is 0."""
        return range(user, self.records, self.users)

    def check(self, workload: Workload) -> None:
        """Raises InvalidError for values of a size that cannot be."""
        if VALUE_BYTES < self.value_bytes < PADDED_MIN or self.value_bytes < len(str(self.records)):
            raise InvalidError(
                f"orders of {self.value_bytes} bytes cannot be made",
                remedy=f"Take {VALUE_BYTES}, or {PADDED_MIN} and more; for {Workload.FORWARD} also less.",
            )
        if self.value_bytes < VALUE_BYTES and workload is not Workload.FORWARD:
            raise InvalidError(
                f"{workload} reads JSON, which does not fit into {self.value_bytes} bytes",
                remedy=f"Take {VALUE_BYTES} bytes, or {Workload.FORWARD}.",
            )


# ---- answers -------------------------------------------------------------------------------------------------------


def answer(workload: Workload, data: Data, user: int) -> Sequence[object]:
    """What there has to be for one user: the values of W0, the totals of W1, (start, total) of W2. In order."""
    numbers = data.numbers(user)
    match workload:
        case Workload.FORWARD:
            return list(map(data.value, numbers))
        case Workload.TOTALS:
            return list(accumulate(map(data.amount, numbers)))
        case Workload.WINDOWS:
            return list(_windows(data, numbers))


def _windows(data: Data, numbers: range) -> Iterator[tuple[int, int]]:
    for start, members in groupby(numbers, lambda number: data.ts(number) // WINDOW * WINDOW):
        yield start, sum(map(data.amount, members))


def output_records(workload: Workload, data: Data) -> int:
    if workload is not Workload.WINDOWS:
        return data.records
    bounds = [0, *range(WINDOW - FIRST_TS % WINDOW, data.records, WINDOW), data.records]
    # Neighbouring orders are of different users until all have had their turn.
    return sum(min(end - begin, data.users) for begin, end in pairwise(bounds))
