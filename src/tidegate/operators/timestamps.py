"""Gives records their timestamps and tells event time about them: behind a source, and in the middle of a job.

What the user's assigner raises fails the attempt: a record without a time has no place in event time.
"""

from typing import Any

from tidegate.elements import Batch
from tidegate.errors import InvalidError
from tidegate.event_time.progress import EventTimeProgress
from tidegate.operators.contracts import OperatorContext
from tidegate.operators.stateless import StatelessOperator
from tidegate.operators.user_code import call_each, describe, raise_user_error

LEAST, MOST = -(2**62), 2**62
"""Timestamps beyond these would leave no room for what is added to them."""
_INTEGERS = frozenset({int})


class Timestamper:
    """Stamps the batches of one operator and shows them to `progress`."""

    def __init__(self, progress: EventTimeProgress) -> None:
        self._progress = progress
        self._assigner = progress.strategy.timestamp_assigner

    def stamp(self, batch: Batch, context: OperatorContext) -> Batch:
        """`batch`, which has records, with timestamps. Raises UserCodeError for what the assigner raises and for what
        is no timestamp, InvalidError where there is neither an assigner nor a timestamp."""
        stamps = self._stamps(batch, context)
        if not _INTEGERS.issuperset(map(type, stamps)) or not LEAST < min(stamps) <= max(stamps) < MOST:
            self._refuse(batch.values, stamps, context)
        try:
            self._progress.observe(batch.values, stamps)
        except Exception as error:
            raise_user_error(error, context, "in the watermark generator")
        return Batch(batch.values, batch.keys, stamps)

    def _stamps(self, batch: Batch, context: OperatorContext) -> list[int]:
        if self._assigner is None:
            if batch.timestamps is not None:
                return batch.timestamps
            raise InvalidError(
                f"the records of operator {context.operator} have no timestamps",
                remedy="Give its watermark strategy with_timestamp_assigner(...), or ask the source for timestamps.",
            )

        def failed(value: Any, error: Exception) -> None:
            raise_user_error(error, context, f"when taking the timestamp of record {describe(value)}")

        return call_each(self._assigner, batch.values, failed)[0]

    def _refuse(self, values: list[Any], stamps: list[Any], context: OperatorContext) -> None:
        for value, stamp in zip(values, stamps, strict=True):
            try:
                checked_timestamp(stamp)
            except TypeError as error:
                raise_user_error(error, context, f"when taking the timestamp of record {describe(value)}")


def checked_timestamp(stamp: object) -> int:
    """`stamp`, if it can be the timestamp of a record. Raises TypeError."""
    if type(stamp) is int and LEAST < stamp < MOST:
        return stamp
    raise TypeError(f"{stamp!r} is no timestamp; give whole milliseconds since 1970: int(seconds * 1000)")


class TimestampsOperator(StatelessOperator):
    """`assign_timestamps_and_watermarks`: first in its chain, so that the task makes the watermarks anew behind it."""

    def __init__(self, progress: EventTimeProgress) -> None:
        super().__init__()
        self._timestamper = Timestamper(progress)

    def process(self, batch: Batch) -> list[Batch]:
        return [self._timestamper.stamp(batch, self._context)]
