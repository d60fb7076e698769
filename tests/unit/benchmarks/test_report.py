"""Times of appending make rates; results survive their file; tables and chart say what the results say."""

import xml.etree.ElementTree as ET
from pathlib import Path

import msgspec
import pytest

from benchmarks.suite import chart, report, results
from benchmarks.suite.contracts import Guarantee, Workload
from benchmarks.suite.measure import Measured
from benchmarks.suite.places import ROOT, without_places
from benchmarks.suite.reading import AppendTimes
from benchmarks.suite.results import Machine, Result, Session
from benchmarks.suite.usage import Cores, CpuUse, Sample
from tidegate.errors import CorruptError, InvalidError

SESSION = Session(
    "2026-01-02 03:04 +0000", "python -m x", "abc", Machine("Chip", 2, 8 * 10**9, "Linux", {"Python": "3"})
)


def _measured(rate: float, cpu_seconds: float = 1.0, memory: int = 200_000_000) -> Measured:
    return Measured(
        arguments=[],
        seconds_to_first=1.0,
        seconds_to_tenth=2.0,
        seconds_to_last=2.0 + 900_000 / rate,
        seconds_to_end=4.0 + 900_000 / rate,
        records=1_000_000,
        output_records=1_000_000,
        cpu_seconds=cpu_seconds,
        peak_memory=memory,
        broker_cpu_seconds=None,
        other_cpu_seconds=None,
        cores=Cores(1.2, 0.5, 1.9),
    )


def _result(system: str, slots: int, measured: Measured | None, workload: Workload = Workload.TOTALS) -> Result:
    return Result(
        session=SESSION,
        round=1,
        system=system,
        title=system.title(),
        settings={"tuned": "well"},
        workload=workload,
        slots=slots,
        guarantee=Guarantee.EXACTLY_ONCE,
        checkpoint_seconds=1.0,
        users=10,
        value_bytes=60,
        partitions=4,
        measured=measured,
        error="" if measured else "wrong",
    )


RESULTS = [
    *(_result("flink", 1, _measured(rate, 10.0, 1_000_000_000)) for rate in (100_000, 300_000, 200_000)),
    _result("flink", 2, _measured(150_000, 20.0, 1_000_000_000)),
    _result("tidegate", 1, _measured(400_000, 2.0)),
    _result("tidegate", 2, _measured(600_000, 2.5)),
    _result("tidegate", 2, None),
]


def test_the_time_of_a_share_is_that_of_the_record_with_which_it_is_reached() -> None:
    times = AppendTimes()
    times.add([5_000] * 10 + [3_000])
    times.add([9_000, 4_000, 4_000])
    assert [times.at(share) for share in (0, 0.05, 0.1, 0.22, 0.92, 1)] == [3.0, 3.0, 4.0, 5.0, 5.0, 9.0]
    assert len(times) == 14
    with pytest.raises(InvalidError):
        AppendTimes().at(1)


def test_a_rate_is_of_the_last_nine_tenths() -> None:
    assert _measured(450_000, 4.0).rate == pytest.approx(450_000)
    assert _measured(450_000, 4.0).rate_per_cpu == 250_000


def test_results_survive_their_file(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "results.jsonl"
    for result in RESULTS:
        results.append(path, result)
    assert results.read([path]) == RESULTS
    assert len(path.read_text().splitlines()) == len(RESULTS)


def test_files_that_are_not_there_or_no_results_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidError):
        results.read([tmp_path / "none"])
    (tmp_path / "other").write_text("{}\n")
    with pytest.raises(CorruptError):
        results.read([tmp_path / "other"])


def test_places_of_this_machine_are_in_no_result() -> None:
    text = f"{ROOT}/.venv/bin/python --cache {Path.home()}/cache --log /tmp/run-7/log"
    assert without_places(text, Path("/tmp/run-7")) == "./.venv/bin/python --cache ~/cache --log RUN/log"


