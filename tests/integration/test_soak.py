"""A minute in which processes are killed at random, while input keeps coming and a supervisor repeats the command."""

import contextlib
import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest

from tests.integration import order_writer
from tests.integration.exactly_once import answer_of
from tests.integration.programs import wait_until
from tests.integration.running import KILLED, Bench, Started, orders

SECONDS = float(os.environ.get("SOAK_SECONDS", "60"))
SEED = int(os.environ.get("SOAK_SEED", "0")) or time.time_ns() % 1_000_000_000
LONGEST_LIFE = 2.5
"""Seconds between two kills at most: often before the job has even begun to run, often several checkpoints later."""
# Far more failures than a minute can hold: it is the supervisor that must never give up.
OPTIONS = ["--restart", "fixed-delay:1000:20ms"]


class Killer:
    """Kills at random, and starts the command again when the JobManager was among the victims."""

    def __init__(self, bench: Bench, chance: random.Random) -> None:
        self._bench = bench
        self._chance = chance
        self.kills: list[str] = []
        self.started = self._start()

    def _start(self) -> Started:
        return self._bench.start(options=OPTIONS)

    def step_for(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.step()

    def step(self) -> None:
        time.sleep(self._chance.uniform(0.05, LONGEST_LIFE))
        victim = self._chance.choice(("worker", "worker", "jobmanager", "everything"))
        if victim == "everything":
            self.started.send_to_all(signal.SIGKILL)
        else:
            self._kill_one(is_job_manager=victim == "jobmanager")
        self.kills.append(victim)
        if victim != "worker":
            assert self.started.wait() == KILLED, self.started.said
            self.started = self._start()

    def _kill_one(self, is_job_manager: bool) -> None:
        job_manager = self.started.pid
        workers = sorted(self.started.living().keys() - {job_manager})
        found = [job_manager] if is_job_manager else workers
        if found:
            # It may have died by itself since, as workers of a failed attempt do.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._chance.choice(found), signal.SIGKILL)


class Soak:
    """The minute on the medium of the `bench` that the subclass's module gives."""

    @pytest.fixture
    def writer(self, bench: Bench) -> Iterator["subprocess.Popen[str]"]:
        with order_writer.running(bench.topic, bench.medium.place) as process:
            yield process

    def happen_in_the_middle(self, bench: Bench) -> None:
        """What else goes wrong, once."""

    @pytest.mark.slow
    @pytest.mark.timeout(SECONDS + 120)
    def test_random_kills_lose_and_double_nothing(self, bench: Bench, writer: "subprocess.Popen[str]") -> None:
        print(f"SOAK_SEED={SEED}")
        wait_until(bench.has_orders, "the first order")
        killer = Killer(bench, random.Random(SEED))
        killer.step_for(SECONDS / 2)
        self.happen_in_the_middle(bench)
        killer.step_for(SECONDS / 2)
        said, _ = writer.communicate("", timeout=30)
        count = int(said)
        answer = answer_of(orders(0, count, order_writer.USERS))
        wait_until(lambda: bench.read_up_to() == count, "the last order's checkpoint")
        wait_until(lambda: len(bench.output()) >= count, "the last order's commit")
        killer.started.process.send_signal(signal.SIGTERM)
        assert killer.started.wait() == 0, killer.started.said
        bench.assert_right(answer)
        print(f"{count} orders, {len(killer.kills)} kills, {bench.view().attempt} attempts")
        assert {"worker", "jobmanager", "everything"} <= set(killer.kills)
        assert bench.view().attempt > len(killer.kills) // 4, "most kills hit nothing"


class TestTheEmbeddedLog(Soak):
    """Where nothing else goes wrong."""
