"""A job of `program` on a bench: what is fed to it, how it is started and ended, and what must come out of it.

The answer is computed here from what was fed, never by the engine.
"""

import signal
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from typing import Any

from kafka.admin import KafkaAdminClient

from tests.integration.programs import wait_until
from tests.integration.running import Bench, Started
from tests.kafka.brokers import Broker
from tests.kafka.faults import program
from tests.kafka.medium import KafkaMedium
from tidegate.checkpoint.manifest import Manifest
from tidegate.ids import OperatorName

PARTITIONS = 4
KEYS = 8
ABORTED = {"Empty", "CompleteAbort"}
"""What a transactional id is after a recovery has aborted its transaction, and after Kafka has."""
QUICK = ("--checkpoint-interval", "200ms")
Output = Mapping[str, Sequence[tuple[int, int]]]
"""By key, in order: how many came so far, and the number of the record."""


class CountingJob:
    """One job, its topics, and the records that were fed to it. `keywords` of topics are those of `create_topic`."""

    def __init__(self, bench: Bench, name: str = "counts", *, partitions: int = PARTITIONS) -> None:
        assert isinstance(bench.medium, KafkaMedium)
        self.bench = bench
        self.medium = bench.medium
        self.broker: Broker = bench.medium.broker
        self.name = bench.medium.name(name)
        self.input = bench.medium.name(f"{name}-in")
        self.output_topic = bench.medium.name(f"{name}-out")
        self.fed: list[list[int]] = [[] for _ in range(partitions)]
        self.keys = KEYS
        for topic in (self.input, self.output_topic):
            self.medium.create_topic(topic, partitions)

    # -- input --

    def feed(self, count: int, *, partitions: Collection[int] | None = None) -> None:
        """So many more records, in turn into `partitions`, by default all; those of a key lie in one partition."""
        own = sorted(range(len(self.fed)) if partitions is None else partitions)
        first = sum(map(len, self.fed))
        more: list[list[int]] = [[] for _ in self.fed]
        for number in range(first, first + count):
            more[own[number % len(own)]].append(number)
        self.medium.append(
            self.input,
            [[self._record(partition, number) for number in numbers] for partition, numbers in enumerate(more)],
        )
        for partition, numbers in enumerate(more):
            self.fed[partition] += numbers

    def _key_of(self, partition: int, number: int) -> str:
        return f"k{partition}-{number % self.keys}"

    def _record(self, partition: int, number: int) -> bytes:
        return f"{self._key_of(partition, number)} {number}".encode()

    # -- running --

    @property
    def arguments(self) -> list[str]:
        topics = ["--input", self.input, "--output", self.output_topic]
        return [*self.medium.arguments, "--job", self.name, *topics]

    def start(self, *words: str, fail_point: str = "", options: Sequence[str] = ()) -> Started:
        """`words` are the program's, `options` the command's; by default checkpoints come often."""
        arguments = [*self.arguments, *words]
        return self.bench.start_program(program.__file__, arguments, self.name, fail_point, [*QUICK, *options])

    def run(self, *words: str, fail_point: str = "", options: Sequence[str] = ()) -> Started:
        """To its end, whatever that is."""
        started = self.start(*words, fail_point=fail_point, options=options)
        started.wait()
        return started

    def run_until_all_is_out(self, *words: str, options: Sequence[str] = ()) -> Started:
        """Until what was fed is in the output; then it is interrupted and must end well."""
        started = self.start(*words, options=options)
        self.wait_for_all(started)
        interrupt(started)
        return started

    def wait_for_all(self, started: Started) -> None:
        total = sum(map(len, self.fed))
        started.wait_until(lambda: "running, attempt" in started.said, "the job's start")
        started.wait_until(lambda: self.count() >= total, f"the output of {total} records")

    # -- looking --

    @property
    def newest(self) -> Manifest | None:
        return self.bench.view(self.name).newest if self.bench.checkpoints.exists() else None

    def positions(self) -> dict[int, int]:
        """By partition: where the newest completed checkpoint goes on reading."""
        record = self.newest.operator(OperatorName("orders")) if self.newest else None
        assert record is not None, "there is no completed checkpoint"
        return {int(split.id.rpartition("/")[2]): split.position for split in record.splits}

    def pending(self) -> list[str]:
        """The ids of the transactions that the newest completed checkpoint names."""
        return sorted(self.bench.pending(self.name))

    def count(self) -> int:
        return sum(map(len, self.output().values()))

    def output(self, topic: str = "") -> Output:
        """What readers of committed records see. A key's records must lie in one partition."""
        found: dict[str, list[tuple[int, int]]] = defaultdict(list)
        places: dict[str, set[int]] = defaultdict(set)
        for partition, values in enumerate(self.medium.read(topic or self.output_topic)):
            for value in values:
                key, count, number = value.decode().split(" ")
                found[key].append((int(count), int(number)))
                places[key].add(partition)
        assert all(len(own) == 1 for own in places.values()), places
        return dict(found)

    def expected(self, lost: Callable[[int, int], bool] = lambda partition, offset: False) -> Output:
        """Without those records whose partition and offset are `lost`; the state has counted them."""
        found: dict[str, list[tuple[int, int]]] = defaultdict(list)
        counts: dict[str, int] = defaultdict(int)
        for partition, numbers in enumerate(self.fed):
            for offset, number in enumerate(numbers):
                key = self._key_of(partition, number)
                counts[key] += 1
                if not lost(partition, offset):
                    found[key].append((counts[key], number))
        return dict(found)

    # -- judging --

    def assert_exactly_once(self, topic: str = "") -> None:
        """Every record fed is in the output once, in the order of its key."""
        problems = differences(self.expected(), self.output(topic))
        assert not problems, "\n".join([*problems[:20], self.bench.said])

    def assert_nothing_is_open(self) -> None:
        """And nobody who reads what is committed is held back."""
        assert self.bench.open_transactions(self.name) == []
        assert self.broker.end_offsets(self.output_topic, "read_committed") == self.broker.end_offsets(
            self.output_topic
        )