def test_rows_are_medians_and_count_what_failed() -> None:
    rows = report.rows(RESULTS)
    assert [(row.system, row.slots, row.rounds, row.failed) for row in rows] == [
        ("flink", 1, 3, 0),
        ("flink", 2, 1, 0),
        ("tidegate", 1, 1, 0),
        ("tidegate", 2, 1, 1),
    ]
    assert rows[0].rate == pytest.approx(200_000)


def test_the_best_of_a_system_may_be_of_different_slots() -> None:
    best = report.bests(report.rows(RESULTS))[Workload.TOTALS, "tidegate", Guarantee.EXACTLY_ONCE]
    assert (best.fastest.slots, best.thriftiest.slots) == (2, 1)


def test_tables_have_rates_and_ratios_to_the_reference() -> None:
    text = report.report(RESULTS)
    assert "| W1 | Flink | exactly once | 200,000 | 1.00 | 100,000 | 1.00 | 1,000 MB | 1.00 |" in text
    cells = ["W1", "Tidegate", "exactly once", "600,000", "3.00", "500,000", "5.00", "200 MB", "0.20"]
    assert f"| {' | '.join(f'**{cell}**' for cell in cells)} |" in text
    cells = [
        "Tidegate",
        "2",
        "exactly once",
        "600,000",
        "400,000",
        "200 MB",
        "1.0 s",
        "3.5 s",
        "1.20 + 0.50 / 1.90",
        "1,000,000",
    ]
    assert f"| {' | '.join(cells)} | 1, 1 failed |" in text
    assert "Chip, 2 cores, 8 GB, Linux" in text
    assert "commit abc" in text


def test_ratios_are_to_whom_is_named_if_it_was_measured() -> None:
    assert "| W1 | Flink | exactly once | 200,000 | 0.33 |" in report.report(RESULTS, "tidegate")
    with pytest.raises(InvalidError, match="quix was not measured"):
        report.report(RESULTS, "quix")
    with pytest.raises(InvalidError):
        report.report([_result("tidegate", 1, None)])


def test_only_what_stands_between_the_marks_is_replaced(tmp_path: Path) -> None:
    document = tmp_path / "document.md"
    document.write_text("# T\n<!-- begin: a -->\nold\n<!-- end: a -->\nrest\n")
    for text in ("first", "second\n"):
        report.write_between(document, "a", text)
    assert document.read_text() == "# T\n<!-- begin: a -->\n\nsecond\n\n<!-- end: a -->\nrest\n"
    with pytest.raises(InvalidError, match="no place for b"):
        report.write_between(document, "b", "text")


def test_the_chart_has_a_bar_for_each_system_as_long_as_its_rate() -> None:
    forwarding = [msgspec.structs.replace(result, workload=Workload.FORWARD) for result in RESULTS]
    svg = ET.fromstring(chart.svg(chart.groups(report.rows(RESULTS + forwarding))))
    bars = list(svg.iter("{http://www.w3.org/2000/svg}rect"))
    texts = [text.text for text in svg.iter("{http://www.w3.org/2000/svg}text")]
    assert len(bars) == 8
    flink, _, tidegate, _ = (float(bar.attrib["width"]) for bar in bars[:4])
    assert tidegate == pytest.approx(3 * flink, abs=0.2)
    assert [text for text in texts if text in ("600 k", "200 k", "500 k", "100 k")] == [
        "200 k",
        "100 k",
        "600 k",
        "500 k",
    ] * 2


def test_busy_cores_are_those_between_two_moments() -> None:
    use = CpuUse()
    for sample in (Sample(10, 0, 5, 100), Sample(12, 2, 6, 104), Sample(16, 10, 6, 112)):
        use.add(sample)
    assert use.between(10.5, 14) == Cores(own=(6 - 0.5) / 3.5, broker=0.75 / 3.5, machine=2.0)
    assert use.between(9, 14) is None
    assert use.between(11, 17) is None
    assert use.between(11, 11.05) is None
