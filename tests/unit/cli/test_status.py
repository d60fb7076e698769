"""What a running job looks like: the line, the plain log, the JSON log; as text, with a clock that stands still."""

import io
import json

import msgspec
import pytest
from rich.console import Console

from tidegate.cli.status import (
    JsonLines,
    PlainLines,
    StatusLine,
    open_reporter,
    render_changes,
    render_status,
    render_vertices,
)
from tidegate.cli.text import render_age, render_bytes, render_count, render_milliseconds, render_table
from tidegate.clock import Now
from tidegate.ids import Attempt, CheckpointId, JobName, OperatorName, VertexName
from tidegate.metrics import CheckpointStatus, JobStatus, OperatorStatus, Reporter, VertexStatus

RUNNING = JobStatus(JobName("totals"), Attempt(1), "running", 1500, 1400, 250.4, 249.6)


def completed(number: int, status: JobStatus = RUNNING) -> JobStatus:
    return msgspec.structs.replace(status, checkpoint=CheckpointStatus(CheckpointId(number), 2.0, 0.085, 1536))


class StandingClock:
    """Shows the moment that it is set to."""

    def __init__(self) -> None:
        self.moment = Now(100.0, 1_700_000_000.0)

    def now(self) -> Now:
        return self.moment

    def advance(self, seconds: float) -> None:
        self.moment = Now(self.moment.monotonic + seconds, self.moment.wall + seconds)


class Gone(io.StringIO):
    """A stream whose reader has gone away."""

    def write(self, text: str) -> int:
        raise BrokenPipeError


# ---- text ----------------------------------------------------------------------------------------------------------


def test_the_line_shows_what_goes_in_and_out_and_the_newest_checkpoint() -> None:
    assert render_status(RUNNING) == "totals running · in 1500 (250/s) · out 1400 (250/s) · no checkpoint yet"
    assert render_status(completed(7)).endswith(" · checkpoint 7 2s ago in 85ms, 1.5 KiB")


def test_the_line_shows_attempt_restarts_and_note_where_there_are_any() -> None:
    status = msgspec.structs.replace(RUNNING, attempt=Attempt(3), restarts=1, note="waiting 4s before restart 2")
    assert render_status(status).endswith(" · attempt 3 · 1 restart · waiting 4s before restart 2")


def vertex(name: str, busy: int, held: int = 0) -> VertexStatus:
    return VertexStatus(VertexName(name), 1, busy, 1000 - busy - held, held, busy, held, ())


def test_the_line_says_which_operators_are_the_busiest_and_whom_they_hold_back() -> None:
    alone = msgspec.structs.replace(RUNNING, vertices=(vertex("orders", 97),))
    assert render_status(alone).endswith(" · orders 10% busy")
    held = (vertex("orders", 10, 890), vertex("totals", 985), vertex("mail", 0, 20))
    assert render_status(msgspec.structs.replace(RUNNING, vertices=held)).endswith(
        " · totals 98% busy, back-pressured: orders 89%"
    )


def test_the_table_has_each_chain_and_the_operators_in_it() -> None:
    def operator(name: str, busy: int) -> OperatorStatus:
        return OperatorStatus(OperatorName(name), 1000, 900, busy)

    chain = (operator("orders", 100), operator("totals", 600))
    found = msgspec.structs.replace(vertex("orders", 800, 150), operators=chain, max_busy_time_ms_per_second=990)
    alone = msgspec.structs.replace(vertex("mail", 20), operators=(operator("mail", 20),))
    assert render_vertices((found, alone)).splitlines() == [
        "task      subtasks  in    out  busy  busiest  idle  back-pressured",
        "orders    1         1000  900  80%   99%      5%    15%",
        "  orders            1000  900  10%",
        "  totals            1000  900  60%",
        "mail      1         1000  900  2%    2%       98%   0%",
    ]


def test_the_last_line_says_nothing_of_the_last_seconds() -> None:
    done = msgspec.structs.replace(RUNNING, state="done", vertices=(vertex("orders", 97),))
    assert "busy" not in render_status(done)


def test_changes_are_the_state_and_the_restarts_alone() -> None:
    assert render_changes(None, RUNNING) == ["totals running, attempt 1"]
    assert render_changes(RUNNING, completed(3)) == []
    failed = msgspec.structs.replace(RUNNING, state="restarting", note="worker 1 died")
    assert render_changes(RUNNING, failed) == ["totals restarting, attempt 1: worker 1 died"]
    again = msgspec.structs.replace(RUNNING, attempt=Attempt(2), restarts=2)
    assert render_changes(failed, again) == ["totals running, attempt 2", "totals restarted, 2 restarts in all"]


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0"), (9999, "9999"), (12345, "12.3k"), (4_560_000, "4.56M"), (7.25e9, "7.25G")]
)
def test_counts_stay_short(number: float, text: str) -> None:
    assert render_count(number) == text


