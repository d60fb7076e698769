"""Where the user's functions are called: which record failed, how that is told, and what `on_error=` makes of it.

It never hides an exception unless `on_error=` says so, and never calls a function again on a record on which it
returned.
"""

import copy
import traceback
from collections.abc import Callable, Sequence
from reprlib import Repr
from types import TracebackType
from typing import Any, NoReturn, TypeVar

import msgspec

from tidegate.errors import InvalidError, TidegateError, UserCodeError, place
from tidegate.ids import OperatorName
from tidegate.operators.contracts import OperatorContext

Function = TypeVar("Function")

_ENGINE = __name__.partition(".")[0]
NOT_RECORDS: frozenset[type] = frozenset({str, bytes, bytearray, dict})
"""What can be iterated but is surely meant as one record."""
_shortened = Repr()
_DESCRIPTION_LENGTH = 200
_shortened.maxother = _shortened.maxstring = _DESCRIPTION_LENGTH


class OnError(msgspec.Struct, frozen=True):
    """What is done with a record on which the function raises: fail (default), leave it out and count it, or send it,
    as it came in, to the side output `tag`."""

    skip: bool = False
    tag: str | None = None

    @property
    def fails(self) -> bool:
        return not self.skip and self.tag is None


def user_traceback(error: BaseException) -> str:
    """The traceback of `error` as text, without the engine's frames that led to the user's function; empty when the
    user has no frame in it (`map(int)`)."""
    frame = error.__traceback__
    while frame is not None and _is_engine(frame):
        frame = frame.tb_next
    if frame is None:
        return ""
    if isinstance(error, TidegateError):
        return _frames_before_ours(frame)
    return "".join(traceback.format_exception(type(error), error, frame))


def _frames_before_ours(frame: TracebackType) -> str:
    """The frames from `frame` on that are not the engine's. The error itself is told behind them, in full."""
    kept = []
    following: TracebackType | None = frame
    for summary in traceback.extract_tb(frame):
        if following is not None and not _is_engine(following):
            kept.append(summary)
        following = following.tb_next if following is not None else None
    return "".join(("Traceback (most recent call last):\n", *traceback.format_list(kept)))


def _is_engine(frame: TracebackType) -> bool:
    module = frame.tb_frame.f_globals.get("__name__")
    return isinstance(module, str) and module.partition(".")[0] == _ENGINE


def describe(record: Any) -> str:
    """`record` in at most 200 characters, whatever its `repr` does."""
    text = _shortened.repr(record)
    return text if len(text) <= _DESCRIPTION_LENGTH else f"{text[: _DESCRIPTION_LENGTH - 3]}..."


def raise_user_error(error: Exception, context: OperatorContext, doing: str) -> NoReturn:
    """Raise `error`, which came out of the user's function while `doing` ('on record 7', 'in open'), as UserCodeError.

    An error of Tidegate's own (a state that cannot be read, a side output that is not declared) keeps its kind.
    """
    where = place(context.operator, context.subtask, context.attempt)
    if isinstance(error, TidegateError):
        failure = error.failure
        # What was raised deeper down may know the operator and not the subtask.
        known = where if where.startswith(failure.where) else failure.where
        error.failure = msgspec.structs.replace(
            failure, where=known, traceback=failure.traceback or user_traceback(error)
        )
        raise error
    message = f"{type(error).__name__} {doing}: {error}"
    raise UserCodeError(message, where=where, traceback=user_traceback(error)) from error


def call_each(
    function: Callable[[Any], Any], values: Sequence[Any], failed: Callable[[Any, Exception], None]
) -> tuple[list[Any], list[int]]:
    """`function` of each value, once. Where it raises, `failed(value, error)` decides: it raises, or the value is left
    out.

    Returns the results, and the positions in `values` that were left out, ascending. Calls run inside `extend`, which
    keeps what it got before an exception: so the failing position is known without counting in the fast path, and the
    iterator stands behind it.
    """
    results: list[Any] = []
    left_out: list[int] = []
    remaining = iter(values)
    while True:
        error: Exception = RuntimeError("the function raised StopIteration")
        try:
            results.extend(map(function, remaining))
        except Exception as raised:
            error = raised
        position = len(results) + len(left_out)
        if position == len(values):
            return results, left_out
        failed(values[position], error)
        left_out.append(position)


def refuse_outputs(outputs: object) -> NoReturn:
    """Raise TypeError for the `outputs` of one record whose class is in NOT_RECORDS."""
    raise TypeError(
        f"the function returned one {type(outputs).__name__}, which would be taken apart into its elements; "
        "yield it, or return [it]"
    )


def as_refusal(error: Exception, outputs: object) -> Exception:
    """`error`; or, where it is only that the `outputs` of a record cannot be iterated, one that says what to do."""
    if outputs is None or hasattr(outputs, "__iter__"):
        return error
    return TypeError(f"the function returned one {type(outputs).__name__}; yield it, or return [it]")


def copy_function(function: Function, operator: OperatorName) -> Function:
    """A copy of a function object for one subtask: several of them live in one process and must not share attributes.

    Raises InvalidError when it cannot be copied.
    """
    try:
        return copy.deepcopy(function)
    except Exception as error:
        raise InvalidError(
            f"the {type(function).__name__} of operator {operator} cannot be copied for its subtasks: {error}",
            remedy="Open connections, locks and files in `open`, not in `__init__`, or define `__deepcopy__`.",
            where=place(operator),
        ) from error
