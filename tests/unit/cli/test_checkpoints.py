"""`tidegate checkpoints` tells what is stored, whole or damaged, by name or folder, for people and for machines."""

import json
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Run
from tests.unit.cli.stored_job import StoredJob
from tidegate.checkpoint.log import Discarded
from tidegate.checkpoint.protocol import Committable, SplitState
from tidegate.connectors.local.log import LocalLog
from tidegate.connectors.local.source import LocalSource
from tidegate.ids import LogPosition

LIST = """\
checkpoint  attempt  triggered             duration  state    pending  status
1           1        2023-11-14T22:13:21Z  250ms     2.0 KiB  0        completed
2           1        2023-11-14T22:13:22Z  250ms     2.0 KiB  0        completed
3           2        2023-11-14T22:13:23Z  250ms     2.0 KiB  1        newest
4           2                                                          not completed
"""


def test_list_shows_every_checkpoint_completed_or_not(run: Run, stored: StoredJob) -> None:
    ran = run("checkpoints", "list", "totals", "--checkpoint-dir", "flows")
    assert (ran.exit_code, ran.errors) == (0, "")
    headline, _, table = ran.output.partition("\n")
    assert headline == f"job totals in {stored.job_folder}, attempt 2"
    assert table == LIST


@pytest.mark.parametrize("words", [("flows",), ("flows/totals",), ("./flows/totals/",), ("totals",)])
def test_a_job_is_found_by_name_by_its_folder_or_by_a_folder_that_holds_it_alone(
    run: Run, stored: StoredJob, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.setenv("TIDEGATE_CHECKPOINTS_DIR", str(stored.folder))
    assert LIST in run("checkpoints", "list", *words).output


def test_a_folder_with_several_jobs_asks_which(run: Run, stored: StoredJob) -> None:
    StoredJob(stored.folder, "alerts").begin()
    ran = run("checkpoints", "list", "flows")
    assert ran.exit_code == 2
    assert "holds 2 jobs" in ran.errors
    assert f"{stored.folder}/alerts, {stored.folder}/totals" in ran.errors


def test_an_unknown_job_is_answered_with_those_that_there_are(run: Run, stored: StoredJob) -> None:
    ran = run("checkpoints", "list", "total", "--checkpoint-dir", "flows")
    assert ran.exit_code == 2
    assert f"there is no job 'total' in {stored.folder}" in ran.errors
    assert "Name one of: totals." in ran.errors


def test_looking_changes_nothing_and_makes_no_folder(run: Run, tmp_path: Path) -> None:
    assert run("checkpoints", "list", "totals", "--checkpoint-dir", "flows").exit_code == 2
    assert not (tmp_path / "flows").exists()


def test_list_tells_what_counts_no_more_and_what_cannot_be_read(run: Run, stored: StoredJob) -> None:
    stored.append(Discarded((LogPosition(5),), "went back"))
    (stored.job_folder / "log" / f"{3:020d}.json").write_bytes(b"torn")
    output = run("checkpoints", "list", "flows").output
    assert "not a log entry (4 bytes)" in output
    assert "unreadable, log position 3" in output
    assert [line.split()[-1] for line in output.splitlines() if line.startswith("3 ")] == ["discarded"]


def test_list_tells_what_lies_before_a_fresh_start(run: Run, stored: StoredJob) -> None:
    stored.take_over(fresh=True)
    stored.complete(5)
    output = run("checkpoints", "list", "flows").output
    assert output.count("before a fresh start") == 3
    assert output.count("newest") == 1


def test_list_for_machines_has_the_same_rows(run: Run, stored: StoredJob) -> None:
    listed = json.loads(run("checkpoints", "list", "flows", "--json").output)
    assert (listed["job"], listed["location"]) == ("totals", str(stored.job_folder))
    assert [(row["checkpoint"], row["status"]) for row in listed["checkpoints"]] == [
        (1, "completed"),
        (2, "completed"),
        (3, "newest"),
        (4, "not completed"),
    ]
    assert listed["checkpoints"][2]["state_bytes"] == 2002


def test_a_job_without_checkpoints_says_so(run: Run, tmp_path: Path) -> None:
    StoredJob(tmp_path / "flows", "totals").begin()
    assert run("checkpoints", "list", "flows").output.endswith("\nno checkpoints\n")
    ran = run("checkpoints", "show", "flows")
    assert ran.exit_code == 2
    assert "has no completed checkpoint\n" in ran.errors


SHOW = """\
checkpoint 3 of job totals, attempt 2, log log-1
triggered 2023-11-14T22:13:23Z, took 250ms, state 2.0 KiB, parallelism 2 of 128
1 file: 1 new, 0 shared with checkpoint 2; 2.0 KiB new, 0 B shared

operators
name    parallelism  state    files  new      ended
orders  1            0 B      0      0 B      no
totals  1            2.0 KiB  1      2.0 KiB  no
out     1            0 B      0      0 B      no

states
operator  name   kind   type  serializer
totals    total  value  int   msgpack/1

splits
operator  split     position  stop  finished
orders    orders-0  300             no
orders    orders-1  7         9     no

pending transactions
operator  checkpoint  id
out       3           totals:log-1:2:out:0:0
"""


def test_show_tells_positions_states_and_transactions_of_the_newest(run: Run, stored: StoredJob) -> None:
    ran = run("checkpoints", "show", "flows")
    assert (ran.exit_code, ran.output) == (0, SHOW)


def test_show_of_an_older_one_leaves_out_what_it_has_not(run: Run, stored: StoredJob) -> None:
    output = run("checkpoints", "show", "flows", "2").output
    assert output.startswith("checkpoint 2 of job totals, attempt 1")
    assert "pending transactions" not in output


def test_show_of_one_that_is_not_there_names_those_that_are(run: Run, stored: StoredJob) -> None:
    ran = run("checkpoints", "show", "flows", "4")
    assert ran.exit_code == 2
    assert "has no completed checkpoint 4" in ran.errors
    assert "Completed and still stored: 1, 2, 3." in ran.errors


def test_show_for_machines_is_the_manifest(run: Run, stored: StoredJob) -> None:
    shown = json.loads(run("checkpoints", "show", "flows", "--json").output)
    assert (shown["checkpoint"], shown["parallelism"]) == (3, 2)
    assert shown["operators"][0]["unassigned"][0]["id"] == "orders-1"


def test_verify_of_what_is_whole_ends_with_0(run: Run, stored: StoredJob) -> None:
    ran = run("checkpoints", "verify", "flows")
    assert (ran.exit_code, ran.errors) == (0, "")
    unreferenced, said = ran.output.splitlines()
    assert said == f"{stored.job_folder}: 3 checkpoints checked, nothing is damaged"
    assert unreferenced == (
        "1 file that no completed checkpoint names (left over, or of one that is under way): chk-2-4/totals.0.state"
    )


def test_verify_names_each_damaged_thing_and_ends_with_3(run: Run, stored: StoredJob) -> None:
    stored.state_file(3).write_bytes(b"y" * 2000)
    (stored.job_folder / "chk-1-1/totals.0.state").unlink()
    (stored.job_folder / "chk-1-2/totals.0.state").write_bytes(b"x" * 1999)
    ran = run("checkpoints", "verify", "flows")
    assert ran.exit_code == 3
    first, second, third, _ = ran.output.splitlines()
    assert first.startswith("checkpoint 1, operator totals, subtask 0, chk-1-1/totals.0.state: missing")
    assert second.endswith("chk-1-2/totals.0.state: has 1999 bytes and should have 2000")
    assert third.startswith("checkpoint 3, operator totals, subtask 0, chk-2-3/totals.0.state: has the checksum")
    assert "3 damaged things" in ran.errors


def test_verify_of_one_checkpoint_does_not_look_at_the_others(run: Run, stored: StoredJob) -> None:
    (stored.job_folder / "chk-1-1/totals.0.state").unlink()
    assert run("checkpoints", "verify", "flows", "2").exit_code == 0
    assert run("checkpoints", "verify", "flows", "1").exit_code == 3


def test_verify_takes_a_damaged_log_for_damage(run: Run, stored: StoredJob) -> None:
    (stored.job_folder / "log" / f"{5:020d}.json").write_bytes(b"torn")
    ran = run("checkpoints", "verify", "flows", "--json")
    assert ran.exit_code == 3
    found = json.loads(ran.output)
    assert found["checked"] == [1, 2]
    assert [(damage["checkpoint"], damage["what"]) for damage in found["damage"]] == [(None, "log position 5")]


# ---- what the sources and sinks say besides --------------------------------------------------------------------------


def test_show_with_lag_asks_the_sources_where_their_splits_end_now(run: Run, tmp_path: Path) -> None:
    with LocalLog(tmp_path / "topics") as log:
        log.create_topic("orders", 2)
        log.append("orders", 1, [b"x"] * 250)
    spec = LocalSource(tmp_path / "topics", "orders").inspection_spec
    job = StoredJob(tmp_path / "flows", "totals")
    job.begin()
    job.complete(
        1, source=spec, splits=(SplitState("orders/0", 0), SplitState("orders/1", 100), SplitState("gone/0", 5))
    )
    ran = run("checkpoints", "show", "flows", "--lag")
    assert (ran.exit_code, ran.errors) == (0, "")
    assert LAG in ran.output
    machine = json.loads(run("checkpoints", "show", "flows", "--lag", "--json").output)
    assert machine["manifest"]["checkpoint"] == 1
    lags = {row["split"]: row["lag"] for row in machine["lag"]}
    assert lags == {"orders/0": 0, "orders/1": 150, "gone/0": None}


LAG = """\
splits
operator  split     position  end now    lag        finished
orders    gone/0    5         not known  not known  no
orders    orders/0  0         0          0          no
orders    orders/1  100       250        150        no
"""


def test_a_source_that_nobody_can_ask_has_no_known_lag(run: Run, stored: StoredJob) -> None:
    output = run("checkpoints", "show", "flows", "--lag").output
    assert "orders    orders-0  300       not known  not known  no" in output


def test_show_tells_the_partitions_of_pending_transactions_where_the_sink_said_them(run: Run, tmp_path: Path) -> None:
    job = StoredJob(tmp_path / "flows", "totals")
    job.begin()
    prepared = Committable("totals:log-1:1:out:0:0", {"epoch": 3, "partitions": ["results/0", "results/7"]})
    job.complete(1, prepared=[prepared])
    output = run("checkpoints", "show", "flows").output
    assert "out       1           totals:log-1:1:out:0:0  results/0, results/7" in output
