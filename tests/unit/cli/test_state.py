"""`tidegate state read` shows stored state as rows; `tidegate checkpoints` shows, compares and verifies checkpoints and
savepoints, for people and for machines."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest

import tidegate as tg
from tests.unit.cli.conftest import Run
from tests.unit.savepoints.checkpoints import SPLITS, Job
from tidegate.checkpoint.protocol import StateHandle
from tidegate.checkpoint.store import CheckpointStore
from tidegate.ids import LogPosition
from tidegate.savepoints.exporting import export_savepoint
from tidegate.storage.local import LocalStorage


class Point(msgspec.Struct, frozen=True):
    x: int
    at: str | None = None


class Totals(tg.KeyedProcessFunction[Any, Any, Any]):
    total = tg.ValueState(int)
    names = tg.ListState(str)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """Two checkpoints; in the second one key is new, one has changed and one has gone, and a source has moved."""
    made = Job(tmp_path / "flows", Totals)
    for user, total in (("ann", 1), ("bob", 2), ("cyd", 3)):
        made.at(user)["total"].update(total)
    made.at("ann")["names"].add("A")
    made.at("bob")["names"].add("B")
    made.complete()
    made.at("bob")["names"].clear()
    made.at("bob")["total"].update(20)
    made.at("cyd")["total"].clear()
    made.at("dan")["total"].update(4)
    moved = msgspec.structs.replace(SPLITS[0], position=150)
    made.complete(splits=(moved, msgspec.structs.replace(SPLITS[1], id="orders/2")), lists=[[7], [8]])
    return made


@pytest.fixture
def savepoint(job: Job, tmp_path: Path) -> Path:
    manifest = job.complete()
    export_savepoint(manifest, job.store, LocalStorage(tmp_path / "save"), tmp_path / "scratch")
    return tmp_path / "save"


def rows(output: str) -> list[Any]:
    return sorted((json.loads(line) for line in output.splitlines()), key=lambda row: (str(row["key"]), row["state"]))


# ---- state read ------------------------------------------------------------------------------------------------------

LISTING = """\
operator  state  kind        type  serializer  key_type
totals    total  value       int   msgpack/1   str
totals    names  list        str   msgpack/1   str
totals    seen   list-split  int   msgpack/1
"""


def test_without_an_operator_it_lists_what_there_is(run: Run, job: Job) -> None:
    ran = run("state", "read", "flows")
    assert (ran.exit_code, ran.errors) == (0, "")
    assert ran.output == f"checkpoint 2 in {job.folder}\n\n{LISTING}"
    assert run("state", "read", "flows", "--operator", "totals", "--list").output == ran.output
    listed = json.loads(run("state", "read", "flows", "--json").output)
    assert [(one["operator"], one["state"], one["key_type"]) for one in listed] == [
        ("totals", "total", "str"),
        ("totals", "names", "str"),
        ("totals", "seen", ""),
    ]


@pytest.mark.parametrize("words", [("flows",), ("flows/orders-job",), ("orders-job", "--checkpoint-dir", "flows")])
def test_rows_are_lines_of_json(run: Run, job: Job, words: tuple[str, ...]) -> None:
    ran = run("state", "read", *words, "--operator", "totals")
    assert (ran.exit_code, ran.errors) == (0, "")
    assert rows(ran.output) == [
        {"state": "seen", "key": None, "value": [7], "subtask": 0},
        {"state": "seen", "key": None, "value": [8], "subtask": 1},
        {"state": "names", "key": "ann", "value": ["A"]},
        {"state": "total", "key": "ann", "value": 1},
        {"state": "total", "key": "bob", "value": 20},
        {"state": "total", "key": "dan", "value": 4},
    ]


def test_one_state_one_key_and_an_older_checkpoint_can_be_asked_for(run: Run, job: Job) -> None:
    words = ("state", "read", "flows", "--operator", "totals", "--state", "total", "--checkpoint", "1")
    assert [row["value"] for row in rows(run(*words).output)] == [1, 2, 3]
    assert rows(run(*words, "--key", "cyd").output) == [{"state": "total", "key": "cyd", "value": 3}]


@pytest.mark.parametrize(
    ("key", "text"),
    [(7, "7"), (("a", 1), '["a", 1]'), (Point(1), '{"x": 1, "at": null}'), (b"\xff", "/w=="), (True, "true")],
)
def test_a_key_is_asked_for_as_it_is_shown(run: Run, tmp_path: Path, key: Any, text: str) -> None:
    job = Job(tmp_path / "flows", Totals)
    job.at(key)["total"].update(1)
    job.complete()
    (row,) = rows(run("state", "read", "flows", "--operator", "totals", "--key", text).output)
    shown = json.dumps(row["key"]) if not isinstance(row["key"], str) else row["key"]
    assert rows(run("state", "read", "flows", "--operator", "totals", "--key", shown).output) == [row]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--operator", "total"), "has no operator 'total'\nWith state there are: totals."),
        (("--operator", "totals", "--state", "sum"), "has no state 'sum'"),
        (("--operator", "totals", "--checkpoint", "9"), "has no completed checkpoint 9"),
        (("--state", "total"), "--state and --key need --operator"),
        (("--operator", "totals", "--format", "csv"), "--format csv is not known\nUse jsonl, parquet or arrow."),
        (("--operator", "totals", "--format", "arrow"), "--format arrow needs --output FILE"),
    ],
)
def test_what_cannot_be_is_refused_with_what_can(run: Run, job: Job, words: tuple[str, ...], message: str) -> None:
    ran = run("state", "read", "flows", *words)
    assert ran.exit_code == 2
    assert message in ran.errors


def test_a_file_comes_whole(run: Run, job: Job, tmp_path: Path) -> None:
    ran = run("state", "read", "flows", "--operator", "totals", "--format", "parquet", "--output", "rows.parquet")
    assert (ran.exit_code, ran.output) == (0, "rows.parquet: 3 rows\n")
    table = {row["key"]: row for row in pq.read_table(tmp_path / "rows.parquet").to_pylist()}
    assert table["ann"] == {"key": "ann", "total": 1, "names": ["A"]}
    assert run("state", "read", "flows", "--operator", "totals", "--output", "rows.jsonl").output == ""
    assert len((tmp_path / "rows.jsonl").read_text().splitlines()) == 6
    for victim in job.folder.rglob("totals.*"):
        victim.write_bytes(b"")
    ran = run("state", "read", "flows", "--operator", "totals", "--output", "damaged.jsonl")
    assert ran.exit_code == 3
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == ["rows.jsonl", "rows.parquet"]


def test_whoever_reads_a_pipe_may_stop_early(job: Job) -> None:
    for number in range(2000):
        job.at(f"user-{number}")["names"].update(["x" * 100])
    job.complete()
    command = [sys.executable, "-c", "from tidegate.cli.main import main; main()"]
    words = ["state", "read", str(job.folder), "--operator", "totals"]
    with subprocess.Popen([*command, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b'{"state":')
        process.stdout.close()
        errors = process.stderr.read()
        assert (process.wait(30), errors) == (0, b"")


def test_a_savepoint_is_read_wherever_it_was_moved_to(run: Run, savepoint: Path, tmp_path: Path) -> None:
    shutil.move(savepoint, tmp_path / "elsewhere")
    shutil.rmtree(tmp_path / "flows")
    ran = run("state", "read", "elsewhere", "--operator", "totals", "--key", "bob")
    assert rows(ran.output) == [{"state": "total", "key": "bob", "value": 20}]


# ---- checkpoints diff ------------------------------------------------------------------------------------------------

DIFFERENCE = """\
splits
operator  split     from  to   moved
orders    orders/0  120   150  +30
orders    orders/1  95         gone
orders    orders/2        95   new

