"""Numbers, times and tables as text for people. Pure functions; what machines read is JSON and is not made here."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from tidegate.config import format_duration


def render_count(number: float) -> str:
    """'0', '950', '12.3k', '4.56M'."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if number >= size:
            return f"{number / (1e3 if unit == 'k' else size):.3g}{unit}"
    return f"{number:.0f}"


def render_bytes(number: int) -> str:
    """'0 B', '1.5 KiB', '3.0 GiB'."""
    for power, unit in ((3, "GiB"), (2, "MiB"), (1, "KiB")):
        if number >= 1024**power:
            return f"{number / 1024**power:.1f} {unit}"
    return f"{number} B"


def render_age(seconds: float) -> str:
    """As exact as somebody wants to know how old a thing is: '4s', '12m', '3h', '9d'."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{seconds // size:.0f}{unit}"
    return f"{max(seconds, 0):.0f}s"


def render_plural(number: int, noun: str) -> str:
    """'1 restart', '2 restarts'."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def render_time(wall: float) -> str:
    """A moment, in UTC, to the second."""
    return datetime.fromtimestamp(wall, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def render_fields(fields: Mapping[str, object]) -> str:
    """' (operator=totals, attempt=2)', or nothing."""
    return f" ({', '.join(f'{name}={value}' for name, value in fields.items())})" if fields else ""


def render_milliseconds(seconds: float) -> str:
    """A duration as measured: '850ms', '12.345s'."""
    return f"{seconds:.3f}s" if seconds >= 1 else format_duration(round(seconds, 3))


def render_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns under their headers, two spaces apart; as wide as it is, so that a pipe gets whole lines."""
    lines = [tuple(headers), *(tuple(row) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = ("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)
    return "\n".join(line.rstrip() for line in padded)
