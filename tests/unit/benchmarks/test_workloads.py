"""The benchmark's data have the sizes that they should, and the answers are those of a plain loop over all orders."""

from collections import Counter, defaultdict

import msgspec
import pytest

from benchmarks.suite.contracts import Workload
from benchmarks.suite.workloads import FIRST_TS, WINDOW, Data, answer, output_records
from tidegate.errors import InvalidError


class Order(msgspec.Struct):
    user: str
    amount: int
    ts: int


def test_an_order_has_sixty_bytes_and_says_what_it_should() -> None:
    data = Data()
    assert {len(data.value(number)) for number in (0, 10_006, 3_999_999)} == {60}
    order = msgspec.json.decode(data.value(20_014), type=Order)
    assert order == Order("customer-00000000", data.amount(20_014), FIRST_TS + 20_014)
    assert data.key(20_014) == order.user.encode() == data.user(20_014).encode()


@pytest.mark.parametrize("size", [20, 59, 60, 70, 1_000, 20_000])
def test_values_have_the_size_that_is_asked_for_and_are_different(size: int) -> None:
    data = Data(100_000, value_bytes=size)
    data.check(Workload.FORWARD)
    values = {data.value(number) for number in range(0, 100_000, 999)}
    assert {len(value) for value in values} == {size}
    assert len(values) == 101


@pytest.mark.parametrize(("size", "workload"), [(65, "W0"), (5, "W0"), (59, "W1"), (20, "W2")])
def test_values_that_cannot_be_made_or_read_are_refused(size: int, workload: str) -> None:
    with pytest.raises(InvalidError):
        Data(100_000, value_bytes=size).check(Workload(workload))


def test_the_totals_are_those_of_a_plain_loop() -> None:
    data = Data(1_000, users=7)
    totals: Counter[int] = Counter()
    written = defaultdict(list)
    for number in range(data.records):
        totals[number % 7] += data.amount(number)
        written[number % 7].append(totals[number % 7])
    assert {user: list(answer(Workload.TOTALS, data, user)) for user in range(7)} == written
    assert output_records(Workload.TOTALS, data) == output_records(Workload.FORWARD, data) == 1_000


@pytest.mark.parametrize("users", [3, 40_000])
def test_the_windows_are_those_of_a_plain_loop(users: int) -> None:
    data = Data(100_000, users)
    windows: defaultdict[int, Counter[int]] = defaultdict(Counter)
    for number in range(data.records):
        ts = data.ts(number)
        windows[number % users][ts - ts % WINDOW] += data.amount(number)
    for user, totals in windows.items():
        assert answer(Workload.WINDOWS, data, user) == sorted(totals.items())
    assert output_records(Workload.WINDOWS, data) == sum(map(len, windows.values()))
