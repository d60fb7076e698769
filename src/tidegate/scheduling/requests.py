"""Who has asked for a savepoint, or for an end with a last checkpoint, and what they are told. Pure.

A request is served by the first checkpoint that was triggered after it and has settled: it is in the log, and all that
it holds is committed. Before that nobody may export it: a savepoint names no transaction, so whoever begins from it
counts on everything before it being out. Several requests share one checkpoint, and one folder where they name the same
one. Each is answered exactly once, whatever becomes of the attempt, the checkpoint or the job.
"""

import math
from collections.abc import Iterable, Sequence

import msgspec

from tidegate.checkpoint.manifest import Manifest
from tidegate.errors import ErrorKind, Failure
from tidegate.ids import CheckpointId
from tidegate.scheduling import protocol as p
from tidegate.scheduling.housekeeping import Housekeeping
from tidegate.scheduling.ledger import Ledger


class _Stop(msgspec.Struct):
    """An end with a last checkpoint that is under way, and everybody who wants it."""

    since: CheckpointId
    drains: bool
    deadline: float
    """Until when its checkpoint is tried, monotonic seconds."""
    asked: list[p.StopWithCheckpointWanted]
    """Those who are not answered yet."""
    last: Manifest | None = None
    """The checkpoint to stop with, settled."""
    is_granted: bool = False
    """At least one of those who asked has all that it wanted, so that the job stops."""


