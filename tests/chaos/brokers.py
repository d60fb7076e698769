"""The Kafka of a chaos run in a thread of its own, so that a broker's slow return does not hold up everything else.

The thread starts the nodes and ends them; one fault at a time is done there, and `heal` shortens what it waits for.
"""

import queue
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from pathlib import Path

from kafka.admin import KafkaAdminClient

from tests.kafka.brokers import VERSION
from tests.kafka.proxy import KafkaProxy
from tidegate.deploy.dev_kafka import DevKafka
from tidegate.deploy.dev_kafka.ports import free_ports

START_PATIENCE = 240.0
"""Seconds in which the cluster must have started, the jars that are fetched the first time not counted."""
Task = Callable[[DevKafka], None]


class Brokers(threading.Thread):
    """`failure` is why the brokers cannot go on; nothing of the job explains that."""

    def __init__(self, folder: Path, nodes: int, topics: Mapping[str, int]) -> None:
        """`topics`, with their numbers of partitions, are made at the start."""
        super().__init__(name="brokers", daemon=True)
        self._tasks: queue.Queue[Task | None] = queue.Queue()
        self._is_ready = threading.Event()
        self._heals = threading.Event()
        self._folder = folder
        self._topics = topics
        self.nodes = nodes
        self.proxies: list[KafkaProxy] = []
        """One before each node; only the job comes through them."""
        self.failure: BaseException | None = None
        self.pending = 0
        self.bootstrap = ""
        """For the job."""
        self.direct = ""
        """For the eyes of the run and its writer."""

    def start_and_wait(self) -> None:
        """Raises what keeps it from starting."""
        self.start()
        if not self._is_ready.wait(START_PATIENCE):
            raise TimeoutError(f"Kafka did not start within {START_PATIENCE:g} s")
        if self.failure is not None:
            raise self.failure

    def run(self) -> None:
        try:
            with ExitStack() as stack:
                kafka = self._start(stack)
                self._is_ready.set()
                while (task := self._tasks.get()) is not None:
                    task(kafka)
                    self.pending -= 1
        except BaseException as error:
            self.failure = error
        finally:
            self._is_ready.set()

    def _start(self, stack: ExitStack) -> DevKafka:
        ports = free_ports(self.nodes)
        self.proxies = [stack.enter_context(KafkaProxy(port)) for port in ports]
        told = [proxy.port for proxy in self.proxies]
        kafka = DevKafka(self._folder, nodes=self.nodes, version=VERSION, ports=ports, advertised_ports=told)
        stack.callback(kafka.kill_all)
        kafka.start()
        kafka.create_topics(self._topics)
        self.bootstrap, self.direct = kafka.bootstrap, kafka.internal_bootstrap
        return kafka

    @property
    def is_busy(self) -> bool:
        return self.pending > 0

    def submit(self, task: Task) -> None:
        """By one thread."""
        self.pending += 1
        self._tasks.put(task)

    def wait(self, seconds: float) -> None:
        """In a task: that long, or until `heal`."""
        self._heals.wait(seconds)

    def heal(self) -> None:
        """From now on faults end at once."""
        self._heals.set()

    def end(self) -> None:
        """Kill all nodes; they are gone when this returns."""
        self._heals.set()
        self._tasks.put(None)
        if self.is_alive():
            self.join()

    # ---- for the eyes of the run -----------------------------------------------------------------------------------

    def transactions(self, prefix: str, *states: str) -> list[str]:
        """The ids that begin with `prefix` and are in one of `states`."""
        with closing(KafkaAdminClient(bootstrap_servers=self.direct)) as admin:
            listed = admin.list_transactions(state_filters=list(states))
        ids = [one.transactional_id for found in listed.values() for one in found]
        return sorted(id for id in ids if id.startswith(prefix))
