"""What is compared: one program with its parameters each, the same for both systems. Times in milliseconds."""

from dataclasses import dataclass, field

MINUTE = 60_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR

NO_LESS = 2 * DAY
"""No record is so much out of order."""

Value = str | int
LATE_ROW, LATE_REPORT, AT_WATERMARK = "late", "late report", "at the watermark"
"""What a row of a late record begins with: of one that Flink tells of, too; of a version, of which it tells nothing; of
one with the very time of the watermark."""


@dataclass(frozen=True)
class Case:
    """`about` is for the table. Parameters are what the programs of both systems are given, those in windows.py and
    joins.py and those in Java."""

    name: str
    about: str
    program: str
    parameters: dict[str, Value] = field(default_factory=dict)
    explained: str = ""
    """What rows of Tidegate that Flink has not, and that explain a difference, begin with; see comparison.py."""

    @property
    def is_in_time(self) -> bool:
        """Whether no record is late."""
        return self.number("bound") == NO_LESS

    @property
    def needs_1970(self) -> bool:
        """Flink SQL's interval join begins at 1970: what happened before is too old for it from the start."""
        return self.program == "interval-join-sql"

    @property
    def line(self) -> str:
        """As Flink's side reads it."""
        given = {"program": self.program, **self.parameters}
        return "\t".join([self.name, *(f"{name}={value}" for name, value in given.items())])

    def text(self, parameter: str) -> str:
        return str(self.parameters[parameter])

    def number(self, parameter: str) -> int:
        """0 when it is missing."""
        return int(self.parameters.get(parameter, 0))


IN_TIME: dict[str, Value] = {"bound": NO_LESS}
LATE: dict[str, Value] = {"bound": 11 * HOUR}
"""A flight that left in the night, long after its time, comes first of its day: it makes those of the morning late."""
LATENESS: dict[str, Value] = {**LATE, "lateness": 3 * HOUR}


def _windows(name: str, about: str, **parameters: Value) -> Case:
    return Case(name, about, "windows", {"form": "aggregate", **parameters})


_TUMBLING: dict[str, Value] = {"windows": "tumbling", "key": "carrier", "size": HOUR}
_SLIDING: dict[str, Value] = {"windows": "sliding", "key": "origin", "size": 3 * HOUR, "slide": 30 * MINUTE}
_UNEVEN: dict[str, Value] = {"windows": "sliding", "key": "carrier", "size": 5 * HOUR, "slide": 2 * HOUR}
_SESSIONS: dict[str, Value] = {"windows": "session", "key": "route", "gap": 3 * HOUR}

WINDOWS = (
    _windows("tumbling", "carrier, 1 h", **_TUMBLING, **IN_TIME),
    _windows(
        "tumbling-offset",
        "carrier, 6 h, offset 45 min",
        **{**_TUMBLING, "size": 6 * HOUR, "offset": 45 * MINUTE},
        **IN_TIME,
    ),
    _windows("tumbling-reduce", "carrier, 1 h, worst flight", **{**_TUMBLING, "form": "reduce"}, **IN_TIME),
    _windows("tumbling-process", "carrier, 1 h, all flights in order", **{**_TUMBLING, "form": "process"}, **IN_TIME),
    _windows("sliding", "airport, 3 h every 30 min", **_SLIDING, **IN_TIME),
    _windows("sliding-uneven", "carrier, 5 h every 2 h", **_UNEVEN, **IN_TIME),
    _windows(
        "sliding-process", "airport, 3 h every 30 min, all flights", **{**_SLIDING, "form": "process-sorted"}, **IN_TIME
    ),
    _windows("session", "route, gap 3 h", **_SESSIONS, **IN_TIME),
    _windows("session-process", "route, gap 3 h, all flights", **{**_SESSIONS, "form": "process-sorted"}, **IN_TIME),
)
LATE_WINDOWS = (
    _windows("tumbling-late", "carrier, 1 h, late flights", **_TUMBLING, **LATE),
    _windows("tumbling-lateness", "the same, 3 h of lateness", **_TUMBLING, **LATENESS),
    _windows("tumbling-reduce-lateness", "the same, worst flight", **{**_TUMBLING, "form": "reduce"}, **LATENESS),
    _windows(
        "tumbling-process-lateness", "the same, all flights in order", **{**_TUMBLING, "form": "process"}, **LATENESS
    ),
    _windows("sliding-late", "airport, 3 h every 30 min, late flights", **_SLIDING, **LATE),
    _windows("sliding-lateness", "the same, 3 h of lateness", **_SLIDING, **LATENESS),
    _windows("sliding-uneven-lateness", "carrier, 5 h every 2 h, 3 h of lateness", **_UNEVEN, **LATENESS),
    _windows("session-late", "route, gap 3 h, late flights", **_SESSIONS, **LATE),
    _windows("session-lateness", "the same, 3 h of lateness", **_SESSIONS, **LATENESS),
    _windows(
        "session-process-lateness", "the same, all flights", **{**_SESSIONS, "form": "process-sorted"}, **LATENESS
    ),
)
_COUNT: dict[str, Value] = {"trigger": "count", "count": 5}
_PURGING_COUNT: dict[str, Value] = {"trigger": "purging-count", "count": 5}
_EARLY: dict[str, Value] = {"trigger": "early-count", "count": 5}
_PURGING: dict[str, Value] = {"trigger": "purging-event-time"}
TRIGGERS = (
    _windows("trigger-count", "carrier, 1 h, with every fifth flight", **_TUMBLING, **_COUNT, **LATENESS),
    _windows("trigger-count-session", "route, gap 3 h, the same", **_SESSIONS, **_COUNT, **LATENESS),
    _windows(
        "trigger-purging-count", "airport, 3 h every 30 min, of five each", **_SLIDING, **_PURGING_COUNT, **LATENESS
    ),
    _windows("trigger-early", "carrier, 1 h, every fifth and at the end", **_TUMBLING, **_EARLY, **LATENESS),
    _windows("trigger-early-session", "route, gap 3 h, the same", **_SESSIONS, **_EARLY, **LATENESS),
    _windows("trigger-purging", "carrier, 1 h, forgets what it has given", **_TUMBLING, **_PURGING, **LATENESS),
    _windows("trigger-purging-sliding", "airport, 3 h every 30 min, the same", **_SLIDING, **_PURGING, **LATENESS),
    _windows("trigger-purging-session", "route, gap 3 h, the same", **_SESSIONS, **_PURGING, **LATENESS),
    Case("count-windows", "route, seven flights", "count-windows", {"key": "route", "size": 7, **IN_TIME}),
    Case(
        "count-windows-sliding",
        "route, twelve flights, every four",
        "count-windows",
        {"key": "route", "size": 12, "slide": 4, **IN_TIME},
    ),
)
_NEAR: dict[str, Value] = {"lower": -10 * MINUTE, "upper": 0}
"""Reports come every hour: many flights have none, and in the night many reports have no flight."""