class Requests:
    """Nobody has asked yet. `housekeeping`: keeps the files of what is being exported."""

    def __init__(self, housekeeping: Housekeeping) -> None:
        self._housekeeping = housekeeping
        self._savepoints: list[tuple[CheckpointId, p.SavepointWanted]] = []
        """Those that wait for their checkpoint, and the newest one that is too old for each."""
        self._stop: _Stop | None = None
        self._exports: dict[tuple[CheckpointId, str | None], list[str]] = {}
        """Savepoints that are being written, and who waits for each."""

    # -- what is wanted --

    @property
    def wants_checkpoint(self) -> bool:
        """Whether somebody waits for a checkpoint that is still to come."""
        return bool(self._savepoints) or self.wants_stop

    @property
    def wants_stop(self) -> bool:
        """Whether that checkpoint is to be the last."""
        return self._stop is not None and self._stop.last is None

    @property
    def wants_drain(self) -> bool:
        """Whether the inputs are to end before it."""
        return self._stop is not None and self._stop.last is None and self._stop.drains

    @property
    def is_exporting(self) -> bool:
        return bool(self._exports)

    @property
    def is_stopping(self) -> bool:
        """Whether the last checkpoint is there: no further attempt begins."""
        return self._stop is not None and self._stop.last is not None

    @property
    def is_stop_due(self) -> bool:
        """Whether nothing is waited for any more but the end of the job."""
        return self._stop is not None and self._stop.is_granted and not self._waits_for_export(self._stop)

    @property
    def deadline(self) -> float:
        """When `overdue` has something to say, monotonic seconds."""
        return self._stop.deadline if self._stop is not None and self._stop.last is None else math.inf

    # -- asking --

    def asked(
        self, wanted: p.SavepointWanted | p.StopWithCheckpointWanted, newest: CheckpointId, deadline: float
    ) -> list[p.Command]:
        """Somebody asks. `newest`: the newest checkpoint that was triggered before. deadline: of a stop."""
        if isinstance(wanted, p.StopWithCheckpointWanted):
            return self._stop_asked(wanted, newest, deadline)
        self._savepoints.append((newest, wanted))
        return []

    def _stop_asked(self, wanted: p.StopWithCheckpointWanted, newest: CheckpointId, deadline: float) -> list[p.Command]:
        """Begin with a stop, or join the one that is under way."""
        if self._stop is None:
            self._stop = _Stop(newest, wanted.drain, deadline, [wanted])
            return [p.WakeAt(deadline)]
        if wanted.drain and not self._stop.drains:
            text = "the job is being stopped already, without being drained"
            return [p.Reply(wanted.request, failure=Failure(ErrorKind.INVALID, text, "Start it again to drain it."))]
        self._stop.asked.append(wanted)
        return self._served(self._stop, self._stop.last) if self._stop.last is not None else []

    # -- serving --

    def settled(self, manifest: Manifest, *, is_last: bool) -> list[p.Command]:
        """A checkpoint is complete and committed. `is_last`: none follows it."""
        due = [(wanted.request, wanted.path) for since, wanted in self._savepoints if since < manifest.checkpoint]
        self._savepoints = [each for each in self._savepoints if each[0] >= manifest.checkpoint]
        commands = self._export(manifest, due)
        stop = self._stop
        if stop is not None and is_last and stop.since < manifest.checkpoint:
            commands += self._served(stop, manifest)
        return commands

    def _served(self, stop: _Stop, manifest: Manifest) -> list[p.Command]:
        stop.last = manifest
        # What was drained cannot be gone on with in this attempt, whatever becomes of its savepoint.
        stop.is_granted = stop.is_granted or stop.drains or not all(wanted.savepoint for wanted in stop.asked)
        told: list[p.Command] = [p.Reply(wanted.request) for wanted in stop.asked if not wanted.savepoint]
        stop.asked = [wanted for wanted in stop.asked if wanted.savepoint]
        waiting = {request for requests in self._exports.values() for request in requests}
        fresh = [(wanted.request, wanted.path) for wanted in stop.asked if wanted.request not in waiting]
        return told + self._export(manifest, fresh)

    def _export(self, manifest: Manifest, due: Iterable[tuple[str, str | None]]) -> list[p.Command]:
        commands: list[p.Command] = []
        for request, path in due:
            key = (manifest.checkpoint, path)
            if key not in self._exports:
                self._exports[key] = []
                commands.append(p.ExportSavepoint(manifest, path))
            self._exports[key].append(request)
            self._housekeeping.pin(manifest)
        return commands

    def exported(self, answer: p.SavepointExported | p.SavepointNotExported, ledger: Ledger) -> list[p.Command]:
        """A savepoint is written, or could not be. A stop that nobody could be granted is over."""
        waiting = self._exports.pop((answer.checkpoint, answer.path), [])
        is_read = any(checkpoint == answer.checkpoint for checkpoint, _ in self._exports)
        return self._answered(answer, waiting) + (
            [] if is_read else self._housekeeping.release(answer.checkpoint, ledger)
        )

    def _answered(
        self, answer: p.SavepointExported | p.SavepointNotExported, waiting: Sequence[str]
    ) -> list[p.Command]:
        stop = self._stop
        if stop is not None and any(wanted.request in waiting for wanted in stop.asked):
            stop.asked = [wanted for wanted in stop.asked if wanted.request not in waiting]
            stop.is_granted = stop.is_granted or isinstance(answer, p.SavepointExported)
            if not stop.asked and not stop.is_granted:
                self._stop = None
        match answer:
            case p.SavepointExported(_, _, written):
                return [p.Reply(request, text=written) for request in waiting]
            case p.SavepointNotExported(_, _, failure):
                return [p.Reply(request, failure=failure) for request in waiting]

    def _waits_for_export(self, stop: _Stop) -> bool:
        return stop.last is None or bool(stop.asked)

    # -- refusing --

    def overdue(self, now: float) -> list[p.Command]:
        """A stop whose checkpoint did not come in its time is given up; the job goes on."""
        if now < self.deadline:
            return []
        assert self._stop is not None
        stop, self._stop = self._stop, None
        text = "no checkpoint could be taken to stop with; the job goes on"
        failure = Failure(ErrorKind.UNAVAILABLE, text, "The job says why its checkpoints fail. Try again.")
        return [p.Reply(wanted.request, failure=failure) for wanted in stop.asked]

    def end(self, failure: Failure | None) -> list[p.Command]:
        """The job ends: whoever waits is told that."""
        why = "it was stopped or finished first" if failure is None else failure.message
        refused = Failure(ErrorKind.UNAVAILABLE, f"the job has ended without doing what was asked: {why}")
        waiting = [request for requests in self._exports.values() for request in requests]
        waiting += [wanted.request for _, wanted in self._savepoints]
        waiting += [
            wanted.request for wanted in (self._stop.asked if self._stop else ()) if wanted.request not in waiting
        ]
        self._savepoints, self._stop, self._exports = [], None, {}
        return [p.Reply(request, failure=refused) for request in waiting]
