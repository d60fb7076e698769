"""Settings come in layers; what is wrong in any of them is named with its place and the nearest right name."""

import inspect
import re
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from tidegate.config import SETTINGS, Config, ConfigLayers, ExponentialDelay, FixedDelay, ResolvedConfig, read_layers
from tidegate.errors import InvalidError

HOME = Path("/home/ada")


def layers(
    folder: Path,
    toml: str = "",
    environment: dict[str, str] | None = None,
    options: list[tuple[str, str, str]] | None = None,
) -> ConfigLayers:
    (folder / "tidegate.toml").write_text(toml, encoding="utf-8")
    return read_layers(folder, HOME, environment or {}, options or [])


# ---- values --------------------------------------------------------------------------------------------------------


def test_without_any_layer_every_setting_has_its_default(tmp_path: Path) -> None:
    config = read_layers(tmp_path, HOME, {}).resolve()
    assert (config.parallelism, config.max_parallelism, config.state_backend) == (1, 128, "fs")
    assert (config.checkpoint_interval, config.checkpoint_timeout, config.checkpoint_min_pause) == (10.0, 60.0, 0.0)
    assert (config.checkpoint_retained, config.checkpoint_tolerable_failures) == (3, 3)
    assert (config.restart, config.transaction_restart_allowance) == (ExponentialDelay(), 60.0)
    assert (config.batch_size, config.batch_linger, config.batch_step_target) == (2048, 0.005, 0.02)
    assert (config.channel_bytes, config.log_format) == (2**17, "text")
    assert (config.network_transport, config.network_host) == ("ipc", "127.0.0.1")
    assert set(config.places.values()) == {"default"}


def test_each_layer_hides_the_weaker_ones(tmp_path: Path) -> None:
    toml = "\n".join(
        f"{name} = {number}" for name, number in (("parallelism", 2), ("batch.size", 2), ("max_parallelism", 64))
    )
    given = layers(
        tmp_path,
        f"{toml}\ncheckpoints.retained = 2\n",
        {"TIDEGATE_BATCH_SIZE": "4", "TIDEGATE_PARALLELISM": "4"},
        [("parallelism", "5", "--parallelism")],
    )
    config = given.with_program(Config(parallelism=3, batch_size=3, checkpoint_retained=3)).resolve()
    assert (config.parallelism, config.places["parallelism"]) == (5, "--parallelism")
    assert (config.batch_size, config.places["batch.size"]) == (4, "TIDEGATE_BATCH_SIZE")
    assert (config.checkpoint_retained, config.places["checkpoints.retained"]) == (
        3,
        "tg.Config(checkpoint_retained=…)",
    )
    assert (config.max_parallelism, config.places["max_parallelism"]) == (64, "tidegate.toml, line 3")


def test_a_program_gives_durations_as_text_or_timedelta_and_strategies_as_text_or_data(tmp_path: Path) -> None:
    program = Config(checkpoint_interval="500ms", checkpoint_timeout=timedelta(seconds=5), restart=FixedDelay(2, 1.0))
    config = layers(tmp_path).with_program(program).resolve()
    assert (config.checkpoint_interval, config.checkpoint_timeout) == (0.5, 5.0)
    assert config.restart == FixedDelay(2, 1.0) == layers(tmp_path, 'restart = "fixed-delay:2:1s"').resolve().restart


def test_a_program_may_set_nothing(tmp_path: Path) -> None:
    given = layers(tmp_path)
    assert given.with_program(None).resolve() == given.with_program(Config()).resolve() == given.resolve()


def test_every_setting_has_a_field_in_the_programs_config_and_in_the_resolved_one() -> None:
    fields = [setting.field for setting in SETTINGS.values()]
    assert [name for name in inspect.signature(Config).parameters if name != "unknown"] == fields
    assert [*fields, "places"] == list(ResolvedConfig.__struct_fields__)


def test_the_resolved_config_crosses_a_process_boundary_as_it_is(tmp_path: Path) -> None:
    config = read_layers(tmp_path, HOME, {}).resolve()
    assert msgspec.json.decode(msgspec.json.encode(config), type=ResolvedConfig) == config


def test_explain_shows_every_setting_as_it_would_be_written(tmp_path: Path) -> None:
    rows = {
        row.name: (row.value, row.place)
        for row in layers(tmp_path, "[checkpoints]\ninterval = '90s'").resolve().explain()
    }
    assert list(rows) == list(SETTINGS)
    assert rows["checkpoints.interval"] == ("90s", "tidegate.toml, line 2")
    assert rows["restart"] == ("exponential-delay:1s:1m:5m", "default")
    assert rows["channel.bytes"] == ("128KiB", "default")
    assert rows["batch.linger"] == ("5ms", "default")


