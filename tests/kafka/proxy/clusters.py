"""A Kafka whose clients come through proxies, while the test itself and the brokers among themselves go past them."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from tests.kafka.brokers import VERSION, Broker
from tests.kafka.proxy.proxy import KafkaProxy
from tidegate.deploy.dev_kafka import DevKafka
from tidegate.deploy.dev_kafka.ports import free_ports


class ProxiedBroker:
    """`broker` is used as any: code under test finds the proxies at its `bootstrap`, and what the test reads and writes
    by its methods goes past them. `proxies` by node, from 1."""

    def __init__(self, broker: Broker, proxies: Mapping[int, KafkaProxy]) -> None:
        self.broker = broker
        self.proxies = dict(proxies)

    @property
    def proxy(self) -> KafkaProxy:
        """The only one."""
        (one,) = self.proxies.values()
        return one

    @property
    def kafka(self) -> DevKafka:
        return self.broker.kafka

    @property
    def bootstrap(self) -> str:
        """For clients: through the proxies."""
        return self.broker.bootstrap

    @property
    def direct(self) -> str:
        """Past the proxies."""
        return self.broker.direct

    def heal(self) -> None:
        for proxy in self.proxies.values():
            proxy.heal()


@contextmanager
def proxied_broker(nodes: int = 1, **arguments: Any) -> Iterator[ProxiedBroker]:
    """Runs until the context ends; then nothing of it is left but its folder. `arguments` are those of `DevKafka`."""
    ports = free_ports(2 * nodes)
    with ExitStack() as stack:
        proxies = {
            number: stack.enter_context(KafkaProxy(target, port))
            for number, (target, port) in enumerate(zip(ports[:nodes], ports[nodes:], strict=True), 1)
        }
        advertised = [proxy.port for proxy in proxies.values()]
        cluster = DevKafka(
            **{"version": VERSION, **arguments}, nodes=nodes, ports=ports[:nodes], advertised_ports=advertised
        )
        stack.callback(cluster.kill_all)
        cluster.start()
        yield ProxiedBroker(Broker(cluster), proxies)
