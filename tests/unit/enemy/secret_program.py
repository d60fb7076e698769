"""A job that writes to a Kafka which wants a login; its password comes from the environment, as it should."""

import os

import tidegate as tg
from tidegate.kafka import KafkaSink, KafkaSource

SETTINGS = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": os.environ.get("SHOP_USER", "app"),
    "sasl.password": os.environ.get("SHOP_PASSWORD", "none-given"),
}
BOOTSTRAP = os.environ.get("SHOP_KAFKA", "127.0.0.1:1")

job = tg.Job("secretive")
sink = KafkaSink(BOOTSTRAP, "totals", settings=SETTINGS, timeout=600)
source = KafkaSource(BOOTSTRAP, "orders", settings=SETTINGS)
job.source(source, name="orders").sink(sink, name="out")
