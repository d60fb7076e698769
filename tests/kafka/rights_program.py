"""Copies a topic as a user who must log in; the names of its operators and topics are those of docs/guarantees.md."""

from argparse import ArgumentParser

import tidegate as tg
from tidegate.deploy.dev_kafka.settings import USERS
from tidegate.kafka import KafkaSink, KafkaSource


def login(user: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": USERS[user],
    }


def build(argv: list[str]) -> tg.Job:
    parser = ArgumentParser()
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--client", choices=("librdkafka", "batches"))
    options = parser.parse_args(argv)
    job = tg.Job("running-totals")
    source = KafkaSource(options.bootstrap, "orders", bounded=True, settings=login("app"), client=options.client)
    job.source(source, name="orders").sink(
        KafkaSink(options.bootstrap, "totals", settings=login("app"), client=options.client), name="out"
    )
    return job
