"""What is kept of a job and what is not: behind many checkpoints and many failures, what is stored is exactly what the
entries of the log name, and every checkpoint that is kept can be gone on from.
"""

import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest

from tests.integration.exactly_once import Written, answer_of, assert_exactly_once
from tests.integration.programs import wait_until
from tests.integration.retaining import JOB, USERS, Totals, Weather, kept, problems_of
from tests.integration.running import KILLED, Bench, orders
from tests.integration.stepping import BACKENDS
from tests.integration.totals_program import Total
from tests.unit.storage.s3.server import BUCKET, SLOW_DOWN, Cut, Fault, S3Server
from tidegate.checkpoint.store import CheckpointStore
from tidegate.errors import InvalidError
from tidegate.ids import JobName
from tidegate.storage.local import LocalStorage
from tidegate.storage.resolve import open_storage

CHECKPOINTS = 60
WIDTHS = (2, 3, 1)
SEED = int(os.environ.get("RETENTION_SEED", "0")) or time.time_ns() % 1_000_000_000


def assert_all_can_be_gone_on_from(job: Totals, folder: Path) -> None:
    """Each checkpoint that is kept, at another parallelism."""
    numbers = [manifest.checkpoint for manifest in kept(job.store)]
    for place, number in enumerate(numbers):
        (folder / str(number)).mkdir(parents=True)
        again = job.copied(folder / str(number))
        again.feed(40)
        again.run_totals(WIDTHS[place % 3], from_checkpoint=number)
        assert again.held() == again.answer().held, f"gone on from {number} of {numbers}"
        assert problems_of(again.store) == []


# ---- a storage that fails at random --------------------------------------------------------------------------------


@pytest.fixture
def weather(monkeypatch: pytest.MonkeyPatch) -> Weather:
    print(f"RETENTION_SEED={SEED}")
    made = Weather(random.Random(SEED))
    for name in ("put_if_absent", "read", "list", "delete"):
        monkeypatch.setattr(LocalStorage, name, made.over(getattr(LocalStorage, name)))
    return made


