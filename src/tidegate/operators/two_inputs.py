"""Operators with two inputs: what `connect` makes of two streams, and of a stream and what is broadcast.

The batch says through which input it came, and each input has its method of the user's function. Both share the
operator's state. Between the inputs there is no order but the one in which records happen to come.
"""

from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from tidegate.elements import Batch
from tidegate.errors import InvalidError
from tidegate.operators.context import Context
from tidegate.operators.contracts import OperatorContext
from tidegate.operators.keyed import KeyedProcessOperator
from tidegate.operators.process import NoKey, ProcessOperator, UserFunction
from tidegate.state.descriptors import StateDescriptor, collect_descriptors

BROADCAST_INPUT = 1
"""The second of the two."""


class CoProcessOperator(ProcessOperator):
    """Runs a `CoProcessFunction`."""

    methods = ("process_element1", "process_element2")


class KeyedCoProcessOperator(KeyedProcessOperator):
    """Runs a `KeyedCoProcessFunction`: the records of both inputs have keys, and share the state of their key."""

    methods = ("process_element1", "process_element2")


class BroadcastProcessOperator(ProcessOperator):
    """Runs a `BroadcastProcessFunction`: broadcast state is written by what was broadcast, and by nothing else."""

    methods = ("process_element", "process_broadcast_element")

    def process(self, batch: Batch) -> Iterator[Batch]:
        self._operator.operator_state.may_write_broadcast = batch.input == BROADCAST_INPUT
        return super().process(batch)


class KeyedBroadcastProcessOperator(KeyedProcessOperator):
    """Runs a `KeyedBroadcastProcessFunction`. What was broadcast has no key: while it is processed, keyed state and
    timers are refused."""

    methods = ("process_element", "process_broadcast_element")

    def __init__(self, function: UserFunction, tags: tuple[str, ...] = (), *, timers: bool = False) -> None:
        super().__init__(function, tags, timers=timers)
        self._keyed: dict[str, Any] = {}
        """By attribute, what the function has of keyed state while there is a key."""
        self._keyless: dict[str, Any] = {}
        """And while there is none."""

    def open(self, context: OperatorContext) -> None:
        self._broadcast_context = Context(context.operator, context.subtask, context.parallelism)
        super().open(context)
        states = {name: state for name, state in collect_descriptors(self._function).items() if state.is_keyed}
        self._keyed = {attribute: vars(self._function)[attribute] for attribute in states}
        self._keyless = {attribute: _Keyless(state) for attribute, state in states.items()}

    def process(self, batch: Batch) -> Iterator[Batch]:
        if batch.input == BROADCAST_INPUT:
            self._switch_to_broadcast(True)
            return self._run_batch(batch, self._broadcast_context, NoKey())
        self._switch_to_broadcast(False)
        return super().process(batch)

    def fire_timers(self, now: int, must_stop: Callable[[], bool]) -> Iterator[Batch]:
        self._switch_to_broadcast(False)
        return super().fire_timers(now, must_stop)

    def advance_watermark(self, watermark: int, must_stop: Callable[[], bool]) -> Iterator[Batch] | None:
        self._switch_to_broadcast(False)
        return super().advance_watermark(watermark, must_stop)

    def _switch_to_broadcast(self, is_broadcast: bool) -> None:
        self._operator.operator_state.may_write_broadcast = is_broadcast
        vars(self._function).update(self._keyless if is_broadcast else self._keyed)


class _Keyless:
    """Stands for the handle of a keyed state while there is no key."""

    def __init__(self, descriptor: StateDescriptor[Any]) -> None:
        self._descriptor = descriptor

    def __getattr__(self, name: str) -> NoReturn:
        self._refuse()

    def __iter__(self) -> NoReturn:
        self._refuse()

    def __contains__(self, key: object) -> NoReturn:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise InvalidError(
            f"state {self._descriptor.name} is used in process_broadcast_element, where there is no key",
            remedy="Use it in process_element; what is broadcast is kept in a BroadcastState.",
        )
