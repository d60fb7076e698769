"""Kafka's data path in whole record batches: a second implementation of `client.Consumer` and `client.Producer`.

Here a record is never an object of its own: what arrives is bytes of record batches, and what leaves are columns. What
decides (`fetcher`, `sending`, `group_commits`) performs no I/O; sockets are touched in `channels` and `opening` alone.
Batches are taken apart and made by the compiled part of Tidegate; where that was not built, of aiokafka the compiled
codec is used and of confluent-kafka the hash of keys. Their clients are not.
"""

from importlib import import_module

from tidegate.connectors.kafka.deferred import defer

for _package in ("aiokafka", "aiokafka.record", "confluent_kafka"):
    defer(_package)
import_module("aiokafka.record._crecords")
