"""Each check of the suite takes the answer, and refuses one in which a record is missing, doubled, changed or moved."""

from collections.abc import Callable, Iterator

import msgspec
import pytest

from benchmarks.suite.checks import Check, WrongResult
from benchmarks.suite.contracts import Workload
from benchmarks.suite.workloads import WINDOW, Data, answer, output_records

USERS, USER = 31, 5
FEW = Data(records=1_000, users=USERS)
DATA = {
    Workload.FORWARD: FEW,
    Workload.TOTALS: FEW,
    # Every user has orders in three windows.
    Workload.WINDOWS: FEW._replace(records=2 * WINDOW + 17),
}
Record = tuple[bytes, bytes]


def _values(workload: Workload, user: int) -> Iterator[bytes]:
    name = FEW.user(user)
    for item in answer(workload, DATA[workload], user):
        if isinstance(item, bytes):
            yield item
        elif isinstance(item, tuple):
            yield b'{"user": "%s", "start": %d, "total": %d}' % (name.encode(), *item)
        else:
            yield msgspec.json.encode({"total": item, "user": name})


@pytest.fixture(params=list(Workload), scope="module")
def workload(request: pytest.FixtureRequest) -> Workload:
    chosen: Workload = request.param
    return chosen


@pytest.fixture(scope="module")
def right(workload: Workload) -> list[list[Record]]:
    """For each partition what it has to have."""
    partitions: list[list[Record]] = [[], []]
    for user in range(USERS):
        partitions[user % 2] += [(FEW.key(user), value) for value in _values(workload, user)]
    return partitions


def _check(workload: Workload, partitions: list[list[Record]], at_once: int = 70) -> None:
    check = Check(workload, DATA[workload])
    for partition, records in enumerate(partitions):
        for begin in range(0, len(records), at_once):
            some = records[begin : begin + at_once]
            check.add(partition, [key for key, _ in some], [value for _, value in some])
    check.finish()


def test_the_answer_passes_and_its_records_are_counted(workload: Workload, right: list[list[Record]]) -> None:
    _check(workload, right)
    assert sum(map(len, right)) == output_records(workload, DATA[workload])


def _removed(records: list[Record], at: int) -> None:
    del records[at]


def _doubled(records: list[Record], at: int) -> None:
    records.insert(at, records[at])


def _changed(records: list[Record], at: int) -> None:
    key, value = records[at]
    records[at] = key, value.replace(b"5", b"6", 1) if b"5" in value else value.replace(b"1", b"2", 1)


def _other_key(records: list[Record], at: int) -> None:
    records[at] = FEW.key(USER - 1), records[at][1]


def _unknown_key(records: list[Record], at: int) -> None:
    records[at] = b"nobody", records[at][1]


def _no_value(records: list[Record], at: int) -> None:
    records[at] = records[at][0], None  # type: ignore[assignment]


@pytest.mark.parametrize("change", [_removed, _doubled, _changed, _other_key, _unknown_key, _no_value])
@pytest.mark.parametrize("which", ["first", "last"])
def test_another_answer_is_refused(
    workload: Workload, right: list[list[Record]], change: Callable[[list[Record], int], None], which: str
) -> None:
    partitions = [list(records) for records in right]
    own = [at for at, (key, _) in enumerate(partitions[USER % 2]) if key == FEW.key(USER)]
    change(partitions[USER % 2], own[0] if which == "first" else own[-1])
    with pytest.raises(WrongResult):
        _check(workload, partitions)


@pytest.mark.parametrize("workload", [Workload.FORWARD, Workload.TOTALS], indirect=True)
def test_records_of_a_key_in_another_order_are_refused(workload: Workload, right: list[list[Record]]) -> None:
    partitions = [list(records) for records in right]
    own = partitions[USER % 2]
    first, second, *_ = [at for at, (key, _) in enumerate(own) if key == FEW.key(USER)]
    own[first], own[second] = own[second], own[first]
    with pytest.raises(WrongResult, match="record 1 is"):
        _check(workload, partitions)


def test_a_key_in_two_partitions_has_no_order_and_is_refused(workload: Workload, right: list[list[Record]]) -> None:
    partitions = [list(records) for records in right]
    at = next(at for at, (key, _) in enumerate(partitions[1]) if key == FEW.key(USER))
    partitions[0].append(partitions[1].pop(at))
    with pytest.raises(WrongResult, match="in another one"):
        _check(workload, partitions)


def test_an_empty_output_is_refused_and_its_difference_told(workload: Workload) -> None:
    with pytest.raises(WrongResult, match=r"31 keys have a wrong output:\n  customer-00000000: 0 records"):
        _check(workload, [[], []])


def test_one_value_that_looks_like_two_results_is_refused() -> None:
    check = Check(Workload.TOTALS, FEW)
    total = b'{"user":"customer-00000001","total":131}'
    with pytest.raises(WrongResult, match="1 values make 2 results"):
        check.add(0, [FEW.key(1)], [total + b"," + total])
