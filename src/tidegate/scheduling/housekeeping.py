"""What is removed of a job's folder, and when: old entries of the log, files that nobody names. Decides; removes
nothing.

Entries count as there until it is confirmed that they are gone: what could not be removed is asked for again with the
next checkpoint, so that the log is always pruned from the bottom up. Nothing is removed before a later entry of one's
own was won, and nothing that an entry in the log names.
"""

from collections.abc import Sequence

from tidegate.checkpoint.log import prunable
from tidegate.checkpoint.manifest import files_of
from tidegate.ids import Attempt
from tidegate.scheduling.ledger import Ledger, manifests_in
from tidegate.scheduling.protocol import CleanedUp, CleanUp, CleanUpOrphans, Command


class Housekeeping:
    """`retained`: how many completed checkpoints are kept."""

    def __init__(self, retained: int) -> None:
        self._retained = retained
        self._garbage: dict[str, None] = {}
        """Files of abandoned checkpoints that are not yet known to be gone."""

    def after_checkpoint(self, garbage: Sequence[str], ledger: Ledger) -> list[Command]:
        """Drop what is older than the retained checkpoints, and the files that only these entries, or nobody
        (`garbage`), named."""
        self._garbage |= dict.fromkeys(garbage)
        positions = prunable(ledger.view, self._retained)
        dropped = [entry for entry in ledger.stored if entry.position in positions]
        kept = [entry for entry in ledger.stored if entry.position not in positions]
        files = files_of(manifests_in(dropped)).union(self._garbage) - files_of(manifests_in(kept))
        if not positions and not files:
            return []
        return [CleanUp(positions, tuple(sorted(files)))]

    def of_attempts_before(self, attempt: Attempt, ledger: Ledger) -> list[Command]:
        """Remove what earlier attempts stored and no entry names. Not while an entry that cannot be read may name
        it."""
        if not ledger.is_readable:
            return []
        return [CleanUpOrphans(attempt, files_of(manifests_in(ledger.stored)))]

    def of_own_attempts(self, ledger: Ledger) -> list[Command]:
        """The same for the attempts of this process, too, when no worker of theirs is left."""
        own = ledger.own_attempt
        return [] if own is None else self.of_attempts_before(Attempt(own + 1), ledger)

    def cleaned_up(self, event: CleanedUp, ledger: Ledger) -> None:
        ledger.forget(event.positions)
        self._garbage = {path: None for path in self._garbage if path not in event.files}
