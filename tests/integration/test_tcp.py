"""Jobs whose processes talk over TCP with CURVE: what holds of Unix sockets holds here, with strangers at the door."""

import re
import signal
import socket
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from tests.integration.programs import wait_until
from tests.integration.running import Bench, Started
from tests.integration.test_zombies import ARGUMENTS, fill, wait_for_checkpoint

TCP = ["--set", "network.transport=tcp"]
HELD = 300
"""Connections that a flood keeps open, of the about 1000 files that a process may have."""
FAIL_POINTS = {"worker": "acknowledge:before:5@worker-1", "jobmanager": "log-append:after:3@jobmanager"}


@pytest.mark.parametrize("victim", ["worker", pytest.param("jobmanager", marks=pytest.mark.slow)])
def test_a_crash_loses_and_doubles_nothing(bench: Bench, victim: str) -> None:
    answer = fill(bench)
    started = bench.start(*ARGUMENTS, fail_point=FAIL_POINTS[victim], options=TCP)
    bench.repeat_until_finished(started, *ARGUMENTS, options=TCP)
    bench.assert_right(answer)
    assert bench.view().attempt == 2
    if victim == "worker":
        assert re.search(r"worker 1\b.*killed by SIGKILL", started.said), started.said
        assert "data connection" not in started.said


class Flood:
    """Opens connections to every port at which the processes of a job listen, holds some and drops others."""

    def __init__(self, started: Started) -> None:
        self._started = started
        self._is_over = threading.Event()
        self._held: list[socket.socket] = []
        self.count = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_over.is_set():
            for port in listening(self._started) * 20:
                with suppress(OSError):
                    one = socket.create_connection(("127.0.0.1", port), timeout=1)
                    one.sendall(b"\xff" + bytes(8) + b"\x7f" if self.count % 2 else b"GET / HTTP/1.1\r\n\r\n")
                    self._held.append(one)
                    self.count += 1
            for one in self._held[:-HELD]:
                one.close()
            del self._held[:-HELD]

    def end(self) -> None:
        self._is_over.set()
        self._thread.join()
        for one in self._held:
            one.close()


def listening(started: Started) -> list[int]:
    """Ports of TCP at which processes of this start listen."""
    inodes: set[str] = set()
    for pid in started.living():
        with suppress(OSError):
            inodes |= {str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir()}
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return [int(row[1].partition(":")[2], 16) for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in inodes]


def test_a_flood_of_strangers_does_not_stop_a_job(bench: Bench) -> None:
    answer = fill(bench)
    started = bench.start(*ARGUMENTS, options=TCP)
    wait_until(lambda: len(listening(started)) == 3, "the ports of three processes")
    flood = Flood(started)
    try:
        wait_for_checkpoint(bench, started)
        assert started.wait() == 0, started.said
    finally:
        flood.end()
    assert flood.count > 100
    bench.assert_right(answer)
    assert bench.view().attempt == 1


@pytest.mark.slow
def test_the_end_of_a_job_manager_ends_its_workers(bench: Bench) -> None:
    fill(bench)
    started = bench.start(*ARGUMENTS, options=TCP)
    wait_for_checkpoint(bench, started)
    started.kill(started.pid)
    assert started.wait() == -signal.SIGKILL
    wait_until(lambda: started.living() == {}, "the end of the workers")
