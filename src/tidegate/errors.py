"""Errors by kind. A kind prescribes what follows; the detail is in the message, which is not part of the interface.

Restart strategies look only at the kind. A new kind is added only when somebody would act differently on it.
"""

import enum
import traceback

import msgspec

from tidegate.ids import Attempt


class ErrorKind(enum.Enum):
    """What happened, seen from what has to follow."""

    USER_CODE = "user code"
    """The user's function raised: restart by the strategy."""
    UNAVAILABLE = "unavailable"
    """Something outside did not answer, or a worker died: restart by the strategy."""
    INTERNAL = "internal"
    """A broken invariant, our bug: restart by the strategy, report it."""
    INVALID = "invalid"
    """Configuration, program or request is wrong: stop."""
    CORRUPT = "corrupt"
    """Stored data cannot be read: stop, an operator decides."""
    LOST = "lost data"
    """A transaction of a completed checkpoint is provably gone: stop, an operator decides."""
    UNKNOWN_OUTCOME = "unknown outcome"
    """Nobody can say whether it was committed: stop, an operator decides."""
    FENCED = "fenced by the log"
    """Another JobManager runs this job: stop."""
    SINK_FENCED = "fenced at a sink"
    """Somebody else uses our transactional id: read the log; taken over, or restart."""


EXIT_CODES: dict[ErrorKind, int] = {
    ErrorKind.USER_CODE: 1,
    ErrorKind.UNAVAILABLE: 1,
    ErrorKind.INTERNAL: 1,
    ErrorKind.INVALID: 2,
    ErrorKind.CORRUPT: 3,
    ErrorKind.LOST: 3,
    ErrorKind.UNKNOWN_OUTCOME: 3,
    ErrorKind.FENCED: 4,
    ErrorKind.SINK_FENCED: 1,
}

RESTARTABLE = frozenset({ErrorKind.USER_CODE, ErrorKind.UNAVAILABLE, ErrorKind.INTERNAL, ErrorKind.SINK_FENCED})


class Failure(msgspec.Struct, frozen=True):
    """An error as data: what crosses a process boundary and what restart strategies and the screen see."""

    kind: ErrorKind
    message: str
    remedy: str = ""
    """What the reader can do about it, one sentence; empty when the message says it all."""
    where: str = ""
    """Operator, subtask and attempt, as far as known: 'operator totals, subtask 1, attempt 3'."""
    traceback: str = ""
    """The user's frames first; empty when it would not help."""
    transaction: str = ""
    """The id of the completed checkpoint's transaction that is lost or of which nobody knows, where it is that."""

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.kind]

    def render(self) -> str:
        """The whole text for a person: traceback of the user's code first, then message, place and remedy."""
        parts = [self.traceback.rstrip()] if self.traceback else []
        parts.append(f"{self.where}: {self.message}" if self.where else self.message)
        if self.remedy:
            parts.append(self.remedy)
        return "\n".join(parts)


class TidegateError(Exception):
    """Base of all errors that Tidegate raises. `failure` says kind, place and remedy; `exit_code` what a process ends
    with."""

    kind: ErrorKind = ErrorKind.INTERNAL
    is_reported = False
    """Whoever watches the job has been told: nobody needs to show it again."""

    def __init__(self, message: str, *, remedy: str = "", where: str = "", traceback: str = "") -> None:
        super().__init__(message)
        self.failure = Failure(self.kind, message, remedy, where, traceback)

    @property
    def exit_code(self) -> int:
        return self.failure.exit_code

    def __str__(self) -> str:
        return self.failure.render()


class UserCodeError(TidegateError):
    """The user's function raised."""

    kind = ErrorKind.USER_CODE


class UnavailableError(TidegateError):
    """Something outside did not answer, or answered that it cannot now; trying again may help."""

    kind = ErrorKind.UNAVAILABLE


class InternalError(TidegateError):
    """A broken invariant: a bug in Tidegate."""

    kind = ErrorKind.INTERNAL


class InvalidError(TidegateError):
    """Configuration, program or request is wrong; trying again cannot help."""

    kind = ErrorKind.INVALID


class CorruptError(TidegateError):
    """Stored data cannot be read as what it should be."""

    kind = ErrorKind.CORRUPT


class LostDataError(TidegateError):
    """A transaction of a completed checkpoint is provably gone."""

    kind = ErrorKind.LOST


class UnknownOutcomeError(TidegateError):
    """Nobody can say whether a transaction of a completed checkpoint was committed."""

    kind = ErrorKind.UNKNOWN_OUTCOME


class FencedError(TidegateError):
    """Another JobManager has taken the job over."""

    kind = ErrorKind.FENCED


class SinkFencedError(TidegateError):
    """Another producer uses our transactional id."""

    kind = ErrorKind.SINK_FENCED


BY_KIND: dict[ErrorKind, type[TidegateError]] = {
    cls.kind: cls
    for cls in (
        UserCodeError,
        UnavailableError,
        InternalError,
        InvalidError,
        CorruptError,
        LostDataError,
        UnknownOutcomeError,
        FencedError,
        SinkFencedError,
    )
}


def raise_failure(failure: Failure) -> None:
    """Raise `failure` as the error of its kind."""
    raise error_of(failure)


def error_of(failure: Failure) -> "TidegateError":
    """The error of its kind."""
    error = BY_KIND[failure.kind](failure.message)
    error.failure = failure
    return error


def failure_of(error: BaseException) -> Failure:
    """An exception as data; one that is not ours is our bug."""
    if isinstance(error, TidegateError):
        return error.failure
    text = f"{type(error).__name__}: {error}"
    frames = "".join(traceback.format_exception(error))
    return Failure(ErrorKind.INTERNAL, text, "This is a bug in Tidegate: please report it with this text.", "", frames)


def place(operator: str = "", subtask: int | None = None, attempt: Attempt | None = None) -> str:
    """'operator totals, subtask 1, attempt 3', leaving out what is not known."""
    parts = [f"operator {operator}"] if operator else []
    parts += [f"subtask {subtask}"] if subtask is not None else []
    parts += [f"attempt {attempt}"] if attempt is not None else []
    return ", ".join(parts)
