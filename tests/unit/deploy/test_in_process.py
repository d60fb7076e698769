"""A whole job in this process: results, failures and restarts, signals, and what is refused."""

import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tests.integration.programs import wait_until
from tidegate.checkpoint.log import Takeover
from tidegate.checkpoint.store import CheckpointStore
from tidegate.clock import SystemClock
from tidegate.config import Config, ConfigLayers, StartOptions, read_layers
from tidegate.connectors.collections import CollectionSink, CollectionSource
from tidegate.deploy.executor import WakeUp
from tidegate.deploy.in_process import InProcessCluster
from tidegate.deploy.launch import check_sinks, launch, run_job, settings_of
from tidegate.deploy.local import ONE_STOP_SECONDS, stop_signals
from tidegate.deploy.processes import process_record
from tidegate.deploy.program import spec_of_target
from tidegate.errors import InvalidError, UserCodeError
from tidegate.ids import Attempt
from tidegate.local import LocalLog, LocalSink, LocalSource
from tidegate.metrics import JobResult, JobStatus, Level
from tidegate.scheduling import protocol as p
from tidegate.storage.memory import MemoryStorage


class Told:
    """A reporter that remembers."""

    def __init__(self) -> None:
        self.events: list[tuple[Level, str]] = []
        self.statuses: list[JobStatus] = []
        self.is_closed = False

    def update(self, status: JobStatus) -> None:
        self.statuses.append(status)

    def event(self, level: Level, text: str, **fields: object) -> None:
        self.events.append((level, text))

    def close(self) -> None:
        self.is_closed = True


