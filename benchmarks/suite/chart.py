"""A chart of what was measured, as SVG: for each workload a bar for each system, records a second on the left, records
a CPU second on the right. Legible on light and on dark ground.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

from benchmarks.suite.contracts import Guarantee
from benchmarks.suite.report import TITLES, Best, Row, bests

WIDTH = 900
_LABELS = 200
_PANEL = (WIDTH - _LABELS) // 2
_BAR, _STEP, _GROUP_GAP, _TOP = 14, 20, 34, 30
_VALUE_ROOM = 62
"""For the number behind the longest bar."""
_STYLE = """
  text { font: 12px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #24292f }
  .title { font-weight: 600 }
  .value { font-size: 11px; fill: #57606a }
  .bar { fill: #8c959f }
  .own { fill: #0969da }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 }
    .value { fill: #9198a1 }
    .bar { fill: #6e7681 }
    .own { fill: #4493f8 }
  }
"""


class Bar(NamedTuple):
    label: str
    is_own: bool
    rate: float
    rate_per_cpu: float


def write(path: Path, table: Iterable[Row]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(svg(groups(table)))


def groups(table: Iterable[Row]) -> dict[str, list[Bar]]:
    """By the title of the workload; in each, the best of all numbers of slots."""
    made: dict[str, list[Bar]] = {}
    for (workload, system, guarantee), best in bests(table).items():
        made.setdefault(TITLES[workload], []).append(_bar(system, guarantee, best))
    return made


def _bar(system: str, guarantee: str, best: Best) -> Bar:
    label = best.fastest.title.partition(",")[0]
    label += "" if guarantee == Guarantee.EXACTLY_ONCE else f" ({guarantee})"
    return Bar(label, system.startswith("tidegate"), best.fastest.rate, best.thriftiest.rate_per_cpu)


def svg(of_workloads: dict[str, list[Bar]]) -> str:
    bars = [bar for of_workload in of_workloads.values() for bar in of_workload]
    scales = [
        (_PANEL - _VALUE_ROOM) / max((value(bar) for bar in bars), default=1.0) for value in (_rate, _rate_per_cpu)
    ]
    parts = [_text(_LABELS, 16, "records per second", "title")]
    parts.append(_text(_LABELS + _PANEL, 16, "records per second of CPU time", "title"))
    top = _TOP
    for title, of_workload in of_workloads.items():
        top += _GROUP_GAP
        parts.append(_text(0, top - 12, title, "title"))
        for bar in of_workload:
            parts += _drawn(bar, top, scales)
            top += _STEP
    frame = f'width="{WIDTH}" height="{top + 6}" viewBox="0 0 {WIDTH} {top + 6}"'
    body = "\n".join(parts)
    return f'<svg xmlns="http://www.w3.org/2000/svg" {frame} role="img">\n<style>{_STYLE}</style>\n{body}\n</svg>\n'


def _drawn(bar: Bar, top: int, scales: Sequence[float]) -> list[str]:
    parts = [_text(0, top + 11, bar.label)]
    for index, (value, scale) in enumerate(zip((bar.rate, bar.rate_per_cpu), scales, strict=True)):
        left, length = _LABELS + index * _PANEL, max(1.0, value * scale)
        kind = "bar own" if bar.is_own else "bar"
        parts.append(f'<rect class="{kind}" x="{left}" y="{top}" width="{length:.1f}" height="{_BAR}" rx="2"/>')
        parts.append(_text(left + length + 5, top + 11, _short(value), "value"))
    return parts


def _text(left: float, base: float, text: str, kind: str = "") -> str:
    of_kind = f' class="{kind}"' if kind else ""
    return f'<text{of_kind} x="{left:.1f}" y="{base:.1f}">{escape(text)}</text>'


def _short(value: float) -> str:
    """`1.05 M`, `694 k`, `7.9 k`."""
    if value >= 999_500:
        return f"{value / 1e6:.2f} M"
    return f"{value / 1e3:.0f} k" if value >= 10_000 else f"{value / 1e3:.1f} k"


def _rate(bar: Bar) -> float:
    return bar.rate


def _rate_per_cpu(bar: Bar) -> float:
    return bar.rate_per_cpu
