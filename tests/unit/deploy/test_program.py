"""A program is found and imported as python would, in any process the same; each mistake is told with its place."""

import os
import pickle
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tidegate.deploy.program import (
    ProgramSpec,
    load,
    refuse_while_loading,
    same_program,
    spec_of_target,
)
from tidegate.errors import InvalidError
from tidegate.graph.logical import Fingerprint

JOB = 'import tidegate as tg\njob = tg.Job("totals")\n'
BUILD = 'import tidegate as tg\ndef build(argv):\n    return tg.Job("-".join(["built", *argv]))\n'


@pytest.fixture(autouse=True)
def own_modules() -> Iterator[None]:
    """What a test imports is forgotten after it."""
    modules, path = dict(sys.modules), list(sys.path)
    yield
    for name in [name for name in sys.modules if name not in modules]:
        del sys.modules[name]
    sys.path[:] = path


def program(folder: Path, text: str, name: str = "flow_app.py") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def spec(folder: Path, target: str, *arguments: str) -> ProgramSpec:
    return spec_of_target(target, arguments, folder, sys.path)


def refused(folder: Path, target: str, *arguments: str) -> str:
    """The whole text of the error."""
    with pytest.raises(InvalidError) as error:
        load(spec(folder, target, *arguments))
    assert error.value.exit_code == 2
    return error.value.failure.render()


# ---- which program -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "meant", "attribute"),
    [
        ("app.py", "{folder}/app.py", None),
        ("app.py:orders", "{folder}/app.py", "orders"),
        ("sub/app.py", "{folder}/sub/app.py", None),
        ("./app", "{folder}/app", None),
        ("/flows/app.py", "/flows/app.py", None),
        ("pkg.flows.app", "pkg.flows.app", None),
        ("pkg.flows.app:orders", "pkg.flows.app", "orders"),
    ],
)
def test_a_target_is_a_file_or_a_module_and_perhaps_a_name(
    tmp_path: Path, target: str, meant: str, attribute: str | None
) -> None:
    found = spec(tmp_path, target, "a", "-b")
    assert (found.target, found.attribute) == (meant.format(folder=tmp_path), attribute)
    assert found.arguments == ("a", "-b")
    assert found.folder == str(tmp_path)


def test_the_programs_own_folder_comes_first_and_every_entry_is_absolute(tmp_path: Path) -> None:
    assert spec_of_target("sub/app.py", (), tmp_path, ["", "/lib", "lib"]).sys_path == (
        str(tmp_path / "sub"),
        str(tmp_path),
        "/lib",
        str(tmp_path / "lib"),
    )
    assert spec_of_target("pkg.app", (), tmp_path, ["/lib"]).sys_path == (str(tmp_path), "/lib")


def test_a_spec_crosses_a_process_boundary_as_it_is(tmp_path: Path) -> None:
    one = spec(tmp_path, "app.py:orders", "a")
    assert msgspec.json.decode(msgspec.json.encode(one), type=ProgramSpec) == one


# ---- loading -------------------------------------------------------------------------------------------------------


def test_a_file_is_imported_under_its_stem_and_gives_its_job(tmp_path: Path) -> None:
    program(tmp_path, JOB)
    assert load(spec(tmp_path, "flow_app.py")).name == "totals"
    assert sys.modules["flow_app"].__file__ == str(tmp_path / "flow_app.py")
    assert sys.path[0] == str(tmp_path)


def test_a_module_is_imported_by_its_name(tmp_path: Path) -> None:
    program(tmp_path, "", "flow_package/__init__.py")
    program(tmp_path, JOB, "flow_package/app.py")
    assert load(spec(tmp_path, "flow_package.app")).name == "totals"


def test_a_named_job_and_a_named_function_are_found(tmp_path: Path) -> None:
    program(tmp_path, JOB + 'other = tg.Job("other")\ndef make(argv):\n    return tg.Job(argv[0])\n')
    assert load(spec(tmp_path, "flow_app.py:other")).name == "other"
    assert load(spec(tmp_path, "flow_app.py:make", "made")).name == "made"


def test_build_is_called_with_the_arguments_each_time(tmp_path: Path) -> None:
    program(tmp_path, BUILD)
    assert load(spec(tmp_path, "flow_app.py", "a", "b")).name == "built-a-b"
    assert load(spec(tmp_path, "flow_app.py", "c")).name == "built-c"


def test_the_file_is_taken_although_a_package_of_its_name_lies_beside_it(tmp_path: Path) -> None:
    program(tmp_path, JOB)
    program(tmp_path, "raise RuntimeError('the package')", "flow_app/__init__.py")
    assert load(spec(tmp_path, "flow_app.py")).name == "totals"


