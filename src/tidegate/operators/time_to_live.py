"""What a keyed operator does for its states with a time to live: tells them what time it is before user code runs, and
clears away a little of what has expired behind each batch. Operators without such state pay nothing.

Time is the clock's and the records': nothing here waits, and nothing expires in the middle of a batch by the clock.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tidegate.clock import Clock
from tidegate.elements import Batch
from tidegate.operators.context import Context
from tidegate.operators.timers import milliseconds
from tidegate.state.backend import KeyedStateBackend
from tidegate.state.descriptors import StateDescriptor
from tidegate.state.ttl import TtlTime
from tidegate.state.ttl_handles import TtlCleaner, TtlHandle, register

ElementFunction = Callable[[Any, Any], Iterable[Any] | None]
LEAST_KEYS = 8
RECORDS_A_KEY = 8
"""Behind a batch one key of each state is looked at for so many of its records, and at least `LEAST_KEYS`."""


class TimeToLive:
    """Of one operator of one subtask."""

    def __init__(self, backend: KeyedStateBackend, clock: Clock) -> None:
        self._backend = backend
        self._clock = clock
        self._time = TtlTime()
        self._handles: dict[str, TtlHandle] = {}
        self._goes_by_event = False
        self._cleaner = TtlCleaner(backend, self._handles, least=LEAST_KEYS, share=RECORDS_A_KEY)

    def register(self, descriptor: StateDescriptor[Any]) -> Any:
        """The handle of a state, with or without a time to live."""
        handle = register(self._backend, descriptor, self._time)
        if descriptor.ttl is not None:
            self._handles[descriptor.name] = handle
            self._goes_by_event = self._goes_by_event or descriptor.ttl.clock == "event"
        return handle

    def telling(self, function: ElementFunction) -> ElementFunction:
        """`function`, each record's timestamp told before it where states go by it: so what has expired does not depend
        on how records were cut into batches."""
        if not self._goes_by_event:
            return function
        time = self._time

        def told(value: Any, context: Context) -> Iterable[Any] | None:
            stamp = context.timestamp
            if stamp is not None and stamp > time.event:
                time.event = stamp
            return function(value, context)

        return told

    def around(self, outputs: Iterator[Batch], records: int) -> Iterator[Batch]:
        """`outputs`, of so many records that are still to be processed."""
        return self._around(outputs, records) if self._handles else outputs

    def _around(self, outputs: Iterator[Batch], records: int) -> Iterator[Batch]:
        self._time.wall = milliseconds(self._clock.now())
        yield from outputs
        self._cleaner.after_batch(records)
