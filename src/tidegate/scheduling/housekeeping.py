"""What is removed of a job's folder, and when: old entries of the log, files that nobody names. Decides; removes
nothing.

Entries count as there until it is confirmed that they are gone: what could not be removed is asked for again with the
next checkpoint, so that the log is always pruned from the bottom up. Nothing is removed before a later entry of one's
own was won, nothing that an entry in the log names, and nothing that a savepoint is being made of.
"""

from collections.abc import Iterable, Sequence

from tidegate.checkpoint.log import StoredEntry, prunable
from tidegate.checkpoint.manifest import Manifest, files_of
from tidegate.ids import Attempt, CheckpointId, LogPosition
from tidegate.scheduling.ledger import Ledger, manifests_in
from tidegate.scheduling.protocol import CleanedUp, CleanUp, CleanUpOrphans


class Housekeeping:
    """`retained`: how many completed checkpoints are kept."""

    def __init__(self, retained: int) -> None:
        self._retained = retained
        self._garbage: dict[str, None] = {}
        """Files that nobody will name any more and that are not yet known to be gone."""
        self._pinned: dict[CheckpointId, frozenset[str]] = {}
        """What savepoints are being made of."""
        self._leaving: tuple[LogPosition, ...] = ()
        """Entries whose removal was asked for last."""

    def pin(self, manifest: Manifest) -> None:
        """Its files are kept until it is released, whatever becomes of its entry."""
        self._pinned[manifest.checkpoint] = manifest.files

    def release(self, checkpoint: CheckpointId, ledger: Ledger) -> list[CleanUp]:
        """It is not read any more: drop what was kept for it alone. Entries that are being removed are asked for again,
        so that they are gone before the files that they name."""
        self._pinned.pop(checkpoint, None)
        leaving = tuple(entry.position for entry in ledger.stored if entry.position in self._leaving)
        files = self._free(self._garbage, _without(ledger.stored, leaving))
        return [CleanUp(leaving, files)] if files else []

    def after_checkpoint(self, garbage: Sequence[str], ledger: Ledger) -> list[CleanUp]:
        """Drop what is older than the retained checkpoints, and the files that only these entries, or nobody
        (`garbage`), named. Also after a stop that keeps nothing: then all of them."""
        self._garbage |= dict.fromkeys(garbage)
        positions = self._leaving = prunable(ledger.view, self._retained)
        dropped = [entry for entry in ledger.stored if entry.position in positions]
        self._garbage |= dict.fromkeys(sorted(files_of(manifests_in(dropped)) & self._all_pinned))
        unnamed = files_of(manifests_in(dropped)).union(self._garbage)
        files = self._free(unnamed, _without(ledger.stored, positions))
        if not positions and not files:
            return []
        return [CleanUp(positions, files)]

    def of_attempts_before(self, attempt: Attempt, ledger: Ledger) -> list[CleanUpOrphans]:
        """Remove what earlier attempts stored and no entry names. Not while an entry that cannot be read may name
        it."""
        if not ledger.is_readable:
            return []
        return [CleanUpOrphans(attempt, files_of(manifests_in(ledger.stored)) | self._all_pinned)]

    def of_own_attempts(self, ledger: Ledger) -> list[CleanUpOrphans]:
        """The same for the attempts of this process, too, when no worker of theirs is left."""
        own = ledger.own_attempt
        return [] if own is None else self.of_attempts_before(Attempt(own + 1), ledger)

    def cleaned_up(self, event: CleanedUp, ledger: Ledger) -> None:
        ledger.forget(event.positions)
        self._garbage = {path: None for path in self._garbage if path not in event.files}

    @property
    def _all_pinned(self) -> frozenset[str]:
        return frozenset[str]().union(*self._pinned.values())

    def _free(self, files: Iterable[str], kept: Sequence[StoredEntry]) -> tuple[str, ...]:
        """Those that neither an entry of `kept` nor a savepoint needs."""
        return tuple(sorted(frozenset(files) - files_of(manifests_in(kept)) - self._all_pinned))


def _without(stored: Sequence[StoredEntry], positions: Sequence[LogPosition]) -> list[StoredEntry]:
    return [entry for entry in stored if entry.position not in positions]
