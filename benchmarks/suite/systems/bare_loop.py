"""The yardstick: the three workloads as bare loops over librdkafka, without what makes a result safe.

As a program, `python -m benchmarks.suite.systems.bare_loop WORKLOAD BOOTSTRAP SOURCE SINK SECONDS`, it is one process
that reads all partitions to their ends, computes, writes, and commits a transaction each SECONDS. It keeps no
checkpoint: after a crash its totals and its output would no longer agree.
"""

import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from typing import Any

import msgspec
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from benchmarks.suite.contracts import Command, Guarantee, JobRun, Workload
from benchmarks.suite.workloads import WINDOW

FETCH = 10_000
OUT_OF_ORDERNESS = 5_000
"""Milliseconds, as in the example."""

Step = Callable[[Sequence[Message], bool], list[dict[str, Any]]]
"""Of messages, and whether they are the last ones: what is written."""


class BareLoop:
    @property
    def name(self) -> str:
        return "bare-loop"

    @property
    def title(self) -> str:
        return "bare loop, over librdkafka, in one process"

    @property
    def workloads(self) -> frozenset[Workload]:
        return frozenset(Workload)

    @property
    def guarantees(self) -> tuple[Guarantee, ...]:
        """In its name only: transactions, and no checkpoint that they agree with."""
        return (Guarantee.EXACTLY_ONCE,)

    @property
    def most_slots(self) -> int:
        return 1

    def prepare(self) -> None:
        """The virtual environment that runs this has all it needs."""

    def settings(self) -> Mapping[str, str]:
        return {"Python": sys.version.split()[0], "confluent-kafka": version("confluent-kafka")}

    def command(self, run: JobRun) -> Command:
        program = [sys.executable, "-m", "benchmarks.suite.systems.bare_loop", run.workload, run.bootstrap]
        return Command([*program, run.source, run.sink, f"{run.checkpoint_seconds:g}"], {}, ends=True)


def system(name: str) -> BareLoop:
    return BareLoop()


# ---- the program ---------------------------------------------------------------------------------------------------


class Order(msgspec.Struct, frozen=True):
    user: str
    amount: int
    ts: int


def forward(messages: Sequence[Message], is_end: bool) -> list[dict[str, Any]]:
    return [{"value": message.value(), "key": message.key()} for message in messages]


class RunningTotals:
    def __init__(self) -> None:
        self._totals: dict[str, int] = {}
        self._decode = msgspec.json.Decoder(Order).decode
        self._encode = msgspec.json.Encoder().encode

    def __call__(self, messages: Sequence[Message], is_end: bool) -> list[dict[str, Any]]:
        decode, encode, totals = self._decode, self._encode, self._totals
        records = []
        for message in messages:
            order = decode(message.value() or b"")
            user = order.user
            totals[user] = total = totals.get(user, 0) + order.amount
            records.append({"value": encode({"user": user, "total": total}), "key": user})
        return records


class WindowTotals:
    """A window closes when every partition is past it."""

    def __init__(self, partitions: int) -> None:
        self._windows: dict[int, defaultdict[str, int]] = {}
        self._times: dict[int | None, int] = dict.fromkeys(range(partitions), 0)
        self._decode = msgspec.json.Decoder(Order).decode
        self._encode = msgspec.json.Encoder().encode

    def __call__(self, messages: Sequence[Message], is_end: bool) -> list[dict[str, Any]]:
        decode, windows, times = self._decode, self._windows, self._times
        for message in messages:
            order = decode(message.value() or b"")
            start = order.ts - order.ts % WINDOW
            if start not in windows:
                windows[start] = defaultdict(int)
            windows[start][order.user] += order.amount
            times[message.partition()] = order.ts
        watermark = min(times.values()) - OUT_OF_ORDERNESS
        closed = [start for start in sorted(windows) if is_end or start + WINDOW <= watermark]
        return [record for start in closed for record in self._close(start)]

    def _close(self, start: int) -> list[dict[str, Any]]:
        encode = self._encode
        totals = self._windows.pop(start)
        return [
            {"value": encode({"user": user, "start": start, "total": total}), "key": user}
            for user, total in totals.items()
        ]


def _open_consumer(bootstrap: str, topic: str) -> tuple[Consumer, int, int]:
    """A consumer at the beginning of every partition, how many these are, and how many records there are to read."""
    # By default a partition that has fetched ahead enough pauses for a second, in which it is read empty.
    config = {"bootstrap.servers": bootstrap, "fetch.queue.backoff.ms": 5}
    consumer = Consumer(config | {"group.id": "bare-loop", "enable.auto.commit": False})
    partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
    ends = [consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30) for partition in partitions]
    consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    return consumer, len(partitions), sum(high for _, high in ends)


def _open_producer(bootstrap: str) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": "bare-loop",
            "partitioner": "murmur2_random",
            "delivery.report.only.error": True,
            "queue.buffering.max.messages": 2_000_000,
            "queue.buffering.max.kbytes": 1 << 20,
            "linger.ms": 5,
        }
    )
    producer.init_transactions(30)
    return producer


def _step_of(workload: Workload, partitions: int) -> Step:
    match workload:
        case Workload.FORWARD:
            return forward
        case Workload.TOTALS:
            return RunningTotals()
        case Workload.WINDOWS:
            return WindowTotals(partitions)


def main(workload: str, bootstrap: str, source: str, sink: str, seconds: str) -> None:
    consumer, partitions, left = _open_consumer(bootstrap, source)
    producer = _open_producer(bootstrap)
    step = _step_of(Workload(workload), partitions)
    producer.begin_transaction()
    commit_at = time.monotonic() + float(seconds)
    while left:
        messages = consumer.consume(min(FETCH, left), timeout=1.0)
        left -= len(messages)
        records = step(messages, not left)
        if producer.produce_batch(sink, records) < len(records):
            sys.exit("the producer's queue is full")
        producer.poll(0)
        if time.monotonic() >= commit_at or not left:
            producer.commit_transaction(60)
            producer.begin_transaction()
            commit_at = time.monotonic() + float(seconds)
    consumer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
