"""The parts of the measures that conclude something, on made-up times: quantiles, the load generator's pace, what comes
out compared with what had to, pauses, and tables. No broker is needed.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from benchmarks.suite import latency, memory, sweeps
from benchmarks.suite import pauses as pauses_command
from benchmarks.suite.contracts import Guarantee, Workload
from benchmarks.suite.measure import Measured, Plan
from benchmarks.suite.measures import load, marks
from benchmarks.suite.measures.arrivals import Arrival, read
from benchmarks.suite.measures.barriers import Pause, before_the_end, pauses, with_longest_only
from benchmarks.suite.measures.load import Pace, Sent
from benchmarks.suite.measures.marks import Mark
from benchmarks.suite.measures.orders import TICK, Expected, Orders, WrongTotal
from benchmarks.suite.measures.quantiles import Histogram, NoMeasure
from benchmarks.suite.measures.stage import Helper
from benchmarks.suite.workloads import Data
from tidegate.connectors.kafka.batches.building import Building
from tidegate.connectors.kafka.batches.writers import Columns, Producing

# ---- quantiles -----------------------------------------------------------------------------------------------------


def test_quantiles_are_the_times_that_so_many_did_not_exceed() -> None:
    times = Histogram()
    for number in range(1, 1001):
        times.add(number / 1000)
    assert times.summary() == pytest.approx((1000, 0.5, 0.99, 0.999, 1.0))


def test_one_slow_time_in_a_hundred_is_the_longest_and_not_p99() -> None:
    times = Histogram()
    times.add(0.01, 99)
    times.add(5.0)
    assert times.summary() == pytest.approx((100, 0.01, 0.01, 5.0, 5.0))
    times.add(5.0)
    assert times.quantile(0.99) == pytest.approx(5.0)


def test_a_time_is_never_told_shorter_than_it_was() -> None:
    times = Histogram()
    times.add(0.00011)
    assert times.quantile(0.5) == pytest.approx(0.0002)


def test_there_are_no_quantiles_of_nothing_and_no_times_below_zero() -> None:
    with pytest.raises(NoMeasure, match="nothing"):
        Histogram().summary()
    with pytest.raises(NoMeasure, match="two clocks"):
        Histogram().add(-0.001)


# ---- the load generator --------------------------------------------------------------------------------------------


class World:
    """A clock that sleeping moves, and sending by `cost` seconds."""

    def __init__(self, cost: float) -> None:
        self.now = 100.0
        self.sent: list[float] = []
        self._cost = cost

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def send(self, tick: int) -> None:
        assert tick == len(self.sent)
        self.sent.append(self.now)
        self.now += self._cost

    def run(self, ticks: int) -> Sent:
        return load.run(self.send, 100.0, lambda tick: tick >= ticks, Pace(lambda: self.now, self.sleep))


def test_each_crowd_goes_out_when_it_is_due() -> None:
    world = World(cost=TICK / 2)
    sent = world.run(200)
    assert world.sent == pytest.approx([100.0 + tick * TICK for tick in range(200)])
    assert (sent.ticks, sent.late) == (200, 0)
    sent.check()


def test_a_generator_that_is_too_slow_is_no_measure() -> None:
    sent = World(cost=2 * TICK).run(200)
    assert sent.late > 0
    with pytest.raises(NoMeasure, match="fell behind"):
        sent.check()


def test_after_a_standstill_every_crowd_that_was_due_still_goes_out_and_counts_as_late() -> None:
    world = World(cost=0.0)
    world.now += 1.0
    sent = world.run(300)
    assert len(world.sent) == 300
    assert sent.late == 90
    assert sent.latest == pytest.approx(1.0)
    with pytest.raises(NoMeasure, match="90 of 300"):
        sent.check()
    sent.check(share=0.5)


def test_a_generator_that_has_sent_nothing_is_no_measure() -> None:
    with pytest.raises(NoMeasure, match="nothing"):
        World(0.0).run(0).check()


def test_the_requests_of_a_cycle_hold_each_of_its_orders_once_and_by_the_key_in_one_partition() -> None:
    orders = Orders(rate=500, users=70)
    partitions: dict[bytes, int] = {}
    values = []
    for tick in range(orders.cycle_ticks):
        for partition, (keys, own) in orders.columns(tick, 4).items():
            values += own
            for key in keys:
                assert partitions.setdefault(key, partition) == partition
    assert sorted(values) == sorted(map(orders.data.value, range(orders.cycle)))
    assert len(load.requests(orders, "topic", 4, 0)) == orders.cycle_ticks


def test_a_cycle_is_long_enough_for_an_order_of_each_user() -> None:
    orders = Orders(rate=1000, users=10_007)
    assert orders.cycle >= 10_007
    assert orders.cycle == orders.per_tick * orders.cycle_ticks


# ---- what comes out ------------------------------------------------------------------------------------------------

ORDERS = Orders(rate=300, users=7)


def totals(ticks: int, orders: Orders = ORDERS) -> list[bytes]:
    """What a job that is right writes for the orders of so many ticks, in their order."""
    sums: dict[str, int] = {}
    rows = []
    for tick in range(ticks):
        for number in orders.tick(tick % orders.cycle_ticks):
            user = orders.data.user(number)
            sums[user] = sums.get(user, 0) + orders.data.amount(number)
            rows.append(msgspec.json.encode({"user": user, "total": sums[user]}))
    return rows


def test_each_total_belongs_to_the_tick_of_its_order_also_in_later_cycles() -> None:
    ticks = 2 * ORDERS.cycle_ticks + 5
    expected = Expected(ORDERS)
    assert expected.ticks_of(totals(ticks)) == [tick for tick in range(ticks) for _ in range(ORDERS.per_tick)]
    assert expected.outputs == ticks * ORDERS.per_tick


@pytest.mark.parametrize(
    "spoil",
    [
        lambda rows: rows[:30] + rows[31:],
        lambda rows: [*rows[:30], rows[30], *rows[30:]],
        lambda rows: [*rows[:30], rows[30].replace(b'"total":', b'"total":1'), *rows[31:]],
        lambda rows: [*rows[:30], rows[37], *rows[31:37], rows[30], *rows[38:]],
    ],
    ids=["missing", "doubled", "changed", "out of order"],
)
def test_a_total_that_is_not_what_it_has_to_be_is_an_error(spoil: object) -> None:
    assert callable(spoil)
    with pytest.raises(WrongTotal, match="and not"):
        Expected(ORDERS).ticks_of(spoil(totals(100)))


def arrival(at: float, values: Sequence[bytes]) -> Arrival:
    building = Building(1_000_000, Producing())
    building.add(Columns(values, None, [0] * len(values), None))
    return Arrival(at, 0, building.seal(-1, 0.0).data, ())


def test_latency_counts_from_when_an_order_was_due_and_leaves_the_warm_up_out() -> None:
    sent = Sent(began=50.0, ticks=4, late=0, latest=0.0, cpu_seconds=0.0)
    rows = totals(4)
    arrived = [arrival(50.5, rows[:6]), arrival(51.0, rows[6:])]
    found = latency.of(arrived, ORDERS, sent, warm_up=TICK)
    assert found.times == 9
    assert found.p50 == pytest.approx(1.0 - 3 * TICK)
    assert found.longest == pytest.approx(1.0 - 2 * TICK)
    assert latency.of(arrived, ORDERS, sent, warm_up=0.0).times == 12


def test_a_latency_of_which_totals_are_missing_is_no_measure() -> None:
    sent = Sent(began=50.0, ticks=5, late=0, latest=0.0, cpu_seconds=0.0)
    with pytest.raises(NoMeasure, match="15 orders went in, 12 totals came out"):
        latency.of([arrival(51.0, totals(4))], ORDERS, sent, warm_up=0.0)


def test_what_a_reader_has_kept_is_read_back(tmp_path: Path) -> None:
    kept = [arrival(1.5, [b"a", b"b"]), arrival(2.5, [b"c"])]
    data = [msgspec.msgpack.encode(one) for one in kept]
    (tmp_path / "kept").write_bytes(b"".join(len(one).to_bytes(8, "big") + one for one in data))
    found = list(read(tmp_path / "kept"))
    assert found == kept
    assert [one.values() for one in found] == [[b"a", b"b"], [b"c"]]


def test_records_of_aborted_transactions_are_not_seen() -> None:
    building = Building(1_000_000, Producing(id=9, epoch=0, is_transactional=True))
    building.add(Columns([b"a"], None, [0], None))
    data = building.seal(0, 0.0).data
    assert Arrival(1.0, 0, data, ()).values() == [b"a"]
    assert Arrival(1.0, 0, data, ((9, 0),)).values() == []


# ---- pauses --------------------------------------------------------------------------------------------------------


def barrier(pid: int, task: str, checkpoint: int, begin: float, captured: float, *takes: float) -> list[Mark]:
    about = f"{task} {checkpoint}"
    found = [Mark(begin, pid, "worker 0", "barrier", about), Mark(captured, pid, "worker 0", "captured", about)]
    return found + [Mark(at, pid, "worker 0", "goes on", about) for at in takes]


def flushed(pid: int, at: float) -> Mark:
    return Mark(at, pid, "worker 0", "flushed", "")


def test_a_pause_lasts_from_the_barrier_to_the_next_records_of_its_task() -> None:
    both = barrier(7, "totals[0]", 1, 10.0, 10.002, 10.015) + barrier(8, "totals[1]", 1, 10.001, 10.002, 10.004)
    of_first, of_second = pauses(sorted([*both, flushed(7, 10.009)]))
    assert (of_first.task, of_second.task, of_first.checkpoint) == ("totals[0]", "totals[1]", 1)
    assert of_first[2:] == pytest.approx((0.002, 0.009, 0.015, 10.0))
    assert of_second[2:] == pytest.approx((0.001, 0.001, 0.003, 10.001))
    assert with_longest_only([of_second, of_first]) == [of_first]


def test_of_a_task_that_goes_on_while_its_sink_flushes_the_longest_time_without_records_counts() -> None:
    waited = barrier(7, "totals[0]", 1, 10.0, 10.001, 10.002, 10.004, 10.011, 10.050)
    (pause,) = pauses(sorted([*waited, flushed(7, 10.010)]))
    assert pause.whole == pytest.approx(0.007)


def test_what_is_flushed_later_belongs_to_no_pause_that_is_over() -> None:
    first = barrier(7, "totals[0]", 1, 10.0, 10.002, 10.015)
    second = barrier(7, "totals[0]", 2, 11.0, 11.001, 11.010)
    found = pauses(sorted([*first, flushed(7, 10.003), flushed(7, 10.5), *second]))
    assert [pause.flushed for pause in found] == pytest.approx([0.003, 0.001])


def test_a_barrier_behind_which_nothing_came_is_no_pause() -> None:
    assert pauses(barrier(7, "totals[0]", 1, 10.0, 10.002)) == []


def test_at_the_end_of_a_run_tasks_wait_because_there_is_nothing_left_which_is_no_pause() -> None:
    middle = [*barrier(7, "totals[0]", 1, 10.0, 10.002, 10.015), flushed(7, 10.003)]
    marks = [*middle, *barrier(7, "totals[0]", 2, 11.0, 11.001, 11.2), flushed(7, 11.002)]
    found = pauses(marks)
    assert [pause.checkpoint for pause in before_the_end(found, marks, 0.4)] == [1]
    assert before_the_end(found, marks, 0.1) == found
    assert before_the_end([], [], 0.4) == []


def test_too_few_barriers_are_no_measure() -> None:
    plan = Plan(Workload.TOTALS, 1, Data(1000))
    few = [Pause("totals[0]", number, 0.001, 0.004, 0.01) for number in range(pauses_command.FEWEST - 1)]
    with pytest.raises(NoMeasure, match="only 19 barriers"):
        pauses_command.of(few, plan)
    row = pauses_command.of([*few, Pause("totals[0]", 99, 0.002, 0.004, 0.03)], plan)
    assert row.whole.longest == pytest.approx(0.03)
    assert row.worst[0].checkpoint == 99
    assert "| 20 | 10.0 ms | 30.0 ms | 30.0 ms |" in pauses_command.text_of([row])


# ---- costs ---------------------------------------------------------------------------------------------------------


def measured(rate: float, memory_bytes: int = 0, records: int = 1_000_000, cpu_seconds: float = 2.0) -> Measured:
    return Measured(
        arguments=[],
        seconds_to_first=1.0,
        seconds_to_tenth=2.0,
        seconds_to_last=2.0 + records * 0.9 / rate,
        seconds_to_end=10.0,
        records=records,
        output_records=records,
        cpu_seconds=cpu_seconds,
        peak_memory=memory_bytes,
        broker_cpu_seconds=None,
        other_cpu_seconds=None,
    )


LEAST = measured(1.0, records=1_000, cpu_seconds=1.001)


def test_a_cost_is_the_median_of_its_rounds_without_start_and_end() -> None:
    kind = next(sweeps.partitions(1_000_000))
    cost = sweeps.of(kind, [measured(100_000), measured(300_000), measured(200_000)], LEAST)
    assert (cost.what, cost.value, len(cost.rates)) == ("partitions", "1", 3)
    assert cost.rate == pytest.approx(200_000)
    assert cost.cpu_microseconds == pytest.approx(1.0)


def test_a_cost_that_cannot_be_told_from_that_of_starting_is_no_measure() -> None:
    kind = next(sweeps.partitions(1_000_000))
    with pytest.raises(NoMeasure, match="too few records"):
        sweeps.of(kind, [measured(100_000, cpu_seconds=1.0)], LEAST)


def test_exactly_once_is_compared_with_at_least_once_in_the_pairs_in_which_they_ran() -> None:
    exactly, at_least = sweeps.guarantees(1_000_000)
    costs = [
        sweeps.of(exactly, [measured(90_000), measured(40_000), measured(10_000)], LEAST),
        sweeps.of(at_least, [measured(100_000), measured(50_000), measured(100_000)], LEAST),
    ]
    assert {kind.plan.guarantee for kind in (exactly, at_least)} == set(Guarantee)
    assert sweeps.ratio(costs) == pytest.approx(0.8)
    assert "0.80 of what at least once" in sweeps.text_of(costs)
    assert sweeps.ratio(costs[:1]) is None


def test_every_run_of_the_sweeps_is_one_that_can_be_made() -> None:
    for name, kinds in sweeps.SWEEPS.items():
        for kind in kinds(1_000_000):
            kind.plan.data.check(kind.plan.workload)
            assert kind.plan.data.records >= min(kind.plan.data.users, 1_000_000), name


def test_a_key_takes_what_more_keys_take_more() -> None:
    few, many = memory.of("fs", [(1_000, measured(1.0, 50_000_000)), (101_000, measured(1.0, 70_000_000))])
    assert few.bytes_per_key is None
    assert many.bytes_per_key == pytest.approx(200)
    assert "| objects, 101,000 | 70 MB | 200 |" in memory.text_of([few, many])
    with pytest.raises(NoMeasure):
        memory.of("fs", [])


# ---- processes -----------------------------------------------------------------------------------------------------


def test_a_helper_that_cannot_begin_is_no_measure() -> None:
    with (
        pytest.raises(NoMeasure, match=r"measures\.load has ended with 2"),
        Helper([*load.command("127.0.0.1:1", "topic", ORDERS)[:3], "--unknown"]),
    ):
        pass


def test_a_line_that_a_killed_process_has_not_finished_is_no_mark(tmp_path: Path) -> None:
    (tmp_path / "1.marks").write_text('[2.0,1,"worker 0","barrier","totals[0] 1"]\n[3.0,1,"wor')
    (tmp_path / "2.marks").write_text('[1.0,2,"job manager","phase","running"]\n')
    assert [mark.text for mark in marks.read(tmp_path)] == ["phase running", "barrier totals[0] 1"]
    assert marks.living_workers(marks.read(tmp_path)) == {"worker 0": 1}