class Runner:
    """Runs jobs with checkpoints in a folder of the test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.told = Told()

    def layers(self, **options: str) -> ConfigLayers:
        given = {
            "checkpoints.dir": str(self.folder / "checkpoints"),
            "checkpoints.interval": "20ms",
            "parallelism": "2",
        }
        given |= {"restart": "fixed-delay:2:1ms"} | {name.replace("__", "."): value for name, value in options.items()}
        return read_layers(self.folder, self.folder, {}, [(name, value, "test") for name, value in given.items()])

    def __call__(self, job: tg.Job, **options: str) -> JobResult:
        return run_job(job, self.layers(**options), StartOptions(), lambda _: self.told)


@pytest.fixture
def run(tmp_path: Path) -> Runner:
    return Runner(tmp_path)


class Counter(tg.KeyedProcessFunction[int, int, tuple[int, int]]):
    count = tg.ValueState(int, default=0)

    def process_element(self, value: int, ctx: tg.KeyedContext[int]) -> Iterator[tuple[int, int]]:
        self.count.update(self.count.value() + 1)
        yield value, self.count.value()


def counting(sink: CollectionSink, before: Callable[[int], int] = lambda number: number) -> tg.Job:
    job = tg.Job("counting")
    numbers = job.source(CollectionSource(range(1000), splits=3), name="numbers").map(before, name="before")
    counted = numbers.key_by(lambda number: number % 7, key_type=int).process(Counter(), name="counted")
    counted.sink(sink, name="sink")
    return job


def expected() -> list[tuple[int, int]]:
    return [(number, number // 7 + 1) for number in range(1000)]


def result_of(sink: CollectionSink) -> list[tuple[int, int]]:
    """Between splits the order of a key is not given: counts are those of the key, whoever came first."""
    numbers = sorted(number for number, _ in sink.committed)
    counts: dict[int, list[int]] = {}
    for number, count in sink.committed:
        counts.setdefault(number % 7, []).append(count)
    assert all(of_key == sorted(of_key) for of_key in counts.values())
    return [(number, counts[number % 7][number // 7]) for number in numbers]


def test_a_bounded_job_gives_every_result_once_and_says_what_it_did(run: Runner) -> None:
    sink = CollectionSink()
    result = run(counting(sink))
    assert result_of(sink) == expected()
    assert (result.attempts, result.restarts, result.records_in, result.records_out) == (1, 0, 1000, 1000)
    assert result.checkpoint >= 1
    assert run.told.is_closed
    assert run.told.statuses[-1].state == "done"


def test_a_failure_restarts_the_job_from_its_checkpoint(run: Runner) -> None:
    failures = [500]

    def fail_once(number: int) -> int:
        if number in failures:
            failures.clear()
            raise ValueError("once")
        return number

    sink = CollectionSink()
    result = run(counting(sink, fail_once))
    assert result_of(sink) == expected()
    assert (result.attempts, result.restarts) == (2, 1)


def test_an_error_that_stays_is_raised_with_the_users_frames(run: Runner) -> None:
    def fail(number: int) -> int:
        raise ValueError("always")

    with pytest.raises(UserCodeError, match="always") as error:
        run(counting(CollectionSink(), fail), restart="none")
    assert "in fail" in error.value.failure.traceback
    assert run.told.is_closed


def test_an_exit_of_user_code_does_not_end_the_process(run: Runner) -> None:
    with pytest.raises(UserCodeError, match="ended itself with exit code 0"):
        run(counting(CollectionSink(), lambda number: sys.exit(0)))


def test_an_exit_of_user_code_restarts_the_job_as_any_failure_does(run: Runner) -> None:
    exits = [500]

    def exit_once(number: int) -> int:
        if number in exits:
            exits.clear()
            sys.exit(0)
        return number

    sink = CollectionSink()
    result = run(counting(sink, exit_once))
    assert result_of(sink) == expected()
    assert (result.attempts, result.restarts) == (2, 1)


def test_an_interrupt_that_user_code_raises_ends_the_run_as_ctrl_c_does(run: Runner) -> None:
    def interrupt(number: int) -> int:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(counting(CollectionSink(), interrupt))
    assert run.told.is_closed
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_stops_cleanly_and_the_next_run_goes_on(run: Runner, tmp_path: Path) -> None:
    log = LocalLog(tmp_path / "log")
    log.create_topic("in", 2)
    log.append("in", 0, [b"%d" % number for number in range(10)])

    def copying() -> tg.Job:
        job = tg.Job("copying")
        source = LocalSource(tmp_path / "log", "in", value=tg.String())
        job.source(source, name="in").sink(
            LocalSink(tmp_path / "log", "out", value=tg.String(), partitions=1), name="out"
        )
        return job

    for count in (10, 20):

        def interrupt(count: int = count) -> None:
            wait_until(lambda: "out" in log.topics() and log.end_offset("out", 0) >= count, f"{count} records")
            os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=interrupt)
        thread.start()
        result = run(copying())
        thread.join()
        assert result.records_in == 10
        log.append("in", 1, [b"%d" % number for number in range(10, 20)])
    assert sorted(int(record.value or b"") for record in log.read("out", 0)) == list(range(20))
    log.close()


def test_a_second_interrupt_breaks_into_user_code(run: Runner) -> None:
    def never_return(number: int) -> int:
        os.kill(os.getpid(), signal.SIGINT)
        while True:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run(counting(CollectionSink(), never_return))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


# ---- signals -------------------------------------------------------------------------------------------------------


def ask_twice(pause: float) -> int:
    """How often it was asked to stop by two signals with a pause between them."""
    asked: list[bool] = []
    wake_up = WakeUp()
    with closing(wake_up), stop_signals(lambda: asked.append(True), wake_up):
        os.kill(os.getpid(), signal.SIGTERM)
        wait_until(lambda: bool(asked), "the first")
        time.sleep(pause)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.05)
    return len(asked)


def test_the_first_signal_asks_and_a_later_one_interrupts() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        ask_twice(ONE_STOP_SECONDS * 1.2)
    assert signal.getsignal(signal.SIGTERM) is before


def test_two_signals_at_once_are_one_request() -> None:
    assert ask_twice(0.0) == 1


def test_a_signal_wakes_the_loop() -> None:
    wake_up = WakeUp()
    with closing(wake_up), stop_signals(lambda: None, wake_up):
        os.kill(os.getpid(), signal.SIGTERM)
        assert select.select([wake_up], [], [], 10)[0]


def test_signals_are_left_alone_outside_the_main_thread() -> None:
    before = signal.getsignal(signal.SIGINT)
    seen: list[Any] = []

    def look() -> None:
        with stop_signals(lambda: None, WakeUp()):
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [before]


# ---- what is checked before a start --------------------------------------------------------------------------------


def test_a_sink_in_memory_is_refused_with_worker_processes(run: Runner) -> None:
    graph = counting(CollectionSink()).graph()
    config = run.layers().resolve()
    with pytest.raises(InvalidError, match="sink keeps its records in the memory of one process"):
        check_sinks(graph, config, StartOptions())
    check_sinks(graph, config, StartOptions(in_process=True))


def copying_with_timeout(folder: Path, timeout: float) -> tg.Job:
    job = tg.Job("copying")
    LocalLog(folder / "log").create_topic("in", 1)
    job.source(LocalSource(folder / "log", "in"), name="in").sink(
        LocalSink(folder / "log", "out", partitions=1, timeout=timeout), name="out"
    )
    return job


def test_transactions_must_outlive_the_checkpoints_that_may_fail(run: Runner, tmp_path: Path) -> None:
    # (1 + 3 tolerable failures) x (10 s + 60 s) + 60 s
    config = run.layers(checkpoints__interval="10s").resolve()
    check_sinks(copying_with_timeout(tmp_path, 341).graph(), config, StartOptions())
    with pytest.raises(InvalidError, match="time out after 340 s, and it may take 340 s"):
        check_sinks(copying_with_timeout(tmp_path, 340).graph(), config, StartOptions())


def test_a_checkpoint_folder_that_cannot_be_written_is_refused(run: Runner, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidError, match="file") as error:
        run(counting(CollectionSink()), checkpoints__dir=str(tmp_path / "file" / "checkpoints"))
    assert "checkpoints.dir" in error.value.failure.remedy


def test_state_in_memory_is_warned_of_where_a_sink_outlives_it(run: Runner, tmp_path: Path) -> None:
    run(counting(CollectionSink()), state__backend="memory")
    assert [text for level, text in run.told.events if level == "warning"] == []
    job = tg.Job("copying")
    LocalLog(tmp_path / "log").create_topic("in", 1)
    job.source(LocalSource(tmp_path / "log", "in", bounded=True), name="in").sink(
        LocalSink(tmp_path / "log", "out", partitions=1), name="out"
    )
    run(job, state__backend="memory")
    assert any("keeps checkpoints in this process" in text for level, text in run.told.events if level == "warning")


def test_a_program_that_builds_another_graph_each_time_is_refused(run: Runner, tmp_path: Path) -> None:
    program = (
        "import itertools\n"
        "import tidegate as tg\n"
        "from tidegate.connectors.collections import CollectionSink, CollectionSource\n"
        "numbers = itertools.count()\n"
        "def build(argv):\n"
        "    job = tg.Job('changing')\n"
        "    job.source(CollectionSource([1]), name=f'source-{next(numbers)}').sink(CollectionSink(), name='sink')\n"
        "    return job\n"
    )
    (tmp_path / "changing_job.py").write_text(program)
    spec = spec_of_target("changing_job.py", (), tmp_path, ())
    with pytest.raises(InvalidError, match="two processes of the job built different graphs"):
        launch(spec, run.layers(), StartOptions(in_process=True), lambda _: run.told)


def test_the_configuration_reaches_the_job_manager(run: Runner) -> None:
    config = run.layers(checkpoints__tolerable_failures="5", state__backend="memory", batch__size="7").resolve()
    settings = settings_of(config, StartOptions(fresh="again", from_checkpoint=4), "memory:")
    assert settings.runtime.pool_limit == 14
    assert settings.runtime.state_in_job_manager
    assert settings.runtime.batch_size == 7
    assert settings.checkpoints.interval == 0.02
    assert (settings.fresh, settings.from_checkpoint, settings.storage) == ("again", 4, "memory:")


def test_what_a_program_sets_counts(run: Runner) -> None:
    job = counting(CollectionSink())
    job.config = Config(checkpoint_retained=0 + 1, restart="none")
    assert run(job).restarts == 0


# ---- the cluster ---------------------------------------------------------------------------------------------------


def test_workers_of_an_earlier_run_with_processes_are_ended_and_this_process_is_not(run: Runner) -> None:
    store = CheckpointStore(MemoryStorage(), tg.Job("counting").name)
    cluster = InProcessCluster(counting(CollectionSink()).graph(), store, "here", SystemClock())
    cluster.end_recorded(Takeover("here", process_record(os.getpid()), (process_record(os.getpid()),)))
    assert list(cluster.events) == [p.OldWorkersEnded()]


def test_workers_in_this_process_are_not_on_record() -> None:
    store = CheckpointStore(MemoryStorage(), tg.Job("counting").name)
    cluster = InProcessCluster(counting(CollectionSink()).graph(), store, "here", SystemClock())
    cluster.spawn(Attempt(1), 2)
    assert cluster.events[0] == p.WorkersSpawned(Attempt(1), (), "")
