"""What the status line shows."""

from tests.unit.scheduling.manifests import handle, manifest
from tests.unit.scheduling.programs import JOB, READ, TOTALS, WRITE, task
from tidegate.ids import Attempt, OperatorName
from tidegate.runtime.control import OperatorMetrics, TaskTimes, WorkerMetrics
from tidegate.scheduling.progress import RATE_SECONDS, Progress


def progress() -> Progress:
    return Progress(frozenset({READ}), frozenset({WRITE}))


def metrics(read: int, written: int, skipped: int = 0, subtask: int = 0) -> WorkerMetrics:
    def row(name: OperatorName, taken: int, given: int, left_out: int = 0) -> OperatorMetrics:
        return OperatorMetrics(task(name, subtask), name, taken, given, left_out)

    rows = (row(READ, 0, read), row(TOTALS, read, read, skipped), row(WRITE, written, 0))
    return WorkerMetrics(rows)


def test_only_what_sources_read_and_sinks_write_counts_and_all_that_is_skipped() -> None:
    found = progress()
    found.report(metrics(10, 7, skipped=2), 0.0)
    found.report(metrics(5, 5, subtask=1), 0.0)
    totals = found.totals(0.0)
    assert (totals.records_in, totals.records_out, totals.records_skipped) == (15, 12, 2)


def test_a_report_replaces_the_last_one_so_a_lost_one_does_no_harm() -> None:
    found = progress()
    found.report(metrics(10, 7), 0.0)
    found.report(metrics(30, 20), 2.0)
    assert found.totals(2.0).records_in == 30


def test_a_new_attempt_counts_from_zero_and_totals_go_on() -> None:
    found = progress()
    found.report(metrics(10, 7), 0.0)
    found.attempt_over()
    assert found.totals(1.0).records_in == 10
    found.report(metrics(4, 4), 1.0)
    assert (found.totals(1.0).records_in, found.totals(1.0).records_out, found.restarts) == (14, 11, 1)


def test_rates_are_of_the_last_seconds() -> None:
    found = progress()
    for second in range(11):
        found.report(metrics(second * 100 if second < 8 else 700, second), float(second))
    assert found.totals(10.0).records_in_rate == 0.0 / RATE_SECONDS
    assert found.totals(10.0).records_out_rate == 1.0


def test_without_a_second_moment_there_is_no_rate() -> None:
    found = progress()
    assert found.totals(0.0).records_in_rate == 0.0
    found.report(metrics(10, 7), 5.0)
    assert found.totals(5.0).records_in_rate == 0.0


def test_the_status_names_attempt_phase_restarts_and_the_newest_checkpoint() -> None:
    found = progress()
    assert found.status(JOB, Attempt(1), "running", 0.0).checkpoint is None
    found.attempt_over()
    found.report(metrics(10, 7, skipped=3), 0.0)
    found.completed(manifest(4, handles=[handle(0, 7)]), 10.0)
    status = found.status(JOB, Attempt(2), "running", 12.5)
    assert (status.job, status.attempt, status.state, status.restarts) == (JOB, 2, "running", 1)
    assert status.note == "3 records skipped"
    assert status.checkpoint is not None
    assert (status.checkpoint.id, status.checkpoint.age, status.checkpoint.duration) == (4, 2.5, 0.25)
    assert status.checkpoint.state_bytes == 1


def busy(name: OperatorName, subtask: int, *rates: int) -> TaskTimes:
    return TaskTimes(task(name, subtask), *rates, 0.0, 0.0, 0.0)


def test_what_tasks_do_with_their_time_is_told_by_chain_and_operator() -> None:
    found = progress()
    for subtask, (share, rates) in enumerate([(500, (900, 100, 0)), (250, (100, 600, 300))]):
        rows = (OperatorMetrics(task(TOTALS, subtask), TOTALS, 10, 5, 0, share),)
        found.report(WorkerMetrics(rows, (busy(TOTALS, subtask, *rates),)), 0.0)
    (vertex,) = found.status(JOB, Attempt(1), "running", 0.0).vertices
    assert (vertex.name, vertex.subtasks) == (TOTALS, 2)
    assert (vertex.busy_time_ms_per_second, vertex.idle_time_ms_per_second) == (500, 350)
    assert (vertex.back_pressured_time_ms_per_second, vertex.max_back_pressured_time_ms_per_second) == (150, 300)
    assert vertex.max_busy_time_ms_per_second == 900
    (operator,) = vertex.operators
    assert (operator.records_in, operator.records_out, operator.busy_time_ms_per_second) == (20, 10, round(475 / 2))


def test_what_tasks_of_an_attempt_did_is_not_told_of_the_next() -> None:
    found = progress()
    rows = (OperatorMetrics(task(TOTALS, 0), TOTALS, 10, 5, 0, 500),)
    found.report(WorkerMetrics(rows, (busy(TOTALS, 0, 900, 100, 0),)), 0.0)
    found.attempt_over()
    assert found.status(JOB, Attempt(2), "restarting", 0.0).vertices == ()
