"""The job of these tests: numbers the records of each key and hands them on, Kafka to Kafka, set as a fault needs it.

A record is 'KEY NUMBER', and what comes out of it 'KEY COUNT NUMBER', where COUNT is how many of its key came so far.
So a record that is lost, doubled or out of order shows in the output alone, and so does state of another moment.
"""

import argparse
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import tidegate as tg
from tidegate.kafka import KafkaSink, KafkaSource

LARGE = 200_000
"""Bytes that `--enlarge` adds to a record."""


class Count(tg.KeyedProcessFunction[str, str, str]):
    """Numbers the records of each key."""

    count = tg.ValueState(int, default=0)

    def process_element(self, value: str, ctx: tg.KeyedContext[str]) -> Iterator[str]:
        count = self.count.value() + 1
        self.count.update(count)
        key, _, number = value.partition(" ")
        yield f"{key} {count} {number}"


def key_of(record: str) -> str:
    return record.partition(" ")[0]


def parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--client", choices=("librdkafka", "batches"))
    parser.add_argument("--job", required=True)
    parser.add_argument("--input", required=True, help="topics, with commas between")
    parser.add_argument("--output", required=True, help="topic")
    parser.add_argument("--second-output", help="topic of a second sink")
    parser.add_argument("--second-name", default="second", help="of the second sink")
    parser.add_argument("--bounded", action="store_true")
    parser.add_argument("--discovery", type=float, help="seconds between two looks for new partitions")
    parser.add_argument("--undecodable", choices=("fail", "skip"), default="fail", help="records that are no UTF-8")
    parser.add_argument("--dead-letters", help="topic of a sink for records that are no UTF-8")
    parser.add_argument("--from", dest="start", choices=("earliest", "latest"), default="earliest")
    parser.add_argument("--prefix", help="of transactional ids")
    parser.add_argument("--timeout", type=float, help="of transactions, seconds")
    parser.add_argument("--message-timeout", type=int, help="milliseconds")
    parser.add_argument("--delivery", choices=("exactly-once", "at-least-once", "none"), default="exactly-once")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds that each record takes")
    parser.add_argument("--fail-at", help="the number of the record at which user code fails, while --unless is absent")
    parser.add_argument("--unless", type=Path, help="a file")
    parser.add_argument("--enlarge", help="the number of the record that comes out far too large")
    return parser.parse_args(argv)


def source(options: argparse.Namespace) -> KafkaSource:
    more = {"discovery_interval": options.discovery} if options.discovery else {}
    topics = options.input.split(",")
    return KafkaSource(
        options.bootstrap,
        topics,
        value=tg.String(),
        start=options.start,
        bounded=options.bounded,
        client=options.client,
        **more,
    )


def sink(options: argparse.Namespace, topic: str) -> KafkaSink:
    delivery: Literal["exactly-once", "at-least-once", "none"] = options.delivery
    settings = {"message.timeout.ms": options.message_timeout} if options.message_timeout else {}
    return KafkaSink(
        options.bootstrap,
        topic,
        key=key_of,
        value=tg.String(),
        delivery=delivery,
        transaction_prefix=options.prefix,
        timeout=options.timeout,
        settings=settings,
        client=options.client,
    )


def build(argv: list[str]) -> tg.Job:
    options = parse(argv)

    def work(record: str) -> str:
        if options.pause:
            time.sleep(options.pause)
        number = record.partition(" ")[2]
        if number == options.fail_at and not (options.unless and os.path.lexists(options.unless)):
            raise ValueError(f"record {number} is one too many")
        return record + "x" * LARGE if number == options.enlarge else record

    job = tg.Job(options.job)
    dead: tg.SideOutput[bytes] = tg.SideOutput("dead")
    orders = job.source(source(options), name="orders", on_error=dead if options.dead_letters else options.undecodable)
    records = orders.map(work, name="work")
    counted = records.key_by(key_of, key_type=str).process(Count(), name="count")
    counted.sink(sink(options, options.output), name="out")
    if options.second_output:
        counted.sink(sink(options, options.second_output), name=options.second_name)
    if options.dead_letters:
        orders.side_output(dead).sink(
            KafkaSink(options.bootstrap, options.dead_letters, client=options.client), name="dead-letters"
        )
    return job


if __name__ == "__main__":
    tg.main(build)
