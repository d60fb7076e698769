"""Seeds of the simulated world: some each time, those that once found something for ever, many in the slow tests."""

import os
import signal
import subprocess
import sys

import pytest

from tidegate.testing.sim.__main__ import main
from tidegate.testing.sim.world import run_seed

FOUND = {
    53: "A savepoint was written while the entry of its checkpoint was being removed. Its files were kept for it, and "
    "nobody removed them afterwards.",
    85: "A JobManager asked the log about a loss; meanwhile it was refused an append, and the log did not answer. It "
    "waited for ever.",
    1257: "A task said that it runs when its sink had room. It had none at that question and some at the next one of "
    "the same step, so nothing woke the task again, and the job waited for it for ever.",
    1788: "An attempt failed while the savepoint to stop with was being written. That failed, too, so the job was to "
    "go on, and no attempt followed.",
    1875: "A task asked the sink for room, got a no, asked once more for how long to wait, got a yes, and slept until "
    "its next timer with records before it.",
    2701: "A JobManager that had created the log slept, and won a position that others had used and pruned since: it "
    "ran the whole job once more. The entry below, which is never pruned, was its own.",
    3487: "A JobManager that never took over was stopped while it waited to start workers again: it committed, aborted "
    "and recorded a clean stop beside the JobManager that ran the job.",
    5825: "A JobManager that was taken over while it restored found a state file that its successor had deleted, and "
    "stopped with exit code 3 for damage instead of 4.",
    9068: "The same, of a JobManager that slept between its takeover and its deployment.",
}
"""What each of these found at the time; `test_scenarios` keeps the same as scripts, whatever seeds come to draw."""


@pytest.mark.parametrize("seed", range(60))
def test_a_seed_holds(seed: int) -> None:
    assert run_seed(seed).violation is None


@pytest.mark.parametrize("seed", FOUND)
def test_a_seed_that_found_something_holds_now(seed: int) -> None:
    assert run_seed(seed, medium="log").violation is None


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_thousand_seeds_hold() -> None:
    assert [result for result in map(run_seed, range(1000, 2000)) if result.violation is not None] == []


def test_the_seeds_are_not_all_alike() -> None:
    """A world in which nothing happens would hold, too."""
    results = [run_seed(seed) for seed in range(20)]
    assert sum(result.checkpoints for result in results) > 40
    assert sum(result.job_managers > 1 for result in results) > 5
    assert sum(result.answered for result in results) > 10
    assert len({result.digest for result in results}) == len(results)


@pytest.mark.parametrize("seed", [3, 7, 40])
def test_the_same_seed_gives_the_same_trace(seed: int) -> None:
    lines: list[str] = []
    again: list[str] = []
    first, second = run_seed(seed, lines.append), run_seed(seed, again.append)
    assert lines == again
    assert first == second


@pytest.mark.parametrize("hash_seed", ["0", "4711"])
def test_another_process_gives_the_same_trace(hash_seed: str) -> None:
    """Nothing may depend on the order of a set of texts."""
    code = "from tidegate.testing.sim.world import run_seed; print(*(run_seed(seed).digest for seed in (3, 7, 40)))"
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    out = subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True)
    assert out.stdout.split() == [run_seed(seed).digest for seed in (3, 7, 40)]


def test_the_command_says_how_many_seeds_hold(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "3"]) == 0
    assert capsys.readouterr().out.startswith("3 seeds, ")


def test_the_command_says_the_same_of_several_processes() -> None:
    command = [sys.executable, "-m", "tidegate.testing.sim", "--seeds", "8", "--jobs"]
    one, two = (subprocess.run([*command, jobs], check=True, capture_output=True, text=True) for jobs in ("1", "2"))
    assert one.stdout == two.stdout
    assert one.stderr == two.stderr == ""


def test_the_command_shows_the_trace_of_one_seed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "3", "--medium", "log", "--trace"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("0.000000 seed 3 on log: Swarm(")
    assert lines[-1].endswith(": holds")


def test_the_command_explains_itself_with_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["--help"])
    assert left.value.code == 0
    assert "tidegate-sim --seed 1257 --trace" in capsys.readouterr().out


ENDLESS = """
import signal
import tidegate.testing.sim.__main__ as command
signal.signal(signal.SIGINT, signal.default_int_handler)
command.PROGRESS_SECONDS = 0.0
raise SystemExit(command.main(["--seeds", "100000", "--jobs", "{jobs}"]))
"""


@pytest.mark.parametrize("jobs", [1, 2])
def test_whoever_interrupts_the_command_is_told_what_was_found_so_far(jobs: int) -> None:
    code = ENDLESS.format(jobs=jobs)
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout is not None
    assert process.stdout.readline().startswith("… ")
    os.killpg(process.pid, signal.SIGINT)
    said = process.stdout.read().splitlines()
    assert said[-1].startswith("interrupted after ")
    assert process.wait() == 130
