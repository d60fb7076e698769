"""A job whose keys the input's partitions keep together, in a harness: a test says in which partition a record is."""

from operator import attrgetter
from typing import Any

import pytest

import tidegate as tg
from tests.unit.testing.jobs import Order
from tidegate.errors import InvalidError
from tidegate.state.key_partitions import KeyPartitions
from tidegate.testing import CollectSink, JobHarness, ScriptedSource

PARTITIONS = KeyPartitions(4, "murmur2")
USERS = [f"user-{number}" for number in range(12)]
IN_ORDER = tg.WatermarkStrategy[Order].for_monotonous_timestamps().with_timestamp_assigner(attrgetter("at"))
COUNT: tg.Aggregate[Any, int, int] = tg.Aggregate(
    type=int, create=int, add=lambda n, _: n + 1, merge=lambda one, other: one + other, result=lambda n: n
)


def totals() -> tg.Job:
    job = tg.Job("totals")
    by_user = job.source(ScriptedSource(), name="orders").key_by(attrgetter("user"), key_type=str, partitions=4)
    by_user.reduce(_added, name="totals", type=Order).sink(CollectSink(), name="out")
    return job


def _added(one: Order, other: Order) -> Order:
    return Order(one.user, one.amount + other.amount)


def counts() -> tg.Job:
    """Windows of each user, and behind an exchange those of all."""
    job = tg.Job("counts")
    orders = job.source(ScriptedSource(), name="orders", watermarks=IN_ORDER)
    minute = tg.TumblingEventTimeWindows("60s")
    by_user = orders.key_by(attrgetter("user"), key_type=str, partitions=4).window(minute)
    counted = by_user.aggregate(COUNT, lambda user, window, n: (window.start, n), name="counts")
    together = counted.key_by(lambda found: found[0], key_type=int).window(minute)
    together.aggregate(COUNT, lambda start, _, n: (start, n), name="users").sink(CollectSink(), name="out")
    return job


def harness(job: tg.Job, parallelism: int) -> JobHarness:
    return JobHarness(job, sources={"orders": ScriptedSource(splits=4)}, parallelism=parallelism)


@pytest.mark.parametrize("parallelism", [1, 2, 3, 4, 6])
def test_state_and_partitions_stay_together_over_crashes_and_other_parallelisms(parallelism: int) -> None:
    with harness(totals(), parallelism) as job:
        for turn, after in enumerate([2, 6, 1, parallelism]):
            for user in USERS:
                job.send("orders", Order(user, 10**turn), split=PARTITIONS.of(user))
            job.checkpoint()
            for user in USERS:
                job.send("orders", Order(user, 5), split=PARTITIONS.of(user))
            job.crash()
            for user in USERS:
                job.send("orders", Order(user, -5), split=PARTITIONS.of(user))
            job.restart(parallelism=after)
        job.finish()
        last = {order.user: order.amount for order in job.committed()}
        assert last == dict.fromkeys(USERS, 1111)
        assert len(job.committed()) == len(USERS) * 4 * 3


@pytest.mark.parametrize("parallelism", [2, 6])
def test_subtasks_without_a_partition_hold_no_event_time_back(parallelism: int) -> None:
    with harness(counts(), parallelism) as job:
        for at in (1, 60_001, 120_001):
            for user in USERS:
                job.send("orders", Order(user, 1, at), split=PARTITIONS.of(user))
        assert job.output() == [(0, len(USERS)), (60_000, len(USERS))]


def test_a_record_in_the_wrong_partition_stops_the_test_too() -> None:
    wrong = (PARTITIONS.of("user-1") + 1) % 4
    for parallelism in (1, 2, 4):
        with harness(totals(), parallelism) as job, pytest.raises(InvalidError, match="belongs to partition"):
            job.send("orders", Order("user-1", 1), split=wrong)


def test_a_job_that_goes_on_with_one_subtask_takes_keys_wherever_they_are_and_with_more_it_does_not() -> None:
    wrong = (PARTITIONS.of("user-1") + 2) % 4
    with harness(totals(), 2) as job:
        job.send("orders", Order("user-1", 1), split=PARTITIONS.of("user-1"))
        job.restart(parallelism=1)
        job.send("orders", Order("user-1", 10), split=wrong)
        assert job.output()[-1].amount == 11
        job.restart(parallelism=4)
        job.send("orders", Order("user-1", 100), split=PARTITIONS.of("user-1"))
        assert job.output()[-1].amount == 111
        with pytest.raises(InvalidError, match=f"came from partition {wrong}, .* belongs to partition"):
            job.send("orders", Order("user-1", 1000), split=wrong)


def test_a_key_that_is_none_is_refused_at_every_parallelism() -> None:
    for parallelism in (1, 2):
        with harness(totals(), parallelism) as job, pytest.raises(InvalidError, match="None"):
            job.send("orders", Order(None, 1))  # type: ignore[arg-type]


def test_with_one_split_and_one_subtask_nobody_has_to_say_where_records_are() -> None:
    with JobHarness(totals()) as job:
        for user in USERS:
            job.send("orders", Order(user, 1))
        assert len(job.output()) == len(USERS)
    with pytest.raises(InvalidError, match="does not say which partition is which"):
        JobHarness(totals(), parallelism=2)