# ---- the checkpoint folder -----------------------------------------------------------------------------------------


def test_the_default_folder_is_the_users_and_never_the_working_folder(tmp_path: Path) -> None:
    def folder(environment: dict[str, str]) -> str:
        return read_layers(tmp_path, HOME, environment).resolve().checkpoint_dir

    assert folder({}) == "/home/ada/.local/state/tidegate"
    assert folder({"XDG_STATE_HOME": "/var/state"}) == "/var/state/tidegate"
    assert folder({"XDG_STATE_HOME": "relative"}) == "/home/ada/.local/state/tidegate"


def test_a_user_without_a_home_must_say_where_checkpoints_go(tmp_path: Path) -> None:
    homeless = read_layers(tmp_path, Path("~"), {})
    with pytest.raises(InvalidError, match="no home folder") as error:
        homeless.resolve()
    assert "checkpoints.dir" in error.value.failure.remedy
    assert homeless.with_program(Config(checkpoint_dir="/data")).resolve().checkpoint_dir == "/data"


@pytest.mark.parametrize(
    ("written", "meant"),
    [("~/flows", "/home/ada/flows"), ("~", "/home/ada"), ("/data/../x", "/x"), ("file:///data", "/data")],
)
def test_a_folder_is_made_absolute(tmp_path: Path, written: str, meant: str) -> None:
    assert layers(tmp_path, f"checkpoints.dir = '{written}'").resolve().checkpoint_dir == meant


def test_a_url_of_a_remote_storage_stays_what_it_is_wherever_it_is_given(tmp_path: Path) -> None:
    url = "s3://bucket/some/flows"
    assert layers(tmp_path, f"checkpoints.dir = '{url}/'").resolve().checkpoint_dir == url
    assert layers(tmp_path, options=[("checkpoints.dir", url, "--checkpoint-dir")]).resolve().checkpoint_dir == url
    assert layers(tmp_path).with_program(Config(checkpoint_dir=url)).resolve().checkpoint_dir == url


def test_a_relative_folder_of_the_file_or_the_command_line_is_relative_to_the_working_folder(tmp_path: Path) -> None:
    assert layers(tmp_path, "checkpoints.dir = 'flows'").resolve().checkpoint_dir == str(tmp_path / "flows")
    option = [("checkpoints.dir", "flows", "--checkpoint-dir")]
    assert layers(tmp_path, options=option).resolve().checkpoint_dir == str(tmp_path / "flows")


def test_a_relative_folder_in_the_program_is_refused_because_another_start_would_not_find_it() -> None:
    with pytest.raises(InvalidError, match="a start from elsewhere would not find the job's log"):
        Config(checkpoint_dir="flows")


# ---- mistakes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        (
            "\ncheckpoints.intervall = '1s'",
            "tidegate.toml, line 2: checkpoints.intervall is not a setting; did you mean",
        ),
        (
            "[checkpoints]\n\nintervall = '1s'",
            "tidegate.toml, line 3: checkpoints.intervall is not a setting; did you mean",
        ),
        (
            "[checkpoint]\ninterval = '1s'",
            "line 2: checkpoint.interval is not a setting; did you mean checkpoints.interval?",
        ),
        ("checkpoints = { intervall = '1s' }", "tidegate.toml, line 1: checkpoints.intervall is not a setting"),
        ("paralelism = 3", "tidegate.toml, line 1: paralelism is not a setting; did you mean parallelism?"),
        ("checkpoints = 3", "tidegate.toml, line 1: checkpoints is not a setting"),
        ("parallelism = 'many'", "tidegate.toml, line 1: parallelism: 'many' is not a whole number from 1 to 32768"),
        ("parallelism = true", "tidegate.toml, line 1: parallelism: True is not a whole number"),
        ("checkpoints.interval = 10", "tidegate.toml, line 1: checkpoints.interval: 10 is not a duration"),
        ("checkpoints.interval = '0s'", "checkpoints.interval: '0s' is no time at all"),
        ("checkpoints.timeout = '0s'", "checkpoints.timeout: '0s' is no time at all"),
        ("checkpoints.retained = 0", "checkpoints.retained: 0 is not a whole number of at least 1"),
        ("state.backend = 'rockdb'", "state.backend: 'rockdb' is not known; did you mean rocksdb?"),
        ("state.local_dir = 'here'", "state.local_dir: 'here' is not a folder of this machine"),
        ("checkpoints.keep_on_stop = 'maybe'", "checkpoints.keep_on_stop: 'maybe' is neither true nor false"),
        ("checkpoints.dir = 'gs://bucket'", "checkpoints.dir: checkpoints in gs:// are not supported"),
        ("checkpoints.dir = 's3://key:secret@bucket'", "checkpoints.dir: this s3:// URL has a user"),
        ("restart = ['none']", "restart: ['none'] is not a restart strategy"),
    ],
)
def test_a_mistake_in_the_file_is_named_with_its_line(tmp_path: Path, toml: str, message: str) -> None:
    with pytest.raises(InvalidError, match=re.escape(message)):
        layers(tmp_path, toml)


