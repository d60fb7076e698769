"""What a user does wrong: each mistake gives one clear message, its exit code, and no traceback but the user's."""

import subprocess
from pathlib import Path

import pytest

from tests.integration.user_programs import (
    TRACEBACK,
    Change,
    Project,
    assert_refused,
    problems_of,
    totals_of,
)

FAST = ["--checkpoint-interval", "50ms"]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project(tmp_path / "project", {"XDG_STATE_HOME": str(tmp_path / "state")})
    made.write()
    return made


# ---- the check itself ----------------------------------------------------------------------------------------------


def ended(stderr: str, code: int = 2, stdout: str = "") -> "subprocess.CompletedProcess[str]":
    return subprocess.CompletedProcess([], code, stdout, stderr)


def test_one_clear_message_has_no_problems() -> None:
    assert problems_of(ended("it is wrong\nmend it\n"), 2, ["it is wrong", "mend"], 0) == []


@pytest.mark.parametrize(
    "done",
    [
        ended("it is wrong", code=1),
        ended("something else"),
        ended("it is wrong\nit is wrong"),
        ended(f"{TRACEBACK}:\nit is wrong"),
        ended("it is wrong\nThis is a bug in Tidegate"),
        ended('  File "/src/tidegate/cli/main.py", line 3\nit is wrong'),
        ended("it is wrong", stdout="it is wrong"),
    ],
)
def test_every_flaw_of_a_message_is_noticed(done: "subprocess.CompletedProcess[str]") -> None:
    assert problems_of(done, 2, ["it is wrong"], 0) != []


# ---- command lines -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("run app.py --checkpoint-dir file", "Something on this path is a file"),
        ("run app.py --checkpoint-dir file/sub", "Something on this path is a file"),
        ("run app.py --checkpoint-dir /proc/checkpoints", "choose another checkpoints.dir"),
        ("run app.py --checkpoint-dir gs://bucket/flows", "checkpoints in gs:// are not supported"),
        ("run app.py --checkpoint-dir s3://key:secret@bucket/flows", "this s3:// URL has a user"),
        ("run app.py --state-backend disk", "'disk' is not known"),
        ("run app.py --from-savepoint there", "there is no savepoint in "),
        ("run app.py --from-savepoint there --fresh", "--fresh and --from-savepoint contradict each other"),
        ("run app.py --claim", "--claim says nothing without --from-savepoint"),
        ("savepoint totals", "no job totals runs on this machine"),
        ("stop totals --drain", "no job totals runs on this machine"),
        ("state read totals --operator totals", "there is no job 'totals'"),
        ("run app.py --paralelism 2", "--parallelism"),
        ("run app.py --set paralelism=2", "did you mean parallelism?"),
        ("run app.py --set checkpoints.interval", "has no '='"),
        ("run app.py -p none", "'none' is not a whole number"),
        ("run app.py -p 200", "parallelism 200 is more than max_parallelism 128"),
        ("run app.py --checkpoint-interval 10", "'10' is not a duration"),
        ("run app.py --restart sometimes", "'sometimes' is not a restart strategy"),
        ("run app.py --fresh=a/b", "is not a label"),
        ("run app.py --fresh --from-checkpoint 1", "contradict each other"),
        ("run nowhere.py", "there is no such file"),
        ("run no.such.module", "there is no module no"),
        ("run app.py:jobs", "the program has no 'jobs'"),
        ("run", "no program is given"),
        ("checkpoints list totals", "there is no job 'totals'"),
        ("checkpoint list totals", "No such command"),
    ],
)
def test_a_wrong_command_line_is_answered_with_what_is_right(project: Project, words: str, said: str) -> None:
    (project.folder / "file").touch()
    assert_refused(project.run(*words.split()), 2, said)


def test_a_wrong_variable_and_a_wrong_line_of_the_file_are_named_with_the_nearest_right_one(project: Project) -> None:
    wrong = project.run("run", "app.py", TIDEGATE_CHECKPOINTS_INTERVALL="1s")
    assert_refused(wrong, 2, "did you mean TIDEGATE_CHECKPOINTS_INTERVAL?")
    (project.folder / "tidegate.toml").write_text('[checkpoints]\ninterval = "1s"\nretaind = 3\n')
    assert_refused(project.run("run", "app.py"), 2, "tidegate.toml, line 3: ", "did you mean checkpoints.retained?")


# ---- programs ------------------------------------------------------------------------------------------------------