def differences(expected: Output, found: Output) -> list[str]:
    """Every key of which other records came out, or in another order."""
    keys = sorted(expected.keys() | found.keys())
    pairs = ((key, list(expected.get(key, [])), list(found.get(key, []))) for key in keys)
    return [f"{key}: {_difference(wanted, there)}" for key, wanted, there in pairs if wanted != there]


def _difference(wanted: list[tuple[int, int]], there: list[tuple[int, int]]) -> str:
    if sorted(wanted) == sorted(there):
        return f"out of order: {there}"
    missing = [one for one in wanted if one not in there]
    extra = [one for place, one in enumerate(there) if one not in wanted or one in there[:place]]
    return f"missing {missing}, too many {extra}"


def interrupt(started: Started, number: signal.Signals = signal.SIGINT) -> None:
    """Ask for the end; it must be a good one."""
    started.process.send_signal(number)
    assert started.wait() == 0, started.said


def wait_until_stopped(started: Started, count: int = 1) -> list[int]:
    """The pids of the processes that are stopped, as soon as there are `count`; the job must not end before."""

    def stopped() -> list[int]:
        return [pid for pid, state in started.living().items() if state == "T"]

    started.wait_until(lambda: len(stopped()) >= count, f"the stop of {count} processes")
    return stopped()


def wait_for_checkpoints(job: CountingJob, started: Started, count: int) -> None:
    """Until so many more are complete."""

    def newest() -> int:
        return job.newest.checkpoint if job.newest else 0

    before = newest()
    started.wait_until(lambda: newest() >= before + count, f"{count} checkpoints")


def kill_all(started: Started) -> None:
    started.send_to_all(signal.SIGKILL)
    started.wait()


def describe(medium: KafkaMedium, ids: Collection[str]) -> dict[str, Any]:
    """What the coordinators say of these transactional ids, in kafka-python's words."""
    if not ids:
        return {}
    # A new client each time: an old one refuses for a while after the broker was away.
    with closing(KafkaAdminClient(bootstrap_servers=medium.broker.bootstrap)) as admin:
        found: dict[str, Any] = admin.describe_transactions(sorted(ids))
        return found


def states(medium: KafkaMedium, ids: Collection[str]) -> dict[str, str]:
    """'Ongoing', 'CompleteCommit' and so on, by transactional id."""
    return {id: str(one.state.value) for id, one in describe(medium, ids).items()}


def wait_until_expired(medium: KafkaMedium, ids: Collection[str], patience: float = 30) -> None:
    wait_until(lambda: set(states(medium, ids).values()) == {"CompleteAbort"}, "the end of the timeout", patience)
