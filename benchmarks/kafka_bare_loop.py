"""The yardstick for `kafka_totals.py`: running totals as a bare loop over librdkafka, without what makes them safe.

One process reads all partitions to their ends, decodes, adds, encodes and writes, and commits a transaction each
second. It keeps no checkpoint: after a crash its totals and its output would no longer agree.
"""

import sys
import time

import msgspec
from confluent_kafka import Consumer, Producer, TopicPartition

TRANSACTION_SECONDS = 1.0
FETCH = 10_000


class Order(msgspec.Struct, frozen=True):
    user: str
    amount: int


class Total(msgspec.Struct, frozen=True):
    user: str
    total: int


def open_consumer(bootstrap: str, topic: str) -> tuple[Consumer, int]:
    """A consumer at the beginning of every partition, and how many records there are to read."""
    # By default a partition that has fetched ahead enough pauses for a second, in which it is read empty.
    config = {"bootstrap.servers": bootstrap, "fetch.queue.backoff.ms": 5}
    consumer = Consumer(config | {"group.id": "bare-loop", "enable.auto.commit": False})
    partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
    ends = [consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30) for partition in partitions]
    consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    return consumer, sum(high for _, high in ends)


def open_producer(bootstrap: str) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": "bare-loop",
            "partitioner": "murmur2_random",
            "delivery.report.only.error": True,
            "queue.buffering.max.messages": 1_000_000,
            "linger.ms": 5,
        }
    )
    producer.init_transactions(30)
    return producer


def main(bootstrap: str, source: str, sink: str) -> None:
    consumer, left = open_consumer(bootstrap, source)
    producer = open_producer(bootstrap)
    decode, encode = msgspec.json.Decoder(Order).decode, msgspec.json.Encoder().encode
    totals: dict[str, int] = {}
    producer.begin_transaction()
    commit_at = time.monotonic() + TRANSACTION_SECONDS
    while left:
        messages = consumer.consume(min(FETCH, left), timeout=1.0)
        records = []
        for message in messages:
            order = decode(message.value() or b"")
            total = totals.get(order.user, 0) + order.amount
            totals[order.user] = total
            records.append({"value": encode(Total(order.user, total)), "key": order.user})
        left -= len(messages)
        if producer.produce_batch(sink, records) < len(records):
            sys.exit("the producer's queue is full")
        producer.poll(0)
        if time.monotonic() >= commit_at or not left:
            producer.commit_transaction(30)
            producer.begin_transaction()
            commit_at = time.monotonic() + TRANSACTION_SECONDS
    consumer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
