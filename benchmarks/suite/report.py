"""Tables of what was measured, in Markdown: the median of all rounds, and ratios to a system that is named. They stand
in a document between two marks, and are made anew from the files of results alone.
"""

import statistics
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from benchmarks.suite.contracts import Workload
from benchmarks.suite.measure import Measured
from benchmarks.suite.results import Result
from benchmarks.suite.usage import Cores
from tidegate.errors import InvalidError

TITLES = {
    Workload.FORWARD: "W0, forwarding",
    Workload.TOTALS: "W1, running totals",
    Workload.WINDOWS: "W2, totals of windows",
}
REFERENCES = ("flink", "bare-loop")
"""Ratios are to the first of these that was measured, if nobody names another one."""
_MEGABYTE = 1_000_000


class Row(NamedTuple):
    """Medians of one kind of run."""

    workload: Workload
    system: str
    title: str
    slots: int
    guarantee: str
    rounds: int
    failed: int
    records: int
    """Of the input."""
    rate: float
    rate_per_cpu: float
    peak_memory: float
    seconds_to_first: float
    seconds_to_last: float
    cores: Cores | None


def rows(results: Iterable[Result]) -> list[Row]:
    """In the order of workloads, and within each in that of the first results. Kinds that always failed are left
    out."""
    kinds: dict[tuple[str, str, int, str], list[Result]] = {}
    for result in results:
        kinds.setdefault((result.workload, result.system, result.slots, result.guarantee), []).append(result)
    made = [_row(of_kind) for of_kind in kinds.values() if any(result.measured for result in of_kind)]
    return sorted(made, key=lambda row: row.workload)


def _row(results: Sequence[Result]) -> Row:
    first = results[0]
    runs = [result.measured for result in results if result.measured is not None]

    def median(value: Callable[[Measured], float]) -> float:
        return statistics.median(map(value, runs))

    return Row(
        workload=first.workload,
        system=first.system,
        title=first.title,
        slots=first.slots,
        guarantee=first.guarantee,
        rounds=len(runs),
        failed=len(results) - len(runs),
        records=max(run.records for run in runs),
        rate=median(lambda run: run.rate),
        rate_per_cpu=median(lambda run: run.rate_per_cpu),
        peak_memory=median(lambda run: run.peak_memory),
        seconds_to_first=median(lambda run: run.seconds_to_first),
        seconds_to_last=median(lambda run: run.seconds_to_last),
        cores=_median_cores([run.cores for run in runs if run.cores is not None]),
    )


def _median_cores(cores: Sequence[Cores]) -> Cores | None:
    columns = zip(*map(msgspec.structs.astuple, cores), strict=True)
    return Cores(*map(statistics.median, columns)) if cores else None


class Best(NamedTuple):
    """Of one system and workload, over all numbers of slots and guarantees: the fastest kind, and what needs least CPU
    time, which may be another one."""

    fastest: Row
    thriftiest: Row


def bests(table: Iterable[Row]) -> dict[tuple[Workload, str, str], Best]:
    """By workload, system and guarantee."""
    kinds: dict[tuple[Workload, str, str], list[Row]] = {}
    for row in table:
        kinds.setdefault((row.workload, row.system, row.guarantee), []).append(row)
    return {
        kind: Best(max(of_kind, key=lambda row: row.rate), max(of_kind, key=lambda row: row.rate_per_cpu))
        for kind, of_kind in kinds.items()
    }


def reference_of(table: Sequence[Row], named: str | None = None) -> str:
    """Raises InvalidError when the one that is named was not measured, or there is none."""
    measured = [row.system for row in table]
    found = [name for name in ([named] if named else [*REFERENCES, *measured]) if name in measured]
    if not found:
        raise InvalidError(f"{named or 'nothing'} was not measured", remedy=f"There are {', '.join(measured)}.")
    return found[0]


# ---- text ----------------------------------------------------------------------------------------------------------


def report(results: Sequence[Result], named: str | None = None) -> str:
    """All tables. Raises InvalidError when nothing was measured."""
    table = rows(results)
    reference = reference_of(table, named)
    title = next(row.title for row in table if row.system == reference)
    parts = [_where(result) for result in _first_of_sessions(results)]
    parts += [f"Best of all numbers of slots. Ratios are to {title}.\n\n{_summary(table, reference)}"]
    for workload in dict.fromkeys(row.workload for row in table):
        of_workload = [row for row in table if row.workload is workload]
        parts.append(f"**{TITLES[workload]}**, with the median of all rounds:\n\n{_details(of_workload)}")
    parts.append(_settings(results))
    return "\n\n".join(parts)


