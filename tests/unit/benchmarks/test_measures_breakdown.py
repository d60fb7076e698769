"""Where the time of a recovery went, from made-up marks, and the hook that makes them, in a real process."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.suite import recovery
from benchmarks.suite.contracts import Command
from benchmarks.suite.measures import breakdown, marks
from benchmarks.suite.measures.barriers import pauses
from benchmarks.suite.measures.breakdown import Boundary, Breakdown, Step
from benchmarks.suite.measures.job import Job, endless
from benchmarks.suite.measures.marks import JOB_MANAGER, Mark
from benchmarks.suite.measures.quantiles import NoMeasure
from tidegate.deploy.demo_answer import EXAMPLES
from tidegate.local import LocalLog

KILLED = 100.0


def recovered() -> list[Mark]:
    """What a job with one worker notes of its worker's death and the next attempt."""
    manager = [
        (0.01, "event WorkerDied"),
        (0.02, "phase waiting to restart"),
        (1.02, "phase starting workers"),
        (1.03, "phase taking over"),
        (1.04, "event AppendWon"),
        (1.23, "phase deploying"),
        (1.80, "phase running"),
        (2.80, "place trigger:after"),
        (2.85, "event AppendWon"),
    ]
    worker = [
        (1.30, "imported"),
        (1.50, "message Deploy"),
        (1.65, "make tasks ends"),
        (1.70, "open tasks begins"),
        (1.90, "first records"),
        (2.90, "place commit:before"),
    ]
    found = [Mark(KILLED + at, 1, JOB_MANAGER, *_split(text)) for at, text in manager]
    # Of the attempt before: what it reached does not count.
    before = [Mark(KILLED + at - 50, 2, "worker 0", *_split(text)) for at, text in worker]
    return sorted([*found, *before, *(Mark(KILLED + at, 3, "worker 0", *_split(text)) for at, text in worker)])


def _split(text: str) -> tuple[str, str]:
    what, _, about = text.rpartition(" ")
    return (what, about) if what in ("event", "place", "message") else _first_word(text)


def _first_word(text: str) -> tuple[str, str]:
    what, _, about = text.partition(" ")
    return (what, about) if what == "phase" else (text, "")


def test_the_steps_of_a_recovery_follow_upon_each_other_and_add_up() -> None:
    found = _all(recovered())
    assert found.seconds == pytest.approx(3.0)
    assert [round(step.seconds, 3) for step in found.steps] == [
        0.01, 0.01, 1.0, 0.48, 0.15, 0.05, 0.1, 0.1, 0.9, 0.05, 0.05, 0.1,
    ]  # fmt: skip
    ((name, seconds),) = found.beside
    assert name == breakdown.TAKEOVER
    assert seconds == pytest.approx(0.2)


@pytest.mark.parametrize("text", ["event WorkerDied", "phase running", "message Deploy", "place commit:before"])
def test_a_place_that_was_not_reached_is_an_error_and_not_a_longer_step(text: str) -> None:
    left = [mark for mark in recovered() if mark.text != text]
    with pytest.raises(NoMeasure, match=text):
        _all(left)


def test_what_came_before_the_new_attempt_committed_is_not_its_output() -> None:
    early = breakdown.of(recovered(), breakdown.WORKER_KILLED, KILLED, [KILLED + 0.5, KILLED + 2.95], KILLED + 4.0)
    assert early.seconds == pytest.approx(2.95)
    assert early.until_later == pytest.approx(4.0)
    with pytest.raises(NoMeasure, match="nothing came out"):
        breakdown.of(recovered(), breakdown.WORKER_KILLED, KILLED, [KILLED + 0.5], KILLED + 4.0)


def test_the_slowest_worker_ends_the_steps_that_all_must_do() -> None:
    both = [*recovered(), *(mark._replace(at=mark.at + 0.05, pid=4) for mark in recovered() if mark.pid == 3)]
    steps = {step.name: step.seconds for step in _all(both).steps}
    assert steps["workers start, import, and load the program"] == pytest.approx(0.53)
    assert steps["splits are found and assigned, the first records fetched"] == pytest.approx(0.1)


def _all(found: list[Mark]) -> Breakdown:
    return breakdown.of(sorted(found), breakdown.WORKER_KILLED, KILLED, [KILLED + 3.0], KILLED + 3.0)


def test_a_checkpoint_that_is_due_before_the_first_records_came_waits_for_nothing() -> None:
    late = [mark._replace(at=KILLED + 2.82) if mark.text == "first records" and mark.pid == 3 else mark
            for mark in recovered()]  # fmt: skip
    steps = {step.name: step.seconds for step in _all(late).steps}
    assert steps["the first checkpoint is due"] == 0.0
    assert _all(late).seconds == pytest.approx(3.0)


def test_the_median_is_one_that_was() -> None:
    some = [Breakdown((Step("all", seconds),), (), seconds) for seconds in (5.0, 1.0, 3.0, 2.0)]
    assert breakdown.median(some).seconds == 2.0
    assert breakdown.median(some[:3]).seconds == 3.0


def test_the_tables_name_each_kind_and_each_step() -> None:
    one = recovery.Recoveries(recovery.Kind(100_000_000, "rocksdb"), (_all(recovered()),))
    text = recovery.text_of([one])
    assert "| SIGKILL of a worker, 100 MB of state in rocksdb, 1 worker | 1 | 3.00 s | 3.00 s | 3.00 s |" in text
    assert "| wait before the restart | 1.000 s |" in text


