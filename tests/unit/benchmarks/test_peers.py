"""The peers' commands carry what a run asks for, and what they need is fetched, compiled or installed once."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import java_programs as java
from benchmarks.suite import systems
from benchmarks.suite.contracts import Guarantee, JobRun, Workload
from benchmarks.suite.peers import environments
from benchmarks.suite.peers.environments import Environment
from tidegate.errors import InvalidError, UnavailableError

PEERS = ("flink", "pyflink", "quix", "bytewax")
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


def _run(guarantee: Guarantee, workload: Workload = Workload.TOTALS) -> JobRun:
    return JobRun(workload, "broker:9092", "orders-7", "totals-8", 2, 10, 0.5, guarantee, Path("folder-9"))


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """`tools(name=script, ...)` makes these the only commands, and an empty cache; the file that it returns has a line
    for each call of one."""
    said = tmp_path / "said"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    for cached in (java.java, java.java_version, environments.find_python):
        cached.cache_clear()

    def make(**scripts: str) -> Path:
        (tmp_path / "bin").mkdir()
        for name, script in scripts.items():
            command = tmp_path / "bin" / name.replace("_", ".")
            command.write_text(f'#!/bin/sh\necho "{name} $*" >> {said}\n{script}\n')
            command.chmod(0o755)
        said.touch()
        return said

    return make


JAVA = "echo 'openjdk version \"17.0.1\"' >&2"
MAVEN = 'for one; do case "$one" in -DoutputDirectory=*) /bin/mkdir "${one#*=}";; esac; done'
JAVAC = 'while [ "$1" != -d ]; do shift; done; /bin/mkdir "$2"'


@pytest.mark.parametrize("name", PEERS)
def test_topics_slots_and_the_checkpoint_interval_reach_the_program(name: str, tools: Callable[..., Path]) -> None:
    tools(java=JAVA)
    system = systems.load(name)
    shown = " ".join(system.command(_run(system.guarantees[0])).arguments)
    for expected in ("broker:9092", "orders-7", "totals-8", "folder-9"):
        assert expected in shown
    assert "--slots 2" in shown or "slots=2" in shown
    assert "--interval 0.5" in shown or "execution.checkpointing.interval=500ms" in shown


@pytest.mark.parametrize(
    ("name", "exactly", "at_least"),
    [
        ("flink", " guarantee=EXACTLY_ONCE ", " guarantee=AT_LEAST_ONCE "),
        ("pyflink", " --guarantee exactly-once ", " --guarantee at-least-once "),
        ("quix", " --guarantee exactly-once ", " --guarantee at-least-once "),
    ],
)
def test_the_guarantee_reaches_the_program(name: str, exactly: str, at_least: str, tools: Callable[..., Path]) -> None:
    tools(java=JAVA)
    system = systems.load(name)
    assert system.guarantees == (Guarantee.EXACTLY_ONCE, Guarantee.AT_LEAST_ONCE)
    assert exactly in " ".join(system.command(_run(Guarantee.EXACTLY_ONCE)).arguments)
    assert at_least in " ".join(system.command(_run(Guarantee.AT_LEAST_ONCE)).arguments)


def test_bytewax_offers_at_least_once_and_no_more() -> None:
    assert systems.load("bytewax").guarantees == (Guarantee.AT_LEAST_ONCE,)


def test_flink_runs_all_workloads_and_the_peers_in_python_the_running_totals(tools: Callable[..., Path]) -> None:
    tools(java=JAVA)
    flink = systems.load("flink")
    assert flink.workloads == frozenset(Workload)
    for workload in Workload:
        assert f"workload={workload.value}" in flink.command(_run(Guarantee.EXACTLY_ONCE, workload)).arguments
    assert all(systems.load(name).workloads == {Workload.TOTALS} for name in PEERS if name != "flink")


@pytest.mark.parametrize("name", PEERS)
def test_each_setting_that_is_told_is_one_of_the_command(name: str, tools: Callable[..., Path]) -> None:
    tools(java=JAVA)
    system = systems.load(name)
    command = system.command(_run(system.guarantees[0]))
    shown = " ".join([*command.arguments, *command.environment.values()])
    tuned = {name: value for name, value in system.settings().items() if "." in name}
    assert tuned
    for setting, value in tuned.items():
        assert f"{setting.removeprefix('consumer.').removeprefix('producer.')}={value}" in shown


# ---- fetched and compiled once -------------------------------------------------------------------------------------


def test_jars_and_classes_of_flink_are_made_once(tools: Callable[..., Path]) -> None:
    said = tools(java=JAVA, mvn=MAVEN, javac=JAVAC)
    flink = systems.load("flink")
    flink.prepare()
    first = said.read_text()
    assert "javac -nowarn" in first
    assert "mvn " in first
    flink.prepare()
    assert said.read_text() == first
    command = flink.command(_run(Guarantee.EXACTLY_ONCE)).arguments
    assert all(Path(part.removesuffix("/*")).is_dir() for part in command[command.index("-cp") + 1].split(":"))


def test_another_source_is_compiled_anew(tmp_path: Path, tools: Callable[..., Path]) -> None:
    said = tools(java=JAVA, javac=JAVAC)
    jars, source = tmp_path / "jars", tmp_path / "A.java"
    for text in ("class A {}", "class A {}", "class A { int b; }"):
        source.write_text(text)
        java.ensure_classes([source], jars)
    assert said.read_text().count("javac -nowarn") == 2


@pytest.mark.parametrize(
    ("there", "message", "remedy"),
    [
        ({}, "need a JDK, and no java is on PATH", "apt-get install openjdk-17"),
        ({"java": "echo 'openjdk version \"11.0.1\"' >&2"}, "is older", "openjdk-17"),
        ({"java": JAVA}, "no mvn is on PATH", "apt-get install maven"),
        ({"java": JAVA, "mvn": MAVEN}, "no javac is on PATH", "openjdk-17-jdk"),
        ({"java": JAVA, "mvn": MAVEN, "javac": "echo Job.java:3: wrong; exit 1"}, "Job.java:3: wrong", "Correct"),
    ],
)
def test_a_missing_tool_of_flink_is_an_error_with_a_remedy(
    there: dict[str, str], message: str, remedy: str, tools: Callable[..., Path]
) -> None:
    tools(**there)
    with pytest.raises(InvalidError, match=message) as caught:
        systems.load("flink").prepare()
    assert remedy in str(caught.value)


# ---- environments --------------------------------------------------------------------------------------------------


@pytest.fixture
def environment(tmp_path: Path, tools: Callable[..., Path]) -> Environment:
    """With nothing to install."""
    tools()
    made = Environment("peer", (PYTHON,))
    made.requirements = tmp_path / "requirements.txt"
    made.requirements.write_text("")
    return made


def test_an_environment_is_made_once_also_where_a_half_made_one_was_left(environment: Environment) -> None:
    environment.folder.mkdir(parents=True)
    half = environment.folder / "half"
    half.touch()
    environment.ensure()
    assert not half.exists()
    asked = [str(environment.python), "-c", "import sys; print(sys.prefix)"]
    assert subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip() == str(environment.folder)
    assert environment.packages.is_dir()
    witness = environment.folder / "witness"
    witness.touch()
    environment.ensure()
    assert witness.exists()


def test_other_requirements_are_another_environment(environment: Environment) -> None:
    before = environment.folder
    environment.requirements.write_text("# nothing else\n")
    assert environment.folder != before


def test_packages_that_cannot_be_installed_are_an_error_with_what_pip_says(environment: Environment) -> None:
    environment.requirements.write_text("./no-such-file.whl\n")
    with pytest.raises(UnavailableError, match=r"no-such-file\.whl") as caught:
        environment.ensure()
    assert "reaches a package index" in str(caught.value)


def test_without_a_python_that_fits_the_error_names_those_that_would(tools: Callable[..., Path]) -> None:
    tools(python2_9="exit 127")
    with pytest.raises(InvalidError, match=r"one of Python 2\.8, 2\.9, and none") as caught:
        Environment("bytewax", ("2.8", "2.9")).ensure()
    assert "Install python2.8, or leave bytewax out" in str(caught.value)
