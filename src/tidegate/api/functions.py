"""The classes that users derive from to process records with a context, with side outputs and with state.

They hold no engine code: what runs them is in `operators/`.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Generic, TypeVar

from tidegate.operators.context import Context, KeyedContext, SideOutput

__all__ = ["Context", "KeyedContext", "KeyedProcessFunction", "ProcessFunction", "SideOutput"]

In = TypeVar("In", contravariant=True)
Out = TypeVar("Out", covariant=True)
Key = TypeVar("Key", contravariant=True)


class ProcessFunction(ABC, Generic[In, Out]):
    """Makes any number of records of type `Out`, and of its side outputs, out of each record of type `In`.

    Each subtask works with its own copy (`copy.deepcopy`) of the object that the program made. Attributes are lost at
    every restart: what must not be lost is state, and that needs a key (`KeyedProcessFunction`). Side outputs are class
    attributes:

        class Split(ProcessFunction[Order, Order]):
            large = SideOutput[Order]("large")

            def process_element(self, value, ctx):
                if value.amount > 1000:
                    ctx.output(self.large, value)
                else:
                    yield value
    """

    def open(self, ctx: Context) -> None:
        """Called once in each attempt before the first record: the place to connect and to load. Nothing can be
        emitted."""

    @abstractmethod
    def process_element(self, value: In, ctx: Context) -> Iterable[Out] | None:
        """Called for each record. Yields the outputs, returns them, or returns None for none.

        A generator's outputs are passed on as they come, in batches, so that it may yield more than memory holds. An
        exception fails the attempt; the record is processed again after the restart. `value` must not be changed: it
        may also be in another branch of the job.
        """

    def close(self) -> None:
        """Called when the attempt ends in good order, after `open` succeeded; not when the process dies. For manners
        only."""


class KeyedProcessFunction(ABC, Generic[Key, In, Out]):
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

    def open(self, ctx: Context) -> None:
        """As `ProcessFunction.open`. There is no key yet, hence no state to read."""

    @abstractmethod
    def process_element(self, value: In, ctx: KeyedContext[Key]) -> Iterable[Out] | None:
        """As `ProcessFunction.process_element`."""

    def close(self) -> None:
        """As `ProcessFunction.close`."""
