"""A proxy in front of each Kafka broker that lets the network misbehave, by the byte and by the kind of request."""

from tests.kafka.proxy.clusters import ProxiedBroker, proxied_broker
from tests.kafka.proxy.proxy import Held, KafkaProxy

__all__ = ["Held", "KafkaProxy", "ProxiedBroker", "proxied_broker"]
