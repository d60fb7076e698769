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
from tidegate.testing.sim.clocks import ProcessClock
from tidegate.testing.sim.gate import FaultyGate, OpenGate
from tidegate.testing.sim.job import JOB, build_graph
from tidegate.testing.sim.outside import Medium
from tidegate.testing.sim.scheduler import Process, Scheduler
from tidegate.testing.sim.storage import Blobs, SimStorage, folder_of
from tidegate.testing.sim.swarm import Swarm


@dataclass
class Ground:
    scheduler: Scheduler
    swarm: Swarm
    blobs: Blobs
    service: Medium
    processes: dict[int, Process] = field(default_factory=dict)
    """By pid; pids are never used again."""
    clocks: dict[str, ProcessClock] = field(default_factory=dict)
    """By the name of the process."""

    def new_process(self, name: str) -> tuple[int, Process]:
        pid = len(self.processes) + 1
        process = Process(self.scheduler, name)
        self.processes[pid] = process
        return pid, process

    def clock_of(self, process: Process) -> ProcessClock:
        """What `process` takes for the time."""
        if process.name not in self.clocks:
            random = self.scheduler.random(f"{process.name}/clock")
            self.clocks[process.name] = self.swarm.hardship.clocks.clock(self.scheduler, random)
        return self.clocks[process.name]

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
        """The program, as `process` imports it: its connectors reach the medium as this process does."""
        source, sink = self.service.connectors(process, self.clock_of(process), self._readable)
        return build_graph(self.swarm.shape, self.swarm.max_parallelism, source, sink)

    def _readable(self) -> int:
        """How many records of each input partition have come by now."""
        shape = self.swarm.shape
        if self.scheduler.seconds >= self.swarm.input_seconds:
            return shape.records
        partitions = shape.partitions * shape.sources
        return int(2 * shape.records / partitions * self.scheduler.seconds / self.swarm.input_seconds)