def test_sizes_ages_and_durations_are_as_exact_as_somebody_wants_them() -> None:
    assert [render_bytes(number) for number in (0, 1536, 3 * 2**20, 5 * 2**30)] == [
        "0 B",
        "1.5 KiB",
        "3.0 MiB",
        "5.0 GiB",
    ]
    assert [render_age(seconds) for seconds in (-1, 0.4, 119, 120, 7200, 172800)] == [
        "0s",
        "0s",
        "119s",
        "2m",
        "2h",
        "2d",
    ]
    assert [render_milliseconds(seconds) for seconds in (0.0854, 12.3456)] == ["85ms", "12.346s"]


def test_a_table_is_as_wide_as_its_cells_and_has_no_blanks_at_the_end() -> None:
    assert render_table(("a", "long"), [("12345", "x"), ("", "yy")]) == "a      long\n12345  x\n       yy"


# ---- plain lines ---------------------------------------------------------------------------------------------------


def test_plain_lines_tell_changes_at_once_and_checkpoints_now_and_then() -> None:
    stream, clock = io.StringIO(), StandingClock()
    reporter = PlainLines(stream, clock)
    reporter.update(RUNNING)
    reporter.update(RUNNING)
    for number in (1, 2, 3):
        reporter.update(completed(number))
        clock.advance(1)
    clock.advance(7)
    reporter.update(completed(3))
    reporter.update(completed(3))
    assert [line.split(" ", 1)[1][:32] for line in stream.getvalue().splitlines()] == [
        "totals running, attempt 1",
        render_status(completed(1))[:32],
        render_status(completed(3))[:32],
    ]
    assert stream.getvalue().startswith("2023-11-14T22:13:20Z totals running")


def test_the_last_plain_line_says_how_much_was_done_however_soon_it_comes() -> None:
    stream = io.StringIO()
    reporter = PlainLines(stream, StandingClock())
    done = msgspec.structs.replace(completed(1), state="done")
    for status in (completed(1), done, done):
        reporter.update(status)
    assert [line.split(" ", 1)[1] for line in stream.getvalue().splitlines()][-2:] == [
        "totals done, attempt 1",
        render_status(done),
    ]


def test_plain_events_show_their_level_and_fields() -> None:
    stream = io.StringIO()
    reporter = PlainLines(stream, StandingClock())
    reporter.event("warning", "worker died", worker=1, signal="SIGKILL")
    reporter.event("info", "restored")
    assert stream.getvalue() == (
        "2023-11-14T22:13:20Z warning: worker died (worker=1, signal=SIGKILL)\n2023-11-14T22:13:20Z restored\n"
    )


# ---- JSON lines ----------------------------------------------------------------------------------------------------


def test_json_lines_are_objects_with_time_level_and_event_first() -> None:
    stream = io.StringIO()
    reporter = JsonLines(stream, StandingClock())
    reporter.event("error", "worker died", worker=1, why=ValueError("x"), event="hidden")
    assert stream.getvalue() == (
        '{"time":"2023-11-14T22:13:20Z","level":"error","event":"worker died","worker":1,"why":"x"}\n'
    )


def test_json_status_comes_at_most_once_a_second_unless_the_state_changes() -> None:
    stream, clock = io.StringIO(), StandingClock()
    reporter = JsonLines(stream, clock)
    reporter.update(RUNNING)
    reporter.update(completed(1))
    reporter.update(msgspec.structs.replace(RUNNING, state="stopping"))
    clock.advance(1)
    reporter.update(completed(2, msgspec.structs.replace(RUNNING, state="stopping")))
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [(line["event"], line["state"]) for line in lines] == [
        ("status", "running"),
        ("status", "stopping"),
        ("status", "stopping"),
    ]
    assert lines[2]["checkpoint"] == {"id": 2, "age": 2.0, "duration": 0.085, "state_bytes": 1536}


# ---- the live line -------------------------------------------------------------------------------------------------


def test_the_live_line_stays_one_line_and_events_stand_above_it() -> None:
    stream = io.StringIO()
    reporter = StatusLine(Console(file=stream, force_terminal=True, width=60, color_system=None))
    reporter.update(RUNNING)
    reporter.event("warning", "worker [1] died", worker=1)
    reporter.update(completed(7))
    reporter.close()
    shown = stream.getvalue()
    assert "worker [1] died (worker=1)" in shown
    last = shown.rsplit("\x1b[2K", 1)[1]
    assert last.startswith("totals running · in 1500 (250/s) · out 1400 (250/s)")
    assert last.split("\n")[0].endswith("…")


# ---- choosing ------------------------------------------------------------------------------------------------------


def test_the_format_and_what_is_behind_the_stream_choose_the_reporter() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    assert isinstance(open_reporter("json", Terminal(), StandingClock()), JsonLines)
    assert isinstance(open_reporter("text", io.StringIO(), StandingClock()), PlainLines)
    live = open_reporter("text", Terminal(), StandingClock())
    assert isinstance(live, StatusLine)
    live.close()


@pytest.mark.parametrize("kind", [PlainLines, JsonLines])
def test_a_reader_that_went_away_does_not_fail_the_job(kind: type[PlainLines] | type[JsonLines]) -> None:
    reporter: Reporter = kind(Gone(), StandingClock())
    reporter.update(RUNNING)
    reporter.event("info", "x")
    reporter.close()
