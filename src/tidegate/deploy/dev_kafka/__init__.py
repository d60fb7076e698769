"""A real Kafka on this machine, for development and tests: fetched by Maven, started as ordinary processes.

Nothing here is for production: all nodes share one disk, and a node dies with the process that started it.
"""

from tidegate.deploy.dev_kafka.cluster import DevKafka
from tidegate.deploy.dev_kafka.jars import DEFAULT_VERSION, ensure_jars
from tidegate.deploy.dev_kafka.settings import TlsFiles

__all__ = ["DEFAULT_VERSION", "DevKafka", "TlsFiles", "ensure_jars"]
