"""Joins of two keyed streams in event time: `orders.key_by(...).temporal_join(prices.key_by(...), ...)`.

What a program says here becomes one operator of two inputs, of `operators/joins`. State whose rows would mean something
else with other arguments says so in its name, so that a checkpoint with it is refused and not misread.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

from tidegate.api.builder import GraphBuilder
from tidegate.api.functions import SideOutput
from tidegate.api.join_calls import Duration, JoinCall, Stored, signed_duration
from tidegate.api.validation import check_function
from tidegate.api.windowing import check_windows
from tidegate.errors import InvalidError
from tidegate.event_time.windows import SessionWindows, WindowAssigner, domain_of
from tidegate.graph.logical import InputEdge
from tidegate.ids import OperatorName
from tidegate.operators.joins.interval import IntervalJoinOperator, Matched
from tidegate.operators.joins.temporal import TemporalJoinOperator
from tidegate.operators.joins.windowed import window_join_spec
from tidegate.operators.timers import EVENT_TIMERS
from tidegate.operators.windows import window_operator, window_states
from tidegate.state.descriptors import StateDescriptor

if TYPE_CHECKING:
    from tidegate.api.stream import Stream

T = TypeVar("T")
Key = TypeVar("Key")
Other = TypeVar("Other")
Result = TypeVar("Result")
Kind = Literal["inner", "left", "right", "full"]
ALL_KINDS = ("inner", "left", "right", "full")
LEFT_KINDS = ("inner", "left")


class KeyedJoins(Generic[Key, T]):
    """The joins that a keyed stream has with another one whose keys are of the same type."""

    _builder: GraphBuilder
    _behind: "Callable[[OperatorName], Stream[Any]]"

    def _inputs_with(self, other: "KeyedJoins[Any, Any]") -> tuple[InputEdge, InputEdge]:
        """The inputs of an operator that has this stream's records and those of `other`. Raises InvalidError when it
        cannot have both."""
        raise NotImplementedError

    @overload
    def temporal_join(
        self,
        versions: "KeyedJoins[Key, Other]",
        function: Callable[[T, Other], Result],
        *,
        name: str,
        types: tuple[Stored[T], Stored[Other]],
        how: Literal["inner"] = "inner",
        within: Duration | None = None,
        deleted: Callable[[Other], bool] | None = None,
        late: SideOutput[Any] | None = None,
        parallelism: int | None = None,
    ) -> "Stream[Result]": ...
    @overload
    def temporal_join(
        self,
        versions: "KeyedJoins[Key, Other]",
        function: Callable[[T, Other | None], Result],
        *,
        name: str,
        types: tuple[Stored[T], Stored[Other]],
        how: Literal["left"],
        within: Duration | None = None,
        deleted: Callable[[Other], bool] | None = None,
        late: SideOutput[Any] | None = None,
        parallelism: int | None = None,
    ) -> "Stream[Result]": ...
    def temporal_join(
        self,
        versions: "KeyedJoins[Key, Other]",
        function: Callable[[T, Any], Result],
        *,
        name: str,
        types: tuple[Stored[T], Stored[Other]],
        how: Literal["inner", "left"] = "inner",
        within: Duration | None = None,
        deleted: Callable[[Other], bool] | None = None,
        late: SideOutput[Any] | None = None,
        parallelism: int | None = None,
    ) -> "Stream[Result]":
        """Each record with the version of its key that held at its time: the newest record of `versions` that is not
        newer than it, and at most `within` older. `function(record, version)` makes the result, which has the record's
        timestamp; with `how="left"`, `function(record, None)` where no version held.

        A record waits until the watermark has passed it. Of versions with the same timestamp the one that came last
        holds. A version for which `deleted(version)` is true is none, and ends the one before it.

        The state of a key are the records and versions that are newer than the watermark, and the newest other version,
        which is removed when it is `within` older than the watermark or says that there is none. Without `within` it
        stays, also at the end of the input.

        A record that is late, and a version that comes so late that a newer one holds already, goes to the side output
        `late`, or is counted as skipped. Other versions that come late hold for what is not decided yet.
        """
        join = JoinCall("temporal_join", (self, versions), name, function, how, types, late, parallelism)
        join.check(LEFT_KINDS)
        if deleted is not None:
            check_function(join.operator, "deleted", deleted)
        limit = None if within is None else join.milliseconds("within", within)
        left = join.rows(".left", 0)
        right = join.rows(".versions" if limit is None else f".versions-within-{limit}", 1)
        spec = join.spec
        return join.add((left, right, EVENT_TIMERS), lambda: TemporalJoinOperator(spec, left, right, limit, deleted))

    @overload
    def interval_join(
        self,
        right: "KeyedJoins[Key, Other]",
        function: Callable[[T, Other], Result],
        *,
        lower: Duration,
        upper: Duration,
        name: str,
        types: tuple[Stored[T], Stored[Other]],
        how: Literal["inner"] = "inner",
        late: SideOutput[Any] | None = None,
        parallelism: int | None = None,
    ) -> "Stream[Result]": ...
    @overload
    def interval_join(
        self,
        right: "KeyedJoins[Key, Other]",
        function: Callable[[T, Other | None], Result],
        *,
        lower: Duration,
        upper: Duration,
        name: str,
        types: tuple[Stored[T], Stored[Other]],
        how: Literal["left"],
        late: SideOutput[Any] | None = None,
        parallelism: int | None = None,
    ) -> "Stream[Result]": ...
    @overload
    def interval_join(
        self,
        right: "KeyedJoins[Key, Other]",
        function: Callable[[T | None, Other], Result],
        *,
        lower: Duration,
        upper: Duration,
        name: str,
        types: tuple[Stored[T], Stored[Other]],
        how: Literal["right"],
        late: SideOutput[Any] | None = None,
        parallelism: int | None = None,
    ) -> "Stream[Result]": ...
    @overload
    def interval_join(
        self,
        right: "KeyedJoins[Key, Other]",
        function: Callable[[T | None, Other | None], Result],
        *,
        lower: Duration,
        upper: Duration,
        name: str,
        types: tuple[Stored[T], Stored[Other]],
        how: Literal["full"],
        late: SideOutput[Any] | None = None,
        parallelism: int | None = None,
    ) -> "Stream[Result]": ...
    def interval_join(
        self,
        right: "KeyedJoins[Key, Other]",
        function: Callable[[Any, Any], Result],
        *,
        lower: Duration,
        upper: Duration,
        name: str,
        types: tuple[Stored[T], Stored[Other]],
        how: Kind = "inner",
        late: SideOutput[Any] | None = None,
        parallelism: int | None = None,
    ) -> "Stream[Result]":
        """Each record with every record of `right` of the same key whose timestamp is from `lower` to `upper` after its
        own, both included; `lower="-5s"` begins before it. `function(left, right)` makes the result of each pair at
        once; it has the later of the two timestamps.

        With `how` "left", "right" or "full" a record of that side, or of both, that has no match is given with None,
        when the watermark says that none can come: its result has the time at which that is so, or its own where that
        is later.

        The state of a key are the records that something newer than the watermark may still match: left ones until the
        watermark has come to their timestamp and `upper`, right ones until it has come to theirs less `lower`.

        A record that is late is not joined. It goes to the side output `late`, or is counted as skipped.
        """
        join = JoinCall("interval_join", (self, right), name, function, how, types, late, parallelism)
        join.check(ALL_KINDS)
        first, last = (
            join.milliseconds("lower", lower, signed_duration),
            join.milliseconds("upper", upper, signed_duration),
        )
        if first > last:
            raise InvalidError(
                f"operator {join.operator}: lower={lower!r} is above upper={upper!r}",
                remedy="Give the earlier bound as lower: what is before the left record is negative.",
            )
        spec, suffix = join.spec, f"{how}-{first}-to-{last}"
        rows = join.rows(f".left-{suffix}", 0), join.rows(f".right-{suffix}", 1)
        names = f".left-matched-{suffix}", f".right-matched-{suffix}"
        matched = [
            Matched(int, bool, name=state) if kept else None for state, kept in zip(names, spec.keeps, strict=True)
        ]
        states: list[StateDescriptor[Any]] = [EVENT_TIMERS, *rows, *(state for state in matched if state is not None)]
        return join.add(states, lambda: IntervalJoinOperator(spec, first, last, rows, matched))

    @overload
    def window_join(
        self,
        right: "KeyedJoins[Key, Other]",
        assigner: WindowAssigner | SessionWindows,
        function: Callable[[T, Other], Result],
        *,
        name: str,
        types: tuple[Stored[T], Stored[Other]],
        how: Literal["inner"] = "inner",
        allowed_lateness: Duration = "0",
        late: SideOutput[Any] | None = None,
        parallelism: int | None = None,
    ) -> "Stream[Result]": ...
    @overload
    def window_join(
        self,
        right: "KeyedJoins[Key, Other]",
        assigner: WindowAssigner | SessionWindows,
        function: Callable[[T, Other | None], Result],
        *,
        name: str,
        types: tuple[Stored[T], Stored[Other]],
        how: Literal["left"],
        allowed_lateness: Duration = "0",
        late: SideOutput[Any] | None = None,
        parallelism: int | None = None,
    ) -> "Stream[Result]": ...
    @overload
    def window_join(
        self,
        right: "KeyedJoins[Key, Other]",
        assigner: WindowAssigner | SessionWindows,
        function: Callable[[T | None, Other], Result],
        *,
        name: str,
        types: tuple[Stored[T], Stored[Other]],
        how: Literal["right"],
        allowed_lateness: Duration = "0",
        late: SideOutput[Any] | None = None,
        parallelism: int | None = None,
    ) -> "Stream[Result]": ...
    @overload
    def window_join(
        self,
        right: "KeyedJoins[Key, Other]",
        assigner: WindowAssigner | SessionWindows,
        function: Callable[[T | None, Other | None], Result],
        *,
        name: str,
        types: tuple[Stored[T], Stored[Other]],
        how: Literal["full"],
        allowed_lateness: Duration = "0",
        late: SideOutput[Any] | None = None,
        parallelism: int | None = None,
    ) -> "Stream[Result]": ...
    def window_join(
        self,
        right: "KeyedJoins[Key, Other]",
        assigner: WindowAssigner | SessionWindows,
        function: Callable[[Any, Any], Result],
        *,
        name: str,
        types: tuple[Stored[T], Stored[Other]],
        how: Kind = "inner",
        allowed_lateness: Duration = "0",
        late: SideOutput[Any] | None = None,
        parallelism: int | None = None,
    ) -> "Stream[Result]":
        """Each record with every record of `right` of the same key in the same window. `function(left, right)` makes
        the result of each pair when the window is complete; it has the window's newest possible timestamp.

        With `how` "left", "right" or "full" a record of that side, or of both, in whose window the other side has none
        is given with None. A window that is complete takes records for `allowed_lateness` more, and gives all of its
        pairs anew with each.

        The state of a key are the records of windows that still take some. They are kept once, also in windows that
        overlap; those of one side and window, or of a piece that windows share, in one value.

        A record that is too late for all of its windows goes to the side output `late`, or is counted as skipped.
        """
        join = JoinCall("window_join", (self, right), name, function, how, types, late, parallelism)
        join.check(ALL_KINDS)
        lateness = check_windows(assigner, allowed_lateness, late)
        if domain_of(assigner) == "none":
            raise InvalidError(
                f"operator {join.operator}: {assigner} are never complete, so that nothing would be joined",
                remedy='Give windows of time, as TumblingEventTimeWindows("60s") are.',
            )
        spec = window_join_spec(join.spec, *join.windows(assigner), lateness)
        states = window_states(assigner, spec).values()
        return join.add(states, lambda: window_operator(assigner, spec), f"over {assigner}")