def test_the_delay_of_each_kill_is_that_of_a_first_failure() -> None:
    from tidegate.config.restart import ExponentialDelay, parse_restart

    usual, own = ExponentialDelay(), parse_restart(recovery.RESTART)
    assert isinstance(own, ExponentialDelay)
    assert (own.initial, own.maximum, own.reset_after) == (usual.initial, usual.maximum, 1.0)


def test_an_endless_job_is_the_same_command_without_its_end() -> None:
    arguments = ["python", "run", "a.py", "--parallelism", "1", "--", "--input", "topic", "--bounded"]
    bounded = Command(arguments, {"A": "b"}, ends=True)
    assert endless(bounded) == Command([*arguments[:-1]], {"A": "b"}, ends=False)
    other = endless(bounded, Path("b.py"), "--state-backend", "rocksdb", arguments=("--ballast", "5"))
    assert list(other.arguments) == [
        "python", "run", "b.py", "--parallelism", "1", "--state-backend", "rocksdb", "--", "--input", "topic",
        "--ballast", "5",
    ]  # fmt: skip


# ---- the hook ------------------------------------------------------------------------------------------------------


def test_every_place_that_the_hook_wraps_is_there(tmp_path: Path) -> None:
    """Names of the engine are in it that nothing else holds fast."""
    modules = (
        "failpoints", "deploy.program", "deploy.local", "deploy.worker_process", "deploy.cluster", "scheduling.life",
        "scheduling.performer", "runtime.worker", "runtime.task", "runtime.sink_driver", "operators.source",
        "connectors.kafka.producer", "connectors.kafka.batches.producer",
    )  # fmt: skip
    imports = "".join(f"import tidegate.{module}\n" for module in modules)
    said = _run(tmp_path, f"{imports}import sys; print(sys.meta_path[0]._after)")
    assert said.strip() == "{}"
    assert [mark.text for mark in marks.read(tmp_path / "marks")] == ["made", "python runs", "imported", "imported"]


def test_a_wrapped_name_that_is_gone_is_an_error(tmp_path: Path) -> None:
    hook = "import sys; sys.path.insert(0, sys.argv[1]); from sitecustomize import around\n"
    code = f"{hook}try: around(object, 'gone', print, print)\nexcept AttributeError: print('an error')"
    assert _run(tmp_path, code).strip() == "an error"


def test_the_marks_of_all_processes_are_on_one_clock(tmp_path: Path) -> None:
    begin = time.monotonic()
    for _ in range(2):
        _run(tmp_path, "pass")
    found = marks.read(tmp_path / "marks")
    assert len({mark.pid for mark in found}) == 2
    for pid in {mark.pid for mark in found}:
        made, runs = (mark for mark in found if mark.pid == pid)
        assert (made.text, runs.text) == ("made", "python runs")
        # The kernel tells hundredths of a second.
        assert begin - 0.011 <= made.at <= runs.at <= time.monotonic()


def test_without_a_folder_for_marks_the_hook_does_nothing(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(marks.HOOK)}
    code = "import sys; print([type(finder).__name__ for finder in sys.meta_path if not isinstance(finder, type)])"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert "WrappingFinder" not in done.stdout


def test_another_module_of_the_same_name_on_the_path_has_its_turn(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "sitecustomize.py").write_text("print('the other one')")
    assert _run(tmp_path, "pass", {"PYTHONPATH": str(tmp_path / "other")}) == "the other one\n"


def _run(folder: Path, code: str, given: dict[str, str] | None = None) -> str:
    environment = {**os.environ, **marks.environment(folder / "marks", given or {})}
    command = [sys.executable, "-c", code, str(marks.HOOK)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


def test_a_boundary_of_a_worker_is_not_taken_from_the_job_manager() -> None:
    manager = [Mark(1.0, 1, JOB_MANAGER, "imported", ""), Mark(2.0, 2, "worker 0", "imported", "")]
    everything = [
        *manager,
        Mark(0.1, 1, JOB_MANAGER, "phase", "taking over"),
        Mark(0.2, 1, JOB_MANAGER, "phase", "deploying"),
    ]
    found = breakdown.of(sorted(everything), [Boundary("imports", "imported", breakdown.WORKER)], 0.0, [2.5], 2.5)
    assert found.steps == (Step("imports", 2.0), Step(breakdown.READER, 0.5))


@pytest.mark.slow
def test_a_job_with_marks_comes_to_all_places_of_a_start_and_its_pauses_are_found(tmp_path: Path) -> None:
    with LocalLog(tmp_path / "log") as log:
        log.create_topic("flights", 4)
        for _ in range(20):
            log.append("flights", None, [b'{"carrier":"AA","flight":1,"dep_delay":7}'] * 5_000, [b"AA"] * 5_000)
    command = [sys.executable, "-c", "from tidegate.cli.main import main; main()", "run", str(EXAMPLES / "flights.py")]
    options = ["--checkpoint-interval", "20ms", "--checkpoint-dir", str(tmp_path / "checkpoints")]
    program = ["--log", str(tmp_path / "log"), "--bounded"]
    begin = time.monotonic()
    with Job(Command([*command, *options, "--", *program], {}, ends=True), tmp_path / "run") as job:
        usage = job.tree.usage()
        assert usage.exit_code == 0, job.tree.tail()
    end = time.monotonic()
    assert begin <= job.began <= end
    found = breakdown.of(job.marks(), breakdown.STARTED, job.began, [end], end)
    assert found.seconds == pytest.approx(end - job.began)
    assert all(step.seconds >= 0 for step in found.steps)
    paused = pauses(job.marks())
    assert paused
    assert all(0 < pause.captured <= pause.flushed <= pause.whole for pause in paused)
