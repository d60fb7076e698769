"""From words to calls: what each option asks for, what is refused, and with which exit code a process ends."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.unit.cli.conftest import Run
from tidegate.cli.app import split_arguments
from tidegate.cli.main import exit_code_of
from tidegate.config import ConfigLayers, StartOptions
from tidegate.deploy.program import ProgramSpec
from tidegate.errors import (
    CorruptError,
    FencedError,
    InternalError,
    InvalidError,
    LostDataError,
    TidegateError,
    UserCodeError,
)
from tidegate.metrics import Reporter

PROGRAM = """
import tidegate as tg
from tidegate.config import Config
job = tg.Job("totals", config=Config(parallelism=3, checkpoint_interval="500ms"))
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "shown_app.py"
    path.write_text(PROGRAM, encoding="utf-8")
    return path


# ---- run: what reaches the launch ----------------------------------------------------------------------------------


class Launched:
    """What `launch` was called with."""

    spec: ProgramSpec
    layers: ConfigLayers
    options: StartOptions
    reporter: Reporter


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> Launched:
    """In place of the launch, which would start processes."""
    record = Launched()

    def launch(
        spec: ProgramSpec, layers: ConfigLayers, options: StartOptions, open_reporter: Callable[[str], Reporter]
    ) -> None:
        record.spec, record.layers, record.options = spec, layers, options
        record.reporter = open_reporter("json")

    stand_in: Any = ModuleType("tidegate.deploy.launch")
    stand_in.launch = launch
    monkeypatch.setitem(sys.modules, "tidegate.deploy.launch", stand_in)
    return record


def test_run_launches_the_program_with_what_stands_behind_the_dashes(
    run: Run, launched: Launched, tmp_path: Path
) -> None:
    ran = run("run", "app.py:orders", "-p", "2", "--", "--fresh", "-p", "--", "x")
    assert (ran.exit_code, ran.errors) == (0, "")
    assert (launched.spec.target, launched.spec.attribute) == (str(tmp_path / "app.py"), "orders")
    assert launched.spec.arguments == ("--fresh", "-p", "--", "x")
    assert launched.layers.resolve().parallelism == 2
    assert launched.options == StartOptions()
    launched.reporter.event("info", "shown")


def test_every_option_of_run_reaches_its_setting(run: Run, launched: Launched) -> None:
    words = [
        "--parallelism=2",
        "--checkpoint-interval",
        "500ms",
        "--checkpoint-timeout",
        "5s",
        "--checkpoint-dir",
        "/data",
        "--state-backend",
        "memory",
        "--restart",
        "none",
        "--log-format",
        "json",
        "--set",
        "batch.size=16",
        "--set",
        "batch.linger=1ms",
    ]
    assert run("run", *words, "app.py").exit_code == 0
    config = launched.layers.resolve()
    assert (config.parallelism, config.checkpoint_interval, config.checkpoint_timeout) == (2, 0.5, 5.0)
    assert (config.checkpoint_dir, config.state_backend, str(config.restart)) == ("/data", "memory", "none")
    assert (config.log_format, config.batch_size, config.batch_linger) == ("json", 16, 0.001)
    assert config.places["checkpoints.timeout"] == "--checkpoint-timeout"
    assert config.places["batch.size"] == "--set batch.size"


@pytest.mark.parametrize(
    ("words", "options"),
    [
        (["--fresh"], StartOptions(fresh="1")),
        (["--fresh=second"], StartOptions(fresh="second")),
        (["--fresh", "--in-process"], StartOptions(fresh="1", in_process=True)),
        (["--profile", "--in-process"], StartOptions(profile="", in_process=True)),
        (["--profile=profiles/"], StartOptions(profile="profiles/")),
        (["--from-checkpoint", "7"], StartOptions(from_checkpoint=7)),
        (["--accept-lost-transactions"], StartOptions(accept_lost_transactions=True)),
        (["--from-savepoint", "/kept"], StartOptions(from_savepoint="/kept")),
        (
            ["--from-savepoint", "s3://b/kept", "--claim"],
            StartOptions(from_savepoint="s3://b/kept", claim_savepoint=True),
        ),
        (["--allow-non-restored-state"], StartOptions(allow_non_restored_state=True)),
    ],
)
def test_start_options_reach_the_launch(run: Run, launched: Launched, words: list[str], options: StartOptions) -> None:
    for line in ([*words, "app.py"], ["app.py", *words]):
        assert run("run", *line).exit_code == 0
        assert launched.options == options


