"""Judges the output of a chaos run record by record, and all of it once more at the end.

It remembers one record for each user and never asks the job. What it calls wrong breaks the promise that each order
changes its user's totals exactly once and in order.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from tests.chaos.records import Total, right_total

_decode = msgspec.json.Decoder(Total).decode


@dataclass(frozen=True)
class Seen:
    """One record of the output, where it lies."""

    partition: int
    offset: int
    value: bytes

    def __str__(self) -> str:
        return f"partition {self.partition}, offset {self.offset}: {self.value.decode(errors='replace')}"


class Violation(Exception):
    """The output is wrong. `what` is 'lost', 'doubled', 'wrong' or 'misplaced'; `records` are those that show it."""

    def __init__(self, what: str, text: str, records: tuple[Seen, ...] = ()) -> None:
        super().__init__(text)
        self.what = what
        self.records = records

    def __str__(self) -> str:
        return "\n    ".join([f"{self.what}: {self.args[0]}", *map(str, self.records)])


class Checker:
    """Takes the committed records of each partition in order."""

    def __init__(self, users: int) -> None:
        self._users = users
        self._last: dict[int, Seen] = {}
        """Of each user, by its number."""
        self._orders: dict[int, int] = {}
        self.count = 0

    def check(self, record: Seen) -> None:
        """Raises Violation at the first record that is not the next of its user in every field and in its place."""
        try:
            total = _decode(record.value)
        except msgspec.MsgspecError as error:
            raise Violation("wrong", f"a record that is no total: {error}", (record,)) from None
        user = total.number % self._users
        last = self._last.get(user)
        shown = (record,) if last is None else (last, record)
        orders, expected = total.number // self._users + 1, self._orders.get(user, 0) + 1
        if orders > expected:
            first = (expected - 1) * self._users + user
            raise Violation("lost", f"order {first} of u{user} is not there before order {total.number}", shown)
        if orders < expected:
            raise Violation("doubled", f"order {total.number} of u{user} again, or after a later one", shown)
        right = right_total(total.number, self._users)
        if total != right:
            raise Violation("wrong", f"it should be {msgspec.json.encode(right).decode()}", shown)
        if last is not None and last.partition != record.partition:
            raise Violation("misplaced", f"u{user} is in two partitions", shown)
        self._last[user], self._orders[user] = record, orders
        self.count += 1

    def has_all(self, count: int) -> bool:
        """Whether the totals of the first `count` orders were all checked, and nothing else."""
        return self.count == count and all(
            self._orders.get(user, 0) == (count - user + self._users - 1) // self._users
            for user in range(min(self._users, count))
        )


def check_all(records: Iterable[Seen], count: int, users: int) -> None:
    """Raises Violation unless `records` are, as a multiset, exactly the totals of the first `count` orders.

    It shares nothing with `Checker` but the right totals."""
    found = Counter(record.value for record in records)
    wanted = Counter(msgspec.json.encode(right_total(number, users)) for number in range(count))
    lost, extra = wanted - found, found - wanted
    if lost:
        raise Violation("lost", f"{lost.total()} totals are not there, as {next(iter(lost)).decode()}")
    if extra:
        what = "doubled" if next(iter(extra)) in wanted else "wrong"
        raise Violation(what, f"{extra.total()} totals are there too often, as {next(iter(extra)).decode()}")