def test_a_program_finds_the_modules_beside_it(tmp_path: Path) -> None:
    program(tmp_path, 'NAME = "beside"\n', "sub/flow_names.py")
    program(tmp_path, "import tidegate as tg, flow_names\njob = tg.Job(flow_names.NAME)\n", "sub/flow_app.py")
    assert load(spec(tmp_path, "sub/flow_app.py")).name == "beside"


def test_what_a_program_pickles_names_a_module_that_another_process_has(tmp_path: Path) -> None:
    program(tmp_path, JOB + "class Order:\n    pass\n")
    load(spec(tmp_path, "flow_app.py"))
    pickled = pickle.dumps(sys.modules["flow_app"].Order())
    again = f"import pickle; print(type(pickle.loads({pickled!r})).__module__)"
    assert subprocess.check_output([sys.executable, "-c", again], cwd=tmp_path, text=True).strip() == "flow_app"


# ---- mistakes ------------------------------------------------------------------------------------------------------


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    assert f"{tmp_path}/nowhere.py: there is no such file" in refused(tmp_path, "nowhere.py")


def test_a_missing_module_is_named(tmp_path: Path) -> None:
    assert "there is no module flow_nowhere\n" in refused(tmp_path, "flow_nowhere")
    assert "there is no module flow_nowhere\n" in refused(tmp_path, "flow_nowhere.app:job")


def test_an_exception_of_the_program_shows_its_own_frames_alone_and_first(tmp_path: Path) -> None:
    path = program(tmp_path, "def divide():\n    return 1 / 0\n\ndivide()\n")
    text = refused(tmp_path, "flow_app.py")
    assert text.startswith(f'Traceback (most recent call last):\n  File "{path}", line 4, in <module>\n')
    assert "ZeroDivisionError: division by zero\n" in text
    assert text.endswith("flow_app.py: the program raised ZeroDivisionError in its import")
    assert "importlib" not in text
    assert "deploy/program.py" not in text


def test_a_program_that_failed_is_imported_anew(tmp_path: Path) -> None:
    program(tmp_path, "1 / 0")
    refused(tmp_path, "flow_app.py")
    program(tmp_path, JOB + "# longer, so that no cached bytecode fits\n")
    assert load(spec(tmp_path, "flow_app.py")).name == "totals"


def test_an_import_that_the_program_lacks_is_shown_as_the_programs_error(tmp_path: Path) -> None:
    program(tmp_path, "import flow_missing\n")
    assert "ModuleNotFoundError: No module named 'flow_missing'" in refused(tmp_path, "flow_app.py")
    assert "ModuleNotFoundError: No module named 'flow_missing'" in refused(tmp_path, "flow_app")


def test_a_syntax_error_shows_the_line(tmp_path: Path) -> None:
    path = program(tmp_path, "job = = 3\n")
    text = refused(tmp_path, "flow_app.py")
    assert f'File "{path}", line 1' in text
    assert "SyntaxError" in text
    assert "importlib" not in text


def test_an_exception_in_build_says_how_it_was_called(tmp_path: Path) -> None:
    program(tmp_path, "def build(argv):\n    return argv[7]\n")
    text = refused(tmp_path, "flow_app.py", "a")
    assert "IndexError" in text
    assert "in build(['a'])" in text


def test_a_program_that_exits_is_told_how_to_give_it_arguments(tmp_path: Path) -> None:
    program(tmp_path, "def build(argv):\n    raise SystemExit(2)\n")
    text = refused(tmp_path, "flow_app.py")
    assert "the program ended itself in build([]) with exit code 2" in text
    assert "behind `--`" in text


def test_a_mistake_in_the_graph_shows_the_programs_line_and_tidegates_message(tmp_path: Path) -> None:
    program(tmp_path, 'import tidegate as tg\njob = tg.Job("not a name")\n')
    text = refused(tmp_path, "flow_app.py")
    assert 'job = tg.Job("not a name")' in text
    assert "'not a name' cannot name a job" in text
    assert "api/" not in text


def test_a_relative_import_is_answered_with_the_module_form(tmp_path: Path) -> None:
    program(tmp_path, "from .names import NAME\n")
    assert "Run it as the module that it is" in refused(tmp_path, "flow_app.py")


def test_a_program_without_job_and_build_is_told_what_it_needs(tmp_path: Path) -> None:
    program(tmp_path, "")
    text = refused(tmp_path, "flow_app.py")
    assert "the program has neither `job` nor `build`" in text
    assert "a module-level `job` or a function `build(argv)`" in text


