"""A million keys with a timer each: registered, stored, killed, restored at another parallelism, fired once each."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.running import KILLED, Bench, Started
from tests.load import timers_program
from tests.load.held import peak_of
from tests.load.timers_program import LIFE
from tidegate.checkpoint.manifest import Manifest
from tidegate.ids import OperatorName
from tidegate.local import LocalLog

KEYS = int(os.environ.get("LOAD_TIMERS", "1000000"))
JOB, OUT = "alarms", "fired"
OUT_PARTITIONS = 2
INTERVAL = "2s"
AHEAD = 2 * LIFE / 1000
"""Seconds: after them every timer is due."""
PATIENCE = 600.0
BYTES_EACH = {"fs": 900, "rocksdb": 700}
"""Of resident memory for a key with its timer, at most, without what a worker takes to begin with. Measured with a
million: 560 and 410, of which the index of timers is some 250."""
BASE = 64 * 1024 * 1024
"""Bytes of a worker without state."""


class Alarms:
    """The job on one backend."""

    def __init__(self, bench: Bench, folder: Path, backend: str) -> None:
        self.bench = bench
        self.backend = backend
        self._folder = folder
        bench.medium.create_topic(OUT, OUT_PARTITIONS)

    def start(self, parallelism: int, ahead: float = 0.0) -> Started:
        arguments = ["--log", str(self._folder / "log"), "--out", OUT, "--job", JOB]
        arguments += ["--keys", str(KEYS), "--ahead", str(ahead)]
        options = ["-p", str(parallelism), "--checkpoint-interval", INTERVAL, "--state-backend", self.backend]
        options += ["--set", f"state.local_dir={self._folder / 'local'}", "--checkpoint-timeout", "3m"]
        return self.bench.start_program(timers_program.__file__, arguments, JOB, options=options)

    @property
    def newest(self) -> Manifest | None:
        return self.bench.view(JOB).newest if self.bench.checkpoints.exists() else None

    def has_registered(self) -> bool:
        """The newest completed checkpoint covers all records."""
        record = self.newest.operator(OperatorName("numbers")) if self.newest else None
        return record is not None and sum(split.position >= KEYS for split in record.splits) == len(record.splits)

    def fired(self) -> int:
        """How many readers of committed records see."""
        with LocalLog(self._folder / "log", create=False) as log:
            return sum(log.last_stable_offset(OUT, partition) for partition in range(OUT_PARTITIONS))

    def peak(self) -> int:
        """Bytes that the workers have held at most, all together."""
        return sum(1024 * peak_of(worker.pid) for worker in self.bench.takeover(JOB).workers)


def seconds_until(started: Started, has_happened: Callable[[], bool], what: str) -> float:
    """As `Started.wait_until`, with the patience of a million."""
    begun = time.monotonic()
    while not has_happened():
        assert started.process.poll() is None, started.said
        assert time.monotonic() < begun + PATIENCE, f"{what} did not happen:\n{started.said}"
        time.sleep(0.1)
    return time.monotonic() - begun


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("backend", ["fs", "rocksdb"])
def test_a_million_timers_fire_once_each_behind_a_kill_and_at_another_parallelism(
    bench: Bench, tmp_path: Path, backend: str
) -> None:
    job = Alarms(bench, tmp_path, backend)
    started = job.start(2)
    registering = seconds_until(started, job.has_registered, "a checkpoint with all timers")
    assert job.newest is not None
    stored, longest, peak = job.newest.state_bytes, longest_checkpoint(started), job.peak()
    started.send_to_all(signal.SIGKILL)
    assert started.wait() == KILLED

    again = job.start(3, AHEAD)
    restoring = seconds_until(again, lambda: job.fired() > 0, "the first output")
    firing = seconds_until(again, lambda: job.fired() >= KEYS, "the output of all timers")
    peak_again = job.peak()
    again.process.send_signal(signal.SIGTERM)
    assert again.wait() == 0, again.said
    print(
        f"\n{backend}: {KEYS} keys, registered and stored after {registering:.1f} s, {stored / 1e6:.0f} MB of state,"
        f" longest checkpoint {longest:.2f} s, {(peak - 2 * BASE) / KEYS:.0f} bytes of memory a key;"
        f"\nfirst fired {restoring:.1f} s after the start, the last {firing:.1f} s later,"
        f" {(peak_again - 3 * BASE) / KEYS:.0f} bytes a key"
    )
    found = sorted(int(key) for key, times in (line.split() for line in output(bench)) if times == b"1")
    assert found == list(range(KEYS))
    assert len(output(bench)) == KEYS
    assert max(peak - 2 * BASE, peak_again - 3 * BASE) <= BYTES_EACH[backend] * KEYS


def output(bench: Bench) -> list[bytes]:
    return [value for values in bench.medium.read(OUT) for value in values]


def longest_checkpoint(started: Started) -> float:
    """Seconds, as the command said it."""
    words = [
        line.partition(" completed in ")[2].split() for line in started.said.splitlines() if "completed in" in line
    ]
    return max(float(found[0]) for found in words) / 1000
