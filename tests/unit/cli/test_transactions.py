"""`tidegate transactions` finds what a job left open by its log alone, and ends it when nothing is lost or doubled by
that."""

import json
import re
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Run
from tests.unit.cli.stored_job import StoredJob
from tidegate.checkpoint.log import CleanStop
from tidegate.checkpoint.manifest import SinkRecord, SinkTarget
from tidegate.checkpoint.protocol import Committable
from tidegate.connectors.local.log import LocalLog
from tidegate.connectors.local.sink import LocalSink
from tidegate.elements import Batch
from tidegate.ids import Attempt, CheckpointId, JobName, OperatorName, SubtaskIndex, TransactionalId
from tidegate.operators.contracts import SinkContext

OUT = OperatorName("out")
LEFT = "totals:log-1:1:out:0:7"
DUE = "totals:log-1:2:out:0:0"
OPEN = "totals:log-1:2:out:0:1"
FOREIGN = "totals:x:9:out:0:0"


class Job:
    """A job in attempt 2 with a sink on an embedded log."""

    def __init__(self, folder: Path) -> None:
        self.topics = folder / "topics"
        with LocalLog(self.topics) as log:
            log.create_topic("results", 1)
        sink = LocalSink(self.topics, "results")
        context = SinkContext(JobName("totals"), OUT, SubtaskIndex(0), 1, Attempt(1))
        self._writer = sink.open_writer(context)
        self.record = SinkRecord("totals", sink.recovery_spec)
        self.stored = StoredJob(folder / "flows", "totals")

    def write(self, name: str) -> Committable:
        """A transaction that is prepared under the id `name`, with its name as the only record."""
        id = TransactionalId.parse(name)
        assert id is not None
        txn = self._writer.begin(id)
        self._writer.write(txn, Batch([name.encode()]))
        prepared = self._writer.prepare(txn)
        assert prepared is not None
        return prepared

    def open_ids(self) -> list[str]:
        with LocalLog(self.topics) as log:
            return [one.id for one in log.list_transactions(ongoing_only=True)]

    def visible(self) -> list[str]:
        with LocalLog(self.topics) as log:
            found = [record.value for record in log.read("results", 0)]
        return sorted(value.decode() for value in found if value is not None)

    def abort(self, name: str) -> None:
        with LocalLog(self.topics) as log:
            log.abort_transaction(name)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """Checkpoint 1 of attempt 2 names DUE; LEFT is of attempt 1, OPEN of attempt 2, FOREIGN of another log."""
    made = Job(tmp_path)
    made.stored.begin()
    made.stored.take_over(SinkTarget(OUT, made.record))
    made.write(LEFT)
    due = made.write(DUE)
    made.write(OPEN)
    made.write(FOREIGN)
    made.stored.complete(1, prepared=[due], sink=made.record)
    return made


# ---- list ------------------------------------------------------------------------------------------------------------


def test_list_shows_what_is_open_and_to_which_checkpoint_it_belongs(run: Run, job: Job) -> None:
    ran = run("transactions", "list", "flows")
    assert (ran.exit_code, ran.errors) == (0, "")
    headline, _, table = ran.output.partition("\n")
    assert headline == f"job totals in {job.stored.job_folder}, attempt 2, checkpoint 1"
    rows = [re.split(r"  +", line) for line in table.splitlines()]
    assert rows[0] == ["id", "state", "age", "partitions", "belongs to"]
    assert {row[0]: row[4] for row in rows[1:]} == {
        LEFT: "no checkpoint: left over from attempt 1",
        DUE: "checkpoint 1, commit is due",
        OPEN: "no checkpoint: open now, or left over",
        FOREIGN: "no checkpoint: of another log, x",
    }
    assert {(row[1], row[3]) for row in rows[1:]} == {("Ongoing", "results/0")}
    assert all(re.fullmatch(r"\d+s of 15m", row[2]) for row in rows[1:])


def test_list_shows_what_is_due_and_not_open_any_more(run: Run, job: Job) -> None:
    job.abort(DUE)
    [line] = [line for line in run("transactions", "list", "flows").output.splitlines() if line.startswith(DUE)]
    assert "CompleteAbort" in line
    assert line.endswith("checkpoint 1, not open any more")


def test_nothing_is_due_when_the_log_says_that_all_is_committed(run: Run, job: Job) -> None:
    run("transactions", "commit", DUE, "flows")
    job.stored.append(CleanStop(CheckpointId(1)))
    assert DUE not in run("transactions", "list", "flows").output


