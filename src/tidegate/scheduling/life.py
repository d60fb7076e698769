"""A job while no attempt of it runs: from its log to the first attempt, and from the last one to the exit. Pure.

It holds what outlives attempts, and knows the way in and the way out; what happens in between is its subclass's, the
`JobManager`. Whatever the way out is, an attempt that has workers is left by ending them first, and everybody who waits
for something of the job is answered before the exit.
"""

import math
from collections.abc import Sequence

from tidegate.checkpoint.log import Body, Created, Discarded, StoredEntry
from tidegate.checkpoint.manifest import Manifest
from tidegate.clock import Now
from tidegate.errors import Failure, TidegateError
from tidegate.graph.logical import LogicalGraph
from tidegate.graph.physical import PhysicalGraph
from tidegate.ids import Attempt, CheckpointId, WorkerIndex
from tidegate.runtime.control import StopWorker
from tidegate.scheduling import protocol as p
from tidegate.scheduling.beginning import Beginning
from tidegate.scheduling.deployment import Deployment, sink_targets
from tidegate.scheduling.ending import Ending
from tidegate.scheduling.housekeeping import Housekeeping
from tidegate.scheduling.job import MOVES, WITH_WORKERS, Phase
from tidegate.scheduling.ledger import APPEND_RETRY, Ledger
from tidegate.scheduling.recovery_run import RecoveryRun
from tidegate.scheduling.requests import Requests
from tidegate.scheduling.settings import JobManagerIdentity, JobSettings


