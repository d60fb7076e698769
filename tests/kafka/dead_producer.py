"""Leaves a prepared transaction behind: `dead_producer.py BOOTSTRAP ID TOPIC RECORDS TIMEOUT_MS`.

Writes RECORDS records in turn to two partitions of TOPIC, waits until the broker has them, and kills itself.
"""

import os
import signal
import sys

from confluent_kafka import Producer


def main() -> None:
    bootstrap, transactional_id, topic, records, timeout = sys.argv[1:]
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": timeout,
            "message.timeout.ms": timeout,
            "log_level": 0,
        }
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    for number in range(int(records)):
        producer.produce(topic, str(number).encode(), partition=number % 2)
        producer.poll(0)
    assert producer.flush(30) == 0
    os.kill(os.getpid(), signal.SIGKILL)


main()
