"""What a harness says of a job is what the job does: the same program commits the same on the embedded log and in a
harness. And whatever happens to a job on the way, it commits what an undisturbed one does."""

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidegate as tg
from tests.unit.testing.jobs import LATE, SUM, Order, Silence, Total, told, user_of
from tidegate.config import StartOptions, read_layers
from tidegate.deploy.launch import run_job
from tidegate.local import LocalLog, LocalSink, LocalSource
from tidegate.metrics import JobStatus, Level
from tidegate.testing import JobHarness, Record

BOUND = 5
"""Milliseconds by which records are out of order."""
STRATEGY: tg.WatermarkStrategy[Order] = tg.WatermarkStrategy.for_bounded_out_of_orderness(
    f"{BOUND}ms"
).with_timestamp_assigner(lambda order: order.at)
Build = Callable[["Ends"], None]


class Ends:
    """A job over a log, before anything is between its sources and its sinks."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.job = tg.Job("honest")

    def source(self, name: str) -> tg.Stream[Order]:
        source = LocalSource(self._folder, name, value=tg.Json(Order), bounded=True)
        return self.job.source(source, name=name, watermarks=STRATEGY)

    def sink(self, stream: tg.Stream[Any], name: str = "out") -> None:
        written = stream.map(str, name=f"{name}-text")
        written.sink(LocalSink(self._folder, name, value=tg.String(), partitions=1), name=name)


class Reminder(tg.KeyedProcessFunction[str, Order, str]):
    """Twenty milliseconds of event time after each order: how many there were since."""

    times = tg.ListState(int)

    def process_element(self, value: Order, ctx: tg.KeyedContext[str]) -> None:
        self.times.add(value.at)
        ctx.timer_service.register_event_time_timer(value.at + 20)

    def on_timer(self, timestamp: int, ctx: tg.KeyedContext[str]) -> Iterator[str]:
        times = sorted(self.times.get())
        yield f"{ctx.key}: {sum(timestamp - 20 <= at < timestamp for at in times)} since {timestamp - 20}"
        self.times.update([at for at in times if at > timestamp - 20])


def plain(ends: Ends) -> None:
    orders = ends.source("orders").filter(lambda order: order.amount % 3 > 0, name="some")
    ends.sink(orders.flat_map(lambda order: [order.user] * (order.amount % 4), name="names"))


def keyed(ends: Ends) -> None:
    ends.sink(ends.source("orders").key_by(user_of).process(Total(), name="total"))


def tumbling(ends: Ends) -> None:
    windows = ends.source("orders").key_by(user_of).window(tg.TumblingEventTimeWindows("10ms"), late=LATE)
    totals = windows.aggregate(SUM, told, name="sum")
    ends.sink(totals)
    ends.sink(totals.side_output(LATE), "late")


def sliding_and_session(ends: Ends) -> None:
    by_user = ends.source("orders").key_by(user_of)
    ends.sink(by_user.window(tg.SlidingEventTimeWindows("20ms", "5ms")).aggregate(SUM, told, name="sum"))
    ends.sink(by_user.window(tg.EventTimeSessionWindows("7ms")).aggregate(SUM, told, name="session"), "sessions")


def timers(ends: Ends) -> None:
    ends.sink(ends.source("orders").key_by(user_of).process(Reminder(), name="remind"))


def joined(ends: Ends) -> None:
    orders, refunds = (ends.source(name).key_by(user_of) for name in ("orders", "refunds"))
    pairs = orders.interval_join(
        refunds, lambda one, other: (one, other), lower="-3ms", upper="8ms", name="pair", types=(Order, Order)
    )
    ends.sink(pairs)


def as_of(ends: Ends) -> None:
    orders, refunds = (ends.source(name).key_by(user_of) for name in ("orders", "refunds"))
    last = orders.temporal_join(
        refunds, lambda one, other: (one, other), name="last", types=(Order, Order), how="left", within="15ms"
    )
    ends.sink(last)


PROGRAMS: list[Build] = [plain, keyed, tumbling, sliding_and_session, timers, joined, as_of]


def made_up(seed: int, count: int, users: str = "abc") -> list[Order]:
    """Orders of the same user and the same time differ, and those of different sources are not of the same time: what a
    temporal join makes of such depends on who comes first."""
    chance = random.Random(seed)
    orders = [Order(chance.choice(users), 7 * at + seed, 2 * at + seed % 2) for at in range(count)]
    return sorted(orders, key=lambda order: order.at + chance.randint(0, BOUND - 1))


class Quiet:
    """A reporter of whom nobody wants to hear."""

    def update(self, status: JobStatus) -> None: ...

    def event(self, level: Level, text: str, **fields: object) -> None: ...

    def close(self) -> None: ...


def committed_on_the_log(build: Build, inputs: Mapping[str, Sequence[Order]], folder: Path) -> Counter[str]:
    with LocalLog(folder / "log") as log:
        for name, orders in inputs.items():
            log.create_topic(name, 1)
            log.append(name, 0, [msgspec.json.encode(order) for order in orders])
    ends = Ends(folder / "log")
    build(ends)
    given = {"checkpoints.dir": str(folder / "checkpoints"), "checkpoints.interval": "20ms"}
    layers = read_layers(folder, folder, {}, [(name, value, "test") for name, value in given.items()])
    run_job(ends.job, layers, StartOptions(), lambda _: Quiet())
    with LocalLog(folder / "log") as log:
        topics = [topic for topic in log.topics() if topic not in inputs]
        return Counter(str(row.value, "utf-8") for topic in topics for row in log.read(topic, 0) if row.value)


def in_harness(build: Build, inputs: Mapping[str, Sequence[Order]], folder: Path, **options: Any) -> JobHarness:
    ends = Ends(folder)
    build(ends)
    return JobHarness(ends.job, sources={n: o for n, o in inputs.items() if n in sources_of(build)}, **options)


def sources_of(build: Build) -> list[str]:
    ends = Ends(Path("nowhere"))
    build(ends)
    return [node.name for node in ends.job.graph().sources]


def committed_in(harness: JobHarness) -> Counter[str]:
    return Counter(text for sink in harness.sinks.values() for text in sink.committed)


def inputs_of(build: Build, count: int = 60) -> dict[str, list[Order]]:
    return {name: made_up(seed, count) for seed, name in enumerate(sources_of(build))}


@pytest.mark.parametrize("build", PROGRAMS, ids=lambda build: build.__name__)
def test_a_harness_commits_what_the_job_commits_on_the_embedded_log(build: Build, tmp_path: Path) -> None:
    inputs = inputs_of(build)
    real = committed_on_the_log(build, inputs, tmp_path)
    assert sum(real.values()) > 20
    for options in ({}, {"parallelism": 2, "batch_size": 7}):
        with in_harness(build, inputs, tmp_path, **options) as harness:
            harness.finish()
            assert committed_in(harness) == real


def test_the_comparison_notices_a_record_that_is_missing_doubled_or_changed(tmp_path: Path) -> None:
    inputs = inputs_of(keyed)
    real = committed_on_the_log(keyed, inputs, tmp_path)
    first = inputs["orders"][0]
    for wrong in ([], [first, first], [first._replace(amount=first.amount + 1)]):
        with in_harness(keyed, {"orders": [*wrong, *inputs["orders"][1:]]}, tmp_path) as harness:
            harness.finish()
            assert committed_in(harness) != real


# ---- whatever happens ----------------------------------------------------------------------------------------------

ACTIONS = st.one_of(
    st.just(("checkpoint", None)),
    st.tuples(st.sampled_from(["crash", "restart"]), st.integers(1, 3)),
    st.tuples(st.just("snapshots"), st.booleans()),
)


@cache
def undisturbed(build: Build, count: int) -> Counter[str]:
    with in_harness(build, inputs_of(build, count), Path("nowhere")) as harness:
        harness.finish()
        return committed_in(harness)


def disturbed(
    build: Build, inputs: Mapping[str, Sequence[Order]], places: Sequence[tuple[int, tuple[str, Any]]], batch_size: int
) -> Counter[str]:
    names = list(inputs)
    entries = [
        (name, order) for pair in zip(*inputs.values(), strict=True) for name, order in zip(names, pair, strict=True)
    ]
    happens: dict[int, list[tuple[str, Any]]] = {}
    for place, action in places:
        happens.setdefault(place % len(entries), []).append(action)
    with in_harness(build, {}, Path("nowhere"), batch_size=batch_size) as harness:
        for place, (name, order) in enumerate(entries):
            for what, how in happens.get(place, ()):
                act(harness, what, how)
            harness.send(name, order)
        harness.finish()
        return committed_in(harness)


def act(harness: JobHarness, what: str, how: Any) -> None:
    match what:
        case "checkpoint":
            harness.checkpoint()
        case "crash":
            harness.crash(parallelism=how)
        case "restart":
            harness.restart(parallelism=how)
        case "snapshots":
            harness.snapshot_every_element = how


@pytest.mark.parametrize("build", PROGRAMS[1:], ids=lambda build: build.__name__)
@settings(max_examples=3, deadline=None)
@given(
    places=st.lists(st.tuples(st.integers(0, 60), ACTIONS), max_size=5),
    batch_size=st.sampled_from([1, 3]),
)
def test_crashes_and_restarts_at_any_parallelism_change_nothing(
    build: Build, places: list[tuple[int, tuple[str, Any]]], batch_size: int
) -> None:
    assert disturbed(build, inputs_of(build, 20), places, batch_size) == undisturbed(build, 20)


@pytest.mark.slow
@pytest.mark.parametrize("build", PROGRAMS[1:], ids=lambda build: build.__name__)
@settings(max_examples=40, deadline=None)
@given(
    places=st.lists(st.tuples(st.integers(0, 120), ACTIONS), max_size=12),
    batch_size=st.sampled_from([1, 2, 3, 7, 64]),
)
def test_many_crashes_and_restarts_change_nothing(
    build: Build, places: list[tuple[int, tuple[str, Any]]], batch_size: int
) -> None:
    assert disturbed(build, inputs_of(build, 40), places, batch_size) == undisturbed(build, 40)


def test_a_function_that_forgets_is_found_by_a_restart() -> None:
    class Forgetful(Silence):
        """Its count is no state."""

        count = 0

        def process_element(self, value: Order, ctx: tg.KeyedContext[str]) -> list[str]:  # type: ignore[override]
            self.count += 1
            return [f"order {self.count}"]

    def forgetful(ends: Ends) -> None:
        ends.sink(ends.source("orders").key_by(user_of).process(Forgetful(), name="count"))

    assert disturbed(forgetful, inputs_of(forgetful, 6), [(3, ("restart", 1))], 1) != undisturbed(forgetful, 6)


def test_records_with_timestamps_of_their_own_keep_them() -> None:
    ends = Ends(Path("nowhere"))
    ends.sink(ends.source("orders"))
    with JobHarness(ends.job) as harness:
        harness.send("orders", Record(Order("a", 1, 7), 99))
        assert harness.sink("out").records[0].timestamp == 7
