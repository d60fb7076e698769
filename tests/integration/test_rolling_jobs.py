"""Rolling aggregates in a job that is stopped and started again, at other parallelisms and from a savepoint under the
other state backend: what comes out is what plain Python makes of the whole input."""

from itertools import accumulate
from pathlib import Path
from typing import Any

import msgspec
import pytest

import tidegate as tg
from tests.integration.programs import log_of
from tests.integration.stepping import BACKENDS, INPUT, OUTPUT, OUTPUT_PARTITIONS, SteppedJob
from tidegate import aggregates
from tidegate.local import LocalSink, LocalSource
from tidegate.savepoints.exporting import export_savepoint
from tidegate.savepoints.places import CheckpointFiles, find_job
from tidegate.storage.local import LocalStorage

JOB = "rolling"
USERS = 5


class Order(msgspec.Struct, frozen=True):
    user: str
    amount: int


class Out(msgspec.Struct, frozen=True):
    what: str
    user: str
    value: Any


def user_of(record: Order | Out) -> str:
    return record.user


def amount_of(order: Order) -> int:
    return order.amount


def total_of(user: str, total: int) -> Out:
    return Out("total", user, total)


def amounts_of(user: str, amounts: list[int]) -> Out:
    return Out("all", user, amounts)


def job_of(log: Path) -> tg.Job:
    job = tg.Job(JOB)
    by_user = job.source(LocalSource(log, INPUT, value=tg.Json(Order)), name="orders").key_by(user_of)
    totals = by_user.aggregate(aggregates.sum(amount_of, type=int), total_of, name="totals")
    amounts = by_user.aggregate(aggregates.collect(amount_of, type=int), amounts_of, name="all")
    sink = LocalSink(log, OUTPUT, key=user_of, value=tg.Json(Out), partitions=OUTPUT_PARTITIONS)
    totals.union(amounts, name="both").sink(sink, name="out")
    return job


def orders(first: int, count: int) -> list[Order]:
    return [Order(f"u{number % USERS}", number * 37 % 101) for number in range(first, first + count)]


def export(stepped: SteppedJob, path: Path) -> None:
    store = find_job(str(stepped.checkpoints))
    newest = stepped.newest
    assert newest is not None
    export_savepoint(newest, CheckpointFiles(store, newest), LocalStorage(path), path.parent / "scratch")


@pytest.mark.parametrize("backend", BACKENDS)
def test_they_go_on_where_they_were_also_from_a_savepoint_under_the_other_backend(tmp_path: Path, backend: str) -> None:
    stepped, fed = SteppedJob(tmp_path, JOB, backend), list[Order]()
    savepoint = tmp_path / "savepoint"
    beginnings: list[dict[str, Any]] = [{}, {}, {"from_savepoint": str(savepoint)}]
    for parallelism, beginning in zip((2, 3, 1), beginnings, strict=True):
        if beginning:
            export(stepped, savepoint)
            stepped.backend = BACKENDS[1 - BACKENDS.index(backend)]
            stepped.checkpoints = tmp_path / "elsewhere"
        fed += orders(len(fed), 100)
        stepped.append(fed[-100:])
        stepped.run(job_of(stepped.log), parallelism, **beginning)
    output = stepped.output(Out)
    for number in range(USERS):
        amounts = [order.amount for order in fed if order.user == f"u{number}"]
        values = {
            what: [out.value for out in output if (out.what, out.user) == (what, f"u{number}")]
            for what in ("total", "all")
        }
        assert values["total"] == list(accumulate(amounts))
        assert values["all"] == [amounts[: end + 1] for end in range(len(amounts))]
    assert log_of(stepped.checkpoints, JOB).newest is not None