def test_list_works_before_the_first_checkpoint_by_what_the_attempt_said_of_its_sinks(run: Run, tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.stored.begin(SinkTarget(OUT, job.record))
    job.write("totals:log-1:1:out:0:0")
    ran = run("transactions", "list", "flows")
    assert "attempt 1, no completed checkpoint yet" in ran.output
    assert "totals:log-1:1:out:0:0" in ran.output


def test_list_says_so_when_there_is_nothing(run: Run, tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.stored.begin()
    assert "the log names no sink" in run("transactions", "list", "flows").output
    job.stored.take_over(SinkTarget(OUT, job.record))
    assert "no open transactions" in run("transactions", "list", "flows").output


def test_list_for_machines_has_the_same_rows(run: Run, job: Job) -> None:
    listed = json.loads(run("transactions", "list", "flows", "--json").output)
    rows = {row["id"]: row for row in listed["transactions"]}
    assert set(rows) == {LEFT, DUE, OPEN, FOREIGN}
    assert (rows[DUE]["checkpoint"], rows[DUE]["sink"], rows[DUE]["timeout"]) == (1, "out", 900.0)
    assert rows[OPEN]["checkpoint"] is None
    assert rows[FOREIGN]["attempt"] == 9


def test_a_sinks_system_that_is_gone_is_an_error_that_names_it(run: Run, job: Job) -> None:
    (job.topics / "log.sqlite").unlink()
    ran = run("transactions", "list", "flows")
    assert ran.exit_code == 2
    assert str(job.topics) in ran.errors


# ---- describe --------------------------------------------------------------------------------------------------------


def test_describe_tells_all_that_is_known(run: Run, job: Job) -> None:
    lines = dict(re.split(r"  +", line) for line in run("transactions", "describe", DUE, "flows").output.splitlines())
    assert (lines["state"], lines["sink"], lines["attempt"]) == ("Ongoing", "out, subtask 0", "2 of log log-1")
    assert (lines["partitions"], lines["belongs to"]) == ("results/0", "checkpoint 1, commit is due")
    assert json.loads(run("transactions", "describe", DUE, "flows", "--json").output)["id"] == DUE


@pytest.mark.parametrize(
    ("id", "said"),
    [
        ("totals:log-1:2:out:0:99", "knows no transaction"),
        ("other:log-1:2:out:0:0", "names no sink to which other:log-1:2:out:0:0 belongs"),
        ("somebody-elses", "is not a transactional id of a job"),
    ],
)
def test_an_id_that_is_not_there_is_refused(run: Run, job: Job, id: str, said: str) -> None:
    ran = run("transactions", "describe", id, "flows")
    assert ran.exit_code == 2
    assert said in ran.errors


# ---- commit ----------------------------------------------------------------------------------------------------------


def test_what_a_completed_checkpoint_names_is_committed_and_again_says_so(run: Run, job: Job) -> None:
    ran = run("transactions", "commit", DUE, "flows")
    assert (ran.exit_code, ran.output) == (0, f"committed {DUE}\n")
    assert job.open_ids() == sorted((LEFT, OPEN, FOREIGN))
    assert run("transactions", "commit", DUE, "flows").output == f"{DUE} was committed before\n"
    for id in (LEFT, OPEN, FOREIGN):
        job.abort(id)
    assert job.visible() == [DUE]


@pytest.mark.parametrize("id", [LEFT, OPEN, FOREIGN])
def test_what_no_completed_checkpoint_names_is_committed_by_force_alone(run: Run, job: Job, id: str) -> None:
    refused = run("transactions", "commit", id, "flows")
    assert refused.exit_code == 2
    assert f"no completed checkpoint of {job.stored.job_folder} names {id}" in refused.errors
    assert id in job.open_ids()
    assert run("transactions", "commit", id, "flows", "--force").output == f"committed {id}\n"
    assert id not in job.open_ids()


def test_force_commits_nothing_that_is_not_open(run: Run, job: Job) -> None:
    job.abort(LEFT)
    ran = run("transactions", "commit", LEFT, "flows", "--force")
    assert ran.exit_code == 2
    assert "its state is CompleteAbort" in ran.errors


def test_a_due_transaction_that_is_lost_is_told_as_at_a_start(run: Run, job: Job) -> None:
    job.abort(DUE)
    ran = run("transactions", "commit", DUE, "flows")
    assert ran.exit_code == 3
    assert f"transaction {DUE} of a completed checkpoint is lost" in ran.errors
    assert "source orders, split orders-0: up to 100, not included" in ran.errors


# ---- abort -----------------------------------------------------------------------------------------------------------


def test_what_an_earlier_attempt_left_over_is_aborted(run: Run, job: Job) -> None:
    ran = run("transactions", "abort", LEFT, "flows")
    assert (ran.exit_code, ran.output) == (0, f"aborted {LEFT}\n")
    assert LEFT not in job.open_ids()


@pytest.mark.parametrize(
    ("id", "why"),
    [
        (DUE, f"checkpoint 1 is complete and names {DUE}: aborted, its records would be lost"),
        (OPEN, f"{OPEN} is of attempt 2, the newest, and the job may be running"),
        (FOREIGN, f"{FOREIGN} belongs to another checkpoint log, x; this one is log-1"),
    ],
)
def test_what_may_be_needed_is_aborted_by_force_alone(run: Run, job: Job, id: str, why: str) -> None:
    refused = run("transactions", "abort", id, "flows")
    assert refused.exit_code == 2
    assert why in refused.errors
    assert id in job.open_ids()
    assert run("transactions", "abort", id, "flows", "--force").exit_code == 0
    assert id not in job.open_ids()


def test_nothing_that_is_over_is_aborted(run: Run, job: Job) -> None:
    run("transactions", "abort", LEFT, "flows")
    ran = run("transactions", "abort", LEFT, "flows", "--force")
    assert ran.exit_code == 2
    assert f"nothing is open under {LEFT}: its state is CompleteAbort" in ran.errors
