"""The backend of state without keys: keeps it, captures it at a barrier, and restores it at any parallelism.

Such state is small and lives in memory, whatever the state backend for keys is; each checkpoint stores it in full.
Nothing here knows a key or a key group. What becomes of a state at another parallelism is said where it is declared:
`operator_descriptors`.
"""

from collections.abc import Callable, Sequence
from typing import Any

from tidegate.checkpoint.protocol import OperatorSnapshot, StateHandle, StateInfo
from tidegate.errors import CorruptError, InternalError, InvalidError, place
from tidegate.ids import CheckpointId, OperatorName, SubtaskIndex
from tidegate.serializers import Outcome, check_evolution, unfit
from tidegate.state.backend import SnapshotFiles, StoredFiles
from tidegate.state.descriptors import StateDescriptor
from tidegate.state.operator_descriptors import BROADCAST, BroadcastState, OperatorListState
from tidegate.state.operator_handles import BroadcastHandle, OperatorHandle, OperatorListHandle
from tidegate.state.operator_pieces import ELEMENTS, read_operator_piece, write_operator_piece

NO_GROUPS = range(1)
"""What handles of state without keys give as their key groups."""


class OperatorStateCapture:
    """What one subtask keeps without keys, at one barrier: a cut."""

    def __init__(
        self,
        checkpoint: CheckpointId,
        states: tuple[StateInfo, ...],
        wholes: Sequence[tuple[str, Callable[[], bytes]]],
    ) -> None:
        self._checkpoint = checkpoint
        self.states = states
        self._wholes = wholes

    def store(self, files: SnapshotFiles) -> tuple[StateHandle, ...]:
        """One piece; () when there is nothing. Side thread, while processing goes on.

        Raises StorageUnavailable, and InvalidError for a value of another type than declared.
        """
        if not self._wholes:
            return ()
        data = write_operator_piece([(name, make()) for name, make in self._wholes])
        return (files.write(f"{self._checkpoint}-{ELEMENTS}", data, NO_GROUPS, form=ELEMENTS),)


class OperatorStateBackend:
    """The state without keys of one operator of one subtask (in Flink: OperatorStateBackend).

    `restore` (if there is anything), `register` for each declared state, then records; at each barrier `capture`.
    """

    def __init__(self, operator: OperatorName, subtask: SubtaskIndex, parallelism: int) -> None:
        self._subtask = subtask
        self._parallelism = parallelism
        self._where = place(operator, subtask)
        self._handles: dict[str, OperatorHandle] = {}
        self._restored: dict[str, tuple[StateInfo, list[bytes | None]]] = {}
        self.may_write_broadcast = False
        """Whether what is processed now came through the broadcast input."""

    def restore(self, snapshots: Sequence[OperatorSnapshot], files: StoredFiles) -> None:
        """Read what was stored. `snapshots` are those of all earlier subtasks, in order, also of those that kept
        nothing. Side thread, before `register`. Raises CorruptError, StorageUnavailable."""
        if self._handles:
            raise InternalError("state was restored after it had been registered", where=self._where)
        infos = {info.name: info for snapshot in snapshots for info in snapshot.operator_states}
        needs_all = any(info.kind != BROADCAST for info in infos.values())
        own = self._subtask % max(1, len(snapshots))
        self._restored = {name: (info, [None] * len(snapshots)) for name, info in infos.items()}
        for index, snapshot in enumerate(snapshots):
            for handle in snapshot.operator_handles if needs_all or index == own else ():
                self._load(index, handle, files)

    def _load(self, index: int, handle: StateHandle, files: StoredFiles) -> None:
        if handle.form != ELEMENTS:
            raise CorruptError(f"state without keys is stored in the form {handle.form!r}", where=self._where)
        for name, whole in read_operator_piece(files.read_state(handle)):
            if name not in self._restored:
                raise CorruptError(f"stored state {name} is not among the states of its checkpoint", where=self._where)
            wholes = self._restored[name][1]
            if wholes[index] is not None:
                raise CorruptError(f"state {name} of one subtask is stored twice", where=self._where)
            wholes[index] = whole

    def register(self, descriptor: StateDescriptor[Any]) -> Any:
        """The handle of a declared state, with what was restored for it.

        Raises InvalidError when two states have one name, or when restored data is of another kind, serializer or type.
        """
        if descriptor.name in self._handles:
            raise InvalidError(
                f"state {descriptor.name} is registered twice",
                remedy="Give each state of an operator a name of its own.",
                where=self._where,
            )
        handle = self._make(descriptor)
        if descriptor.name in self._restored:
            self._fill(handle, descriptor, *self._restored.pop(descriptor.name))
        self._handles[descriptor.name] = handle
        return handle

    def _make(self, descriptor: StateDescriptor[Any]) -> OperatorHandle:
        if isinstance(descriptor, OperatorListState):
            return OperatorListHandle(descriptor, self._subtask, self._parallelism)
        if isinstance(descriptor, BroadcastState):
            return BroadcastHandle(descriptor, self._subtask, lambda: self.may_write_broadcast)
        raise InternalError(f"{descriptor} was registered as state without keys", where=self._where)

    def _fill(
        self, handle: OperatorHandle, descriptor: StateDescriptor[Any], stored: StateInfo, wholes: list[bytes | None]
    ) -> None:
        evolution = check_evolution(stored, descriptor.info, self._where)
        try:
            handle.fill(wholes, stored.serializer)
        except CorruptError as error:
            if evolution.outcome is Outcome.SAME:
                raise
            raise unfit(stored, descriptor.info, error.failure.message, where=self._where) from error

    @property
    def unclaimed(self) -> tuple[str, ...]:
        """Names of restored states that no `register` has asked for: captures leave them out, so they would be lost."""
        return tuple(self._restored)

    def capture(self, checkpoint: CheckpointId) -> OperatorStateCapture | None:
        """Quick, in proportion to what is kept; None for an operator that declares no state without keys.

        Raises InvalidError for a value of a mutable type that does not have its declared type.
        """
        if not self._handles:
            return None
        frozen = [(name, handle.freeze()) for name, handle in self._handles.items()]
        return OperatorStateCapture(
            checkpoint,
            tuple(handle.info for handle in self._handles.values()),
            [(name, make) for name, make in frozen if make is not None],
        )