@pytest.mark.parametrize("checkpoints", [24, pytest.param(200, marks=[pytest.mark.slow, pytest.mark.timeout(300)])])
@pytest.mark.parametrize(
    ("backend", "retained"),
    [("fs", 3), ("rocksdb", 1), *(pytest.param(*one, marks=pytest.mark.slow) for one in (("fs", 1), ("rocksdb", 3)))],
)
def test_B02_behind_many_checkpoints_on_a_storage_that_fails_only_what_is_needed_is_there(
    tmp_path: Path, backend: str, retained: int, checkpoints: int, weather: Weather
) -> None:
    job = Totals(tmp_path / "job", backend, retained)
    job.calm = weather.calm
    weather.is_bad = True
    for parallelism in WIDTHS:
        job.feed(1200)
        job.run_as_supervised(parallelism, checkpoints // len(WIDTHS))
    weather.is_bad = False
    assert weather.failures > 3, "the storage hardly ever failed"
    job.run_totals(2, 5)
    job.assert_right()
    assert len(kept(job.store)) == retained
    assert job.store.state_files(), "the state was small enough for the manifests"
    assert_all_can_be_gone_on_from(job, tmp_path / "copies")


def test_on_s3_only_what_is_needed_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = S3Server()
    with closing(server):
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        faults: dict[int, Fault] = {3: SLOW_DOWN, 7: Cut.AFTER_SUCCESS}
        server.judge = lambda _: faults.get(len(server.asked) % 11)
        job = Totals(tmp_path, "fs", 2, url=f"s3://{BUCKET}/flows")
        for parallelism in (2, 3):
            job.feed(USERS)
            job.run_totals(parallelism, 10)
        server.behave()
        job.assert_right()
        assert len(kept(job.store)) == 2
        assert job.store.state_files(), "the state was small enough for the manifests"


# ---- keeping nothing -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_job_that_keeps_nothing_begins_anew(tmp_path: Path, backend: str) -> None:
    job = Totals(tmp_path, backend, keep_on_stop=False)
    job.feed(USERS)
    job.run_totals(2, 4)
    first = job.output(Total)
    assert_exactly_once(job.answer().totals, [Written(0, total) for total in first])
    job.run_totals(3)
    assert sorted(job.output(Total), key=str) == sorted([*first, *first], key=str)
    with pytest.raises(InvalidError, match="1 is not in the log"):
        job.run_totals(2, from_checkpoint=1)


def test_a_job_in_one_process_that_keeps_nothing_leaves_no_file(tmp_path: Path) -> None:
    job = Totals(tmp_path, "fs", keep_on_stop=False)
    job.feed(USERS)
    job.run_totals(2, 4)
    assert job.store.state_files() == []


@pytest.mark.parametrize("backend", ["fs", pytest.param("rocksdb", marks=pytest.mark.slow)])
def test_a_job_that_keeps_nothing_leaves_no_file(bench: Bench, backend: str) -> None:
    bench.append(orders(0, USERS, USERS))
    options = ["--state-backend", backend, "--set", "checkpoints.keep_on_stop=no"]
    started = bench.start(options=options)
    started.wait_until(lambda: bench.read_up_to() == USERS, "a checkpoint of all orders")
    store = CheckpointStore(open_storage(str(bench.checkpoints)), JobName(bench.job))
    assert store.state_files()
    started.process.send_signal(signal.SIGTERM)
    assert started.wait() == 0, started.said
    assert (kept(store), store.state_files(), problems_of(store)) == ([], [], [])


# ---- processes that are killed at random ---------------------------------------------------------------------------


class Killing:
    """Starts the totals job at changing parallelism, appends orders, and kills at random what it finds."""

    def __init__(self, bench: Bench, folder: Path, backend: str, retained: int) -> None:
        self.chance = random.Random(SEED)
        self.local = folder / "local"
        self.fed = 0
        self._bench = bench
        self._options = ["--state-backend", backend, "--restart", "fixed-delay:1000:20ms"]
        self._options += ["--set", f"checkpoints.retained={retained}", "--set", f"state.local_dir={self.local}"]
        self.start()

    def start(self) -> None:
        width = str(self.chance.choice((*WIDTHS, 4)))
        self.started = self._bench.start(options=[*self._options, "-p", width])

    def step(self) -> None:
        self.feed()
        wanted = self.completed + self.chance.randint(0, 10)
        wait_until(lambda: self.completed >= wanted, f"checkpoint {wanted}")
        time.sleep(self.chance.uniform(0, 0.2))
        victim = self.chance.choice(("worker", "job manager", "everything", "nothing"))
        if victim == "everything":
            self.started.send_to_all(signal.SIGKILL)
        elif victim == "job manager":
            self.started.kill(self.started.pid)
        elif victim == "worker":
            self._kill_a_worker()
        if victim in ("everything", "job manager"):
            assert self.started.wait() == KILLED, self.started.said
            self.start()

    def feed(self) -> None:
        self._bench.append(orders(self.fed, 200, USERS))
        self.fed += 200

    def _kill_a_worker(self) -> None:
        workers = sorted(self.started.living().keys() - {self.started.pid})
        if workers:
            # It may have died by itself since, as workers of a failed attempt do.
            with suppress(ProcessLookupError):
                os.kill(self.chance.choice(workers), signal.SIGKILL)

    @property
    def completed(self) -> int:
        newest = self._bench.view().newest if self._bench.checkpoints.exists() else None
        return newest.checkpoint if newest is not None else 0

    def local_attempts(self) -> set[str]:
        """Of which there is something on this machine."""
        return {path.name for path in self.local.glob(f"{self._bench.job}/*/*") if path.is_dir()}


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("backend", "retained"), [("fs", 1), ("rocksdb", 3), ("rocksdb", 1)])
def test_B02_behind_many_checkpoints_and_kills_only_what_is_needed_is_there(
    bench: Bench, tmp_path: Path, backend: str, retained: int
) -> None:
    print(f"RETENTION_SEED={SEED}")
    killing = Killing(bench, tmp_path, backend, retained)
    while killing.completed < CHECKPOINTS:
        killing.step()
    killing.feed()
    wait_until(lambda: bench.read_up_to() == killing.fed, "a checkpoint of all orders")
    attempt = str(bench.view().attempt)
    if backend == "rocksdb":
        wait_until(lambda: killing.local_attempts() <= {attempt}, "the end of what earlier attempts kept here")
    killing.started.process.send_signal(signal.SIGTERM)
    assert killing.started.wait() == 0, killing.started.said
    bench.assert_right(answer_of(orders(0, killing.fed, USERS)))
    verified = bench.command("checkpoints", "verify", str(bench.checkpoints / bench.job))
    assert (verified.returncode, verified.stderr) == (0, ""), verified.stdout
    store = CheckpointStore(open_storage(str(bench.checkpoints)), JobName(bench.job))
    assert len(kept(store)) == retained
    assert problems_of(store) == []
    assert bench.view().attempt > 3, "hardly anything was killed"


# ---- the check itself ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Totals:
    job = Totals(tmp_path_factory.mktemp("stopped"), "fs")
    job.feed(USERS)
    job.run_totals(2, 4)
    return job


def add_a_file(folder: Path) -> None:
    (folder / "shared" / "1").mkdir(parents=True, exist_ok=True)
    (folder / "shared" / "1" / "totals.0.nobody").write_bytes(b"")


def remove_a_file(folder: Path) -> None:
    state_file(folder).unlink()


def change_a_file(folder: Path) -> None:
    data = bytearray(state_file(folder).read_bytes())
    data[-1] ^= 1
    state_file(folder).write_bytes(data)


def double_a_file(folder: Path) -> None:
    shutil.copy(state_file(folder), f"{state_file(folder)}.copy")


def state_file(folder: Path) -> Path:
    return max(path for path in folder.rglob("*") if path.is_file() and path.parent.name != "log")


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (add_a_file, "left over"),
        (double_a_file, "left over"),
        (remove_a_file, "missing"),
        (change_a_file, "damaged"),
    ],
)
def test_the_check_fails_when_a_file_is_added_removed_or_changed(
    stopped: Totals, tmp_path: Path, harm: Callable[[Path], None], said: str
) -> None:
    job = stopped.copied(tmp_path)
    assert problems_of(job.store) == []
    harm(tmp_path / "checkpoints" / JOB)
    problems = problems_of(job.store)
    assert problems
    assert said in problems[0]
