"""What a test writes into the script of a source: records, watermarks, and markers at which something happens.

All of it is data. What a marker does is the harness's business; each happens once, also when records around it are read
again after a crash.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Never

from tidegate.checkpoint.protocol import RecoverySpec, SplitState
from tidegate.errors import InvalidError
from tidegate.operators.contracts import Deserializer, SinkContext, SourceContext


@dataclass(frozen=True)
class Record:
    """A record of a source, or of a sink. `timestamp`: the one that comes with it, in milliseconds since 1970; a
    strategy with an assigner takes its own. `split`: which of the source's splits it belongs to, from 0."""

    value: Any
    timestamp: int | None = None
    split: int = 0


class Encoded(bytes):
    """A value as the source reads it: the source's own format makes the record of it, or refuses it."""

    __slots__ = ()


@dataclass(frozen=True)
class Watermark:
    """No record of this source with `timestamp` or an earlier one is expected any more, whatever its strategy says."""

    timestamp: int


@dataclass(frozen=True)
class EndOfInput:
    """The source ends here."""


@dataclass(frozen=True)
class Checkpoint:
    """A whole checkpoint, commits included."""


@dataclass(frozen=True)
class Crash:
    """Every process dies, and the job starts again from its newest checkpoint, as `JobHarness.crash`."""

    parallelism: int | None = None


@dataclass(frozen=True)
class Restart:
    """A checkpoint, and a start from it, as `JobHarness.restart`."""

    parallelism: int | None = None


@dataclass(frozen=True)
class AdvanceProcessingTime:
    """The clock goes on by so much: '5s', or a timedelta."""

    by: str | timedelta


Marker = Checkpoint | Crash | Restart | AdvanceProcessingTime
Element = Record | Watermark | EndOfInput
"""What belongs to a source, and is read again after a crash."""
_KINDS = (Record, Watermark, EndOfInput, Checkpoint, Crash, Restart, AdvanceProcessingTime)


def scripted(entry: Any) -> Element | Marker:
    """An entry of a script; whatever is no marker is the value of a record."""
    return entry if isinstance(entry, _KINDS) else Record(entry)


class ScriptedSource:
    """A source that brings what its script says, for a `JobHarness`. What is neither a `Record` nor a marker is taken
    for a record's value. `splits`: how many it has."""

    in_process_only = True
    bounded = True
    deserializer: Deserializer | None = None
    discovery_interval: float | None = None
    inspection_spec: RecoverySpec | None = None

    def __init__(self, script: Iterable[Any] = (), *, splits: int = 1) -> None:
        self.script: tuple[Element | Marker, ...] = tuple(scripted(entry) for entry in script)
        self.splits = splits
        if splits < 1:
            raise InvalidError(f"splits={splits} must be at least 1")
        wrong = [e.split for e in self.script if isinstance(e, Record) and not 0 <= e.split < splits]
        if wrong:
            raise InvalidError(
                f"a record of the script belongs to split {wrong[0]}, and there are {splits}",
                remedy="Splits count from 0; say splits= for more of them.",
            )

    def discover(self, known: frozenset[str] | None) -> list[SplitState]:
        _refuse(self)

    def open_reader(self, context: SourceContext) -> Never:
        _refuse(self)


class CollectSink:
    """A sink for a job that is only made to be tested. What came into it is told by the harness:
    `JobHarness.output`."""

    in_process_only = True
    transaction_prefix: str | None = None

    @property
    def recovery_spec(self) -> RecoverySpec:
        _refuse(self)

    def open_writer(self, context: SinkContext) -> Never:
        _refuse(self)

    def open_recovery(self) -> Never:
        _refuse(self)


def _refuse(what: ScriptedSource | CollectSink) -> Never:
    raise InvalidError(
        f"a {type(what).__name__} works in a JobHarness only",
        remedy="Give the job to tidegate.testing.JobHarness instead of running it.",
    )
