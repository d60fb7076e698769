"""Keyed state as Python objects in the worker's memory: the live half of the `memory` and `fs` presets.

Checkpoints are incremental: a barrier takes what has changed since the last one, and everything that takes long is left
to `ObjectCapture.store` and to merges, which run beside the processing of records and never touch live state.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from tidegate.checkpoint.protocol import OperatorSnapshot
from tidegate.errors import CorruptError, InternalError, InvalidError, place
from tidegate.ids import CheckpointId, OperatorName, SubtaskIndex
from tidegate.serializers import Outcome, check_evolution, unfit
from tidegate.state.backend import StoredFiles
from tidegate.state.descriptors import StateDescriptor
from tidegate.state.increments import Increments, Merged
from tidegate.state.key_groups import KeyChecker, groups_of
from tidegate.state.merging import Content, Merge, choose
from tidegate.state.mutation_checks import MutationCheck
from tidegate.state.object_capture import MAX_VALUE_BYTES, ObjectCapture, Owner
from tidegate.state.object_containers import make_handle
from tidegate.state.object_handles import Cursor, ObjectHandle
from tidegate.state.object_restore import RestoredState, load


class ObjectStateBackend:
    """Keyed state of one operator of one subtask, as objects. See `KeyedStateBackend`.

    key_type: of the keys, where it was declared, as it is stored; co-partitioned keys must be. is_incremental: whether
    a capture may name what earlier checkpoints stored. max_value_bytes: at most what one key may have in one state.
    checks_mutation: look at every value at each barrier and find those that were changed without the state's knowledge;
    slow, for tests.
    """

    __slots__ = (
        "_checker", "_checks", "_class", "_completed", "_cursor", "_handles", "_increments", "_is_incremental",
        "_is_merging", "_left_out", "_max_value_bytes", "_merges", "_owner", "_restored",
    )  # fmt: skip

    def __init__(
        self,
        operator: OperatorName,
        subtask: SubtaskIndex,
        parallelism: int,
        max_parallelism: int,
        *,
        key_type: str = "",
        is_incremental: bool = True,
        max_value_bytes: int = MAX_VALUE_BYTES,
        checks_mutation: bool = False,
    ) -> None:
        groups = groups_of(subtask, parallelism, max_parallelism)
        self._owner = Owner(groups, max_parallelism, place(operator, subtask))
        self._is_incremental = is_incremental
        self._max_value_bytes = max_value_bytes
        self._checks: dict[str, MutationCheck] | None = {} if checks_mutation else None
        self._checker = KeyChecker.of_type(operator, key_type)
        self._class: type | None = None
        """Keys of exactly this class need no further check."""
        self._cursor = Cursor()
        self._handles: dict[str, ObjectHandle] = {}
        self._restored: dict[str, RestoredState] = {}
        self._left_out: tuple[str, ...] = ()
        """Names of what is not in captures, because nobody had asked for it at the first one."""
        self._increments = Increments()
        self._completed = CheckpointId(0)
        self._merges = 0
        """How many merges were begun: tells their files apart."""
        self._is_merging = False

    # ---- before the first record -----------------------------------------------------------------------------------

    def restore(self, snapshots: Sequence[OperatorSnapshot], files: StoredFiles) -> None:
        """Keep what is in one's own key groups; values are decoded by `register`.

        Raises CorruptError for what cannot be read or contradicts itself, InvalidError when max_parallelism or the
        class of the keys has changed.
        """
        if self._handles:
            raise InternalError("state was restored after it had been registered", where=self._owner.where)
        loaded = load(snapshots, files, self._owner)
        self._checker.expect(loaded.key_type)
        self._restored = loaded.states
        if loaded.runs is None:
            self._increments.restart()
        else:
            self._increments.begin(loaded.runs)

    def register(self, descriptor: StateDescriptor[Any]) -> Any:
        """The handle of a declared state, with what was restored for it.

        Raises InvalidError when two states have one name, or when restored data is of another kind, serializer or type.
        """
        name, where = descriptor.name, self._owner.where
        if name in self._handles or not name:
            problem = f"state {name} is registered twice" if name else f"{descriptor} has no name"
            raise InvalidError(problem, remedy="Give each state of an operator a name of its own.", where=where)
        handle = make_handle(descriptor, self._cursor, self._max_value_bytes, where)
        if name in self._restored:
            self._fill(handle, self._restored[name])
            del self._restored[name]
        self._handles[name] = handle
        if self._checks is not None:
            self._checks[name] = MutationCheck(handle, where)
        return handle

    def _fill(self, handle: ObjectHandle, stored: RestoredState) -> None:
        """What was stored in an older form is stored anew, as a whole: only the newest form is ever looked at again."""
        declared, where = handle.descriptor.info, self._owner.where
        evolution = check_evolution(stored.info, declared, where)
        try:
            handle.fill(stored.entries, handle.descriptor.stored.reader(stored.info.serializer))
        except CorruptError as error:
            if evolution.outcome is Outcome.SAME:
                raise
            raise unfit(stored.info, declared, error.failure.message, where=where) from error
        if evolution.outcome is not Outcome.SAME:
            self._increments.restart()

    @property
    def unclaimed(self) -> tuple[str, ...]:
        """Names of restored states that no `register` has asked for; captures leave them out."""
        return (*self._left_out, *self._restored)

    # ---- records ---------------------------------------------------------------------------------------------------

    def set_current_key(self, key: Any) -> None:
        """Handles now mean the state of `key`. Raises InvalidError for a key of another type than those before."""
        if type(key) is not self._class and self._checker.admit(key):
            self._class = type(key)
        self._cursor.key = key

    def cursor_over(self, keys: list[Any]) -> Cursor:
        """See `KeyedStateBackend.cursor_over`: the types of the keys are all that has to be looked at."""
        self._checker.check(keys)
        return self._cursor

    def keys(self, name: str) -> Iterator[Any]:
        return iter(self._handles[name].keys_with_state)

    def sweep(self, name: str, limit: int) -> list[Any]:
        """The next up to `limit` keys that have something in state `name`, going round for ever."""
        return self._handles[name].sweep(limit)

    # ---- checkpoints -----------------------------------------------------------------------------------------------

    def capture(self, checkpoint: CheckpointId) -> ObjectCapture:
        """Raises InvalidError for a value of a mutable type that does not have its declared type."""
        increments, handles = self._increments, self._handles
        if self._restored or not self._is_incremental:
            increments.restart()
            self._left_out += tuple(self._restored)
            self._restored = {}
        captured = tuple(handle.captured for handle in handles.values())
        if self._checks is not None:
            captured = tuple(self._checks[state.info.name].checked(state) for state in captured)
        if increments.needs_full:
            changes = {name: handle.take_all() for name, handle in handles.items()}
        else:
            changes = {name: handle.take_changes() for name, handle in handles.items()}
        increment = increments.capture(checkpoint, changes)
        return ObjectCapture(increment, self._checker.key_type, captured, self._owner)

    def completed(self, checkpoint: CheckpointId) -> None:
        """Changes up to that capture are in the files that it names."""
        self._completed = checkpoint
        self._increments.completed(checkpoint)

    def abandoned(self, checkpoint: CheckpointId) -> None:
        """What changed up to that capture is in the next one, too."""
        self._increments.abandoned(checkpoint)

    def maintenance(self) -> Merge | None:
        """A merge of stored runs, where the chain has become long or its changes large."""
        chain = self._increments.chain
        chosen = choose(chain)
        if not chosen or self._is_merging or not self._increments.can_merge:
            return None
        self._is_merging = True
        self._merges += 1
        states = tuple(self._handles)
        content = Content(self._owner.groups, self._owner.max_parallelism, self._checker.key_type, states)
        return Merge(
            f"{self._completed}-merged-{self._merges}",
            chain[chosen.start : chosen.stop],
            content,
            is_full=chosen.start == 0,
            finished=self._merged,
        )

    def _merged(self, merged: Merged | None) -> None:
        self._is_merging = False
        if merged is not None:
            self._increments.merge_finished(merged)

    def close(self) -> None:
        """Nothing to release."""
