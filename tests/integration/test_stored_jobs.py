"""A job that was stopped, and what happens to it before it is started again: damage, another program.

Each is one clear message with its exit code, and the ways to go on that the message names do what they say, once.
"""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.user_programs import UNBOUNDED, Change, Project, assert_refused

FAST = ["--checkpoint-interval", "50ms"]


# ---- what was stored before ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """An unbounded job with a thousand keys, stopped after three checkpoints, whose state is in files."""
    root = tmp_path_factory.mktemp("stopped")
    made = Project(root / "project", {"XDG_STATE_HOME": str(root / "state")})
    made.write(UNBOUNDED)
    for count in (1000, 500, 500):
        made.append([{"user": f"user-{n}", "amount": 1} for n in range(count)])
        made.amounts += range(count)
        with made.start("app.py", *FAST) as running:
            made.wait_until_read(running)
            running.interrupt()
            assert running.ends() == 0, running.said
    return made


@pytest.fixture
def stored(stopped: Project, tmp_path: Path) -> Project:
    """A copy of it."""
    made = Project(tmp_path / "project", {"XDG_STATE_HOME": str(tmp_path / "state")})
    shutil.copytree(stopped.folder, made.folder, dirs_exist_ok=True)
    shutil.copytree(stopped.checkpoints, made.checkpoints)
    return made


def newest_entry(project: Project) -> Path:
    """The file of the newest completed checkpoint's entry in the log."""
    found = [entry.position for entry in project.view().completed]
    return project.checkpoints / "totals" / "log" / f"{found[-1]:020d}.json"


def run_until_read(project: Project, *words: str) -> str:
    """Run the job until a checkpoint covers everything, stop it, and return what it said."""
    with project.start("app.py", *FAST, *words) as running:
        running.wait_to_say("totals running")
        running.wait_to_say("completed in")
        running.interrupt()
        assert running.ends() == 0, running.said
    return running.said


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x20
    path.write_bytes(data)


def flip_in_front(path: Path) -> None:
    flip(path, 200)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize(
    "harm", [flip_in_front, pytest.param(truncate, marks=pytest.mark.slow), pytest.param(empty, marks=pytest.mark.slow)]
)
def test_C10_a_damaged_newest_entry_stops_the_job_until_somebody_says_how_to_go_on(
    stored: Project, harm: Callable[[Path], None]
) -> None:
    before = sum(map(len, stored.output().values()))
    older = stored.view().manifests[-2].checkpoint
    entry = newest_entry(stored)
    harm(entry)
    done = stored.run("run", "app.py")
    assert_refused(done, 3, f"log/{entry.name}) cannot be read", f"start with --from-checkpoint {older}")
    assert stored.run("checkpoints", "verify", "totals").returncode == 3
    said = run_until_read(stored, "--from-checkpoint", str(older))
    assert f"going back to checkpoint {older}" in said
    assert stored.run("checkpoints", "verify", "totals").returncode == 0
    # What came after checkpoint `older` is there twice now, as was said.
    again = sum(map(len, stored.output().values()))
    assert again > before
    said = run_until_read(stored, "--from-checkpoint", str(older))
    assert f"--from-checkpoint {older} was carried out before" in said
    assert sum(map(len, stored.output().values())) == again


@pytest.mark.slow
def test_a_fresh_start_passes_over_damage_and_counts_from_nothing_once(stored: Project) -> None:
    empty(newest_entry(stored))
    before = stored.output()
    said = run_until_read(stored, "--fresh")
    assert "beginning without state" in said
    assert stored.output() == {user: totals * 2 for user, totals in before.items()}
    said = run_until_read(stored, "--fresh")
    assert "--fresh=1 was carried out before" in said
    assert stored.output() == {user: totals * 2 for user, totals in before.items()}
    run_until_read(stored, "--fresh=another")
    assert stored.output() == {user: totals * 3 for user, totals in before.items()}


def test_the_newest_checkpoint_may_be_named_and_nothing_is_put_out_again(stored: Project) -> None:
    newest = stored.view().manifests[-1].checkpoint
    before = stored.output()
    said = run_until_read(stored, "--from-checkpoint", str(newest))
    assert f"going on from checkpoint {newest}, which is the newest" in said
    assert stored.output() == before


def test_a_checkpoint_that_is_not_there_is_answered_with_those_that_are(stored: Project) -> None:
    there = ", ".join(str(manifest.checkpoint) for manifest in stored.view().manifests)
    assert_refused(
        stored.run("run", "app.py", "--from-checkpoint", "999"), 2, f"999 is not in the log; there are: {there}"
    )


def state_file(project: Project) -> Path:
    manifest = project.view().newest
    assert manifest is not None
    found = [h.path for o in manifest.operators for s in o.snapshots for h in s.handles if h.path]
    return project.checkpoints / "totals" / found[0]


def test_B04_a_flipped_byte_in_a_state_file_stops_the_job_and_verify_finds_it(stored: Project) -> None:
    path = state_file(stored)
    flip(path, path.stat().st_size // 2)
    assert_refused(stored.run("run", "app.py"), 3, path.name, "--from-checkpoint")
    verified = stored.run("checkpoints", "verify", "totals")
    assert verified.returncode == 3
    assert path.name in verified.stdout


def test_a_missing_state_file_stops_the_job(stored: Project) -> None:
    path = state_file(stored)
    path.unlink()
    assert_refused(stored.run("run", "app.py"), 3, path.name, "--from-checkpoint")


# ---- the program has changed since ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            [("ValueState(int, default=0)", 'ValueState(str, default="")')],
            ["state total was stored as value of int", "declared as value of str"],
        ),
        (
            [("tg.ValueState(int, default=0)", "tg.ListState(int)")],
            ["'total' of operator 'totals' is a value state", "list"],
        ),
        (
            [("total = tg.", "sum = tg."), ("self.total", "self.sum")],
            ["has state 'total' of operator 'totals'", "declare"],
        ),
        ([('RunningTotal(), name="totals"', 'RunningTotal(), name="sums"')], ["has state of the operator 'totals'"]),
        ([('bounded=True), name="orders"', 'bounded=True), name="order"')], ["has state of the source 'orders'"]),
        (
            [("lambda order: order.user", "lambda order: len(order.user)"), ("lambda total: total.user", "None")],
            ["a key of type int where keys are of type str"],
        ),
    ],
)
def test_B07_a_program_that_does_not_fit_its_checkpoint_is_refused(
    stored: Project, changes: list[Change], said: list[str]
) -> None:
    stored.append([{"user": "user-1", "amount": 1}])
    stored.write(*changes, UNBOUNDED)
    assert_refused(stored.run("run", "app.py"), 2, *said)


def test_B06_another_max_parallelism_is_refused_with_the_old_one(stored: Project) -> None:
    done = stored.run("run", "app.py", "--set", "max_parallelism=64")
    assert_refused(done, 2, "was written with max_parallelism 128, the job now has 64", "Set max_parallelism to 128")


def test_a_topic_that_was_put_in_place_of_the_old_one_is_not_taken_for_it(stored: Project) -> None:
    shutil.rmtree(stored.folder / "log")
    stored.append([{"user": "user-1", "amount": 1}])
    assert_refused(stored.run("run", "app.py"), 3, "is not the one that was read before")


def test_python_says_the_same_and_ends_with_the_same_code(stored: Project) -> None:
    empty(newest_entry(stored))
    done = stored.execute([sys.executable, "app.py"])
    assert_refused(done, 3, "cannot be read", "--from-checkpoint")
