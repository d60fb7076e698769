"""Ready operators of keyed streams and their arguments: `deduplicate` and `top_n`. Each becomes one operator, of
`operators/duplicates.py` and `operators/ranking.py`.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from tidegate.api.builder import GraphBuilder
from tidegate.api.functions import SideOutput
from tidegate.api.validation import about, check_function, check_late, check_parallelism, declarations
from tidegate.config.values import parse_positive_duration
from tidegate.errors import InvalidError
from tidegate.event_time.durations import seconds_of
from tidegate.graph.logical import InputEdge, LogicalNode
from tidegate.ids import OperatorName
from tidegate.operators.contracts import Operator
from tidegate.operators.duplicates import (
    PASSED,
    EventTimeDeduplicateOperator,
    ProcessingTimeDeduplicateOperator,
)
from tidegate.operators.ranking import TopNOperator, check_n
from tidegate.operators.timers import EVENT_TIMERS, PROCESSING_TIMERS
from tidegate.state.descriptors import ListState

Duration = str | timedelta


def add_deduplicate(
    builder: GraphBuilder,
    edge: InputEdge,
    name: str,
    within: Duration,
    clock: str,
    allowed_lateness: Duration,
    late: SideOutput[Any] | None,
    parallelism: int | None,
) -> OperatorName:
    """As `KeyedStream.deduplicate`. Raises InvalidError."""
    operator = builder.name("deduplicate", name)
    length = _milliseconds(f"operator {operator}, within", within, parse_positive_duration)
    lateness = _milliseconds(f"operator {operator}, allowed_lateness", allowed_lateness)
    tag = _late_tag(operator, clock, lateness, late)
    is_event = clock == "event"

    def make() -> Operator:
        if is_event:
            return EventTimeDeduplicateOperator(length, lateness, tag)
        return ProcessingTimeDeduplicateOperator(length)

    timers = EVENT_TIMERS if is_event else PROCESSING_TIMERS
    builder.add(
        LogicalNode(
            operator,
            f"deduplicate within {length} ms of {clock} time",
            (edge,),
            check_parallelism(operator, parallelism),
            factory=make,
            keyed=True,
            states=declarations({PASSED.name: PASSED, timers.name: timers}),
            side_outputs=() if tag is None else (tag,),
        )
    )
    return operator


def _late_tag(operator: OperatorName, clock: str, lateness: int, late: object) -> str | None:
    if clock not in ("event", "processing"):
        raise InvalidError(f"operator {operator} has clock={clock!r}", remedy='Give "event" or "processing".')
    if clock == "processing" and (lateness or late is not None):
        raise InvalidError(
            f"operator {operator} deduplicates in processing time, where nothing is late",
            remedy='Leave allowed_lateness and late out, or say clock="event".',
        )
    return check_late(late, f"operator {operator}: ")


def _milliseconds(what: str, duration: object, *parse: Callable[[object], float]) -> int:
    milliseconds = round(seconds_of(what, duration, *parse) * 1000)
    if parse and not milliseconds:
        raise InvalidError(f"{what}: {duration!r} is less than a millisecond", remedy="Give a longer duration.")
    return milliseconds


def add_top_n(
    builder: GraphBuilder,
    edge: InputEdge,
    name: str,
    n: int,
    by: Callable[[Any], Any],
    result: Callable[[Any, list[Any]], Any] | None,
    type: Any,
    parallelism: int | None,
) -> OperatorName:
    """As `KeyedStream.top_n`. Raises InvalidError."""
    operator = builder.name("top_n", name)
    check_n(f"operator {operator}", n)
    check_function(operator, "top_n", by)
    given = _records if result is None else result
    check_function(operator, "top_n", given)
    try:
        state: ListState[Any] = ListState(type, name="ranking")
    except InvalidError as error:
        raise about(operator, error) from error
    builder.add(
        LogicalNode(
            operator,
            f"top {n}",
            (edge,),
            check_parallelism(operator, parallelism),
            factory=lambda: TopNOperator(n, by, given, state),
            keyed=True,
            states=declarations({state.name: state}),
        )
    )
    return operator


def _records(key: Any, records: list[Any]) -> list[Any]:
    return records