def _sql_interval(how: str) -> Case:
    return Case(
        f"interval-{how}",
        "flights, reports of the 10 min before",
        "interval-join-sql",
        {"how": how, **_NEAR, **IN_TIME},
    )


def _temporal(name: str, about: str, **parameters: Value) -> Case:
    return Case(name, about, "temporal-join", {"how": "left", **parameters, **IN_TIME})


INTERVAL_JOINS = (
    Case(
        "interval",
        "flights, reports within 1 h",
        "interval-join",
        {"how": "inner", "lower": -HOUR, "upper": HOUR, **IN_TIME},
    ),
    Case(
        "interval-after",
        "flights, reports 1 to 3 h later",
        "interval-join",
        {"how": "inner", "lower": HOUR, "upper": 3 * HOUR, **IN_TIME},
    ),
    Case(
        "interval-flights",
        "EWR, JFK to one place, -20 to 10 min",
        "rivals",
        {"left": "EWR", "right": "JFK", "lower": -20 * MINUTE, "upper": 10 * MINUTE, **IN_TIME},
    ),
    *map(_sql_interval, ("inner", "left", "right", "full")),
)
TEMPORAL_JOINS = (
    _temporal("temporal-inner", "flights, newest report", how="inner"),
    _temporal("temporal-left", "the same, also flights without one"),
    _temporal("temporal-within", "the same, at most 30 min old", within=30 * MINUTE),
    _temporal("temporal-within-inner", "the same, only flights with one", how="inner", within=30 * MINUTE),
    _temporal("temporal-corrected", "two reports of one time", corrected=3),
    _temporal("temporal-deleted", "reports of a calm end the one before", deleted=8),
)
_HALF_HOUR: dict[str, Value] = {"windows": "tumbling", "size": HOUR // 2}
WINDOW_JOINS = (
    Case(
        "window-join", "flights, reports of the same 30 min", "window-join", {"how": "inner", **_HALF_HOUR, **IN_TIME}
    ),
    Case(
        "window-join-left",
        "the same, also flights without one",
        "window-join",
        {"how": "left", **_HALF_HOUR, **IN_TIME},
    ),
    Case(
        "window-join-right",
        "the same, also reports without one",
        "window-join",
        {"how": "right", **_HALF_HOUR, **IN_TIME},
    ),
    Case("window-join-full", "the same, both", "window-join", {"how": "full", **_HALF_HOUR, **IN_TIME}),
    Case(
        "window-join-sliding",
        "the same 2 h, every 90 min, both",
        "window-join",
        {"how": "full", "windows": "sliding", "size": 2 * HOUR, "slide": 3 * HOUR // 2, **IN_TIME},
    ),
    Case(
        "window-join-session",
        "the same session of 3 min, both",
        "window-join",
        {"how": "full", "windows": "session", "gap": 3 * MINUTE, **IN_TIME},
    ),
)
_BESIDE = 11 * HOUR + 5 * MINUTE
"""With this bound no record has the time of a watermark: what Flink's joins make of such a one is a case of its own."""


def _late_interval(name: str, about: str, explained: str = "", **parameters: Value) -> Case:
    return Case(
        name, about, "interval-join-late", {"how": "inner", "lower": -HOUR, "upper": HOUR, **parameters}, explained
    )


def _late_temporal(name: str, about: str, explained: str = "", **parameters: Value) -> Case:
    return Case(name, about, "temporal-join-late", {"how": "left", "late": "aside", **LATE, **parameters}, explained)


LATE_JOINS = (
    _late_interval("interval-late", "flights, reports within 1 h, late ones", bound=_BESIDE),
    _late_interval("interval-at-watermark", "the same, some at the watermark", AT_WATERMARK, bound=11 * HOUR - 1),
    _late_temporal("temporal-late", "flights, newest report, late ones"),
    _late_temporal("temporal-late-within", "the same, at most 30 min old", within=30 * MINUTE),
    _late_temporal("temporal-late-deleted", "the same, a calm ends the one before", LATE_REPORT, deleted=8),
    _late_temporal("temporal-late-joined", "what Flink makes of late flights", LATE_ROW, late="joined"),
)
GROUPS = {
    "windows": WINDOWS,
    "late windows": LATE_WINDOWS,
    "triggers": TRIGGERS,
    "interval joins": INTERVAL_JOINS,
    "temporal joins": TEMPORAL_JOINS,
    "window joins": WINDOW_JOINS,
    "late joins": LATE_JOINS,
}
CASES = tuple(case for group in GROUPS.values() for case in group)
