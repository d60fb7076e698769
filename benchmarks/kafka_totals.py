"""Throughput of the running totals, Kafka to Kafka, exactly once: the job with one and with two workers, and beside it
the bare loop of `kafka_bare_loop.py`, in the same session on the same broker.

Every run is a process of its own, measured over its whole life; a run over an empty topic shows what starting and
ending cost, and is taken off. CPU seconds are those of all processes of a run, without the broker. Whatever was
written is read back and compared with the answer, so that a fast wrong run fails.
"""

import argparse
import os
import pstats
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tidegate.deploy.demo_answer import EXAMPLES
from tidegate.deploy.dev_kafka import DevKafka

HERE = Path(__file__).parent
TIDEGATE = (sys.executable, "-c", "from tidegate.cli.main import main; main()")
PARTITIONS = 4
USERS = 10_007
WRITTEN_AT_ONCE = 50_000
FULL, EMPTY = "bench-orders", "bench-nothing"


class Usage(NamedTuple):
    """What a process and all its children took, in seconds."""

    whole: float
    cpu: float


class Result(NamedTuple):
    """One kind of run, without what starting and ending cost."""

    what: str
    records: int
    seconds: float
    cpu: float
    start_and_end: float

    @property
    def rates(self) -> tuple[float, float]:
        """Records a second, and a CPU second."""
        return self.records / self.seconds, self.records / self.cpu


class Total(msgspec.Struct, frozen=True):
    user: str
    total: int


# ---- the data and the answer ---------------------------------------------------------------------------------------


def user_of(number: int) -> str:
    return f"customer-{number % USERS:08}"


def amount_of(number: int) -> int:
    return 100 + number * 31 % 900


def order(number: int) -> bytes:
    """60 bytes."""
    return b'{"user":"%s","amount":%d,"ts":%d}' % (
        user_of(number).encode(),
        amount_of(number),
        1_760_000_000_000 + number,
    )


def fill(bootstrap: str, records: int) -> None:
    config = {"bootstrap.servers": bootstrap, "partitioner": "murmur2_random", "linger.ms": 20}
    producer = Producer(config | {"queue.buffering.max.messages": 2 * WRITTEN_AT_ONCE, "enable.idempotence": True})
    for first in range(0, records, WRITTEN_AT_ONCE):
        numbers = range(first, min(first + WRITTEN_AT_ONCE, records))
        producer.produce_batch(FULL, [{"value": order(number), "key": user_of(number)} for number in numbers])
        producer.flush()


def check(bootstrap: str, topic: str, records: int) -> None:
    """Read what was committed and compare it: how many records, the last total of each user, and that totals rise."""
    expected: Counter[str] = Counter()
    for number in range(records):
        expected[user_of(number)] += amount_of(number)
    found: dict[str, int] = {}
    count = 0
    for total in committed(bootstrap, topic):
        count += 1
        if total.total <= found.get(total.user, 0):
            raise SystemExit(f"{topic}: {total} came after {found.get(total.user, 0)}: out of order, or doubled")
        found[total.user] = total.total
    if count != records or found != expected:
        raise SystemExit(f"{topic}: {records} records went in, {count} came out, the last totals are wrong: no measure")


def committed(bootstrap: str, topic: str) -> Iterator[Total]:
    """In order per partition, up to the last stable offset."""
    config = {"bootstrap.servers": bootstrap, "group.id": "bench-check", "enable.auto.commit": False}
    consumer = Consumer(config | {"enable.partition.eof": True, "isolation.level": "read_committed"})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    decode = msgspec.json.Decoder(Total).decode
    ended: set[int | None] = set()
    while len(ended) < PARTITIONS:
        for message in consumer.consume(10_000, timeout=1.0):
            error = message.error()
            if error is None:
                yield decode(message.value() or b"")
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
            else:
                raise SystemExit(f"{topic}: {error}")
    consumer.close()


# ---- runs ----------------------------------------------------------------------------------------------------------


@contextmanager
def kafka(bootstrap: str | None) -> Iterator[str]:
    """The address of a broker: the one that there is, or one that is started for the time being."""
    if bootstrap is not None:
        yield bootstrap
        return
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder, DevKafka(Path(folder)) as started:
        yield started.bootstrap


def measure(command: Sequence[str], environment: dict[str, str] | None = None) -> Usage:
    """Run it to its end, which must be a good one."""
    begin = time.monotonic()
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(command, stdout=said, stderr=said, env=os.environ | (environment or {}))
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        whole = time.monotonic() - begin
        if process.returncode:
            said.seek(0)
            text = said.read().decode(errors="replace")
            raise SystemExit(f"{' '.join(command)}\nended with {process.returncode}:\n{text}")
    return Usage(whole, used.ru_utime + used.ru_stime)


