"""One task: a chain with its input and its outputs, stepped. It never blocks and owns no loop.

A step drives the chain until there is nothing to do, no room in an output, the sink holds batches back, or its time is
over. A barrier is handled only when everything before it has left the chain: then state is captured, the sink swaps
transactions, the barrier goes into every output, and processing goes on; storing and preparing happen beside it and
only the acknowledgement waits for them.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from tidegate.checkpoint import participant as m
from tidegate.checkpoint.protocol import CheckpointAbandoned, CheckpointCompleted, SplitState
from tidegate.checkpoint.transactions import SinkCommitted, SinkReady
from tidegate.clock import Clock
from tidegate.elements import Barrier, Batch, EndOfInput, Watermark
from tidegate.errors import ErrorKind, Failure, InternalError, failure_of, place
from tidegate.failpoints import reach
from tidegate.ids import CheckpointId
from tidegate.operators.source import SourceInput
from tidegate.runtime.busyness import Busyness, Condition
from tidegate.runtime.chain import Chain
from tidegate.runtime.control import Drain, OperatorMetrics, TaskEnded, TaskFailed, TaskRunning, ToJobManager
from tidegate.runtime.event_time import TaskEventTime
from tidegate.runtime.gate import AlignedBarrier, Ended
from tidegate.runtime.pacing import Pieces, SourcePoll, earliest
from tidegate.runtime.ports import Executor
from tidegate.runtime.snapshots import StateTooLarge
from tidegate.runtime.task_parts import TaskParts
from tidegate.runtime.task_state import TaskState
from tidegate.runtime.timing import TimerTurns
from tidegate.storage.port import StorageUnavailable


class Progress(msgspec.Struct, frozen=True):
    """Of one step: whether anything was done, and until when nothing will be unless something comes from outside."""

    worked: bool
    wake_at: float | None
    """Monotonic seconds; None: no deadline."""
    due_at: float | None = None
    """As `wake_at`, but for looking at a source again that had nothing."""
    patient_at: float | None = None
    """As `wake_at`, for who calls `arrived` when one of `watched` becomes readable."""
    watched: Sequence[int] = ()


class _Assignment(msgspec.Struct, frozen=True):
    """Splits for a source."""

    splits: Sequence[SplitState]
    no_more: bool


class Task:
    """See the module. `send` reaches the JobManager."""

    def __init__(
        self, parts: TaskParts, executor: Executor, clock: Clock, send: Callable[[ToJobManager], None]
    ) -> None:
        self.id = parts.id
        self._parts = parts
        self._executor = executor
        self._clock = clock
        self._send = send
        outside = {name for (name, tag), outputs in parts.outputs.items() if tag is None and outputs}
        self._chain = Chain([(name, operator) for name, operator, _ in parts.operators], outside, parts.ended)
        self._timers = TimerTurns(self._chain, clock, parts.step_target)
        self._outputs = [output for outputs in parts.outputs.values() for output in outputs]
        self._event_time = TaskEventTime(
            self._chain, self._outputs, parts.watermark, parts.watermark_turns, self._is_time_over
        )
        self._participant = m.Participant(parts.id, parts.attempt, parts.sink)
        self._source_poll = SourcePoll()
        self._pieces = Pieces(parts.pacer)
        """What is left of the last input batch."""
        self._orders: deque[_Assignment | Drain | CheckpointId] = deque()
        """A source's assignments and triggers, and that its input ends here, in the order in which they came: a split
        that is assigned behind a trigger belongs to the enumerator's part of that checkpoint, not to this task's."""
        self._in_chain = 0
        """Records of the piece that is in the chain."""
        self._worked_on_it = 0.0
        """Seconds that it took so far, without those in which the task waited for room or for its turn."""
        self._step_ends_at = 0.0
        self.busyness = Busyness(parts.id, self._chain, parts.stopwatch)
        self._is_open = False
        self._is_announced = False
        self._input_has_ended = False
        self._end = EndOfInput()
        self._end_is_told = False
        self.failure: Failure | None = None
        """Why the task cannot go on; the attempt is then over."""

    # -- life --

    @property
    def state(self) -> TaskState:
        """The state of its operators; restored before `open`."""
        return self._parts.state

    def open(self) -> None:
        """State is restored: open the operators, then what they need outside."""
        for _, operator, context in self._parts.operators:
            operator.open(context)
        self._parts.start()
        self._is_open = True

    def close(self) -> None:
        """Let go of everything, also where something of it raises; what is open stays as it is."""
        self._parts.close()

    def fail(self, failure: Failure) -> None:
        """The attempt is over; said once."""
        if self.failure is None:
            where = failure.where or place(self.id.vertex, self.id.subtask, self._parts.attempt)
            self.failure = msgspec.structs.replace(failure, where=where)
            self._send(TaskFailed(self.id, self.failure))

    # -- control --

    def assign(self, splits: Sequence[SplitState], no_more: bool) -> None:
        """Sources only: read these too, at the next opportunity."""
        if self._parts.source is None:
            raise InternalError(f"splits were assigned to {self.id}, which is no source")
        self._orders.append(_Assignment(splits, no_more))

    def align(self, bound: int) -> None:
        """Sources only: do not read, from now on, what is beyond this watermark."""
        if self._parts.source is not None:
            self._parts.source.align(bound)
            self._source_poll.reset()

    def trigger(self, checkpoint: CheckpointId) -> None:
        """Sources only: put this barrier into the stream at the next opportunity."""
        if self._parts.source is not None:
            self._orders.append(checkpoint)

    def arrived(self) -> None:
        """Something became readable that is watched."""
        self._source_poll.arrived()

    def drain(self, order: Drain) -> None:
        """Sources only: the input ends here."""
        if self._parts.source is not None:
            self._orders.append(order)

    def completed(self, event: CheckpointCompleted) -> None:
        self._tell(event)
        if event.attempt != self._parts.attempt:
            return
        if self._parts.source is not None:
            self._parts.source.completed(event.checkpoint)
        self._parts.state.completed(event.checkpoint)

    def abandoned(self, event: CheckpointAbandoned) -> None:
        self._tell(event)
        if self._parts.source is not None:
            self._parts.source.abandoned(event.checkpoint)
        self._parts.state.abandoned(event.checkpoint)

    def metrics(self) -> list[OperatorMetrics]:
        skipped = {name: getattr(operator, "records_skipped", 0) for name, operator, _ in self._parts.operators}
        return self.busyness.operators(skipped)

    # -- stepping --

    def step(self) -> Progress:
        """Never raises: a failure ends the task."""
        if not self._is_open or self.failure is not None:
            return Progress(False, None)
        try:
            return self._step()
        except Exception as error:
            self.fail(failure_of(error))
            return Progress(True, None)

    def _step(self) -> Progress:
        began = now = self._clock.now().monotonic
        self._step_ends_at = now + self._parts.step_target
        self.busyness.begins()
        self._announce()
        if self._parts.sink_driver is not None:
            self._parts.sink_driver.wake()
        if self._parts.stage is not None:
            self._parts.stage.step(now)
        for output in self._outputs:
            output.flush_due(now)
        worked = False
        # Asked once for each piece of work and not again for the wait: the sink might answer otherwise then, and nobody
        # would come back to the work that was held back by its first answer.
        while (can_go_on := self._can_go_on()) and self._advance(now):
            worked = True
            now = self._clock.now().monotonic
            if now >= self._step_ends_at:
                break
        self._event_time.stepped(now, can_go_on, can_go_on and now < self._step_ends_at)
        if self._is_announced:
            left = None if now >= self._step_ends_at else self._condition(can_go_on)
            self.busyness.stepped(began, now, worked, left)
        due_at = self._due_at(now, can_go_on)
        poll = self._source_poll
        if self._parts.source is None or self._input_has_ended or not can_go_on:
            return Progress(worked, due_at, due_at, due_at)
        times = (earliest(due_at, poll.next_at(now)), due_at, earliest(due_at, poll.patient_at(now)))
        return Progress(worked, *times, poll.watched(now))

    def _condition(self, can_go_on: bool) -> Condition:
        has_begun = bool(self._pieces) or not self._chain.idle
        return self._parts.condition(can_go_on, has_begun, self._input_has_ended)

    def _announce(self) -> None:
        if not self._is_announced and self._parts.is_ready:
            self._is_announced = True
            self._send(TaskRunning(self.id))

    def _can_go_on(self) -> bool:
        driver = self._parts.sink_driver
        has_room = all(output.has_room for output in self._outputs)
        return has_room and (driver is None or driver.is_writable or self._waits_for_barrier())

    def _waits_for_barrier(self) -> bool:
        """While the sink holds batches back nothing may enter the chain; the source of such a task may still get a
        barrier."""
        return self._parts.source is not None and self._chain.idle and not self._pieces and bool(self._orders)

    def _advance(self, now: float) -> bool:
        """One piece of work; False when there is none."""
        if self._chain.watch is not None:
            self.busyness.goes_on(now)
        if not self._chain.idle:
            self._drive(now)
            return True
        if self._event_time.pass_on():
            return True
        if not self._orders and self._timers.take():
            self._drive(now)
            return True
        if self._pieces:
            piece = self._pieces.take()
            self._in_chain, self._worked_on_it = len(piece), 0.0
            self._chain.push(piece)
            self._drive(now)
            return True
        if self._input_has_ended and not self._end_is_told:
            self._tell_end()
            return True
        if not self._orders and not self._input_has_ended and self._event_time.make(now):
            return True
        return self._take_input(now)

    def _drive(self, now: float) -> None:
        """Bring one output out of the chain, or finish what is in it."""
        found = self._chain.next_output(self._is_time_over)
        if found is not None:
            name, batch = found
            for output in self._parts.outputs.get((name, batch.tag), ()):
                output.push(batch, now)
        self._worked_on_it += self._clock.now().monotonic - now
        if self._in_chain and self._chain.idle:
            self._parts.pacer.observe(self._in_chain, self._worked_on_it)
            self._in_chain = 0

    def _is_time_over(self) -> bool:
        return self._clock.now().monotonic >= self._step_ends_at

    def _take_input(self, now: float) -> bool:
        if self._parts.source is not None:
            return self._take_from_source(self._parts.source, now)
        assert self._parts.gate is not None
        match self._parts.gate.poll():
            case None:
                return False
            case AlignedBarrier(checkpoint):
                self._tell(m.BarrierAligned(checkpoint))
            case Ended(is_drained):
                self._end_input(is_drained)
            case Watermark() as watermark:
                self._event_time.came(watermark)
            case Batch() as batch:
                self._pieces.put(batch)
        return True

    def _take_from_source(self, source: SourceInput, now: float) -> bool:
        if self._orders:
            self._carry_out(self._orders.popleft(), source)
            return True
        if self._input_has_ended:
            return False
        if source.has_ended:
            self._end_input(is_drained=False)
            return True
        if not self._source_poll.is_due(now):
            return False
        batch = source.poll(self._parts.pacer.limit)
        if batch is None:
            self._source_poll.found_nothing(now, source.watched())
            return False
        if batch.values:
            self._source_poll.reset()
            self._pieces.put(batch)
        return True

    def _carry_out(self, order: _Assignment | Drain | CheckpointId, source: SourceInput) -> None:
        match order:
            case _Assignment(splits, no_more):
                source.assign(splits, no_more)
                self._source_poll.reset()
            case Drain():
                if not self._input_has_ended:
                    self._end_input(is_drained=True)
            case _:
                self._tell(m.BarrierAligned(order))

    def _end_input(self, is_drained: bool) -> None:
        self._input_has_ended = True
        self._end = EndOfInput(is_drained)
        self._chain.end_of_input(self._is_time_over)

    def _tell_end(self) -> None:
        self._end_is_told = True
        for output in self._outputs:
            output.broadcast(self._end)
        self._send(TaskEnded(self.id))

    def _due_at(self, now: float, can_go_on: bool) -> float | None:
        deadlines = [output.next_deadline for output in self._outputs]
        due = self._timers.wake_at
        if due is not None and can_go_on:
            deadlines.append(due)
        if self._parts.sink_driver is not None:
            deadlines.append(self._parts.sink_driver.wake_at)
        if self._parts.stage is not None:
            deadlines.append(self._parts.stage.wake_at)
        if not self._input_has_ended and can_go_on:
            deadlines.append(self._event_time.wake_at(now))
        return earliest(*deadlines)

    # -- checkpoints --

    def _tell(self, event: m.Event) -> None:
        for command in self._participant.handle(event):
            self._perform(command)

    def tell_from_sink(self, event: SinkReady | SinkCommitted) -> None:
        """The sink has news for the participant."""
        self._tell(event)

    def _perform(self, command: m.Command) -> None:
        driver = self._parts.sink_driver
        match command:
            case m.CaptureAndForward(checkpoint):
                self._capture(checkpoint)
            case m.PermitCommits(permit):
                assert driver is not None, "a permit came to a task without a sink"
                driver.permit(permit)
            case m.AbandonInSink(checkpoint):
                if self._parts.gate is not None:
                    self._parts.gate.abandon(checkpoint)
                self._orders = deque(o for o in self._orders if isinstance(o, _Assignment | Drain) or o > checkpoint)
                if driver is not None:
                    driver.abandon(checkpoint)
            case m.Send(message):
                reach("acknowledge:before")
                self._send(message)
                reach("acknowledge:after")

    def _capture(self, checkpoint: CheckpointId) -> None:
        reach("capture:before")
        if self._parts.stage is not None:
            self._parts.stage.capture()
        source = self._parts.source
        splits = {self._parts.vertex.operators[0]: source.capture(checkpoint)} if source is not None else {}
        captured = self._parts.state.capture(checkpoint, self._input_has_ended, splits, self._event_time.watermark)
        reach("capture:after")
        for output in self._outputs:
            output.broadcast(Barrier(checkpoint))
        if self._parts.sink_driver is not None:
            self._parts.sink_driver.barrier(checkpoint)
        self._executor.submit(
            f"upload:{self.id}",
            lambda: self._parts.state.store(checkpoint, captured),
            lambda result, error: self._stored(checkpoint, result, error),
        )

    def _stored(self, checkpoint: CheckpointId, result: Any, error: BaseException | None) -> None:
        if error is None:
            self._tell(m.StateStored(checkpoint, result))
        elif isinstance(error, StorageUnavailable | StateTooLarge):
            self._tell(m.StateNotStored(checkpoint, str(error)))
        else:
            failure = failure_of(error)
            if failure.kind is ErrorKind.UNAVAILABLE:
                self._tell(m.StateNotStored(checkpoint, failure.message))
            else:
                self.fail(failure)
