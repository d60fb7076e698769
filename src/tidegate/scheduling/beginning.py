"""How a JobManager process begins: what it finds in the log, the savepoint that it is to begin from, and what its
takeovers say of both. Pure; when each step is due is the JobManager's business.

A process that begins from a savepoint reads it before it writes anything: a program that does not fit is refused with
the log as it was. The first takeover then names the savepoint, so that every later one, also of another process, begins
from it until its state is a completed checkpoint of this log. From then on the savepoint is not needed any more.
"""

from collections.abc import Sequence

from tidegate.checkpoint.log import SavepointOrigin, StoredEntry, Takeover
from tidegate.checkpoint.manifest import Manifest, SinkTarget
from tidegate.errors import InvalidError
from tidegate.graph.logical import LogicalGraph
from tidegate.scheduling import protocol as p
from tidegate.scheduling.ledger import Ledger
from tidegate.scheduling.opening import Opening, decide_opening
from tidegate.scheduling.restore import check_restorable
from tidegate.scheduling.settings import JobManagerIdentity, JobSettings


class Beginning:
    """Nothing is known yet. `sinks`: the program's."""

    def __init__(
        self, graph: LogicalGraph, settings: JobSettings, identity: JobManagerIdentity, sinks: Sequence[SinkTarget]
    ) -> None:
        self._graph = graph
        self._settings = settings
        self._identity = identity
        self._sinks = tuple(sinks)
        self._origin: SavepointOrigin | None = None
        self.savepoint: Manifest | None = None
        """What is begun from: read, and found to fit."""
        self.opening = Opening()
        self.ledger = self._ledger_of(())
        self.old_takeover: Takeover | None = None
        """Of the process before this one, until its workers are known to be dead."""

    def _ledger_of(self, stored: Sequence[StoredEntry]) -> Ledger:
        return Ledger(stored, self._graph.job, self._identity.nonce, self._identity.new_instance)

    def log_read(self, stored: Sequence[StoredEntry]) -> list[p.Command]:
        """Decide. Raises as `decide_opening`."""
        self.ledger = self._ledger_of(stored)
        self.opening = decide_opening(self.ledger.view, self._settings, self._graph)
        self.old_takeover = self.ledger.view.takeover
        return [*map(_told, self.opening.notes), *self.drop_claimed()]

    def savepoint_read(self, manifest: Manifest) -> list[p.Command]:
        """Raises InvalidError when the program does not fit it, or when it is not the one that was begun from."""
        opening, path = self.opening, self.opening.savepoint
        assert path is not None, "nobody asked for a savepoint"
        if opening.origin is not None and not opening.origin.is_of(manifest):
            raise InvalidError(
                f"{path} holds another savepoint than the one from which the job began, and whose state is not yet in "
                "the job's folder",
                remedy="Bring that one back, or say with --from-savepoint or --fresh how to begin anew.",
            )
        dropped = check_restorable(manifest, self._graph, self._settings, f"savepoint {path}")
        self.savepoint = manifest
        self._origin = SavepointOrigin(
            path, self._settings.claim_savepoint, manifest.instance, manifest.attempt, manifest.checkpoint
        )
        return [_told(f"beginning from savepoint {path}"), *map(_told, dropped)]

    def takeover(self, event: p.WorkersSpawned) -> Takeover:
        """The entry by which the attempt of these workers takes over. Only the first one begins anything."""
        is_fresh = self.opening.is_fresh and self.ledger.own_attempt is None
        who = self._identity
        return Takeover(
            who.host,
            who.process,
            event.processes,
            event.control_address,
            self.opening.options,
            is_fresh,
            self._sinks,
            self._origin if is_fresh else None,
        )

    def drop_claimed(self) -> list[p.Command]:
        """The claimed savepoint can go once its state is in the log. Asked for again by each process that still sees
        where the job began: one may have died before it was done."""
        view = self.ledger.view
        is_claimed = view.origin is not None and view.origin.is_claimed
        return [p.DropSavepoint(view.origin)] if view.origin is not None and is_claimed and view.completed else []


def _told(text: str) -> p.Tell:
    return p.Tell("info", text)
