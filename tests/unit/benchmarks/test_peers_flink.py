"""Flink's jobs give the suite's own answers."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.suite import systems
from benchmarks.suite.contracts import Workload
from benchmarks.suite.measure import Measuring, Plan
from benchmarks.suite.workloads import Data
from tidegate.deploy.dev_kafka import DevKafka
from tidegate.errors import InvalidError, UnavailableError

RECORDS = 20_000


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with DevKafka(tmp_path_factory.mktemp("kafka")) as kafka:
        yield kafka.bootstrap


@pytest.mark.slow
@pytest.mark.timeout(300)  # A JVM that compiles itself warm beside a broker takes its time where others work as well.
@pytest.mark.parametrize("workload", Workload)
def test_flink_puts_out_the_answer_and_ends_by_itself(workload: Workload, tmp_path: Path, bootstrap: str) -> None:
    flink = systems.load("flink")
    try:
        flink.prepare()
    except (InvalidError, UnavailableError) as error:
        pytest.skip(f"no Flink here: {error}")
    measuring = Measuring(bootstrap, tmp_path, None, lambda said: None)
    measured = measuring.measure(flink, Plan(workload, 2, Data(RECORDS)))
    assert measured.records == RECORDS
