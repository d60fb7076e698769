"""How a running job looks: one live line on a terminal, plain lines elsewhere, JSON lines for machines.

The functions make text of a status and nothing else; the reporters decide when it is written, always to standard error:
standard output belongs to the program. A reader that has gone away never fails the job.
"""

import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TextIO

import msgspec

from tidegate.cli.text import (
    render_age,
    render_bytes,
    render_count,
    render_fields,
    render_milliseconds,
    render_plural,
    render_table,
    render_time,
)
from tidegate.clock import Clock
from tidegate.ids import CheckpointId
from tidegate.metrics import JobStatus, Level, Reporter, VertexStatus

if TYPE_CHECKING:
    from rich.console import Console

CHECKPOINT_LINE_EVERY = 10.0
"""Seconds between two plain lines about completed checkpoints, at least."""
DONE = "done"
"""The state of a job that has ended: the last line always says how much was done."""
JSON_STATUS_EVERY = 1.0
"""Seconds between two JSON lines with the whole status while its state stays the same, at least."""
HELD_BACK = 100
"""Milliseconds of each second from which on somebody who watches should know that a task is back-pressured."""
_STYLES = {"info": "", "warning": "yellow", "error": "bold red"}

# ---- text ----------------------------------------------------------------------------------------------------------


def render_status(status: JobStatus) -> str:
    """The whole status in one line."""
    parts = [
        f"{status.job} {status.state}",
        f"in {render_count(status.records_in)} ({render_count(status.records_in_rate)}/s)",
        f"out {render_count(status.records_out)} ({render_count(status.records_out_rate)}/s)",
        render_checkpoint(status),
    ]
    parts += [render_busiest(status.vertices)] if status.vertices and status.state != DONE else []
    parts += [f"attempt {status.attempt}"] if status.attempt > 1 else []
    parts += [render_plural(status.restarts, "restart")] if status.restarts else []
    parts += [status.note] if status.note else []
    return " · ".join(parts)


def render_checkpoint(status: JobStatus) -> str:
    """The newest checkpoint in a few words."""
    if status.checkpoint is None:
        return "no checkpoint yet"
    newest = status.checkpoint
    took, size = render_milliseconds(newest.duration), render_bytes(newest.state_bytes)
    return f"checkpoint {newest.id} {render_age(newest.age)} ago in {took}, {size}"


def render_busiest(vertices: Sequence[VertexStatus]) -> str:
    """Where the time goes: the busiest chain of operators, and what it holds back."""
    busiest = max(vertices, key=lambda vertex: vertex.busy_time_ms_per_second)
    held = [vertex for vertex in vertices if vertex.back_pressured_time_ms_per_second >= HELD_BACK]
    text = f"{busiest.name} {render_share(busiest.busy_time_ms_per_second)} busy"
    waiting = [f"{vertex.name} {render_share(vertex.back_pressured_time_ms_per_second)}" for vertex in held]
    return f"{text}, back-pressured: {', '.join(waiting)}" if waiting else text


def render_vertices(vertices: Sequence[VertexStatus]) -> str:
    """A table of what takes the time: each chain of operators, and below it, where there are several, its operators."""
    rows: list[tuple[str, ...]] = []
    for vertex in vertices:
        operators = vertex.operators
        times = (
            render_share(vertex.busy_time_ms_per_second),
            render_share(vertex.max_busy_time_ms_per_second),
            render_share(vertex.idle_time_ms_per_second),
            render_share(vertex.back_pressured_time_ms_per_second),
        )
        counts = (render_count(operators[0].records_in), render_count(operators[-1].records_out))
        rows.append((vertex.name, f"{vertex.subtasks}", *counts, *times))
        for operator in operators if len(operators) > 1 else ():
            moved = (render_count(operator.records_in), render_count(operator.records_out))
            rows.append((f"  {operator.name}", "", *moved, render_share(operator.busy_time_ms_per_second), "", "", ""))
    return render_table(("task", "subtasks", "in", "out", "busy", "busiest", "idle", "back-pressured"), rows)


def render_share(milliseconds: int) -> str:
    """Milliseconds of each second, as a part of it."""
    return f"{milliseconds / 10:.0f}%"