def _summary(table: Sequence[Row], reference: str) -> str:
    best = bests(table)
    lines = ["workload | system | guarantee | records/s | ratio | records per CPU second | ratio | peak memory | ratio"]
    lines.append("---|---|---|---:|---:|---:|---:|---:|---:")
    for (workload, system, guarantee), own in best.items():
        theirs = next((one for (of, who, _), one in best.items() if (of, who) == (workload, reference)), None)
        cells = [workload, own.fastest.title, guarantee]
        cells += [_rate(own.fastest.rate), _ratio(own, theirs, lambda one: one.fastest.rate)]
        cells += [_rate(own.thriftiest.rate_per_cpu), _ratio(own, theirs, lambda one: one.thriftiest.rate_per_cpu)]
        cells += [_megabytes(own.fastest.peak_memory), _ratio(own, theirs, lambda one: one.fastest.peak_memory)]
        lines.append(" | ".join(f"**{cell}**" if system == "tidegate" else cell for cell in cells))
    return _framed(lines)


def _details(table: Sequence[Row]) -> str:
    head = ["system", "slots", "guarantee", "records/s", "per CPU second", "peak memory", "first output", "last output"]
    head += ["cores: own + broker / all", "records", "runs"]
    lines = [" | ".join(head), "---|---:|---|---:|---:|---:|---:|---:|---:|---:|---:"]
    for row in table:
        runs = f"{row.rounds}, {row.failed} failed" if row.failed else f"{row.rounds}"
        cells = [row.title, str(row.slots), row.guarantee, _rate(row.rate), _rate(row.rate_per_cpu)]
        cells += [_megabytes(row.peak_memory), f"{row.seconds_to_first:.1f} s", f"{row.seconds_to_last:.1f} s"]
        lines.append(" | ".join([*cells, _cores(row.cores), f"{row.records:,}", runs]))
    return _framed(lines)


def _framed(lines: Iterable[str]) -> str:
    return "\n".join(f"|{line}|" if line.startswith("---") else f"| {line} |" for line in lines)


def _ratio(own: Best, theirs: Best | None, value: Callable[[Best], float]) -> str:
    return "" if theirs is None or not value(theirs) else f"{value(own) / value(theirs):.2f}"


def _rate(value: float) -> str:
    """Three digits count: one run and the next differ by more."""
    digits = len(str(int(value)))
    return f"{round(value, 3 - digits):,.0f}"


def _cores(cores: Cores | None) -> str:
    return "" if cores is None else f"{cores.own:.2f} + {cores.broker:.2f} / {cores.machine:.2f}"


def _megabytes(value: float) -> str:
    return f"{value / _MEGABYTE:,.0f} MB"


def _first_of_sessions(results: Iterable[Result]) -> list[Result]:
    firsts: dict[str, Result] = {}
    for result in results:
        firsts.setdefault(result.session.began, result)
    return list(firsts.values())


def _where(result: Result) -> str:
    session, machine = result.session, result.session.machine
    versions = ", ".join(f"{name} {version}" for name, version in machine.versions.items())
    where = f"{machine.processor}, {machine.cores} cores, {machine.memory / 1e9:.0f} GB, {machine.system}"
    what = f"keys: {result.users:,}, bytes of a value: {result.value_bytes:,}, partitions: {result.partitions}"
    return (
        f"{session.began}, commit {session.commit}, {where}; {versions}; {what}, a checkpoint each "
        f"{result.checkpoint_seconds:g} s.\n\n```sh\n{session.command}\n```"
    )


def _settings(results: Iterable[Result]) -> str:
    systems = {result.title: result.settings for result in results}
    lines = [
        f"* {title}: {', '.join(f'{name} {value}' for name, value in of.items())}" for title, of in systems.items()
    ]
    return "\n".join(lines)


# ---- documents -----------------------------------------------------------------------------------------------------


def write_between(path: Path, name: str, text: str) -> None:
    """Replace what stands between the marks of `name` in a document. Raises InvalidError when it has none."""
    begin, end = f"<!-- begin: {name} -->", f"<!-- end: {name} -->"
    before, found, rest = path.read_text().partition(begin)
    _, also_found, after = rest.partition(end)
    if not (found and also_found):
        raise InvalidError(f"{path} has no place for {name}", remedy=f"Write {begin} and {end} where it belongs.")
    path.write_text(f"{before}{begin}\n\n{text.strip()}\n\n{end}{after}")
