"""What a start of another process must find: timers that came due while nothing ran, and keys by whatever their hash is
there (W03, B06)."""

import os
import signal
import time
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from tests.integration.jobs import CountingJob
from tests.integration.programs import wait_until
from tests.integration.running import KILLED
from tests.integration.stepping import BACKENDS
from tests.integration.user_programs import Project, Running
from tidegate.local import LocalLog

PROGRAM = """\
from pathlib import Path

import msgspec

import tidegate as tg
from tidegate.local import LocalSink, LocalSource

LOG = Path(__file__).parent / "log"


class Wish(msgspec.Struct, frozen=True):
    key: str
    after: int


class Rung(msgspec.Struct, frozen=True):
    key: str
    due: int
    at: int
    wishes: int


class Alarm(tg.KeyedProcessFunction[str, Wish, Rung]):
    wishes = tg.ValueState(int, default=0)
    base = tg.ValueState(int)

    def process_element(self, value, ctx):
        # All wishes of a key are for times behind its first record; two of them are for the same.
        if self.base.value() is None:
            self.base.update(ctx.timer_service.current_processing_time())
        self.wishes.update(self.wishes.value() + 1)
        ctx.timer_service.register_processing_time_timer(self.base.value() + value.after)

    def on_timer(self, timestamp, ctx):
        yield Rung(ctx.key, timestamp, ctx.timer_service.current_processing_time(), self.wishes.value())


job = tg.Job("alarms")
wishes = job.source(LocalSource(LOG, "wishes", value=tg.Json(Wish)), name="wishes")
alarms = wishes.key_by(lambda wish: wish.key).process(Alarm(), name="alarm")
alarms.sink(LocalSink(LOG, "rung", value=tg.Json(Rung), partitions=2), name="out")

if __name__ == "__main__":
    job.run()
"""


class Rung(msgspec.Struct, frozen=True):
    """One timer that fired: when it was due, when it fired, and what its key had in its state then."""

    key: str
    due: int
    at: int
    wishes: int


class Alarms(Project):
    """Each of `keys` gets a timer soon, the same once more, and one late."""

    SOON, LATE = 3000, 8000

    def __init__(self, folder: Path, state_home: Path, keys: int) -> None:
        super().__init__(folder, {"XDG_STATE_HOME": str(state_home), "XDG_CACHE_HOME": str(state_home / "cache")})
        self.write(program=PROGRAM)
        self.keys = [f"k{number}" for number in range(keys)]
        wishes = [{"key": key, "after": after} for key in self.keys for after in (self.SOON, self.SOON, self.LATE)]
        with LocalLog(self.folder / "log") as log:
            log.create_topic("wishes", 2)
            names = [str(wish["key"]).encode() for wish in wishes]
            log.append("wishes", None, [msgspec.json.encode(wish) for wish in wishes], names)
        self.count = len(wishes)

    def begin(self, parallelism: int, backend: str) -> Running:
        words = ["--checkpoint-interval", "50ms", "-p", str(parallelism), "--state-backend", backend]
        return self.start("app.py", *words)

    @property
    def rung(self) -> list[Rung]:
        with LocalLog(self.folder / "log", create=False) as log:
            is_there = "rung" in log.topics()
        return [msgspec.json.decode(value, type=Rung) for value in self.raw("rung")] if is_there else []

    def is_covered(self) -> bool:
        return self.read_up_to("alarms") == self.count


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
def test_W03_timers_that_came_due_while_nothing_ran_fire_once_after_the_start_and_the_others_in_their_time(
    tmp_path: Path, backend: str
) -> None:
    alarms = Alarms(tmp_path / "project", tmp_path / "state", 40)
    with alarms.begin(2, backend) as running:
        running.wait_for(alarms.is_covered, "a checkpoint of all timers")
        os.killpg(running.process.pid, signal.SIGKILL)
        running.process.wait()
    killed_at = time.time() * 1000
    before = alarms.rung
    # The job is down beyond the first time. Nothing comes in any more.
    wait_until(lambda: time.time() * 1000 > killed_at + Alarms.SOON, "the first time")
    started_at = time.time() * 1000
    with alarms.begin(3, backend) as running:
        running.wait_for(lambda: len(alarms.rung) >= 2 * len(alarms.keys), "all timers")
        running.interrupt()
        assert running.ends() == 0, running.said
    rung = alarms.rung
    assert Counter(one.key for one in rung) == dict.fromkeys(alarms.keys, 2)
    assert len({(one.key, one.due) for one in rung}) == len(rung), "a timer fired twice"
    assert all(one.at >= one.due for one in rung), "a timer fired too early"
    assert all(one.wishes == 3 for one in rung), "a timer fired before its state was there"
    overdue = [one for one in rung if one not in before and one.due < started_at]
    assert overdue != [], "nothing came due while nothing ran"
    assert {one.due for one in rung} == {due + more for due in dues(rung) for more in (0, Alarms.LATE - Alarms.SOON)}


def dues(rung: list[Rung]) -> set[int]:
    """The first time of each key."""
    first: dict[str, int] = {}
    for one in rung:
        first[one.key] = min(first.get(one.key, one.due), one.due)
    return set(first.values())


# ---- keys ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
def test_B06_a_process_with_another_hash_seed_finds_the_state_of_every_key(tmp_path: Path, backend: str) -> None:
    job = CountingJob(tmp_path, count=3000, keys=97)
    options = ["--state-backend", backend]
    dying = {"TIDEGATE_FAIL_POINT": "log-append:after:3@jobmanager", "PYTHONHASHSEED": "1"}
    done = job.run("-p", "2", *options, program=["--pause", "0.0003"], environment=dying)
    assert done.returncode == KILLED, done.stderr
    newest = job.view.newest
    assert newest is not None
    read = sum(split.position for record in newest.operators for split in record.splits)
    assert 0 < read < len(job.records), "not in the middle of the input"
    done = job.run("-p", "3", *options, environment={"PYTHONHASHSEED": "2"})
    assert done.returncode == 0, done.stderr
    job.assert_exactly_once()