def test_a_program_without_a_job_is_told_what_it_needs(project: Project) -> None:
    (project.folder / "app.py").write_text("answer = 42\n")
    assert_refused(project.run("run", "app.py"), 2, "the program has neither `job` nor `build`")


def test_a_program_that_raises_on_import_shows_its_own_traceback_first(project: Project) -> None:
    (project.folder / "app.py").write_text('def find():\n    raise KeyError("price")\n\n\nfind()\n')
    done = project.run("run", "app.py")
    assert_refused(done, 2, "the program raised KeyError", 'line 2, in find\n    raise KeyError("price")', tracebacks=1)
    assert done.stderr.startswith(TRACEBACK)


def test_a_connector_of_a_later_version_is_refused_with_those_there_are(project: Project) -> None:
    project.write(("tidegate.local import LocalSink", "tidegate.pulsar import PulsarSink"))
    done = project.run("run", "app.py")
    assert_refused(done, 2, "tidegate.pulsar is not in this version", "tidegate.kafka, tidegate.local", tracebacks=1)


@pytest.mark.parametrize("way", ["tidegate run", "python"])
def test_a_program_that_builds_another_graph_in_the_worker_shows_the_lines(project: Project, way: str) -> None:
    project.write(
        ("import msgspec", "import os\n\nimport msgspec"), ('"totals")\ntotals.', 'f"totals-{os.getpid()}")\ntotals.')
    )
    done = project.python("app.py") if way == "python" else project.run("run", "app.py")
    lines = ("JobManager: process totals-", "worker:     process totals-")
    assert_refused(done, 2, "built another graph in a worker", *lines, "A program must build the same graph")


def test_a_program_that_builds_another_graph_the_second_time_starts_no_worker(project: Project) -> None:
    text = project.write().read_text()
    head, job, tail = text.partition('job = tg.Job("totals")\n')
    body, guard, _ = tail.partition("\nif __name__")
    lines = "".join(f"    {line}\n" for line in (job + body).strip().splitlines())
    built = f"times = []\n\n\ndef build(argv):\n    times.append(1)\n{lines}    return job\n"
    (project.folder / "app.py").write_text(head + built.replace('name="out"', 'name=f"out-{len(times)}"'))
    done = project.run("run", "app.py")
    assert_refused(done, 2, "two processes of the job built different graphs", "- sink out-1", "+ sink out-2")
    assert guard
    assert not project.checkpoints.exists()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ([('LOG, "orders"', 'LOG, "order"')], ["there is no topic 'order'", "operator orders, attempt 1"]),
        ([(', partitions=2), name="out"', '), name="out"')], ["there is no topic 'totals'", "operator out, subtask 0"]),
        ([("LocalSource(LOG", 'LocalSource(LOG / "x"')], ["there is no embedded log in", "operator orders, subtask 0"]),
        (
            [("LocalSink(LOG", 'LocalSink(LOG / "x"'), (', partitions=2), name="out"', '), name="out"')],
            ["there is no embedded log in", "operator out"],
        ),
    ],
)
def test_what_a_connector_lacks_is_named_with_the_operator(
    project: Project, changes: list[Change], said: list[str]
) -> None:
    project.feed(10)
    project.write(*changes)
    assert_refused(project.run("run", "app.py"), 2, *said, "create_topic")


# ---- the user's functions ------------------------------------------------------------------------------------------


USER_ERRORS: dict[str, tuple[list[Change], str, list[str]]] = {
    "map": (
        [("orders.key_by(", 'orders.map(lambda order: order.price, name="prices").key_by(')],
        "operator prices, subtask 0, attempt 1: AttributeError on record Order(",
        ["in <lambda>", "AttributeError: 'Order' object has no attribute 'price'"],
    ),
    "key_by": (
        [("lambda order: order.user", "lambda order: order.users")],
        "operator orders-key, subtask 0, attempt 1: AttributeError on record Order(",
        ["in <lambda>"],
    ),
    "process": (
        [("value.amount)", "1 // (value.amount - value.amount))")],
        "operator totals, subtask 0, attempt 1: ZeroDivisionError on record Order(",
        ["in process_element"],
    ),
    "open": (
        [
            (
                "    def process_element",
                '    def open(self, ctx):\n        raise OSError("no way")\n\n    def process_element',
            )
        ],
        "operator totals, subtask 0, attempt 1: OSError in open: no way",
        ["in open"],
    ),
    "key of the sink": (
        [("lambda total: total.user", "lambda total: total.name")],
        "operator out, subtask 0, attempt 1: AttributeError",
        ["in <lambda>"],
    ),
}


