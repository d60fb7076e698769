"""Programs that run their job themselves: which job workers get, what `in_process` gives, and how errors end."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
BEGIN = """
import sys
import tidegate as tg
from tidegate.connectors.collections import CollectionSink, CollectionSource
from tidegate.local import LocalSink

def job_named(name, folder):
    job = tg.Job(name)
    numbers = job.source(CollectionSource([1, 2, 3]), name="numbers")
    texts = numbers.map(lambda number: f"{name} {number}".encode(), name="texts")
    texts.sink(LocalSink(folder, name, partitions=1), name="sink")
    return job
"""
MAIN = '\nif __name__ == "__main__":\n'
SHOW = """
from tidegate.local import LocalLog
log = LocalLog(sys.argv[1])
for topic in log.topics():
    print(*(record.value.decode() for record in log.read(topic, 0)), sep=",")
"""


def script(folder: Path, text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "own_app.py").write_text(BEGIN + text)
    command = [sys.executable, "own_app.py", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=60)


def written(folder: Path) -> list[str]:
    """What is in each topic."""
    command = [sys.executable, "-c", f"import sys{SHOW}", str(folder / "log")]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.split("\n")[:-1]


def test_workers_get_the_job_that_is_run_whatever_its_name_is(tmp_path: Path) -> None:
    jobs = "first = job_named('a', 'log')\njob = job_named('b', 'log')\nthird = job_named('c', 'log')\n"
    for name, topics in (("third", ["c"]), ("job", ["b", "c"])):
        done = script(tmp_path, f"{jobs}{MAIN}    {name}.run()\n")
        assert done.returncode == 0, done.stderr
        assert written(tmp_path) == [f"{topic} 1,{topic} 2,{topic} 3" for topic in topics]


def test_a_job_that_others_cannot_find_is_refused(tmp_path: Path) -> None:
    done = script(tmp_path, f"job = job_named('a', 'log'){MAIN}    job_named('b', 'log').run()\n")
    assert done.returncode == 2
    assert "other processes that import the program find job a" in done.stderr


def test_code_behind_a_run_goes_on_with_what_it_did(tmp_path: Path) -> None:
    done = script(tmp_path, f"job = job_named('a', 'log'){MAIN}    print(job.run().records_out)\n")
    assert (done.returncode, done.stdout) == (0, "3\n"), done.stderr


def test_the_function_given_to_main_may_have_any_name_and_gets_the_arguments(tmp_path: Path) -> None:
    text = f"def made(argv):\n    return job_named(argv[0], argv[1])\n{MAIN}    tg.main(made)\n"
    done = script(tmp_path, text, "x", "log")
    assert done.returncode == 0, done.stderr
    assert written(tmp_path) == ["x 1,x 2,x 3"]


def test_a_function_without_a_name_is_refused(tmp_path: Path) -> None:
    done = script(tmp_path, f"{MAIN}    tg.main(lambda argv: job_named('a', 'log'))\n")
    assert done.returncode == 2
    assert "Define it with `def` at the top level" in done.stderr


@pytest.mark.parametrize(("arguments", "code"), [(["--help"], 0), (["--wrong"], 2)])
def test_what_the_programs_own_parser_says_is_all_that_is_said(tmp_path: Path, arguments: list[str], code: int) -> None:
    build = "from argparse import ArgumentParser\ndef build(argv):\n    ArgumentParser(prog='own').parse_args(argv)\n"
    done = script(tmp_path, f"{build}{MAIN}    tg.main(build)\n", *arguments)
    assert done.returncode == code
    assert (done.stdout + done.stderr).startswith("usage: own")
    assert "tidegate" not in (done.stdout + done.stderr).lower()


def test_an_exception_in_build_is_the_programs_and_no_bug(tmp_path: Path) -> None:
    done = script(tmp_path, f"def build(argv):\n    raise ValueError('no')\n{MAIN}    tg.main(build)\n")
    assert done.returncode == 2
    assert "ValueError: no" in done.stderr
    assert "bug" not in done.stderr


def test_in_one_process_the_program_can_look_into_its_sink(tmp_path: Path) -> None:
    text = (
        "sink = CollectionSink()\njob = tg.Job('a')\n"
        "job.source(CollectionSource([3, 1, 2]), name='numbers').sink(sink, name='sink')\n"
    )
    done = script(tmp_path, f"{text}{MAIN}    job.run(in_process=True)\n    print(sink.committed)\n")
    assert (done.returncode, done.stdout) == (0, "[3, 1, 2]\n"), done.stderr
    refused = script(tmp_path, f"{text}{MAIN}    job.run()\n")
    assert refused.returncode == 2
    assert "memory of one process" in refused.stderr


def test_a_job_that_is_run_at_the_top_level_is_refused(tmp_path: Path) -> None:
    done = script(tmp_path, "job = job_named('a', 'log')\njob.run()\n")
    assert done.returncode == 2
    assert 'if __name__ == "__main__":' in done.stderr


def test_without_a_program_the_job_runs_here_and_errors_are_raised(tmp_path: Path) -> None:
    text = (
        f"{BEGIN}\njob = job_named('a', 'log')\nprint(job.run().records_out)\n"
        "job = tg.Job('b')\n"
        "job.source(CollectionSource([0]), name='n').map(lambda n: 1 // n, name='m').sink(CollectionSink(), name='s')\n"
        "job.config = tg.Config(restart='none')\n"
        "try:\n    job.run()\nexcept tg.TidegateError as error:\n    print(error.exit_code)\n"
    )
    command = [sys.executable, "-c", text]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, "3\n1\n"), done.stderr


def test_modules_in_the_working_folder_do_not_hide_the_standard_library_from_workers(tmp_path: Path) -> None:
    (tmp_path / "queue.py").write_text("raise ImportError('the wrong queue')\n")
    (tmp_path / "program").mkdir()
    done = script(tmp_path / "program", f"job = job_named('a', 'log'){MAIN}    job.run()\n")
    assert done.returncode == 0, done.stderr
    command = [
        sys.executable,
        "-c",
        "from tidegate.cli.main import main; main()",
        "run",
        "program/own_app.py",
        "--fresh",
    ]
    # -P for the process itself, as the installed command has it.
    done = subprocess.run(
        [command[0], "-P", *command[1:]], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