keys
operator  state  added  removed  changed
totals    total  1      1        1
totals    names  0      1        0
totals    seen   2      0        0
"""
KEYS = {
    'changed totals total "bob"',
    'removed totals total "cyd"',
    'removed totals names "bob"',
    'added totals total "dan"',
    "added totals seen 0",
    "added totals seen 1",
}


def test_diff_counts_keys_and_tells_how_far_sources_moved(run: Run, job: Job) -> None:
    ran = run("checkpoints", "diff", "flows", "1", "2")
    assert (ran.exit_code, ran.errors) == (0, "")
    head = f"from checkpoint 1 in {job.folder}\nto   checkpoint 2 in {job.folder}\n\n"
    assert ran.output == head + DIFFERENCE
    named = run("checkpoints", "diff", "flows", "1", "2", "--keys").output
    assert set(named.split("\n\n")[0].splitlines()) == KEYS
    assert named.endswith(head + DIFFERENCE)


def test_diff_for_machines_has_the_same(run: Run, job: Job) -> None:
    machine = json.loads(run("checkpoints", "diff", "flows", "1", "2", "--json").output)
    assert machine["states"][0] == {"operator": "totals", "state": "total", "added": 1, "removed": 1, "changed": 1}
    assert machine["splits"][0] == {"operator": "orders", "split": "orders/0", "before": 120, "after": 150}
    lines = run("checkpoints", "diff", "flows", "1", "2", "--keys", "--json").output.splitlines()
    changes = [json.loads(line) for line in lines]
    assert {f"{one['how']} {one['operator']} {one['state']} {json.dumps(one['key'])}" for one in changes} == KEYS


def test_a_checkpoint_is_not_different_from_itself(run: Run, job: Job) -> None:
    machine = json.loads(run("checkpoints", "diff", "flows", "2", "2", "--json").output)
    assert {(one["added"], one["removed"], one["changed"]) for one in machine["states"]} == {(0, 0, 0)}
    assert run("checkpoints", "diff", "flows", "1", "9").exit_code == 2


# ---- checkpoints show and verify -------------------------------------------------------------------------------------


def test_show_tells_what_is_new_and_what_is_shared_with_the_checkpoint_before(run: Run, job: Job) -> None:
    first, second = (run("checkpoints", "show", "flows", number).output for number in ("1", "2"))
    assert "no earlier checkpoint is stored to compare with" in first
    assert "shared with checkpoint 1" in second
    files = {path for path in job.folder.rglob("*") if path.is_file() and "log" not in path.parts}
    assert f"{len(files)} files: " in second
    assert "totals    seen   list-split  int   msgpack/1" in second


def test_show_and_verify_take_a_savepoint(run: Run, savepoint: Path) -> None:
    shown = run("checkpoints", "show", "save")
    assert (shown.exit_code, shown.errors) == (0, "")
    assert shown.output.startswith("checkpoint 3 of job orders-job")
    ran = run("checkpoints", "verify", "save")
    assert (ran.exit_code, ran.output) == (0, f"{savepoint}: 1 checkpoint checked, nothing is damaged\n")


def test_verify_finds_a_flipped_bit_in_every_file_of_a_savepoint_and_a_job(run: Run, savepoint: Path, job: Job) -> None:
    for folder in (savepoint, job.folder):
        for path in [path for path in folder.rglob("*") if path.is_file()]:
            whole = path.read_bytes()
            path.write_bytes(whole[:-2] + bytes((whole[-2] ^ 1, whole[-1])))
            ran = run("checkpoints", "verify", str(folder))
            is_entry = path.parent.name == "log"
            place = f"log position {int(path.stem)}" if is_entry else path.relative_to(folder).as_posix()
            assert (ran.exit_code, place in ran.output + ran.errors) == (3, True), (place, ran)
            path.unlink()
            ran = run("checkpoints", "verify", str(folder))
            assert is_entry or place in ran.output + ran.errors, (place, ran)
            path.write_bytes(whole)
        assert run("checkpoints", "verify", str(folder)).exit_code == 0


def test_verify_of_a_job_that_removes_a_checkpoint_meanwhile_finds_no_damage(
    run: Run, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = CheckpointStore.damage_of

    def look_late(store: CheckpointStore, handle: StateHandle) -> str | None:
        store.delete_files(job.store.state_files())
        store.prune([LogPosition(2)])
        return look(store, handle)

    monkeypatch.setattr(CheckpointStore, "damage_of", look_late)
    ran = run("checkpoints", "verify", "flows", "1")
    assert (ran.exit_code, "0 checkpoints checked, nothing is damaged" in ran.output) == (0, True), ran


def test_verify_of_an_unfinished_savepoint_says_that_it_is_not_complete(run: Run, savepoint: Path) -> None:
    (savepoint / "savepoint.json").unlink()
    ran = run("checkpoints", "verify", "save")
    assert ran.exit_code == 2
    assert "is not a complete savepoint" in ran.errors


def test_verify_names_what_no_checkpoint_names(run: Run, savepoint: Path, job: Job) -> None:
    (savepoint / "state" / "totals.99").write_bytes(b"stray")
    assert "1 file that no completed checkpoint names" in run("checkpoints", "verify", "save").output
    for number in range(12):
        job.store.write_state(f"shared/1/totals.0.9{number:02d}-full", b"left over")
    ran = run("checkpoints", "verify", "flows", "--json")
    assert ran.exit_code == 0
    assert len(json.loads(ran.output)["unreferenced"]) == 12
    assert "12 files" in run("checkpoints", "verify", "flows").output
    assert "and 2 more" in run("checkpoints", "verify", "flows").output