@pytest.mark.parametrize("where", USER_ERRORS)
def test_an_exception_of_the_users_shows_their_traceback_first_and_names_the_place(
    project: Project, where: str
) -> None:
    changes, said, frames = USER_ERRORS[where]
    project.feed(20)
    project.write(*changes)
    done = project.run("run", "app.py", "--restart", "none")
    assert_refused(done, 1, said, *frames, tracebacks=1)
    assert done.stderr.index(TRACEBACK) < done.stderr.index(said)


def test_a_restarted_job_tells_each_failure_and_ends_with_1_after_the_last(project: Project) -> None:
    changes, _, _ = USER_ERRORS["map"]
    project.feed(20)
    project.write(*changes)
    done = project.run("run", "app.py", "--restart", "fixed-delay:2:10ms")
    assert done.returncode == 1
    assert [f"attempt {n}: AttributeError" in done.stderr for n in (1, 2, 3, 4)] == [True, True, True, False]
    assert "restart 1 in 0.0 s after a failure:\nTraceback" in done.stderr
    assert "restart 2 in 0.0 s" in done.stderr
    assert done.stderr.count(TRACEBACK) == 3


def test_outputs_that_cannot_be_iterated_are_answered_with_what_to_write(project: Project) -> None:
    project.feed(5)
    project.write(("yield Total(", "return Total("))
    done = project.run("run", "app.py", "--restart", "none")
    assert_refused(done, 1, "the function returned one Total; yield it, or return [it]")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("lambda order: order.user", "lambda order: [order.user]"), "a list cannot be a key"),
        (("lambda order: order.user", "lambda order: 0.5"), "a float cannot be a key"),
        (
            ("lambda order: order.user", "lambda order: order.user if order.amount else 0"),
            "All keys of an operator have one type",
        ),
    ],
)
def test_what_cannot_be_a_key_is_refused_with_the_operator(project: Project, change: Change, said: str) -> None:
    project.feed(20)
    project.write(change)
    assert_refused(project.run("run", "app.py"), 2, said, "operator orders-key, subtask 0, attempt 1: ")


def test_a_state_given_a_value_of_another_type_shows_the_users_line_and_says_it_once(project: Project) -> None:
    project.feed(5)
    project.write(("self.total.update(self.total.value() + value.amount)", "self.total.update(str(value.amount))"))
    done = project.run("run", "app.py")
    said = ("state total is declared int and was given a str", "operator totals, subtask 0, attempt 1: ")
    assert_refused(done, 2, *said, "self.total.update(str(value.amount))", tracebacks=1)


# ---- poison records ------------------------------------------------------------------------------------------------

SIDE_OUTPUT = """\
poison = orders.side_output(tg.SideOutput("poison"))
poison.sink(LocalSink(LOG, "poison", partitions=1), name="poison")
"""
POISON = (b'{"user": 12}', b"not JSON at all")


@pytest.fixture
def poisoned(project: Project) -> Project:
    project.feed(30)
    project.append(POISON)
    return project


def test_a_record_that_cannot_be_decoded_fails_the_job_and_is_shown(poisoned: Project) -> None:
    done = poisoned.run("run", "app.py", "--restart", "none")
    assert_refused(done, 1, "operator orders, subtask 0, attempt 1: ", """on record b'{"user": 12}'""")
    assert poisoned.output() == {}


def test_records_that_are_skipped_are_counted_and_nothing_else_is_missing(poisoned: Project) -> None:
    poisoned.write((', bounded=True), name="orders")', ', bounded=True), name="orders", on_error="skip")'))
    done = poisoned.run("run", "app.py", "--log-format", "json")
    assert done.returncode == 0, done.stderr
    assert '"note":"2 records skipped"' in done.stderr
    assert poisoned.output() == poisoned.expected()


def test_records_sent_to_a_side_output_arrive_there_as_they_came(poisoned: Project) -> None:
    poisoned.write(
        (', bounded=True), name="orders")', ', bounded=True), name="orders", on_error=tg.SideOutput("poison"))'),
        (
            "\nif __name__",
            SIDE_OUTPUT + "\nif __name__",
        ),
    )
    done = poisoned.run("run", "app.py", "-p", "2")
    assert done.returncode == 0, done.stderr
    assert poisoned.output() == poisoned.expected()
    assert poisoned.raw("poison") == list(POISON)


def test_the_answer_of_these_tests_is_the_running_total() -> None:
    assert totals_of([0, 1, 7, 8]) == {"u0": [0, 7], "u1": [1, 9]}
