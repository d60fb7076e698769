"""Windows in Tidegate, the twin of those in Java; nothing here knows what the others give."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec

import tidegate as tg
from benchmarks.oracle.cases import Case
from benchmarks.oracle.records import Flight, Row, Stamped, milliseconds, read


class Totals(msgspec.Struct):
    """What a window keeps of its flights."""

    flights: int = 0
    cancelled: int = 0
    delay: int = 0
    """Minutes of all that left."""
    worst: int | None = None

    @property
    def mean(self) -> float | None:
        """None when no flight has left."""
        return None if self.flights == self.cancelled else self.delay / (self.flights - self.cancelled)


LATE = tg.SideOutput[Flight]("late")
KEYS: dict[str, Callable[[Flight], str]] = {
    "carrier": lambda flight: flight.carrier,
    "origin": lambda flight: flight.origin,
    "dest": lambda flight: flight.dest,
    "route": lambda flight: flight.route,
}


def windows(job: tg.Job, case: Case, data: Path) -> tg.Stream[Row]:
    keyed = read(job, case, data, "flights", Flight).key_by(KEYS[case.text("key")], key_type=str)
    lateness = milliseconds(case, "lateness")
    cut = keyed.window(assigner(case), trigger=trigger(case), allowed_lateness=lateness, late=LATE)
    results = FORMS[case.text("form")](cut)
    late = results.side_output(LATE).map(lambda row: ["late", row.at, row.called, row.route], name="late")
    return results.union(late, name="rows-of-both").process(Stamped(), name="stamped")


def assigner(case: Case) -> Any:
    match case.text("windows"):
        case "tumbling":
            return tg.TumblingEventTimeWindows(milliseconds(case, "size"), offset=milliseconds(case, "offset"))
        case "sliding":
            return tg.SlidingEventTimeWindows(milliseconds(case, "size"), milliseconds(case, "slide"))
        case "session":
            return tg.EventTimeSessionWindows(milliseconds(case, "gap"))
    raise ValueError(case.text("windows"))


def trigger(case: Case) -> tg.Trigger | None:
    match case.parameters.get("trigger"):
        case None:
            return None
        case "count":
            return tg.CountTrigger(case.number("count"))
        case "purging-count":
            return tg.PurgingTrigger(tg.CountTrigger(case.number("count")))
        case "early-count":
            return tg.EventTimeTrigger(early=tg.CountTrigger(case.number("count")))
        case "purging-event-time":
            return tg.PurgingTrigger(tg.EventTimeTrigger())
    raise ValueError(case.text("trigger"))


def counted(job: tg.Job, case: Case, data: Path) -> tg.Stream[Row]:
    keyed = read(job, case, data, "flights", Flight).key_by(KEYS[case.text("key")], key_type=str)
    cut = keyed.count_window(case.number("size"), case.number("slide") or None)
    return cut.process(lambda ctx, flights: [["window", ctx.key, names(flights)]], name="windows", type=Flight)


def aggregated(cut: tg.WindowedStream[str, Flight]) -> tg.Stream[Row]:
    return cut.aggregate(TOTALS, told_totals, name="windows")


def reduced(cut: tg.WindowedStream[str, Flight]) -> tg.Stream[Row]:
    return cut.reduce(later, told_flight, name="windows", type=Flight)


def in_order(cut: tg.WindowedStream[str, Flight]) -> tg.Stream[Row]:
    return cut.process(lambda ctx, flights: [[*bounds(ctx), names(flights)]], name="windows", type=Flight)


def in_any_order(cut: tg.WindowedStream[str, Flight]) -> tg.Stream[Row]:
    """Windows that share pieces, or have grown together, have their flights piece by piece."""

    def told(ctx: Any, flights: list[Flight]) -> list[Row]:
        return [[*bounds(ctx), names(sorted(flights, key=lambda flight: flight.called))]]

    return cut.process(told, name="windows", type=Flight)


FORMS: dict[str, Callable[[tg.WindowedStream[str, Flight]], tg.Stream[Row]]] = {
    "aggregate": aggregated,
    "reduce": reduced,
    "process": in_order,
    "process-sorted": in_any_order,
}


def added(totals: Totals, flight: Flight) -> Totals:
    totals.flights += 1
    if flight.delay is None:
        totals.cancelled += 1
    else:
        totals.delay += flight.delay
        totals.worst = flight.delay if totals.worst is None else max(totals.worst, flight.delay)
    return totals


def merged(one: Totals, other: Totals) -> Totals:
    worst = [worst for worst in (one.worst, other.worst) if worst is not None]
    flights, cancelled = one.flights + other.flights, one.cancelled + other.cancelled
    return Totals(flights, cancelled, one.delay + other.delay, max(worst, default=None))


TOTALS: tg.Aggregate[Flight, Totals, Totals] = tg.Aggregate(
    type=Totals, create=Totals, add=added, merge=merged, result=lambda totals: totals
)


def told_totals(key: str, window: tg.TimeWindow, totals: Totals) -> Row:
    counted = [totals.flights, totals.cancelled, totals.delay, totals.worst, totals.mean]
    return ["window", key, window.start, window.end, *counted]


def later(one: Flight, other: Flight) -> Flight:
    """The flight that left with the larger delay; of two with the same the first."""
    delays = [float("-inf") if flight.delay is None else flight.delay for flight in (one, other)]
    return other if delays[1] > delays[0] else one


def told_flight(key: str, window: tg.TimeWindow, flight: Flight) -> Row:
    return ["window", key, window.start, window.end, flight.called, flight.at, flight.delay]


def bounds(ctx: Any) -> Row:
    return ["window", ctx.key, ctx.window.start, ctx.window.end]


def names(flights: Iterable[Flight]) -> str:
    return " ".join(flight.called for flight in flights)
