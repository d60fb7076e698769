"""The split enumerator of one source: which splits there are, who reads them. Lives in the JobManager; decides, does no
I/O.

A split is always in exactly one place: here (`unassigned`), or in the reader it was sent to. After a restore every
split that the checkpoint knew comes back here with its position and is assigned anew, so parallelism may differ.
Positions are numbers before a split is handed out; a split is never discovered twice.

Where keys are declared to be partitioned by the input, the partition of a split alone says who reads it: the subtask
that has the state of its keys, in each attempt and at each parallelism.
"""

from collections.abc import Sequence

import msgspec

from tidegate.checkpoint.protocol import SplitState
from tidegate.errors import Failure, InvalidError, place
from tidegate.ids import OperatorName, SubtaskIndex
from tidegate.operators.partitioned import SplitPlaces


class Assignment(msgspec.Struct, frozen=True):
    """What one reader gets now. `no_more`: nothing will follow."""

    subtask: SubtaskIndex
    splits: tuple[SplitState, ...]
    no_more: bool


class SplitEnumerator:
    """`restored`: the splits of the restored checkpoint, None for a start without state. `rediscovers`: whether the
    source is looked at again later for new splits. `places`: of one whose splits are assigned by partition."""

    def __init__(
        self,
        operator: OperatorName,
        parallelism: int,
        restored: Sequence[SplitState] | None,
        rediscovers: bool,
        bounded: bool,
        places: SplitPlaces | None = None,
    ) -> None:
        self.operator = operator
        self._rediscovers = rediscovers
        self._places = places
        self._load = [0] * parallelism
        self._waiting = sorted(restored or (), key=lambda split: split.id)
        self._known = {split.id: None for split in self._waiting}
        self._bounded = bounded
        self._is_restored = restored is not None
        self._has_looked = False
        self._told_no_more = False
        self._told_first = False

    @property
    def known(self) -> frozenset[str] | None:
        """Ids of every split there has been; None when nobody has looked yet, in this attempt or before the restored
        checkpoint."""
        return frozenset(self._known) if self._has_looked or self._is_restored else None

    @property
    def needs_discovery(self) -> bool:
        """A bounded source that was restored knows all it will ever read: what came later is not part of it."""
        return not (self._is_restored and self._bounded)

    @property
    def unassigned(self) -> tuple[SplitState, ...]:
        return tuple(self._waiting)

    def discovered(self, splits: Sequence[SplitState]) -> None:
        """New splits of one look; known ones are ignored."""
        self._has_looked = True
        for split in sorted(splits, key=lambda split: split.id):
            if split.id not in self._known:
                self._known[split.id] = None
                self._waiting.append(split)

    @property
    def failure(self) -> Failure | None:
        """Why what waits cannot be handed out: keys are declared to be in other partitions than there are."""
        if self._places is None or not self._waiting:
            return None
        try:
            self._places.check(self._known)
        except InvalidError as error:
            return msgspec.structs.replace(error.failure, where=place(self.operator))
        return None

    def assign(self) -> list[Assignment]:
        """Hand out everything that waits, to the readers with the fewest splits or by partition; say so when nothing
        will follow."""
        given: dict[int, list[SplitState]] = {}
        for split in self._waiting:
            given.setdefault(self._reader(split), []).append(split)
        self._waiting = []
        is_last = (self._has_looked or not self.needs_discovery) and not self._rediscovers and not self._told_no_more
        self._told_no_more = self._told_no_more or is_last
        # Once all hear of it, so that a reader which has no split knows that it is not merely early.
        is_first = self._has_looked and not self._told_first
        self._told_first = self._told_first or is_first
        subtasks = range(len(self._load)) if is_last or is_first else sorted(given)
        return [Assignment(SubtaskIndex(i), tuple(given.get(i, ())), is_last) for i in subtasks]

    def _reader(self, split: SplitState) -> int:
        if self._places is not None:
            return self._places.subtask(split.id, len(self._load))
        subtask = min(range(len(self._load)), key=lambda i: (self._load[i], i))
        self._load[subtask] += 1
        return subtask