def test_a_file_that_is_no_toml_is_refused_with_the_place_of_the_mistake(tmp_path: Path) -> None:
    with pytest.raises(InvalidError, match=r"tidegate\.toml: cannot be read: .*line 2"):
        layers(tmp_path, "parallelism = 1\nparallelism\n")


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tidegate.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidError, match=r"tidegate\.toml: cannot be read"):
        read_layers(tmp_path, HOME, {})


def test_a_mistake_in_a_variable_is_named_with_the_nearest_variable(tmp_path: Path) -> None:
    with pytest.raises(InvalidError, match="did you mean TIDEGATE_CHECKPOINTS_INTERVAL"):
        layers(tmp_path, environment={"TIDEGATE_CHECKPOINT_INTERVALL": "1s"})
    with pytest.raises(InvalidError, match=r"^TIDEGATE_PARALLELISM: parallelism: '-1' is not a whole number"):
        layers(tmp_path, environment={"TIDEGATE_PARALLELISM": "-1"})


def test_variables_that_are_no_settings_are_left_alone(tmp_path: Path) -> None:
    others = (
        "TIDEGATE_FAIL_POINT",
        "TIDEGATE_KAFKA_SASL_PASSWORD",
        "TIDEGATE_WORKER_SPEC",
        "TIDEGATE_SERVICE_HOST",
        "TIDEGATE_PORT",
        "TIDEGATE_PORT_8080_TCP_ADDR",
        "TIDEGATE_TOTALS_SERVICE_PORT_HTTP",
        "TIDEGATE_TOTALS_PORT_8080_TCP",
        "NOT_TIDEGATE_PARALLELISM",
    )
    environment = dict.fromkeys(others, "x") | {"TIDEGATE_PARALLELISM": ""}
    assert layers(tmp_path, environment=environment).resolve().parallelism == 1


def test_a_mistake_on_the_command_line_is_named_with_its_option(tmp_path: Path) -> None:
    with pytest.raises(InvalidError, match=r"^--checkpoint-interval: checkpoints\.interval: 'soon' is not a duration"):
        layers(tmp_path, options=[("checkpoints.interval", "soon", "--checkpoint-interval")])
    with pytest.raises(
        InvalidError, match=r"^--set batch.sice: batch.sice is not a setting; did you mean batch.size\?"
    ):
        layers(tmp_path, options=[("batch.sice", "1", "--set batch.sice")])


def test_a_mistake_in_the_program_is_named_in_pythons_spelling() -> None:
    with pytest.raises(
        InvalidError, match=r"checkpoint_intervall is not a setting; did you mean checkpoint_interval\?"
    ):
        Config(checkpoint_intervall="1s")  # type: ignore[arg-type]
    with pytest.raises(InvalidError, match=r"^tg\.Config\(state_backend=…\): state.backend: 'rockdb' is not known"):
        Config(state_backend="rockdb")


def test_a_mistake_counts_also_where_a_stronger_layer_hides_it(tmp_path: Path) -> None:
    with pytest.raises(InvalidError, match="line 1"):
        layers(tmp_path, "parallelism = 0", options=[("parallelism", "1", "--parallelism")])


def test_parallelism_above_max_parallelism_names_both_places(tmp_path: Path) -> None:
    given = layers(tmp_path, "max_parallelism = 4", options=[("parallelism", "5", "--parallelism")])
    with pytest.raises(
        InvalidError,
        match=re.escape("--parallelism: parallelism 5 is more than max_parallelism 4 (from: tidegate.toml, line 1)"),
    ):
        given.resolve()


def test_an_unknown_setting_that_is_near_nothing_is_answered_with_all(tmp_path: Path) -> None:
    with pytest.raises(InvalidError) as error:
        layers(tmp_path, "xyzzy = 1")
    assert "did you mean" not in error.value.failure.message
    assert all(name in error.value.failure.remedy for name in SETTINGS)
