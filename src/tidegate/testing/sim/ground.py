"""What everything in one simulated world stands on: scheduler, outside systems, and how a process reaches them."""

from dataclasses import dataclass, field

from tidegate.checkpoint.manifest import Manifest
from tidegate.checkpoint.store import CheckpointStore
from tidegate.graph.logical import LogicalGraph
from tidegate.ids import JobName
from tidegate.savepoints.format import SavepointReader
from tidegate.savepoints.places import StorageFolder, open_target
from tidegate.scheduling.savepoint_work import SavepointPlaces
from tidegate.storage.port import Storage
from tidegate.testing.sim.connectors import SimSink, SimSource
from tidegate.testing.sim.gate import FaultyGate, OpenGate
from tidegate.testing.sim.job import JOB, build_graph, key_of
from tidegate.testing.sim.log_service import LogService
from tidegate.testing.sim.scheduler import Process, Scheduler
from tidegate.testing.sim.storage import Blobs, SimStorage, folder_of
from tidegate.testing.sim.swarm import Swarm


@dataclass
class Ground:
    scheduler: Scheduler
    swarm: Swarm
    blobs: Blobs
    service: LogService
    processes: dict[int, Process] = field(default_factory=dict)
    """By pid; pids are never used again."""

    def new_process(self, name: str) -> tuple[int, Process]:
        pid = len(self.processes) + 1
        process = Process(self.scheduler, name)
        self.processes[pid] = process
        return pid, process

    def store_of(self, process: Process) -> CheckpointStore:
        """The job's checkpoint store, as `process` reaches it."""
        gate = FaultyGate(process, "storage", self.swarm.storage)
        return CheckpointStore(SimStorage(self.blobs, gate), JobName(JOB))

    def places_of(self, process: Process) -> SavepointPlaces:
        """Savepoints, as `process` reaches them."""
        gate = FaultyGate(process, "savepoints", self.swarm.savepoints)

        def at(location: str) -> StorageFolder:
            return StorageFolder(SimStorage(self.blobs, gate), folder_of(location))

        def target(path: str | None, store: CheckpointStore, manifest: Manifest) -> Storage:
            return open_target(None, store, manifest) if path is None else at(path)

        return SavepointPlaces(target, lambda path: SavepointReader(at(path)))

    def store_outside(self) -> CheckpointStore:
        """For whoever only looks: no call fails."""
        return CheckpointStore(SimStorage(self.blobs, OpenGate()), JobName(JOB))

    def graph_of(self, process: Process) -> LogicalGraph:
        """The program, as `process` imports it: its connectors reach the log service as this process does."""
        gate = FaultyGate(process, "log service", self.swarm.log_service)
        swarm = self.swarm

        def source(topic: str) -> SimSource:
            return SimSource(self.service, topic, gate, ready=self._readable, slack=swarm.source_slack)

        def sink(topic: str) -> SimSink:
            return SimSink(
                self.service,
                topic,
                gate,
                key_of,
                timeout=swarm.transaction_timeout,
                eagerness=swarm.sink_eagerness,
                fullness=swarm.sink_fullness,
            )

        return build_graph(swarm.shape, swarm.max_parallelism, source, sink)

    def _readable(self) -> int:
        """How many records of each input partition have come by now."""
        shape = self.swarm.shape
        if self.scheduler.seconds >= self.swarm.input_seconds:
            return shape.records
        partitions = shape.partitions * shape.sources
        return int(2 * shape.records / partitions * self.scheduler.seconds / self.swarm.input_seconds)
