"""Hundreds of checkpoints with steady input: what the processes hold stops growing.

Each checkpoint opens and gives back producers, connections, files and transactional ids; one of them that stays is
invisible in a short test and ends a long job. The second quarter is compared with the last: the first is warming up.
"""

import faulthandler
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import NamedTuple, TypeVar

import pytest

from tests.integration import order_writer
from tests.integration.exactly_once import answer_of
from tests.integration.programs import wait_until
from tests.integration.running import Bench, Started, orders
from tests.kafka.brokers import Broker
from tests.kafka.medium import KafkaMedium, kafka_bench

CHECKPOINTS = int(os.environ.get("MANY_CHECKPOINTS", "500"))
OPTIONS = ("--checkpoint-interval", "200ms")
SECONDS_EACH = 1.2
"""At most, a checkpoint and its pause."""
RSS_GROWTH_MAX = 6 * 1024
"""KiB between the two quarters: allocators are not exact."""
HANDLES_GROWTH_MAX = 2
"""Threads, files, instances: one sample may fall between an opening and a closing."""


class Sample(NamedTuple):
    """What one process holds at a moment."""

    rss: int
    """KiB."""
    threads: int
    files: int
    sockets: int
    clients: int
    """Instances of librdkafka."""

    @classmethod
    def of(cls, pid: int) -> "Sample":
        process = Path(f"/proc/{pid}")
        status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
        links = [_link_of(entry) for entry in (process / "fd").iterdir()]
        names = [_name_of(thread) for thread in (process / "task").iterdir()]
        return cls(
            rss=int(status["VmRSS"].split()[0]),
            threads=len(names),
            files=len(links),
            sockets=sum(link.startswith("socket:") for link in links),
            clients=names.count("rdk:main"),
        )


def _link_of(entry: Path) -> str:
    with suppress(OSError):
        return str(entry.readlink())
    return ""


def _name_of(thread: Path) -> str:
    with suppress(OSError):
        return (thread / "comm").read_text().strip()
    return ""


class Figures:
    """Samples of each process and numbers of transactional ids, by the checkpoint after which they were taken."""

    def __init__(self, bench: Bench, started: Started) -> None:
        self._bench = bench
        self._pids = {"jobmanager": started.pid}
        self._pids |= {f"worker-{index}": worker.pid for index, worker in enumerate(bench.takeover().workers)}
        self.samples: dict[str, dict[int, Sample]] = {name: {} for name in self._pids}
        self.ids: dict[int, int] = {}

    def take(self, checkpoint: int) -> None:
        for name, pid in self._pids.items():
            self.samples[name][checkpoint] = Sample.of(pid)
        assert isinstance(self._bench.medium, KafkaMedium)
        ids = self._bench.medium.transactional_ids()
        self.ids[checkpoint] = sum(id.partition(":")[0] == self._bench.job for id in ids)

    def quarters(self) -> list[str]:
        """For people: medians of each process in each quarter."""
        lines = []
        for name, samples in self.samples.items():
            for quarter in range(4):
                medians = Sample(*(int(one) for one in _medians(_quarter(samples, quarter))))
                lines.append(f"{name:12} quarter {quarter + 1}: {medians}")
        lines += [
            f"transactional ids, quarter {quarter + 1}: {_range(_quarter(self.ids, quarter))}" for quarter in range(4)
        ]
        return lines

    def growths(self) -> list[str]:
        """What has grown between the second quarter and the last."""
        found = []
        for name, samples in self.samples.items():
            before, after = (Sample(*_medians(_quarter(samples, quarter))) for quarter in (1, 3))
            for field, one, other in zip(Sample._fields, before, after, strict=True):
                allowed = RSS_GROWTH_MAX if field == "rss" else HANDLES_GROWTH_MAX
                if other > one + allowed:
                    found.append(f"{field} of {name}: from {one:g} to {other:g}")
        before_ids, after_ids = (max(_quarter(self.ids, quarter)) for quarter in (1, 3))
        if after_ids > before_ids:
            found.append(f"transactional ids: from {before_ids} to {after_ids}")
        return found


def wait_for_checkpoint_after(bench: Bench, started: Started, reached: int) -> int:
    """The newest completed checkpoint, as soon as it is another one."""

    def newest() -> int:
        manifest = bench.view().newest
        return 0 if manifest is None else manifest.checkpoint

    started.wait_until(lambda: newest() > reached, "another checkpoint")
    return newest()


Figure = TypeVar("Figure")


def _quarter(by_checkpoint: Mapping[int, Figure], number: int) -> list[Figure]:
    first, last = min(by_checkpoint), max(by_checkpoint) + 1
    length = (last - first) / 4
    return [one for at, one in by_checkpoint.items() if number <= (at - first) / length < number + 1]


def _medians(samples: Sequence[Sample]) -> list[float]:
    return [median(column) for column in zip(*samples, strict=True)]


def _range(numbers: Sequence[int]) -> str:
    return f"{min(numbers)} to {max(numbers)}"


@pytest.fixture
def bench(kafka: Broker, tmp_path: Path) -> Iterator[Bench]:
    with kafka_bench(kafka, tmp_path) as made:
        yield made


@pytest.fixture
def writer(bench: Bench) -> Iterator["subprocess.Popen[str]"]:
    with order_writer.running(bench.topic, bench.medium.arguments) as process:
        yield process


@pytest.mark.slow
@pytest.mark.timeout(60 + CHECKPOINTS * SECONDS_EACH)
def test_what_the_processes_hold_stops_growing(bench: Bench, writer: "subprocess.Popen[str]") -> None:
    # The stacks that are shown after a while are those of a hang; this test takes longer.
    faulthandler.cancel_dump_traceback_later()
    wait_until(bench.has_orders, "the first order")
    started = bench.start(options=OPTIONS)
    started.wait_until(lambda: bench.checkpoints.exists() and bench.read_up_to() > 0, "the first checkpoint")
    figures = Figures(bench, started)
    reached = 0
    while reached < CHECKPOINTS:
        reached = wait_for_checkpoint_after(bench, started, reached)
        figures.take(reached)
    said, _ = writer.communicate("", timeout=30)
    count = int(said)
    started.wait_until(lambda: bench.read_up_to() == count, "the last order's checkpoint")
    started.process.send_signal(signal.SIGTERM)
    assert started.wait() == 0, started.said
    print("\n".join([f"{count} orders, {reached} checkpoints", *figures.quarters()]))
    bench.assert_right(answer_of(orders(0, count, order_writer.USERS)))
    assert bench.view().attempt == 1
    assert figures.growths() == []
