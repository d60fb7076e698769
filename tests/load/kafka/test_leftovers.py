"""Five hundred transactions that earlier attempts of three sinks have left open: the next start ends them with no more
than it needs for one, says how far it is, and may itself be killed in the middle of it."""

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from kafka.admin import KafkaAdminClient

from tests.integration.running import KILLED, Bench, Started
from tests.kafka.conftest import OwnKafka
from tests.kafka.medium import KafkaMedium, kafka_bench
from tests.load.held import Held, held_by
from tests.load.kafka import three_sinks_program
from tests.load.kafka.left_open import leave_open
from tests.load.kafka.three_sinks_program import SINKS

LEFT = int(os.environ.get("LOAD_LEFTOVERS", "500"))
OTHERS = 20
PARTITIONS = 2
ALLOWED = Held(rss=16 * 1024, threads=4, files=8, sockets=6, clients=0)
"""More than a start with nothing to end: a connection each that describes, lists and fences, and a list of 500 ids."""
ENDED = {"Empty", "CompleteAbort"}


class ThreeSinks:
    """The job, and what it has held at most."""

    def __init__(self, bench: Bench) -> None:
        assert isinstance(bench.medium, KafkaMedium)
        self.bench = bench
        self.medium = bench.medium
        self.name = bench.medium.name("spread")
        self.input = bench.medium.name("numbers")
        self.outputs = [f"{self.name}-{sink}" for sink in SINKS]
        self.foreign = bench.medium.name("foreign")
        """The topic of another job."""
        self.fed = 0
        self.peak = Held(0, 0, 0, 0, 0)
        for topic in (self.input, *self.outputs, self.foreign):
            self.medium.create_topic(topic, PARTITIONS)

    def feed(self, count: int) -> None:
        numbers = range(self.fed, self.fed + count)
        self.fed += count
        self.medium.append(
            self.input, [[b"%d" % one for one in numbers if one % PARTITIONS == part] for part in range(PARTITIONS)]
        )

    def start(self, fail_point: str = "") -> Started:
        self.peak = Held(0, 0, 0, 0, 0)
        arguments = [*self.medium.arguments, "--job", self.name, "--input", self.input, "--output", self.name]
        options = ["--checkpoint-interval", "300ms"]
        return self.bench.start_program(three_sinks_program.__file__, arguments, self.name, fail_point, options)

    def look(self, started: Started) -> None:
        # It may have been killed since.
        with suppress(OSError, KeyError):
            self.peak = Held(*map(max, self.peak, held_by(started.pid)))

    def runs(self, started: Started) -> bool:
        self.look(started)
        return "running, attempt" in started.said

    def is_all_out(self, started: Started) -> bool:
        self.look(started)
        return sum(map(len, self.output())) >= self.fed

    def output(self) -> list[list[bytes]]:
        return [[value for values in self.medium.read(topic) for value in values] for topic in self.outputs]

    def assert_exactly_once(self) -> None:
        for place, found in enumerate(self.output()):
            wanted = Counter(b"%d" % number for number in range(place, self.fed, len(SINKS)))
            assert Counter(found) == wanted


@pytest.fixture
def job(own_kafka: OwnKafka, tmp_path: Path) -> Iterator[ThreeSinks]:
    with kafka_bench(own_kafka(), tmp_path) as bench:
        yield ThreeSinks(bench)


def states(job: ThreeSinks, ids: list[str]) -> Counter[str]:
    with closing(KafkaAdminClient(bootstrap_servers=job.medium.broker.bootstrap)) as admin:
        return Counter(str(one.state.value) for one in admin.describe_transactions(ids).values())


def kill_all(started: Started) -> None:
    started.send_to_all(signal.SIGKILL)
    assert started.wait() == KILLED


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_hundreds_of_leftovers_are_ended_one_after_another_also_when_that_is_interrupted(job: ThreeSinks) -> None:
    job.feed(600)
    plain = job.start()
    plain.wait_until(lambda: job.is_all_out(plain), "the first output")
    usual = job.peak
    kill_all(plain)
    view = job.bench.view(job.name)
    prefix = f"{job.name}:{view.instance}:{view.attempt}"
    left = [f"{prefix}:{SINKS[n % 3]}:{100 + n // 3}:{n % 4}" for n in range(LEFT)]
    bootstrap = job.medium.broker.bootstrap
    for place, topic in enumerate(job.outputs):
        leave_open(bootstrap, left[place::3], topic, PARTITIONS)
    others = [f"{job.name}-other:{view.instance}:1:first:{number}:0" for number in range(OTHERS)]
    leave_open(bootstrap, others, job.foreign, 1)
    assert states(job, [*left, *others]) == {"Ongoing": LEFT + OTHERS}
    job.feed(600)

    first = job.start(fail_point=f"recovery-abort:before:{LEFT // 2}@jobmanager=kill")
    assert first.wait() == KILLED, first.said
    ended = states(job, left)
    # Besides the attempt's own few that were open when it was killed.
    assert LEFT // 2 - 20 <= LEFT - ended["Ongoing"] <= LEFT // 2

    begun = time.monotonic()
    second = job.start()
    second.wait_until(lambda: job.runs(second), "the start")
    took = time.monotonic() - begun
    recovering = job.peak
    second.wait_until(lambda: job.is_all_out(second), "the output behind the leftovers")
    print(f"\n{LEFT // 2} ended in {took:.1f} s\nusual      {usual}\nrecovering {recovering}")
    assert set(states(job, left)) <= ENDED
    assert states(job, others) == {"Ongoing": OTHERS}
    assert "recovery has ended" in first.said
    assert "more" in first.said.partition("recovery has ended")[2]
    assert all(now <= then + more for now, then, more in zip(recovering, usual, ALLOWED, strict=True))
    second.process.send_signal(signal.SIGTERM)
    assert second.wait() == 0, second.said
    job.assert_exactly_once()
    for topic in job.outputs:
        job.medium.assert_readers_are_free(topic)