class JobLife:
    """See the module."""

    def __init__(
        self, graph: LogicalGraph, physical: PhysicalGraph, settings: JobSettings, identity: JobManagerIdentity
    ) -> None:
        self._graph = graph
        self._physical = physical
        self._settings = settings
        self._fingerprint = graph.fingerprint()
        self.phase = Phase.READING_LOG
        sinks = sink_targets(graph)
        self._beginning = Beginning(graph, settings, identity, sinks)
        self._recovery = RecoveryRun(graph.job, sinks, settings)
        self._housekeeping = Housekeeping(settings.retained)
        self._requests = Requests(self._housekeeping)
        self._ending = Ending()
        self._attempt = Attempt(0)
        self._highest = CheckpointId(0)
        self._deployment: Deployment | None = None
        self._resume_at = math.inf
        self._is_confirming = False
        """Whether the log is being asked about the failure with which this ends."""

    @property
    def _ledger(self) -> Ledger:
        return self._beginning.ledger

    @property
    def _newest(self) -> CheckpointId:
        """The newest checkpoint that was triggered."""
        return max(self._highest, self._deployment.highest_checkpoint if self._deployment else CheckpointId(0))

    def _move(self, phase: Phase) -> list[p.Command]:
        assert phase in MOVES[self.phase], f"{self.phase} -> {phase}"
        self.phase = phase
        return []

    def _append(self, body: Body, now: Now) -> p.Command:
        return self._ledger.append(body, self._attempt, now)

    # -- the way in --

    def _log_read(self, stored: Sequence[StoredEntry], now: Now) -> list[p.Command]:
        match self.phase:
            case Phase.READING_LOG:
                return self._open(stored, now)
            case Phase.READING_SAVEPOINT:
                return self._exit(self._ledger.overtaking(stored) or self._ending.failure)
            case _:
                return self._exit(self._ledger.fencing(stored) or self._ending.failure)

    def _open(self, stored: Sequence[StoredEntry], now: Now) -> list[p.Command]:
        try:
            told = self._beginning.log_read(stored)
        except TidegateError as error:
            return self._exit(error.failure)
        opening = self._beginning.opening
        if opening.is_finished:
            return told + self._exit(None)
        self._highest = opening.highest
        self._attempt = self._ledger.view.attempt
        if opening.savepoint is not None:
            return [*told, *self._move(Phase.READING_SAVEPOINT), p.ReadSavepoint(opening.savepoint)]
        return told + self._begin(now)

    def _savepoint_read(self, manifest: Manifest, now: Now) -> list[p.Command]:
        if self.phase is not Phase.READING_SAVEPOINT or self._ending.failure is not None:
            return []
        try:
            return self._beginning.savepoint_read(manifest) + self._begin(now)
        except TidegateError as error:
            return self._savepoint_unread(error.failure)

    def _savepoint_unread(self, failure: Failure) -> list[p.Command]:
        """Whoever took over meanwhile may have been the one to remove it: the log knows."""
        if self._ending.failure is not None:
            # The log does not answer.
            return self._exit(failure)
        self._ending.fails(failure)
        return [p.ReadLog()]

    def _begin(self, now: Now) -> list[p.Command]:
        discards = self._beginning.opening.discards
        if self._ledger.view.instance is None:
            return [*self._move(Phase.CREATING_LOG), self._append(Created(), now)]
        if discards:
            reason = f"--from-checkpoint {self._settings.from_checkpoint}"
            return [*self._move(Phase.DISCARDING), self._append(Discarded(discards, reason), now)]
        return self._spawn()

    def _spawn(self) -> list[p.Command]:
        self._attempt = Attempt(self._attempt + 1)
        self._deployment = Deployment(
            self._graph, self._physical, self._settings, self._ledger.instance, self._attempt, self._fingerprint
        )
        return [*self._move(Phase.SPAWNING), p.SpawnWorkers(self._attempt, self._physical.workers)]

    # -- the way out --

    def _close_cleanly(self) -> list[p.Command]:
        return self._close(self._ledger.clean_stop(keeps=self._settings.keep_on_stop))

    def _close(self, end: Body) -> list[p.Command]:
        """Every commit is confirmed: end the workers, then abort what is open, then record it."""
        self._ending.records(end)
        asked = [p.SendToWorker(self._attempt, WorkerIndex(i), StopWorker()) for i in range(self._physical.workers)]
        return [*asked, *self._leave(Phase.CLOSING, self._settings.stop_grace)]

    def _record_end(self, now: Now) -> list[p.Command]:
        assert self._ending.record is not None
        return [*self._move(Phase.RECORDING_END), self._append(self._ending.record, now)]

    @property
    def _must_confirm(self) -> bool:
        return self.phase is Phase.CLOSING and self._ending.must_be_confirmed

    def _confirm(self) -> list[p.Command]:
        """No worker is left; the log is to say whether the failure is ours."""
        self._is_confirming, self._resume_at = True, math.inf
        return [p.ReadLog()]

    def _unconfirmed(self, now: Now) -> list[p.Command]:
        """It did not answer; that may not matter any more."""
        if not self._must_confirm:
            return self._exit(self._ending.failure)
        self._resume_at = now.monotonic + APPEND_RETRY
        return [p.WakeAt(self._resume_at)]

    def _end_with(self, failure: Failure | None, *, is_doubtful: bool = False) -> list[p.Command]:
        """End the workers, if there are any, and exit. is_doubtful: as `Ending.fails`."""
        self._ending.fails(failure, is_doubtful=is_doubtful)
        self._resume_at = math.inf
        if self.phase in WITH_WORKERS:
            return self._leave(Phase.CLOSING, 0.0)
        if self.phase is Phase.FAILING:
            # Its workers are being ended already; only what follows has changed.
            return self._move(Phase.CLOSING)
        return [] if self.phase is Phase.CLOSING else self._exit(failure)

    def _leave(self, phase: Phase, grace: float) -> list[p.Command]:
        if self._deployment is not None:
            self._highest = max(self._highest, self._deployment.highest_checkpoint)
        self._deployment = None
        self._recovery.drop()
        return [*self._move(phase), p.EndWorkers(self._attempt, grace)]

    def _leave_savepoints_time(self) -> list[p.Command]:
        if not self._requests.is_exporting:
            return self._exit(None)
        return [] if self.phase is Phase.EXPORTING else self._move(Phase.EXPORTING)

    def _too_late(self, event: p.Event) -> list[p.Command]:
        if isinstance(event, p.SavepointWanted | p.StopWithCheckpointWanted):
            self._requests.asked(event, self._newest, math.inf)
        return self._requests.end(None)

    def _exit(self, failure: Failure | None) -> list[p.Command]:
        return [*self._move(Phase.DONE), *self._requests.end(failure), p.Exit(failure)]
