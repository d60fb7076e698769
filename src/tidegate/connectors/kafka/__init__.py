"""Kafka as source and sink. `client` is the port that everything here is written against.

Of kafka-python the messages of Kafka's protocol and the mechanisms of SASL are used, and not its clients.
"""

from tidegate.connectors.kafka.deferred import defer

for _package in ("kafka", "kafka.net", "kafka.protocol", "kafka.protocol.admin"):
    defer(_package)
