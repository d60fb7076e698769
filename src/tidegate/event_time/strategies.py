"""What a program says about the time of a stream's records: where a record's timestamp comes from, and how far behind
the newest one another may still be.

    WatermarkStrategy.for_bounded_out_of_orderness("5s").with_timestamp_assigner(lambda order: order.ts)

Nothing here reads a clock: watermarks are made of timestamps alone (in Flink: WatermarkStrategy).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Generic, Protocol, TypeVar

from tidegate.config.values import format_duration, parse_positive_duration
from tidegate.elements import MIN_WATERMARK
from tidegate.errors import InvalidError
from tidegate.event_time.alignment import WatermarkAlignment
from tidegate.event_time.durations import seconds_of
from tidegate.ids import is_name

Record = TypeVar("Record", contravariant=True)


class WatermarkGenerator(Protocol):
    """Makes the watermark of one split, or of one subtask, out of its records.

    It begins anew at every restart; the watermark that it had reached is kept by the engine and never goes back.
    """

    def on_batch(self, values: Sequence[Any], timestamps: Sequence[int]) -> None:
        """These records came, in order; as many of both, at least one."""
        ...

    @property
    def watermark(self) -> int:
        """How far its records have come, in milliseconds since 1970; `MIN_WATERMARK` before it knows. Asked about every
        `watermarks.interval`."""
        ...


class BoundedOutOfOrderness:
    """Behind the newest timestamp by `bound` milliseconds: records may come so much out of order."""

    def __init__(self, bound: int) -> None:
        self._bound = bound
        self.watermark = MIN_WATERMARK

    def on_batch(self, values: Sequence[Any], timestamps: Sequence[int]) -> None:
        # A record of the newest timestamp itself may still come.
        self.watermark = max(self.watermark, max(timestamps) - self._bound - 1)


class NoWatermarks:
    """Says nothing until the input ends."""

    watermark = MIN_WATERMARK

    def on_batch(self, values: Sequence[Any], timestamps: Sequence[int]) -> None:
        """Timestamps mean nothing here."""


@dataclass(frozen=True)
class WatermarkStrategy(Generic[Record]):
    """How the records of a source, or of a stream, get timestamps and watermarks. Made by the methods that begin with
    `for_` and `no_`, completed by those that begin with `with_`; each of these gives a new one."""

    generator: Callable[[], WatermarkGenerator]
    """Makes the generator of one split."""
    description: str
    """What two processes compare to know that they have the same."""
    timestamp_assigner: Callable[[Record], int] | None = None
    """Gives a record's timestamp; None takes the one that the source has read with it."""
    idle_after: float | None = None
    """Seconds without a record after which a split is not waited for; None waits for ever."""
    alignment: WatermarkAlignment | None = None
    """How far a split may be ahead of others; None: as far as it comes."""

    @staticmethod
    def for_bounded_out_of_orderness(bound: str | timedelta) -> "WatermarkStrategy[Any]":
        """Records may come up to `bound` ('5s') later than others with newer timestamps. Raises InvalidError for what
        is no duration."""
        seconds = seconds_of("for_bounded_out_of_orderness", bound)
        milliseconds = round(seconds * 1000)
        text = f"bounded out-of-orderness {format_duration(seconds)}"
        return WatermarkStrategy(lambda: BoundedOutOfOrderness(milliseconds), text)

    @staticmethod
    def for_monotonous_timestamps() -> "WatermarkStrategy[Any]":
        """In each split, no record has an earlier timestamp than the one before it."""
        return WatermarkStrategy(lambda: BoundedOutOfOrderness(0), "monotonous timestamps")

    @staticmethod
    def no_watermarks() -> "WatermarkStrategy[Any]":
        """Timestamps, but no progress of event time: what waits for it waits for the end of the input."""
        return WatermarkStrategy(NoWatermarks, "no watermarks")

    @staticmethod
    def for_generator(generator: Callable[[], WatermarkGenerator]) -> "WatermarkStrategy[Any]":
        """A generator of one's own; `generator` makes one for each split. Raises InvalidError when it cannot be
        called."""
        if not callable(generator):
            raise InvalidError(
                f"for_generator was given {generator!r}", remedy="Give a class or a function that makes a generator."
            )
        name = getattr(generator, "__qualname__", type(generator).__qualname__)
        return WatermarkStrategy(generator, f"generator {name}")

    def with_timestamp_assigner(self, assigner: Callable[[Any], int]) -> "WatermarkStrategy[Any]":
        """`assigner` gives a record's timestamp, in milliseconds since 1970. Raises InvalidError when it is no
        function."""
        if not callable(assigner):
            raise InvalidError(
                f"with_timestamp_assigner was given {assigner!r}",
                remedy="Give a function that returns a record's milliseconds since 1970.",
            )
        return replace(self, timestamp_assigner=assigner)

    def with_idleness(self, timeout: str | timedelta) -> "WatermarkStrategy[Record]":
        """A split that brings nothing for `timeout` ('30s') does not hold the others back, until its next record. The
        time in which the source could not be read, because what is behind it had no room, does not count. Raises
        InvalidError for what is no duration, or none at all."""
        return replace(self, idle_after=seconds_of("with_idleness", timeout, parse_positive_duration))

    def with_watermark_alignment(
        self, group: str, max_drift: str | timedelta, update_interval: str | timedelta = "1s"
    ) -> "WatermarkStrategy[Record]":
        """A split whose watermark is more than `max_drift` ('5m', of event time) ahead of the slowest one of `group` is
        not read until the others have caught up: so what waits behind the sources for event time stays bounded. All
        splits of all sources of the job that name the same group belong to it. Idle splits and those that have ended
        hold nobody back; one that stays empty and never becomes idle holds back all.

        update_interval: between two reports of a source's subtask to the JobManager; while old records go by quickly
        there are up to twenty times as many, and the group comes no further than about `max_drift` with each. For
        sources only. Raises InvalidError for a group without a name, for what is no duration, or none at all, and for a
        strategy without watermarks.
        """
        if not _is_group(group):
            raise InvalidError(
                f"with_watermark_alignment: {group!r} is no name for a group",
                remedy="Use 1 to 64 of A-Z, a-z, 0-9, '_', '-'.",
            )
        if self.generator is NoWatermarks:
            raise InvalidError(
                "with_watermark_alignment: a source without watermarks would hold its group back for ever",
                remedy="Give it another strategy, or leave it out of the group.",
            )
        drift = seconds_of("with_watermark_alignment", max_drift, parse_positive_duration)
        interval = seconds_of("with_watermark_alignment", update_interval, parse_positive_duration)
        return replace(self, alignment=WatermarkAlignment(group, round(drift * 1000), interval))

    def __str__(self) -> str:
        idle = "" if self.idle_after is None else f", idle after {format_duration(self.idle_after)}"
        aligned = "" if self.alignment is None else f", {self.alignment}"
        return f"{self.description}{', own timestamps' if self.timestamp_assigner else ''}{idle}{aligned}"


def _is_group(group: object) -> bool:
    return isinstance(group, str) and is_name(group)
