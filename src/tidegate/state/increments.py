"""What the next capture of a subtask must contain, and what it may name of that which is stored already. No I/O.

Changes are kept until a checkpoint that holds them is known to have completed: until then they are in each following
capture again. A file is named only if it is new, or if a checkpoint that has certainly completed names it and no later
one can have made it superfluous. Hence what is gone on from changes only while no later capture is undecided; and while
it is undecided whether the outcome of a merge counts, neither that nor what it replaced is named: the capture is full.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from tidegate.ids import CheckpointId
from tidegate.state.runs import Run

Changes = dict[str, dict[Any, Any]]
"""By state and key: what it was at the barrier; `REMOVED` where there is nothing any more."""


class _Removed:
    """The value of a key that has nothing any more."""

    def __repr__(self) -> str:
        return "REMOVED"


REMOVED = _Removed()


class Generation(msgspec.Struct, frozen=True):
    """What was written between two barriers; never changed afterwards."""

    checkpoint: CheckpointId
    """At whose barrier it was taken."""
    changes: Changes
    is_full: bool = False
    """It is the whole state at that barrier."""


class Increment(msgspec.Struct):
    """What one capture stores: the changes of `generations` on top of `below`. The last two fields are set once it has
    been stored, on another thread."""

    checkpoint: CheckpointId
    below: tuple[Run, ...]
    generations: tuple[Generation, ...]
    merge: "Merged | None"
    """The merge whose outcome `below` names, which no completed checkpoint has named yet."""
    chain: tuple[Run, ...] | None = None
    merged: Generation | None = None

    @property
    def is_full(self) -> bool:
        return not self.below

    def merge_generations(self) -> Changes:
        """All changes, newer over older; a full increment may also tell of removed keys, to be passed over."""
        if len(self.generations) == 1:
            return self.generations[0].changes
        together: Changes = {}
        for generation in self.generations:
            for state, changes in generation.changes.items():
                target = together.setdefault(state, {})
                # Not `update`: it would hold the interpreter for as long as it takes.
                for key, value in changes.items():
                    target[key] = value
        return together

    def stored(self, changes: Changes, run: Run | None) -> None:
        """What `merge_generations` gave has been stored as `run`; None where there was nothing to store."""
        self.merged = Generation(self.checkpoint, changes, self.is_full)
        self.chain = self.below if run is None else (*self.below, run)


class Merged(msgspec.Struct, frozen=True):
    """Neighbouring runs of a chain, and what replaces them."""

    old: tuple[Run, ...]
    new: tuple[Run, ...]

    def applied_to(self, chain: tuple[Run, ...]) -> tuple[Run, ...] | None:
        """`chain` with the new run in place of the old ones; None when it does not have these."""
        for start in range(len(chain) - len(self.old) + 1):
            end = start + len(self.old)
            if chain[start:end] == self.old:
                return (*chain[:start], *self.new, *chain[end:])
        return None


class Increments:
    """The changes that no completed checkpoint holds, and the chain of the last one that is known to have completed."""

    def __init__(self) -> None:
        self.chain: tuple[Run, ...] = ()
        self._generations: list[Generation] = []
        self._waiting: dict[CheckpointId, Increment] = {}
        """Neither completed nor abandoned, as far as is known."""
        self._completed: Increment | None = None
        """The newest that has completed, as long as later ones are undecided."""
        self._last: Increment | None = None
        self._merged: Merged | None = None
        """Finished, and named by no completed checkpoint."""
        self.is_restarting = False
        """The chain must not be gone on with: the next capture is full."""

    def begin(self, chain: Sequence[Run]) -> None:
        """Go on from files that a completed checkpoint of this job names."""
        self.chain = tuple(chain)

    def restart(self) -> None:
        """The chain is in a form that is not to be gone on with."""
        self.is_restarting = True

    @property
    def needs_full(self) -> bool:
        """Whether the next capture must hold the whole state."""
        is_undecided = any(increment.merge is not None for increment in self._waiting.values())
        return self.is_restarting or (is_undecided and not any(one.is_full for one in self._generations))

    @property
    def can_merge(self) -> bool:
        return self._merged is None

    def capture(self, checkpoint: CheckpointId, changes: Changes) -> Increment:
        """changes: since the last barrier; the whole state when `needs_full`."""
        self._join_generations()
        self._generations.append(Generation(checkpoint, changes, self.needs_full))
        self.is_restarting = False
        full = [index for index, generation in enumerate(self._generations) if generation.is_full]
        below, merge = ((), None) if full else self._below()
        generations = tuple(self._generations[full[-1] if full else 0 :])
        self._last = Increment(checkpoint, below, generations, merge)
        self._waiting[checkpoint] = self._last
        return self._last

    def _below(self) -> tuple[tuple[Run, ...], Merged | None]:
        if self._merged is not None:
            applied = self._merged.applied_to(self.chain)
            if applied is not None:
                return applied, self._merged
            self._merged = None
        return self.chain, None

    def _join_generations(self) -> None:
        """Take over what the last capture made of several generations: memory does not grow with failed checkpoints."""
        last = self._last
        if last is None or last.merged is None:
            return
        older = [generation for generation in self._generations if generation.checkpoint <= last.checkpoint]
        if len(older) > 1:
            self._generations = [last.merged, *self._generations[len(older) :]]

    def completed(self, checkpoint: CheckpointId) -> None:
        increment = self._waiting.get(checkpoint)
        if increment is None:
            return
        self._completed = increment
        self._waiting = {id_: waiting for id_, waiting in self._waiting.items() if id_ > checkpoint}
        self._settle()

    def abandoned(self, checkpoint: CheckpointId) -> None:
        increment = self._waiting.pop(checkpoint, None)
        if increment is not None and increment.merge is not None and increment.merge is self._merged:
            self._merged = None
        self._settle()

    def _settle(self) -> None:
        """Go on from the newest checkpoint that has completed, when no capture after it is undecided.

        One that is undecided may have completed long ago: of the files that only its predecessor names, which are not
        among those that it names, nobody knows whether they are still there.
        """
        increment = self._completed
        if increment is None or self._waiting:
            return
        self._completed = None
        assert increment.chain is not None
        self.chain = increment.chain
        if increment.merge is not None and increment.merge is self._merged:
            self._merged = None
        done = increment.checkpoint
        self._generations = [generation for generation in self._generations if generation.checkpoint > done]
        if self._last is not None and self._last.checkpoint <= done:
            self._last = None

    def merge_finished(self, merged: Merged) -> None:
        """From now on captures may name what a merge made."""
        self._merged = merged
