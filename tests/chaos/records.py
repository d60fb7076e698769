"""The numbered input of a chaos run and the one right output for each number, in plain Python.

Both are functions of the number alone, so that whoever has one record of the output knows at once whether it is right.
Nothing of the engine computes an answer here.
"""

import msgspec

PARTITIONS = 4
"""Of the input."""
OUTPUT_PARTITIONS = 3
REMEMBERED = 3
"""Marks that the job keeps for each user."""


class Order(msgspec.Struct, frozen=True):
    """One record of the input. `number` counts from 0 over all of it."""

    user: str
    number: int


class Total(msgspec.Struct, frozen=True):
    """What the job puts out for one order: the totals of its user with it."""

    user: str
    number: int
    orders: int
    total: int
    ages: int


def order(number: int, users: int) -> Order:
    """Users take turns."""
    return Order(f"u{number % users}", number)


def partition_of(number: int, users: int) -> int:
    """All of one user in one: their order is defined."""
    return number % users % PARTITIONS


def right_total(number: int, users: int) -> Total:
    """What the job must put out for order `number`."""
    first, orders = number % users, number // users + 1
    total = orders * first + users * (orders - 1) * orders // 2
    return Total(f"u{first}", number, orders, total, sum(range(min(orders, REMEMBERED))))