def job_command(bootstrap: str, workers: int, interval: str, checkpoints: str, source: str, sink: str) -> list[str]:
    options = ["--parallelism", str(workers), "--checkpoint-interval", interval, "--checkpoint-dir", checkpoints]
    program = ["--bootstrap", bootstrap, "--input", source, "--output", sink, "--bounded"]
    return [*TIDEGATE, "run", str(EXAMPLES / "running_totals.py"), *options, "--", *program]


def loop_command(bootstrap: str, source: str, sink: str) -> list[str]:
    return [sys.executable, str(HERE / "kafka_bare_loop.py"), bootstrap, source, sink]


class Bench:
    """A broker with the two input topics; each run has an output topic of its own, which is checked and removed."""

    def __init__(self, bootstrap: str, records: int, interval: str) -> None:
        self._bootstrap = bootstrap
        self._records = records
        self._interval = interval
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self._runs = 0

    def prepare(self) -> None:
        self._remove(FULL, EMPTY)
        self._create(FULL, EMPTY)
        fill(self._bootstrap, self._records)

    def job(self, workers: int, client: str = "librdkafka", profile: Path | None = None) -> Result:
        path = os.pathsep.join([str(HERE / "process_hook"), os.environ.get("PYTHONPATH", "")])
        environment = {"PYTHONPATH": path, "BENCH_CLIENT": client, "BENCH_PROFILE": str(profile or "")}

        def run(source: str, sink: str) -> Usage:
            with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as checkpoints:
                command = job_command(self._bootstrap, workers, self._interval, checkpoints, source, sink)
                return measure(command, environment)

        return self._result(f"{client}, {workers} worker{'s' if workers > 1 else ''}", run)

    def bare_loop(self) -> Result:
        return self._result("bare loop", lambda source, sink: measure(loop_command(self._bootstrap, source, sink)))

    def _result(self, what: str, run: Callable[[str, str], Usage]) -> Result:
        nothing = self._run(run, EMPTY, 0)
        full = self._run(run, FULL, self._records)
        return Result(what, self._records, full.whole - nothing.whole, full.cpu - nothing.cpu, nothing.whole)

    def _run(self, run: Callable[[str, str], Usage], source: str, records: int) -> Usage:
        self._runs += 1
        sink = f"bench-totals-{self._runs}"
        self._remove(sink)
        self._create(sink)
        usage = run(source, sink)
        check(self._bootstrap, sink, records)
        self._remove(sink)
        return usage

    def _create(self, *topics: str) -> None:
        futures = self._admin.create_topics([NewTopic(topic, PARTITIONS, 1) for topic in topics])
        for future in futures.values():
            future.result(30)

    def _remove(self, *topics: str) -> None:
        """Those that exist; returns when the names are free again."""
        known = [topic for topic in topics if topic in self._admin.list_topics(timeout=30).topics]
        for future in self._admin.delete_topics(known).values() if known else ():
            future.result(30)
        while any(topic in self._admin.list_topics(timeout=30).topics for topic in known):
            time.sleep(0.1)


def show(rounds: Sequence[Sequence[Result]]) -> None:
    """The median of all rounds. The bare loop comes first in each."""
    print(f"{'':22} {'records/s':>10} {'of loop':>8} {'records/CPU s':>14} {'of loop':>8} {'start and end':>14}")
    loop_rate, loop_cpu_rate = (
        statistics.median(values) for values in zip(*(of[0].rates for of in rounds), strict=True)
    )
    for runs in zip(*rounds, strict=True):
        rate, cpu_rate = (statistics.median(values) for values in zip(*(run.rates for run in runs), strict=True))
        print(
            f"{runs[0].what:22} {rate:10,.0f} {rate / loop_rate:8.2f} {cpu_rate:14,.0f} {cpu_rate / loop_cpu_rate:8.2f}"
            f" {statistics.median(run.start_and_end for run in runs):12.1f} s"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=4_000_000)
    parser.add_argument(
        "--rounds", type=int, default=1, help="how often all is measured, in turns; the median is shown"
    )
    parser.add_argument("--checkpoint-interval", default="1s")
    parser.add_argument("--bootstrap", metavar="HOST:PORT", help="a running broker, instead of one that is started")
    parser.add_argument("--profile", type=Path, metavar="FILE", help="only one worker, with its profile into FILE")
    parser.add_argument("--clients", nargs="+", default=["librdkafka", "batches"], metavar="CLIENT")
    parser.add_argument("--workers", nargs="+", type=int, default=[1, 2], metavar="COUNT")
    options = parser.parse_args()
    with kafka(options.bootstrap) as bootstrap:
        bench = Bench(bootstrap, options.records, options.checkpoint_interval)
        bench.prepare()
        if options.profile:
            bench.job(1, options.clients[0], options.profile)
            pstats.Stats(str(options.profile)).sort_stats("tottime").print_stats(25)
        else:
            kinds = [(workers, client) for workers in options.workers for client in options.clients]
            show([(bench.bare_loop(), *(bench.job(*kind) for kind in kinds)) for _ in range(options.rounds)])


if __name__ == "__main__":
    main()
