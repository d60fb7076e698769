"""Makes the tasks of one worker from the graph: operators, channels, gates, state backends, sink drivers. Nothing runs
here."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from tidegate.checkpoint.store import CheckpointStore
from tidegate.checkpoint.transactions import SinkTransactions
from tidegate.clock import Clock
from tidegate.elements import Watermark
from tidegate.errors import Failure, InternalError, TidegateError, place
from tidegate.event_time.progress import EventTimeProgress
from tidegate.graph.logical import ErrorPolicy, LogicalGraph, LogicalNode
from tidegate.graph.partitioned import is_from_one_split, split_places
from tidegate.graph.physical import ChannelId, Edge, PhysicalGraph, Vertex, worker_of
from tidegate.ids import OperatorName, TaskId, WorkerIndex
from tidegate.operators.asynchronous import AsyncOperator
from tidegate.operators.contracts import Operator, OperatorContext, SinkContext, SourceContext
from tidegate.operators.partitioned import PartitionCheck
from tidegate.operators.sink import SinkOperator
from tidegate.operators.source import SourceInput, SourceOperator
from tidegate.operators.timestamps import Timestamper, TimestampsOperator
from tidegate.operators.user_code import OnError
from tidegate.runtime.asynchronous import AsyncStage
from tidegate.runtime.channels import Exchange, InputChannel, LocalChannel, OutputChannel
from tidegate.runtime.control import Deploy, ToJobManager, WatermarkReported
from tidegate.runtime.event_time import WatermarkReports, WatermarkTurns
from tidegate.runtime.gate import InputGate
from tidegate.runtime.local_copies import LocalCopies
from tidegate.runtime.pacing import BatchPacer
from tidegate.runtime.ports import AsyncCalls, Executor
from tidegate.runtime.restored_times import reached_by_key, restored_watermark
from tidegate.runtime.router import Output
from tidegate.runtime.sink_driver import SinkDriver
from tidegate.runtime.snapshots import OperatorFiles, SnapshotWriter
from tidegate.runtime.state_backends import StateBackends
from tidegate.runtime.task import Task
from tidegate.runtime.task_parts import TaskParts
from tidegate.runtime.task_state import TaskState
from tidegate.state.backend import KeyedStateBackend
from tidegate.state.operator_state import OperatorStateBackend

Opened = TypeVar("Opened")


@dataclass(frozen=True)
class TaskPorts:
    """What tasks need from outside."""

    executor: Executor
    clock: Clock
    store: CheckpointStore
    send_data: Callable[[WorkerIndex, bytes], None]
    send_control: Callable[[ToJobManager], None]
    calls: AsyncCalls | None = None
    stopwatch: Clock | None = None


class Channels:
    """The channels of one worker: in memory where both ends are here, over the exchange otherwise."""

    def __init__(self, worker: WorkerIndex, graph: PhysicalGraph, deploy: Deploy, ports: TaskPorts) -> None:
        self._worker = worker
        self._graph = graph
        self._capacity = deploy.options.channel_records
        self._send_data = ports.send_data
        self.exchange = Exchange(deploy.attempt, deploy.options.channel_bytes)
        self._local: dict[ChannelId, LocalChannel] = {}

    def input(self, channel: ChannelId) -> InputChannel:
        source = worker_of(TaskId(self._graph.edges[channel.edge].source, channel.source))
        return self._local_end(channel) if source == self._worker else self.exchange.input(channel, self._to(source))

    def output(self, channel: ChannelId) -> OutputChannel:
        target = worker_of(TaskId(self._graph.edges[channel.edge].target, channel.target))
        return self._local_end(channel) if target == self._worker else self.exchange.output(channel, self._to(target))

    def _local_end(self, channel: ChannelId) -> LocalChannel:
        room = self._graph.vertex(self._graph.edges[channel.edge].target).room
        return self._local.setdefault(channel, LocalChannel(_within(self._capacity, room)))

    def _to(self, worker: WorkerIndex) -> Callable[[bytes], None]:
        return lambda frame: self._send_data(worker, frame)


class TaskBuilder:
    """Builds the tasks of one attempt's `Deploy`."""

    def __init__(
        self,
        graph: LogicalGraph,
        physical: PhysicalGraph,
        deploy: Deploy,
        channels: Channels,
        ports: TaskPorts,
        backends: StateBackends,
        copies: LocalCopies | None,
    ) -> None:
        self._backends = backends
        self._copies = copies
        self._graph = graph
        self._physical = physical
        self._deploy = deploy
        self._channels = channels
        self._ports = ports
        self._restored = {operator.name: operator for operator in deploy.restored}

    def build(self, id: TaskId) -> Task:
        """A task that is not open yet; it is restored before it is opened."""
        vertex = self._physical.vertex(id.vertex)
        nodes = [self._graph.node(name) for name in vertex.operators]
        width = vertex.parallelism
        keyed = {node.name: self._keyed(node, id, width) for node in nodes if node.keyed}
        unkeyed = {node.name: OperatorStateBackend(node.name, id.subtask, vertex.parallelism) for node in nodes}
        inputs = self._physical.channels_into(id)
        options = self._deploy.options
        watermark = restored_watermark(self._graph, vertex, id.subtask, self._physical.max_parallelism, self._restored)
        progress = EventTimeProgress(nodes[0].watermarks, watermark) if nodes[0].watermarks is not None else None
        parts = TaskParts(
            id=id,
            vertex=vertex,
            attempt=self._deploy.attempt,
            operators=(),
            outputs=self._outputs(id),
            source=self._source(nodes[0], vertex, id, progress),
            gate=self._gate(inputs, watermark),
            state=TaskState(id, keyed, unkeyed, self._writer(vertex, id), self._ports.executor),
            ended=frozenset(name for name in vertex.operators if name in self._restored and self._restored[name].ended),
            pacer=BatchPacer(self._longest_batch(vertex), options.step_target),
            step_target=options.step_target,
            watermark=watermark,
            watermark_turns=self._turns(id, progress) if progress is not None else None,
            sink=nodes[-1].name if nodes[-1].sink is not None else None,
            stopwatch=self._ports.stopwatch,
        )
        late: list[Task] = []
        parts.sink_driver = self._sink_driver(nodes[-1], vertex, id, lambda: late[0])
        contexts = [self._context(n, parts, keyed.get(n.name), unkeyed[n.name]) for n in nodes]
        operators = [self._operator(n, parts, progress) for n in nodes]
        parts.operators = [(n.name, o, c) for n, o, c in zip(nodes, operators, contexts, strict=True)]
        if nodes[0].asynchronous is not None:
            parts.gate = parts.stage = self._stage(id, parts)
        task = Task(parts, self._ports.executor, self._ports.clock, self._ports.send_control)
        late.append(task)
        return task

    def _keyed(self, node: LogicalNode, id: TaskId, parallelism: int) -> KeyedStateBackend:
        key_by = self._graph.partitioned_key_by(node)
        return self._backends.make(node.name, id.subtask, parallelism, "" if key_by is None else key_by.key_type)

    def _longest_batch(self, vertex: Vertex) -> int:
        """Of what its tasks begin at once: it comes to those behind them in one piece, whatever room they have."""
        longest = self._deploy.options.batch_size
        for edge in self._physical.outputs(vertex.name):
            longest = _within(longest, self._physical.vertex(edge.target).room)
        return longest

    def _writer(self, vertex: Vertex, id: TaskId) -> SnapshotWriter:
        store, attempt, options = self._ports.store, self._deploy.attempt, self._deploy.options
        copies = {name: self._copies.of(name, id.subtask) for name in vertex.operators} if self._copies else {}
        files = {name: OperatorFiles(store, id, name, attempt, options, copies.get(name)) for name in vertex.operators}
        return SnapshotWriter(id, files, options)

    def _turns(self, id: TaskId, progress: EventTimeProgress) -> WatermarkTurns:
        def tell(watermark: Watermark) -> None:
            self._ports.send_control(WatermarkReported(id, watermark.timestamp, watermark.is_idle))

        alignment = progress.strategy.alignment
        reports = WatermarkReports(progress, alignment, tell) if alignment is not None else None
        return WatermarkTurns(progress, self._deploy.options.watermark_interval, reports)

    def _gate(self, inputs: Sequence[ChannelId], watermark: int) -> InputGate | None:
        channels = {channel: self._channels.input(channel) for channel in inputs}
        inputs_of = [self._physical.edges[channel.edge].input for channel in channels]
        return InputGate(channels, self._deploy.last_checkpoint, inputs_of, watermark) if channels else None

    def _stage(self, id: TaskId, parts: TaskParts) -> AsyncStage:
        """Of a task whose first operator is asynchronous: it stands between the gate and the chain."""
        name, operator, context = parts.operators[0]
        if self._ports.calls is None:
            raise InternalError("nobody is there to make asynchronous calls", where=place(name))
        assert isinstance(operator, AsyncOperator)
        assert isinstance(parts.gate, InputGate)
        return AsyncStage(parts.gate, operator, context, self._ports.calls, self._ports.clock, f"calls:{id}")

    def _operator(self, node: LogicalNode, parts: TaskParts, progress: EventTimeProgress | None) -> Operator:
        if node.source is not None:
            on_error = OnError(skip=node.on_error is ErrorPolicy.SKIP, tag=node.error_tag)
            return SourceOperator(node.source.deserializer, on_error, Timestamper(progress) if progress else None)
        if node.watermarks is not None:
            assert progress is not None
            progress.assigned({progress.reading: parts.watermark})
            return TimestampsOperator(progress)
        if node.sink is not None:
            assert parts.sink_driver is not None
            return SinkOperator(parts.sink_driver.write, parts.sink_driver.takes_columns)
        assert node.factory is not None
        return node.factory()

    def _context(
        self,
        node: LogicalNode,
        parts: TaskParts,
        keyed: KeyedStateBackend | None,
        unkeyed: OperatorStateBackend,
    ) -> OperatorContext:
        return OperatorContext(
            job=self._deploy.job,
            operator=node.name,
            subtask=parts.id.subtask,
            parallelism=parts.vertex.parallelism,
            attempt=self._deploy.attempt,
            batch_size=self._deploy.options.batch_size,
            state=keyed,
            operator_state=unkeyed,
            clock=self._ports.clock,
            watermark=parts.watermark,
            reached=reached_by_key(self._graph, node, self._physical.max_parallelism, self._restored, parts.watermark),
            check_keys=self._partition_check(node, parts),
        )

    def _partition_check(self, node: LogicalNode, parts: TaskParts) -> Callable[[list[Any]], None] | None:
        if node.partitions is None:
            return None
        vertex, max_parallelism = parts.vertex, self._physical.max_parallelism
        reading = self._partition_read(parts, vertex.operators[: vertex.operators.index(node.name)])
        if vertex.parallelism == 1 and reading is None:
            return None
        return PartitionCheck(node.partitions, parts.id.subtask, vertex.parallelism, max_parallelism, reading).check

    def _partition_read(self, parts: TaskParts, before: Sequence[OperatorName]) -> Callable[[], int] | None:
        """From which partition comes what the operators `before` another one emit; None where that is not known, or
        does not matter: with one subtask keys are right wherever they are, and only a job that begins is told."""
        source, first = parts.source, self._graph.node(parts.vertex.operators[0])
        places = split_places(self._graph, first, self._physical.max_parallelism)
        if source is None or places is None or not is_from_one_split(self._graph, before):
            return None
        if parts.vertex.parallelism == 1 and self._deploy.restored:
            return None
        return lambda: places.partition(source.reading)

    def _source(
        self, node: LogicalNode, vertex: Vertex, id: TaskId, progress: EventTimeProgress | None
    ) -> SourceInput | None:
        if node.source is None:
            return None
        context = SourceContext(self._deploy.job, node.name, id.subtask, vertex.parallelism, self._deploy.attempt)
        source = node.source
        where = place(node.name, id.subtask, self._deploy.attempt)
        return SourceInput(_open(lambda: source.open_reader(context), where), progress)

    def _sink_driver(
        self, node: LogicalNode, vertex: Vertex, id: TaskId, task: Callable[[], Task]
    ) -> SinkDriver | None:
        """`task` is asked when the sink has news: it does not exist yet."""
        if node.sink is None:
            return None
        deploy, sink = self._deploy, node.sink
        where = place(node.name, id.subtask, deploy.attempt)
        context = SinkContext(deploy.job, node.name, id.subtask, vertex.parallelism, deploy.attempt)
        transactions = SinkTransactions(
            sink.transaction_prefix or deploy.job,
            deploy.instance,
            deploy.attempt,
            node.name,
            id.subtask,
            deploy.options.pool_limit,
        )
        return SinkDriver(
            _open(lambda: sink.open_writer(context), where),
            transactions,
            f"sink:{id}",
            self._ports.executor,
            self._ports.clock,
            lambda event: task().tell_from_sink(event),
            lambda failure: task().fail(_placed(failure, where)),
        )

    def _outputs(self, id: TaskId) -> dict[tuple[OperatorName, str | None], list[Output]]:
        found: dict[tuple[OperatorName, str | None], list[Output]] = {}
        for edge in self._physical.outputs(id.vertex):
            found.setdefault((edge.source_operator, edge.tag), []).append(self._output(edge, id))
        return found

    def _output(self, edge: Edge, id: TaskId) -> Output:
        return Output(
            edge.partitioning,
            [self._channels.output(channel) for channel in self._physical.channels_out_of(id, edge)],
            batch_size=_within(self._deploy.options.batch_size, self._physical.vertex(edge.target).room),
            linger=self._deploy.options.linger,
            max_parallelism=self._deploy.max_parallelism,
            first_turn=id.subtask,
        )


def _open(opening: Callable[[], Opened], where: str) -> Opened:
    """What a connector opens; its errors say of which operator they are."""
    try:
        return opening()
    except TidegateError as error:
        error.failure = _placed(error.failure, where)
        raise


def _within(number: int, room: int | None) -> int:
    """Barriers wait behind what stands before a task that keeps records for a while: let it not be more than that."""
    return number if room is None else min(number, room)


def _placed(failure: Failure, where: str) -> Failure:
    return msgspec.structs.replace(failure, where=failure.where or where)
