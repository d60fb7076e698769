"""The port behind which keyed state lives: what an operator, the task and a restore ask of a state backend.

One backend object belongs to one operator of one subtask. It holds the state of the keys of that subtask's key groups.
All calls but `Capture.encode` come on the task's thread.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import msgspec

from tidegate.checkpoint.protocol import StateInfo
from tidegate.state.descriptors import StateDescriptor


class EncodedState(msgspec.Struct, frozen=True):
    """A captured piece of state as bytes, and the key groups it covers (both included)."""

    first_group: int
    last_group: int
    data: bytes


class Capture(Protocol):
    """The state at one barrier: a cut. Whatever the operator does afterwards, also to objects that it got from the
    state, does not change what `encode` returns."""

    @property
    def key_type(self) -> str: ...

    @property
    def states(self) -> tuple[StateInfo, ...]: ...

    def encode(self) -> Sequence[EncodedState]:
        """As bytes; called once, on another thread, while processing goes on. [] when there is no state."""
        ...


class KeyedStateBackend(Protocol):
    """State of one operator, one subtask, by key."""

    def register(self, descriptor: StateDescriptor[Any]) -> Any:
        """The handle (ValueHandle, ListHandle …) through which user code reaches this state of the current key.

        Raises InvalidError, naming state, old and new type, when restored data does not fit the descriptor.
        """
        ...

    def set_current_key(self, key: Any) -> None:
        """Handles now mean the state of `key`."""
        ...

    def capture(self) -> Capture:
        """Quick: everything that can wait is left to `Capture.encode`."""
        ...

    def restore(self, key_type: str, states: Sequence[StateInfo], pieces: Iterable[bytes]) -> None:
        """Load what `EncodedState.data` of an earlier attempt's subtasks holds, keeping only keys of one's own groups.

        Called at most once, before `register`. Raises CorruptError.
        """
        ...

    @property
    def unclaimed(self) -> tuple[str, ...]:
        """Names of restored states that no `register` has asked for: captures leave them out, so they would be lost."""
        ...
