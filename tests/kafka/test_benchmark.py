"""The benchmark measures whole runs on a real Kafka, and only what is right: what fails, or is fast and wrong, is no
result, and what does not end by itself is stopped when its output is complete.
"""

import sys
from pathlib import Path

import pytest

from benchmarks.suite import systems
from benchmarks.suite.checks import WrongResult
from benchmarks.suite.contracts import Command, Guarantee, JobRun, System, Workload
from benchmarks.suite.measure import Measuring, Plan
from benchmarks.suite.systems.bare_loop import BareLoop
from benchmarks.suite.workloads import Data
from tests.kafka.brokers import Broker
from tidegate.errors import UnavailableError

pytestmark = pytest.mark.slow
DATA = Data(records=20_000, users=101)
UNENDING = """
import sys, time
from benchmarks.suite.systems.bare_loop import main
main(*sys.argv[1:])
time.sleep(1_000)
"""


@pytest.fixture
def measuring(kafka: Broker, tmp_path: Path) -> Measuring:
    return Measuring(kafka.bootstrap, tmp_path, None, lambda text: None)


@pytest.mark.parametrize("workload", list(Workload))
@pytest.mark.parametrize("name", ["tidegate", "bare-loop"])
def test_a_right_run_is_measured(measuring: Measuring, name: str, workload: Workload) -> None:
    measured = measuring.measure(systems.load(name), Plan(workload, 1, DATA))
    assert measured.records == 20_000
    assert measured.output_records == (101 if workload is Workload.WINDOWS else 20_000)
    assert 0 < measured.seconds_to_first <= measured.seconds_to_tenth <= measured.seconds_to_last
    assert measured.seconds_to_last <= measured.seconds_to_end
    assert measured.cpu_seconds > 0.1
    assert measured.peak_memory > 10_000_000


def test_tidegate_runs_with_two_workers_and_at_least_once(measuring: Measuring) -> None:
    plan = Plan(Workload.TOTALS, 2, DATA, guarantee=Guarantee.AT_LEAST_ONCE)
    assert measuring.measure(systems.load("tidegate-librdkafka"), plan).output_records == 20_000


class Another(BareLoop):
    """A bare loop with something wrong about it."""

    def __init__(self, workload: Workload | None = None, code: str = "", ends: bool = True) -> None:
        self._workload = workload
        self._code = code
        self._ends = ends

    def command(self, run: JobRun) -> Command:
        arguments, environment, _ = super().command(run._replace(workload=self._workload or run.workload))
        if self._code:
            arguments = [sys.executable, "-c", self._code, *arguments[3:]]
        return Command(arguments, environment, self._ends)


def test_a_wrong_result_is_refused(measuring: Measuring) -> None:
    system: System = Another(Workload.FORWARD)
    with pytest.raises(WrongResult):
        measuring.measure(system, Plan(Workload.TOTALS, 1, DATA))


@pytest.mark.parametrize(("code", "ends"), [(3, True), (3, False), (0, False)])
def test_a_command_that_fails_or_ends_too_early_is_refused_with_what_it_said(
    measuring: Measuring, code: int, ends: bool
) -> None:
    system = Another(code=f"print('so it says'); raise SystemExit({code})", ends=ends)
    with pytest.raises(UnavailableError, match=rf"(?s)ended with {code}.*so it says"):
        measuring.measure(system, Plan(Workload.TOTALS, 1, DATA))


def test_a_command_that_writes_nothing_is_refused(measuring: Measuring) -> None:
    with pytest.raises(UnavailableError, match="written nothing"):
        measuring.measure(Another(code="pass"), Plan(Workload.TOTALS, 1, DATA))


def test_what_does_not_end_by_itself_is_stopped_when_its_output_is_complete(measuring: Measuring) -> None:
    measured = measuring.measure(Another(code=UNENDING, ends=False), Plan(Workload.TOTALS, 1, DATA))
    assert measured.output_records == 20_000
