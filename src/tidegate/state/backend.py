"""The port behind which keyed state lives: what an operator, the task and a restore ask of a state backend.

One backend object belongs to one operator of one subtask. It holds the state of the keys of that subtask's key groups.
Calls come on the task's thread, but for those that say 'side thread'; these never run beside each other, and `restore`
never beside any other call.

The life of a backend: `restore` (if there is anything), `register` for each declared state, then records; at each
barrier `capture`, and `Capture.store` beside what follows; later `completed` or `abandoned` for that checkpoint.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from tidegate.checkpoint.protocol import OperatorSnapshot, StateHandle, StateInfo
from tidegate.ids import CheckpointId
from tidegate.state.descriptors import StateDescriptor

PIECE = "piece"
"""The form of handles that every backend reads: `state.pieces`."""


class StoredFiles(Protocol):
    """What was stored, by anybody. Blocks: side threads only. A `CheckpointStore` is one."""

    def read_state(self, handle: StateHandle) -> bytes:
        """What any attempt stored. Raises CorruptError unless it is what it was, StorageUnavailable."""
        ...


class SnapshotFiles(StoredFiles, Protocol):
    """The files of one operator of one subtask of one attempt. Side threads only."""

    def write(self, part: str, data: bytes, groups: range, *, form: str = PIECE, name: str = "") -> StateHandle:
        """Store `data`, durably, for the key groups `groups`.

        part: what tells it from all other files of this operator and subtask in this attempt: contains the id of the
        checkpoint that it is written for. Raises StorageUnavailable: no record is lost by that, the checkpoint fails.
        """
        ...


class Capture(Protocol):
    """The state at one barrier: a cut. Whatever the operator does afterwards, also to objects that it got from the
    state, does not change what `store` stores."""

    @property
    def key_type(self) -> str: ...

    @property
    def states(self) -> tuple[StateInfo, ...]: ...

    def store(self, files: SnapshotFiles) -> tuple[StateHandle, ...]:
        """All handles that together are this state, in order: new files, and those of earlier checkpoints that still
        hold. () when there is no state. Called once, side thread, while processing goes on.

        A file counts as stored only when a checkpoint that names it has completed: one that was written for a
        checkpoint that was abandoned is deleted by its owner and must never be named again.
        """
        ...


class Maintenance(Protocol):
    """Work on what is stored that can wait: merging files."""

    def run(self, files: SnapshotFiles) -> None:
        """Side thread; may take long. May raise: what it was to do is then left for later."""
        ...

    def finish(self, error: BaseException | None) -> None:
        """Task's thread, when `run` has returned or raised; a capture from now on may name what it made."""
        ...


class KeyCursor(Protocol):
    """Makes keys the current one: setting `key` is as quick as it can be, because it is done for every record."""

    key: Any


class CallingCursor:
    """A cursor for backends that must hear of each key."""

    __slots__ = ("_set",)

    def __init__(self, set_current_key: Callable[[Any], object]) -> None:
        self._set = set_current_key

    @property
    def key(self) -> Any:
        raise AttributeError("key")

    @key.setter
    def key(self, key: Any) -> None:
        self._set(key)


class KeyedStateBackend(Protocol):
    """State of one operator, one subtask, by key."""

    def restore(self, snapshots: Sequence[OperatorSnapshot], files: StoredFiles) -> None:
        """Load what earlier subtasks stored, keeping only keys of one's own groups. Side thread, at most once, before
        `register`.

        Each snapshot's handles are in order and stand for exactly their groups; those of different snapshots stand for
        different groups. Raises CorruptError, InvalidError (another max_parallelism), StorageUnavailable.
        """
        ...

    def register(self, descriptor: StateDescriptor[Any]) -> Any:
        """The handle (ValueHandle, ListHandle …) through which user code reaches this state of the current key.

        Raises InvalidError, naming state, old and new type, when restored data does not fit the descriptor.
        """
        ...

    def set_current_key(self, key: Any) -> None:
        """Handles now mean the state of `key`."""
        ...

    def cursor_over(self, keys: list[Any]) -> KeyCursor:
        """What makes each of `keys` the current one, as `set_current_key` does, when its `key` is set to it. No other
        key may be given to it. Raises as that, for all of them at once. Good until `set_current_key` or this is called
        again."""
        ...

    def keys(self, name: str) -> Iterator[Any]:
        """Every key that has something in the registered state `name`. The state must not change meanwhile."""
        ...

    def sweep(self, name: str, limit: int) -> list[Any]:
        """The next keys, at most `limit`, that have something in the registered state `name`, going round for ever:
        each that stays is met once a round. For looking after state that no record touches."""
        ...

    def capture(self, checkpoint: CheckpointId) -> Capture:
        """Quick, in proportion to what has changed: everything that can wait is left to `Capture.store`."""
        ...

    def completed(self, checkpoint: CheckpointId) -> None:
        """The newest capture that completed: later ones may name its files. Not called for every one that completed."""
        ...

    def abandoned(self, checkpoint: CheckpointId) -> None:
        """The capture of `checkpoint` will not complete: what it held is in the next one, in new files."""
        ...

    def maintenance(self) -> Maintenance | None:
        """What should be done now; asked after `completed`, and never while an earlier one is unfinished."""
        ...

    @property
    def unclaimed(self) -> tuple[str, ...]:
        """Names of restored states that no `register` has asked for: captures leave them out, so they would be lost."""
        ...

    def close(self) -> None:
        """Let go of files and memory; what is stored stays."""
        ...
