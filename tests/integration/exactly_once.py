"""What the totals job must have put out and must hold, computed in plain Python, and every way in which it differs.

Nothing of the engine computes an answer here: what both got wrong would go unnoticed.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from tests.integration.totals_program import REMEMBERED, Order, Total


class Answer(NamedTuple):
    """By user: every total in order, and what is held at the end: number of orders, their total, the marks."""

    totals: Mapping[str, Sequence[Total]]
    held: Mapping[str, tuple[int, int, list[tuple[int, int]]]]


class Written(NamedTuple):
    """One record of the output topic, where it lies."""

    partition: int
    total: Total


def answer_of(orders: Iterable[Order]) -> Answer:
    numbers: dict[str, list[int]] = defaultdict(list)
    totals: dict[str, list[Total]] = defaultdict(list)
    for order in orders:
        own = numbers[order.user]
        own.append(order.number)
        totals[order.user].append(Total(order.user, len(own), sum(own), sum(range(min(len(own), REMEMBERED)))))
    return Answer(totals, {user: _held(own) for user, own in numbers.items()})


def _held(numbers: list[int]) -> tuple[int, int, list[tuple[int, int]]]:
    last = numbers[-REMEMBERED:]
    return len(numbers), sum(numbers), [(number, len(last) - 1 - place) for place, number in enumerate(last)]


def differences(expected: Mapping[str, Sequence[Total]], output: Sequence[Written]) -> list[str]:
    """Every way in which `output`, in the order of its partitions, is not `expected`; [] when it is, record for
    record."""
    wanted = Counter(total for totals in expected.values() for total in totals)
    found = Counter(written.total for written in output)
    problems = [f"missing {count} times: {total}" for total, count in (wanted - found).items()]
    problems += [f"{count} times too many: {total}" for total, count in (found - wanted).items()]
    by_user: dict[str, list[Total]] = defaultdict(list)
    places: dict[str, set[int]] = defaultdict(set)
    for partition, total in output:
        by_user[total.user].append(total)
        places[total.user].add(partition)
    problems += [f"{user} is in partitions {sorted(own)}" for user, own in places.items() if len(own) > 1]
    if not problems:
        problems += [f"{user} is out of order" for user, own in by_user.items() if own != list(expected[user])]
    return problems


def assert_exactly_once(expected: Mapping[str, Sequence[Total]], output: Sequence[Written]) -> None:
    problems = differences(expected, output)
    assert not problems, f"{len(problems)} problems in {len(output)} records:\n" + "\n".join(problems[:20])