def test_a_name_that_the_program_lacks_is_named(tmp_path: Path) -> None:
    program(tmp_path, JOB)
    assert "the program has no 'jobs'" in refused(tmp_path, "flow_app.py:jobs")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("job = 3", "job is of type int"),
        ("def build(argv): return None", "build(...) is of type NoneType"),
        ("class job: pass", "job is of type type"),
    ],
)
def test_something_else_than_a_job_is_refused(tmp_path: Path, text: str, what: str) -> None:
    program(tmp_path, text)
    assert what in refused(tmp_path, "flow_app.py")


@pytest.mark.parametrize(
    ("name", "better"), [("my-flow.py", "my_flow.py"), ("class.py", "class_job.py"), ("2nd.py", "my_job.py")]
)
def test_a_stem_that_cannot_be_a_module_is_refused_with_a_better_one(tmp_path: Path, name: str, better: str) -> None:
    program(tmp_path, JOB, name)
    text = refused(tmp_path, name)
    assert "cannot be the name of a module" in text
    assert f"Rename it: {better} would do." in text


@pytest.mark.parametrize("name", ["json.py", "msgspec.py", "wave.py"])
def test_a_stem_that_would_hide_a_module_is_refused(tmp_path: Path, name: str) -> None:
    program(tmp_path, JOB, name)
    text = refused(tmp_path, name)
    assert f"would hide the module {name[:-3]!r}" in text
    assert f"Rename it: {name[:-3]}_job.py would do." in text


def test_a_program_that_runs_its_job_at_its_top_level_is_told_to_guard_it(tmp_path: Path) -> None:
    program(tmp_path, "from tidegate.deploy.program import refuse_while_loading\nrefuse_while_loading('job.run()')\n")
    text = refused(tmp_path, "flow_app.py")
    assert "the program calls job.run() while it is imported" in text
    assert 'if __name__ == "__main__":' in text
    refuse_while_loading("job.run()")


# ---- the running program -------------------------------------------------------------------------------------------

SHOW = """
import json, msgspec
from tidegate.deploy.program import spec_of_running_program
spec = spec_of_running_program()
print(json.dumps(None if spec is None else msgspec.to_builtins(spec)))
"""


def running(folder: Path, *command: str, stdin: str | None = None) -> dict[str, object] | None:
    environment = {**os.environ, "PYTHONPATH": "lib"}
    output = subprocess.check_output(
        [sys.executable, *command], cwd=folder, text=True, env=environment, input=stdin or ""
    )
    found: dict[str, object] | None = msgspec.json.decode(output)
    return found


def test_a_running_file_is_found_with_its_arguments(tmp_path: Path) -> None:
    path = program(tmp_path, SHOW, "sub/flow_app.py")
    found = running(tmp_path, "sub/flow_app.py", "--topic", "orders")
    assert found is not None
    assert (found["target"], found["arguments"], found["folder"]) == (str(path), ["--topic", "orders"], str(tmp_path))
    assert isinstance(found["sys_path"], list)
    assert found["sys_path"][:2] == [str(tmp_path / "sub"), str(tmp_path / "lib")]


def test_a_dash_dash_before_the_arguments_is_no_argument(tmp_path: Path) -> None:
    program(tmp_path, SHOW)
    found = running(tmp_path, "flow_app.py", "--", "--topic", "--", "x")
    assert found is not None
    assert found["arguments"] == ["--topic", "--", "x"]


def test_a_running_module_is_found_by_its_name(tmp_path: Path) -> None:
    program(tmp_path, SHOW, "flow_package/app.py")
    found = running(tmp_path, "-m", "flow_package.app", "a")
    assert found is not None
    assert (found["target"], found["arguments"]) == ("flow_package.app", ["a"])


def test_what_no_other_process_could_import_is_none(tmp_path: Path) -> None:
    assert running(tmp_path, "-c", SHOW) is None
    assert running(tmp_path, "-", stdin=SHOW) is None


# ---- the same program everywhere -----------------------------------------------------------------------------------


def test_equal_fingerprints_are_the_same_program() -> None:
    same_program(Fingerprint("1", ("source a",)), Fingerprint("1", ("source a",)))


def test_different_graphs_show_the_lines_that_differ_and_no_other() -> None:
    first = Fingerprint("1", ("source a", "map b; from a/forward", "sink c"))
    second = Fingerprint("2", ("source a", "map x; from a/forward", "sink c"))
    with pytest.raises(InvalidError, match=re.escape("- map b; from a/forward\n+ map x; from a/forward")) as error:
        same_program(first, second)
    assert "source a" not in error.value.failure.message
    assert "order of a set" in error.value.failure.remedy


def test_graphs_that_differ_in_the_name_of_the_job_alone_say_so() -> None:
    with pytest.raises(InvalidError, match="the job's name differs"):
        same_program(Fingerprint("1", ("source a",)), Fingerprint("2", ("source a",)))