def render_changes(before: JobStatus | None, after: JobStatus) -> list[str]:
    """What a plain log says when a status follows another: changes of state, and restarts with their reason."""
    lines: list[str] = []
    if before is None or after.state != before.state:
        attempt = f", attempt {after.attempt}" if after.attempt else ""
        lines.append(f"{after.job} {after.state}{attempt}{f': {after.note}' if after.note else ''}")
    if before is not None and after.restarts > before.restarts:
        lines.append(f"{after.job} restarted, {render_plural(after.restarts, 'restart')} in all")
    return lines


# ---- reporters -----------------------------------------------------------------------------------------------------


class StatusLine:
    """One line on a terminal that is always current, with events above it. No thread: it is as live as its updates."""

    def __init__(self, console: "Console") -> None:
        from rich.live import Live

        self._console = console
        # What the program prints goes above the line where both are on the terminal, and is left alone elsewhere.
        self._live = Live("", console=console, auto_refresh=False, redirect_stdout=sys.stdout.isatty())
        self._live.start()

    def update(self, status: JobStatus) -> None:
        from rich.text import Text

        with suppress(OSError):
            self._live.update(Text(render_status(status), no_wrap=True, overflow="ellipsis"), refresh=True)

    def event(self, level: Level, text: str, **fields: object) -> None:
        with suppress(OSError):
            self._console.print(text + render_fields(fields), style=_STYLES[level], markup=False, highlight=False)

    def close(self) -> None:
        with suppress(OSError):
            self._live.stop()


class PlainLines:
    """A line with the time when something happened: for files, pipes and supervisors."""

    def __init__(self, stream: TextIO, clock: Clock) -> None:
        self._stream = stream
        self._clock = clock
        self._before: JobStatus | None = None
        self._told: CheckpointId | None = None
        self._told_at = float("-inf")

    def update(self, status: JobStatus) -> None:
        for line in render_changes(self._before, status):
            self._write(line)
        has_ended = status.state == DONE and (self._before is None or self._before.state != DONE)
        self._before = status
        now = self._clock.now().monotonic
        newest = status.checkpoint
        is_new = newest is not None and newest.id != self._told
        if newest is not None and (has_ended or (is_new and now - self._told_at >= CHECKPOINT_LINE_EVERY)):
            self._write(render_status(status))
            self._told, self._told_at = newest.id, now

    def event(self, level: Level, text: str, **fields: object) -> None:
        self._write(f"{'' if level == 'info' else f'{level}: '}{text}{render_fields(fields)}")

    def _write(self, line: str) -> None:
        with suppress(OSError):
            print(f"{render_time(self._clock.now().wall)} {line}", file=self._stream, flush=True)

    def close(self) -> None:
        """Every line was written when it came."""


class JsonLines:
    """One JSON object a line: `time`, `level`, `event`, then what belongs to it; a status has all its fields."""

    def __init__(self, stream: TextIO, clock: Clock) -> None:
        self._stream = stream
        self._clock = clock
        self._written: JobStatus | None = None
        self._written_at = float("-inf")

    def update(self, status: JobStatus) -> None:
        now = self._clock.now().monotonic
        same = self._written is not None and self._written.state == status.state
        if same and now - self._written_at < JSON_STATUS_EVERY:
            return
        self._written, self._written_at = status, now
        self._write("info", "status", msgspec.to_builtins(status))

    def event(self, level: Level, text: str, **fields: object) -> None:
        self._write(level, text, fields)

    def _write(self, level: Level, event: str, fields: dict[str, object]) -> None:
        head = {"time": render_time(self._clock.now().wall), "level": level, "event": event}
        record = {**head, **fields, **head}
        with suppress(OSError):
            print(msgspec.json.encode(record, enc_hook=str).decode(), file=self._stream, flush=True)

    def close(self) -> None:
        """Every line was written when it came."""


def open_reporter(log_format: str, stream: TextIO, clock: Clock) -> Reporter:
    """The reporter for a `log.format` of 'text' or 'json' and what is behind `stream`."""
    if log_format == "json":
        return JsonLines(stream, clock)
    if not stream.isatty():
        return PlainLines(stream, clock)
    from rich.console import Console

    return StatusLine(Console(file=stream))
