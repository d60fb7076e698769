"""A Kafka cluster of one or three nodes on loopback, for development and tests.

The nodes are processes that end with the thread that started them, however that ends; what they wrote stays in the
folder. Nothing is started that is not ended by `stop`.
"""

import base64
import itertools
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tidegate.deploy.dev_kafka.admin import create_topics, is_ready
from tidegate.deploy.dev_kafka.jars import DEFAULT_VERSION, ensure_jars
from tidegate.deploy.dev_kafka.nodes import JavaKafka, Node
from tidegate.deploy.dev_kafka.ports import free_ports, is_free
from tidegate.deploy.dev_kafka.settings import HOST, NodeAddress, Security, SettingValue, server_properties
from tidegate.deploy.dev_kafka.tools import find_java
from tidegate.errors import InvalidError, UnavailableError

START_PATIENCE = 90.0
"""Seconds in which all nodes must answer."""
STOP_PATIENCE = 15.0
"""Seconds from SIGTERM to SIGKILL."""
LAST_STOP_PATIENCE = 2.0
"""The same for a node that can end in good order no more."""
_PAUSE = 0.05


class DevKafka:
    """A cluster that is started with `start` or `with`, and keeps its data in `folder`.

    Nodes are numbered from 1. Not for several threads, and the thread that starts it must outlive it.
    """

    def __init__(
        self,
        folder: Path,
        nodes: int = 1,
        version: str = DEFAULT_VERSION,
        settings: Mapping[str, SettingValue] = {},
        ports: Sequence[int] | None = None,
        security: Security = "none",
        advertised_ports: Sequence[int] | None = None,
    ) -> None:
        """`settings` are server properties, and win over those of this class. `ports`: one for each node, for clients;
        by default any that are free. `advertised_ports`: one for each node, where clients are told to come instead,
        because something stands there that passes on to `ports`; nodes do not listen there, and reach each other past
        it.

        Raises InvalidError for a number of nodes that `folder` was not made with, and for another number of ports.
        """
        self.folder = folder.absolute()
        self.version = version
        self.settings = dict(settings)
        self.security = security
        self._numbers = range(1, nodes + 1)
        self._ports = None if ports is None else list(ports)
        self.advertised_ports = None if advertised_ports is None else list(advertised_ports)
        self._nodes: dict[int, Node] = {}
        self._check_nodes(nodes)

    def _check_nodes(self, nodes: int) -> None:
        for ports in (self._ports, self.advertised_ports):
            if ports is not None and len(ports) != nodes:
                raise InvalidError(f"{nodes} nodes need as many ports, not {len(ports)}")
        made = len(list(self.folder.glob("node-*")))
        if made not in (0, nodes):
            raise InvalidError(
                f"{self.folder} holds a Kafka of another size: {made} nodes, not {nodes}",
                remedy="Start it with as many nodes as it was made with, or take another folder.",
            )

    # ---- life ------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start all nodes that do not run, and wait until all answer and know each other; blocks, the first time while
        Kafka is fetched. Ports stay the same from one start of this object to the next.

        Raises InvalidError where Java or Maven is missing, UnavailableError, with the end of a node's log, when it does
        not start.
        """
        if not self._nodes:
            self._nodes = self._make_nodes()
        nodes = [node for node in self._nodes.values() if not node.is_started]
        try:
            self._configure()
            cluster_id = self._cluster_id()
            for node in nodes:
                node.begin_format(cluster_id)
            for node in nodes:
                node.end_format()
            for node in nodes:
                node.start()
            self.wait_until_ready()
        except BaseException:
            self.kill_all()
            raise

    def _make_nodes(self) -> dict[int, Node]:
        java, jars = find_java(), ensure_jars(self.version)
        given = self._ports or []
        for port in given:
            if not is_free(port):
                raise InvalidError(f"port {port} is taken", remedy="Take another, or end what listens there.")
        ports = iter([*given, *free_ports(3 * len(self._numbers) - len(given))])
        client_ports = list(itertools.islice(ports, len(self._numbers)))
        advertised = self.advertised_ports or client_ports
        nodes = {}
        for number, port, told in zip(self._numbers, client_ports, advertised, strict=True):
            address = NodeAddress(number, port, next(ports), next(ports), told)
            nodes[number] = Node(address, self.folder / f"node-{number}", JavaKafka(java, jars, self.version))
        return nodes

    def _configure(self) -> None:
        addresses = [node.address for node in self._nodes.values()]
        for node in self._nodes.values():
            node.configure(server_properties(node.address, addresses, node.data, self.security, self.settings))

    def _cluster_id(self) -> str:
        """The same for all nodes, and for all starts."""
        path = self.folder / "cluster-id"
        if not path.exists():
            path.write_text(base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("="))
        return path.read_text()

    def wait_until_ready(self) -> None:
        """Return when all nodes that were not stopped or killed answer, and name each other. Raises UnavailableError
        when one has ended by itself, or does not answer for `START_PATIENCE` seconds."""
        deadline = time.monotonic() + START_PATIENCE
        nodes = {node.address: node for node in self._nodes.values() if node.is_started}
        for address, node in nodes.items():
            while not is_ready(address, nodes):
                self.check_alive()
                if time.monotonic() > deadline:
                    raise UnavailableError(
                        f"Kafka node {address.id} did not answer for {START_PATIENCE:g} s: {node.tail()}"
                    )
                time.sleep(_PAUSE)

    def check_alive(self) -> None:
        """Raises UnavailableError, with the end of its log, when a node has ended that was neither stopped nor
        killed."""
        for node in self._nodes.values():
            if node.is_started:
                node.check_alive()

    def stop(self) -> None:
        """End all nodes in good order, by SIGKILL those that do not obey. Does nothing when none runs."""
        started = [node for node in self._nodes.values() if node.is_started]
        for node in started:
            # One after the other, since each hands over to the rest. With the majority gone, nobody takes what is left.
            has_majority = 2 * sum(other.is_started for other in started) > len(self._nodes)
            node.stop(STOP_PATIENCE if has_majority else LAST_STOP_PATIENCE)

    def kill_all(self) -> None:
        """End all nodes by SIGKILL: quicker than `stop`, and for data that nobody needs."""
        for node in self._nodes.values():
            node.kill()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # ---- one node --------------------------------------------------------------------------------------------------

    def kill(self, node: int = 1) -> None:
        """End a node by SIGKILL; it is gone when this returns."""
        self._node(node).kill()

    def pause(self, node: int = 1) -> None:
        """Stop a node in its tracks, by SIGSTOP: it keeps its connections and answers nothing until `resume`."""
        self._node(node).pause()

    def resume(self, node: int = 1) -> None:
        self._node(node).resume()

    def restart(self, node: int = 1, settings: Mapping[str, SettingValue] | None = None) -> None:
        """Start a node again with its ports and data, with other settings if given; one that still runs is ended in
        good order first. Waits until all nodes that run answer. Raises as `start`."""
        one = self._node(node)
        one.stop(STOP_PATIENCE)
        if settings is not None:
            self.settings |= settings
            self._configure()
        one.start()
        self.wait_until_ready()

    def pid(self, node: int = 1) -> int:
        """Raises UnavailableError when it does not run."""
        return self._node(node).pid

    def log_file(self, node: int = 1) -> Path:
        """What the node said: warnings and errors."""
        return self._node(node).log_file

    def _node(self, number: int) -> Node:
        if number not in self._nodes:
            raise InvalidError(f"there is no Kafka node {number} that was started")
        return self._nodes[number]

    # ---- for clients -----------------------------------------------------------------------------------------------

    @property
    def bootstrap(self) -> str:
        """The addresses for clients: '127.0.0.1:9092,127.0.0.1:9093', with `advertised_ports` where they are given.
        Known from the first start on."""
        return ",".join(f"{HOST}:{node.address.port_for_clients}" for node in self._nodes.values())

    @property
    def internal_bootstrap(self) -> str:
        """The same brokers without a login and without TLS, where everything is allowed; clients that begin here stay
        here."""
        return ",".join(f"{HOST}:{node.address.internal_port}" for node in self._nodes.values())

    def create_topics(self, topics: Mapping[str, int]) -> list[str]:
        """Make topics (name to partitions), and return those that did not exist. Raises InvalidError for one that
        exists with another number of partitions or has a name that Kafka refuses."""
        return create_topics(self.internal_bootstrap, topics, min(len(self._nodes), 3))