def test_an_error_of_the_launch_is_shown_and_ends_the_process_with_its_code(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def launch(*_: object) -> None:
        raise FencedError("another JobManager runs job totals", remedy="Stop one of them.")

    stand_in: Any = ModuleType("tidegate.deploy.launch")
    stand_in.launch = launch
    monkeypatch.setitem(sys.modules, "tidegate.deploy.launch", stand_in)
    ran = run("run", "app.py")
    assert ran == (4, "", "another JobManager runs job totals\nStop one of them.\n")


def test_words_are_split_at_the_first_dashes_and_fresh_alone_gets_its_value() -> None:
    assert split_arguments(["a", "--fresh", "--", "--fresh", "--"]) == (["a", "--fresh=1"], ["--fresh", "--"])
    assert split_arguments(["a"]) == (["a"], [])


# ---- run: what is refused ------------------------------------------------------------------------------------------


def unboxed(text: str) -> str:
    """The words alone: usage errors stand in a box, in colour on some machines, and are broken into lines."""
    return " ".join(re.sub("[│╭╮╰╯─]", " ", re.sub(r"\x1b\[[0-9;]*m", "", text)).split())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("run", "no program is given"),
        ("run nowhere.py --show-config", "nowhere.py: there is no such file"),
        ("run app.py -p many", "--parallelism: parallelism: 'many' is not a whole number"),
        ("run app.py --checkpoint-dir gs://bucket/x", "checkpoints in gs:// are not supported"),
        ("run app.py --state-backend rockdb", "state.backend: 'rockdb' is not known; did you mean rocksdb?"),
        ("run app.py --set batch.sice=1", "batch.sice is not a setting; did you mean batch.size?"),
        ("run app.py --set batch.size", "--set batch.size has no '='"),
        ("run app.py --fresh=a/b", "--fresh=a/b is not a label"),
        ("run app.py --fresh --from-checkpoint 3", "--fresh and --from-checkpoint contradict each other"),
        ("run app.py --fresh --from-savepoint x", "--fresh and --from-savepoint contradict each other"),
        ("run app.py --from-checkpoint 3 --from-savepoint x", "--from-checkpoint and --from-savepoint contradict"),
        ("run app.py --claim", "--claim says nothing without --from-savepoint"),
        ("run app.py extra", "unexpected extra argument"),
        ("run app.py --from-checkpoint 0", "Invalid value for '--from-checkpoint'"),
        ("run app.py --no-such-option", "No such option"),
        ("savepoint totals /x", "no job totals runs on this machine"),
        ("stop totals --drain", "no job totals runs on this machine"),
        ("state read DIR --operator x", "there is no job 'DIR' in "),
        ("nothing", "No such command"),
    ],
)
def test_wrong_usage_is_told_and_ends_with_2(run: Run, words: str, message: str) -> None:
    ran = run(*words.split())
    assert (ran.exit_code, ran.output) == (2, "")
    assert message in unboxed(ran.errors)
    assert "Traceback" not in ran.errors


# ---- run --show-config ---------------------------------------------------------------------------------------------


