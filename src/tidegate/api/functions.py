"""The classes that users derive from to process records with a context, with side outputs and with state.

They hold no engine code: what runs them is in `operators/`.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Generic, TypeVar

from tidegate.operators.context import Context, KeyedContext, SideOutput
from tidegate.operators.timers import TimerService

__all__ = [
    "BroadcastProcessFunction",
    "CoProcessFunction",
    "Context",
    "KeyedBroadcastProcessFunction",
    "KeyedCoProcessFunction",
    "KeyedContext",
    "KeyedProcessFunction",
    "ProcessFunction",
    "SideOutput",
    "TimerService",
]

In = TypeVar("In", contravariant=True)
In1 = TypeVar("In1", contravariant=True)
In2 = TypeVar("In2", contravariant=True)
Broadcast = TypeVar("Broadcast", contravariant=True)
Out = TypeVar("Out", covariant=True)
Key = TypeVar("Key", contravariant=True)


class _Function:
    """What all of them have."""

    def open(self, ctx: Context) -> None:
        """Called once in each attempt before the first record: the place to connect and to load. Nothing can be
        emitted. State without keys is there, as it was restored; of keyed state there is none, because there is no
        key."""

    def close(self) -> None:
        """Called when the attempt ends in good order, after `open` succeeded; not when the process dies. For manners
        only."""


class TimerFunction(_Function, Generic[Key, Out]):
    """What those have whose records have keys."""

    def on_timer(self, timestamp: int, ctx: KeyedContext[Key]) -> Iterable[Out] | None:
        """Called when a timer of `ctx.key` that was registered with `ctx.timer_service` is due: `timestamp` is its
        time, in milliseconds since 1970. As `process_element` otherwise. A function that does not define it cannot
        register timers."""


class ProcessFunction(_Function, ABC, Generic[In, Out]):
    """Makes any number of records of type `Out`, and of its side outputs, out of each record of type `In`.

    Each subtask works with its own copy (`copy.deepcopy`) of the object that the program made. Attributes are lost at
    every restart: what must not be lost is state. Most state belongs to a key and needs a `KeyedProcessFunction`; what
    belongs to the subtask is an `OperatorListState`. Side outputs are class attributes:

        class Split(ProcessFunction[Order, Order]):
            large = SideOutput[Order]("large")

            def process_element(self, value, ctx):
                if value.amount > 1000:
                    ctx.output(self.large, value)
                else:
                    yield value
    """

    @abstractmethod
    def process_element(self, value: In, ctx: Context) -> Iterable[Out] | None:
        """Called for each record. Yields the outputs, returns them, or returns None for none.

        A generator's outputs are passed on as they come, in batches, so that it may yield more than memory holds. An
        exception fails the attempt; the record is processed again after the restart. `value` must not be changed: it
        may also be in another branch of the job.
        """


class KeyedProcessFunction(TimerFunction[Key, Out], ABC, Generic[Key, In, Out]):
    """Makes any number of records of type `Out` out of each record of type `In`, with state of the record's key.

    States are class attributes; in `process_element` they mean the state of `ctx.key`:

        class RunningTotal(KeyedProcessFunction[str, Order, Total]):
            total = ValueState(int, default=0)

            def process_element(self, value, ctx):
                self.total.update(self.total.value() + value.amount)
                yield Total(ctx.key, self.total.value())

    State is part of every checkpoint and is found again by the operator's name and the attribute's. For everything else
    see `ProcessFunction`.
    """

    @abstractmethod
    def process_element(self, value: In, ctx: KeyedContext[Key]) -> Iterable[Out] | None:
        """As `ProcessFunction.process_element`."""


class CoProcessFunction(_Function, ABC, Generic[In1, In2, Out]):
    """Makes records of type `Out` out of those of two streams: `stream.connect(other).process(...)`.

    Between records of different streams there is no order but the one in which they happen to come. For everything else
    see `ProcessFunction`.
    """

    @abstractmethod
    def process_element1(self, value: In1, ctx: Context) -> Iterable[Out] | None:
        """For each record of the stream on which `connect` was called. As `ProcessFunction.process_element`."""

    @abstractmethod
    def process_element2(self, value: In2, ctx: Context) -> Iterable[Out] | None:
        """For each record of the stream that `connect` was given."""


class KeyedCoProcessFunction(TimerFunction[Key, Out], ABC, Generic[Key, In1, In2, Out]):
    """Makes records of type `Out` out of those of two streams with the same keys, which share the state of their key:
    `keyed.connect(other_keyed).process(...)`. A join is made of this.

    For everything else see `CoProcessFunction` and `KeyedProcessFunction`.
    """

    @abstractmethod
    def process_element1(self, value: In1, ctx: KeyedContext[Key]) -> Iterable[Out] | None:
        """For each record of the stream on which `connect` was called. As `ProcessFunction.process_element`."""

    @abstractmethod
    def process_element2(self, value: In2, ctx: KeyedContext[Key]) -> Iterable[Out] | None:
        """For each record of the stream that `connect` was given."""


class BroadcastProcessFunction(_Function, ABC, Generic[In, Broadcast, Out]):
    """Makes records of type `Out` out of those of a stream, with what was broadcast to all subtasks:
    `stream.connect(rules.broadcast()).process(...)`.

        class Apply(BroadcastProcessFunction[Order, Rule, Alert]):
            rules = BroadcastState(str, Rule)

            def process_broadcast_element(self, value, ctx):
                self.rules.put(value.name, value)

            def process_element(self, value, ctx):
                return [Alert(value, rule.name) for rule in self.rules.values() if rule.matches(value)]

    For everything else see `ProcessFunction`.
    """

    @abstractmethod
    def process_element(self, value: In, ctx: Context) -> Iterable[Out] | None:
        """For each record of the stream, in one subtask. Reads broadcast state and cannot write it. As
        `ProcessFunction.process_element`."""

    @abstractmethod
    def process_broadcast_element(self, value: Broadcast, ctx: Context) -> Iterable[Out] | None:
        """For each record that is broadcast, in every subtask. What it writes to broadcast state must depend on nothing
        that differs between subtasks: `value` and broadcast state alone. What it yields, each subtask yields."""


class KeyedBroadcastProcessFunction(TimerFunction[Key, Out], ABC, Generic[Key, In, Broadcast, Out]):
    """Makes records of type `Out` out of those of a keyed stream, with state of their key and what was broadcast to all
    subtasks: `keyed.connect(rules.broadcast()).process(...)`.

    For everything else see `BroadcastProcessFunction` and `KeyedProcessFunction`.
    """

    @abstractmethod
    def process_element(self, value: In, ctx: KeyedContext[Key]) -> Iterable[Out] | None:
        """As `BroadcastProcessFunction.process_element`; with state of `ctx.key`."""

    @abstractmethod
    def process_broadcast_element(self, value: Broadcast, ctx: Context) -> Iterable[Out] | None:
        """As `BroadcastProcessFunction.process_broadcast_element`. There is no key, hence no keyed state."""
