"""What the suite chooses for an example, the client and the guarantee, reaches the processes of the job."""

import os
import subprocess
import sys
from importlib.util import cache_from_source
from pathlib import Path

import pytest

from benchmarks.suite import systems
from benchmarks.suite.contracts import Guarantee, JobRun, Workload
from tidegate import ids
from tidegate.errors import InvalidError

SHOW = """
from tidegate.connectors.kafka.connection import DEFAULT_CLIENT
from tidegate.kafka import KafkaSink
print(DEFAULT_CLIENT, KafkaSink("localhost:1", "topic").delivery)
"""


def _run(
    guarantee: Guarantee = Guarantee.EXACTLY_ONCE,
    workload: Workload = Workload.TOTALS,
    partitions: int | None = None,
) -> JobRun:
    return JobRun(workload, "localhost:1", "in", "out", 2, 10, 0.5, guarantee, Path("folder"), partitions)


@pytest.mark.parametrize(
    ("name", "guarantee", "said"),
    [
        ("tidegate-librdkafka", Guarantee.AT_LEAST_ONCE, "librdkafka at-least-once"),
        ("tidegate-batches", Guarantee.EXACTLY_ONCE, "batches exactly-once"),
    ],
)
def test_client_and_guarantee_are_those_that_are_asked_for(name: str, guarantee: Guarantee, said: str) -> None:
    environment = systems.load(name).command(_run(guarantee)).environment
    shown = subprocess.run(
        [sys.executable, "-c", SHOW], env={**os.environ, **environment}, check=True, capture_output=True, text=True
    )
    assert shown.stdout.split("\n")[0] == said


def test_without_a_choice_the_job_runs_as_users_run_it() -> None:
    command = systems.load("tidegate").command(_run())
    assert command.environment == {}
    shown = " ".join(command.arguments)
    assert "examples/running_totals.py --parallelism 2 --checkpoint-interval 0.5s" in shown
    assert shown.endswith("-- --bootstrap localhost:1 --input in --output out --bounded")


def test_what_runs_is_compiled_also_where_python_keeps_no_bytecode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    compiled = Path(cache_from_source(ids.__file__))
    compiled.unlink(missing_ok=True)
    systems.load("tidegate")
    assert compiled.exists()


@pytest.mark.parametrize(
    ("name", "workload", "is_said"),
    [
        ("tidegate", Workload.TOTALS, True),
        ("tidegate", Workload.WINDOWS, True),
        ("tidegate", Workload.FORWARD, False),
        ("tidegate-librdkafka", Workload.TOTALS, True),
        ("tidegate-exchange", Workload.TOTALS, False),
        ("tidegate-exchange", Workload.WINDOWS, False),
    ],
)
def test_the_job_is_told_of_its_partitions_unless_the_exchange_is_measured(
    name: str, workload: Workload, is_said: bool
) -> None:
    system = systems.load(name)
    arguments = list(system.command(_run(workload=workload, partitions=4)).arguments)
    assert (arguments[-2:] == ["--partitions", "4"]) == is_said
    assert "--partitions" not in system.command(_run(workload=workload)).arguments
    assert ("exchange" in system.title) == (name == "tidegate-exchange")


def test_a_name_that_nothing_has_is_refused() -> None:
    with pytest.raises(InvalidError, match="no system is called 'flunk'"):
        systems.load("flunk")
