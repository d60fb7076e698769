"""As many checkpoints as an hour has seconds, as quickly as they come, on the embedded log: nothing that the processes,
the checkpoint folder or a worker's own folder hold goes on growing."""

import os
import signal
import time
from contextlib import closing
from pathlib import Path

import pytest

from tests.integration import order_writer
from tests.integration.exactly_once import answer_of
from tests.integration.programs import wait_until
from tests.integration.running import Bench, orders
from tests.load.watch import Watch
from tidegate.local import LocalLog

CHECKPOINTS = int(os.environ.get("LOAD_CHECKPOINTS", "3600"))
WARM_UP = {"fs": 0, "rocksdb": CHECKPOINTS * 2 // 3}
"""RocksDB's cache keeps blocks of files that are gone until it is full: some 4 KiB for each checkpoint here, so that
the least that it can be given is full after 2,000."""
MEMORY = 3072
"""KiB. Nothing that leaks by a KiB or two for each checkpoint stays below it. Where nothing does (every object that
Python had was looked at), workers grew by up to 0.3 MiB between those quarters and JobManagers by up to 1.2: Python
takes memory in pieces of 1 MiB, and quicker checkpoints leave more of what waits for its minute."""
MORE = {"fs": (), "rocksdb": ("--set", "state.rocksdb.memory=8MiB")}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("backend", ["fs", "rocksdb"])
def test_an_hour_of_checkpoints_leaves_nothing_that_goes_on_growing(bench: Bench, tmp_path: Path, backend: str) -> None:
    local = tmp_path / "local"
    with (
        order_writer.running(bench.topic, bench.medium.arguments) as writer,
        closing(LocalLog(tmp_path / "log")) as log,
    ):
        wait_until(bench.has_orders, "the first order")
        options = ["--checkpoint-interval", "1ms", "--state-backend", backend, *MORE[backend]]
        started = bench.start(options=[*options, "--set", f"state.local_dir={local}"])
        started.wait_until(lambda: bench.checkpoints.exists() and bench.read_up_to() > 0, "the first checkpoint")
        begun = time.monotonic()
        watch = Watch(bench, started, MEMORY, local, lambda: len(log.list_transactions()))
        reached = watch.until(CHECKPOINTS, WARM_UP[backend])
        took = time.monotonic() - begun
        said, _ = writer.communicate("", timeout=30)
    count = int(said)
    started.wait_until(lambda: bench.read_up_to() == count, "the last order's checkpoint")
    started.process.send_signal(signal.SIGTERM)
    assert started.wait() == 0, started.said
    print(f"\n{backend}: {reached} checkpoints in {took:.0f} s, {count} orders\n{watch.course.table()}")
    bench.assert_right(answer_of(orders(0, count, order_writer.USERS)))
    assert bench.view().attempt == 1
    assert watch.course.growths() == []
