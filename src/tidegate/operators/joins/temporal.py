"""The temporal join: each row of the left stream with the version of its key that held at its time.

A left row waits until the watermark has passed it, because only then the version that holds is certain. Of the versions
that the watermark has passed, the newest alone is kept: no row that is still to come can need another one.
"""

from collections.abc import Callable, Iterator
from typing import Any

from tidegate.operators.joins.base import JoinOperator, JoinSpec, Pair
from tidegate.operators.joins.rows import Place, TimedRows
from tidegate.operators.user_code import describe, raise_user_error
from tidegate.state.descriptors import InternalMapState

LEFT = 0
"""The input of the rows that are joined; the other one brings versions."""


class TemporalJoinOperator(JoinOperator):
    """within: milliseconds for which a version holds at most, None without a limit. deleted: whether a record of the
    versions' stream is none but ends the one before it."""

    def __init__(
        self,
        spec: JoinSpec,
        left: InternalMapState[Place, Any],
        versions: InternalMapState[Place, Any],
        within: int | None,
        deleted: Callable[[Any], bool] | None,
    ) -> None:
        super().__init__(spec)
        self._descriptors = left, versions
        self._within = within
        self._deleted = deleted

    def _register(self) -> None:
        self._left, self._versions = (TimedRows(self._backend, descriptor) for descriptor in self._descriptors)

    def _use(self, key: Any) -> None:
        self._left.use(key)
        self._versions.use(key)

    def _arrived(self, input: int, key: Any, timestamp: int, row: Any) -> tuple[Pair, ...] | None:
        is_late = timestamp <= self._watermark
        if input == LEFT:
            if is_late:
                return None
            self._left.add(timestamp, row)
        else:
            if is_late and self._is_of_no_use(timestamp):
                return None
            self._versions.replace(timestamp, row)
            if self._within is not None:
                self._timers.register(timestamp + self._within, key)
        if is_late:
            self._remove_versions(self._watermark)
        else:
            self._timers.register(timestamp, key)
        return ()

    def _is_of_no_use(self, timestamp: int) -> bool:
        """Whether a version that comes late holds for no row that is still undecided."""
        newest = self._versions.newest(self._watermark)
        if newest is not None:
            return timestamp < newest[0]
        if self._within is not None:
            return timestamp + self._within <= self._watermark
        # Nothing is kept of a version that was ended: this one may be older than the end.
        return self._deleted is not None

    def _due(self, timestamp: int) -> Iterator[Pair]:
        rows = self._left.between(timestamp, timestamp)
        version = self._version_at(timestamp) if rows else None
        if version is not None or self._spec.keeps[LEFT]:
            for place in rows:
                yield self._left.get(place), version, timestamp
        self._left.remove(rows)
        self._remove_versions(timestamp)

    def _version_at(self, timestamp: int) -> Any:
        """The version that holds then; None when there is none. One that held too long ago was removed in time."""
        newest = self._versions.newest(timestamp)
        version = None if newest is None else self._versions.get(newest)
        return None if version is None or self._is_end(version) else version

    def _is_end(self, version: Any) -> bool:
        if self._deleted is None:
            return False
        try:
            return bool(self._deleted(version))
        except Exception as error:
            raise_user_error(error, self._operator, f"when asking whether {describe(version)} is deleted")

    def _remove_versions(self, timestamp: int) -> None:
        """Those that hold for no row newer than `timestamp`."""
        passed = self._versions.until(timestamp)
        if passed and not self._holds_on(passed[-1], timestamp):
            self._versions.remove(passed)
        else:
            self._versions.remove(passed[:-1])

    def _holds_on(self, newest: Place, timestamp: int) -> bool:
        """Whether the newest version up to `timestamp` must be known later. The end of one must be for as long as a
        version that comes late could be taken for a newer one."""
        if self._within is not None:
            return newest[0] + self._within > timestamp
        return not self._is_end(self._versions.get(newest))
