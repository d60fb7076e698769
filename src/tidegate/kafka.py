"""Kafka's public names. `tidegate.connectors.kafka` is where they live and may move."""

from importlib.util import find_spec

from tidegate.errors import InvalidError

_MISSING = [
    package
    for module, package in (("confluent_kafka", "confluent-kafka"), ("kafka", "kafka-python"))
    if find_spec(module) is None
]
if _MISSING:
    raise InvalidError(
        f"tidegate.kafka needs {' and '.join(_MISSING)}, which is not installed", remedy="pip install 'tidegate[kafka]'"
    )

from tidegate.connectors.kafka.records import KafkaRecord, RecordValue  # noqa: E402
from tidegate.connectors.kafka.sink import KafkaSink  # noqa: E402
from tidegate.connectors.kafka.source import KafkaSource  # noqa: E402

__all__ = ["KafkaRecord", "KafkaSink", "KafkaSource", "RecordValue"]