def test_show_config_prints_every_value_and_where_it_came_from(
    run: Run, program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (program.parent / "tidegate.toml").write_text("[batch]\nsize = 16\n", encoding="utf-8")
    monkeypatch.setenv("TIDEGATE_LOG_FORMAT", "json")
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    ran = run("run", str(program), "--checkpoint-interval", "2s", "--checkpoint-dir", "/data", "--show-config")
    assert (ran.exit_code, ran.errors) == (0, "")
    assert (
        ran.output
        == """\
setting                         value                       from
parallelism                     3                           tg.Config(parallelism=…)
max_parallelism                 128                         default
checkpoints.interval            2s                          --checkpoint-interval
checkpoints.timeout             1m                          default
checkpoints.min_pause           0s                          default
checkpoints.dir                 /data                       --checkpoint-dir
checkpoints.retained            3                           default
checkpoints.tolerable_failures  3                           default
checkpoints.keep_on_stop        true                        default
state.backend                   fs                          default
state.rocksdb.memory            256MiB                      default
state.local_dir                 /cache/tidegate             default
state.local_recovery            true                        default
restart                         exponential-delay:1s:1m:5m  default
transactions.restart_allowance  1m                          default
batch.size                      16                          tidegate.toml, line 2
batch.linger                    5ms                         default
batch.step_target               20ms                        default
watermarks.interval             200ms                       default
channel.bytes                   128KiB                      default
network.transport               ipc                         default
network.host                    127.0.0.1                   default
log.format                      json                        TIDEGATE_LOG_FORMAT
"""
    )


def test_show_config_needs_no_program(run: Run) -> None:
    ran = run("run", "--show-config", "--set", "parallelism=2")
    assert ran.exit_code == 0
    assert "parallelism                     2" in ran.output


# ---- exit codes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UserCodeError("x"), 1),
        (InternalError("x"), 1),
        (InvalidError("x"), 2),
        (CorruptError("x"), 3),
        (LostDataError("x"), 3),
        (FencedError("x"), 4),
        (KeyboardInterrupt(), 130),
        (RuntimeError("x"), 1),
    ],
)
def test_each_kind_of_error_ends_the_process_with_its_code(error: BaseException, code: int) -> None:
    def fail() -> None:
        raise error

    assert exit_code_of(fail) == code
    assert exit_code_of(lambda: None) == 0


def test_the_users_traceback_comes_first_then_message_and_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise UserCodeError(
            "it raised", remedy="Mend it.", where="operator totals", traceback="Traceback of the user\n"
        )

    exit_code_of(fail)
    assert capsys.readouterr().err == "Traceback of the user\noperator totals: it raised\nMend it.\n"


@pytest.mark.parametrize("error", [RuntimeError("broken"), InternalError("broken")])
def test_a_bug_of_tidegate_is_called_one_and_says_what_to_attach(
    error: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise error

    exit_code_of(fail)
    shown = capsys.readouterr().err
    assert "broken" in shown
    assert "This is a bug in Tidegate." in shown
    assert "tidegate 0." in shown
    assert "Python 3." in shown


def test_an_error_of_the_user_is_not_called_a_bug(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise TidegateError.__subclasses__()[0]("the user's")

    exit_code_of(fail)
    assert "bug" not in capsys.readouterr().err


# ---- as a process --------------------------------------------------------------------------------------------------


def process(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from tidegate.cli.main import main; main()", *words]
    return subprocess.run(command, cwd=folder, text=True, capture_output=True, check=False)


def test_a_process_prints_its_version_without_loading_the_commands(tmp_path: Path) -> None:
    ran = process(tmp_path, "--version")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.startswith("tidegate 0.")
    loaded = (
        "from tidegate.cli.main import main; import sys, atexit; atexit.register(lambda: print('typer' in sys.modules))"
    )
    command = [sys.executable, "-c", f"{loaded}; main(['--version'])"]
    assert subprocess.check_output(command, cwd=tmp_path, text=True).endswith("False\n")


def test_a_process_ends_with_2_and_the_users_frames_when_the_program_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "flow.py").write_text("import tidegate as tg\njob = tg.Job(3 / 0)\n", encoding="utf-8")
    ran = process(tmp_path, "run", "flow.py", "--show-config")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith(
        f'Traceback (most recent call last):\n  File "{tmp_path}/flow.py", line 2, in <module>'
    )
    assert ran.stderr.count("  File ") == 1


def test_a_process_shows_the_config_of_a_program(program: Path) -> None:
    ran = process(program.parent, "run", "shown_app.py", "--show-config")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "tg.Config(checkpoint_interval=…)" in ran.stdout


def test_help_names_every_command(tmp_path: Path) -> None:
    ran = process(tmp_path, "--help")
    assert ran.returncode == 0
    words = unboxed(ran.stdout).split()
    assert {"run", "demo", "checkpoints", "transactions", "state", "savepoint", "stop", "dev-kafka"} <= set(words)
