"""Every setting there is, how a program gives them (`Config`), and the values of all together (`ResolvedConfig`).

Nothing here acts on a setting. A new one is a row in `SETTINGS` and a field in `Config` and `ResolvedConfig`.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Never

import msgspec

from tidegate.config.restart import ExponentialDelay, RestartStrategy, parse_restart
from tidegate.config.values import (
    format_duration,
    format_size,
    format_yes_or_no,
    nearest,
    parse_choice,
    parse_duration,
    parse_folder,
    parse_host,
    parse_local_folder,
    parse_positive_duration,
    parse_size,
    parse_whole,
    parse_yes_or_no,
    shown,
)
from tidegate.errors import InvalidError
from tidegate.storage.urls import is_remote

VARIABLE_PREFIX = "TIDEGATE_"


@dataclass(frozen=True)
class Setting:
    """One thing that can be set: its name in `tidegate.toml`, what reads a given value, and the default."""

    name: str
    parse: Callable[[object], Any]
    default: Any
    render: Callable[[Any], str] = str

    @property
    def field(self) -> str:
        """Its name in Python and, with dashes, on the command line: 'checkpoint_interval'."""
        return self.name.replace("s.", "_").replace(".", "_")

    @property
    def variable(self) -> str:
        return VARIABLE_PREFIX + self.name.upper().replace(".", "_")

    def read(self, value: object, place: str) -> "Given":
        """`value` as it was given at `place`. Raises InvalidError that names both."""
        try:
            return Given(self.parse(value), place)
        except InvalidError as wrong:
            failure = wrong.failure
            raise InvalidError(f"{self.name}: {failure.message}", remedy=failure.remedy, where=place) from None


CHECKPOINT_DIR = "checkpoints.dir"
LOCAL_DIR = "state.local_dir"
SETTINGS: dict[str, Setting] = {
    setting.name: setting
    for setting in (
        Setting("parallelism", partial(parse_whole, least=1, most=32768), 1),
        Setting("max_parallelism", partial(parse_whole, least=1, most=32768), 128),
        Setting("checkpoints.interval", parse_positive_duration, 10.0, format_duration),
        Setting("checkpoints.timeout", parse_positive_duration, 60.0, format_duration),
        Setting("checkpoints.min_pause", parse_duration, 0.0, format_duration),
        Setting(CHECKPOINT_DIR, parse_folder, ""),
        Setting("checkpoints.retained", partial(parse_whole, least=1), 3),
        Setting("checkpoints.tolerable_failures", partial(parse_whole, least=0), 3),
        Setting("checkpoints.keep_on_stop", parse_yes_or_no, True, format_yes_or_no),
        Setting("state.backend", partial(parse_choice, choices=("memory", "fs", "rocksdb")), "fs"),
        Setting("state.rocksdb.memory", parse_size, 2**28, format_size),
        Setting(LOCAL_DIR, parse_local_folder, ""),
        Setting("state.local_recovery", parse_yes_or_no, True, format_yes_or_no),
        Setting("restart", parse_restart, ExponentialDelay()),
        Setting("transactions.restart_allowance", parse_duration, 60.0, format_duration),
        Setting("batch.size", partial(parse_whole, least=1), 2048),
        Setting("batch.linger", parse_duration, 0.005, format_duration),
        Setting("batch.step_target", parse_positive_duration, 0.02, format_duration),
        Setting("watermarks.interval", parse_positive_duration, 0.2, format_duration),
        Setting("channel.bytes", parse_size, 2**17, format_size),
        Setting("network.transport", partial(parse_choice, choices=("ipc", "tcp")), "ipc"),
        Setting("network.host", parse_host, "127.0.0.1"),
        Setting("log.format", partial(parse_choice, choices=("text", "json")), "text"),
    )
}


@dataclass(frozen=True)
class Given:
    """A value, read and checked, and where it was given."""

    value: Any
    place: str


Layer = Mapping[str, Given]
"""By name of the setting."""


def setting_named(name: str, spellings: Mapping[str, Setting], place: str) -> Setting:
    if name in spellings:
        return spellings[name]
    raise InvalidError(
        f"{shown(name)[1:-1]} is not a setting{nearest(name, spellings)}",
        remedy=f"There are {', '.join(spellings)}.",
        where=place,
    )


@dataclass(frozen=True, init=False)
class Config:
    """What a program sets for its job: `tg.Job("totals", config=tg.Config(checkpoint_interval="500ms"))`.

    The names are those of `tidegate.toml` with '_' for '.' and the group in the singular: `checkpoints.interval` is
    `checkpoint_interval`. Durations are text ('500ms', '10s', '5m') or timedeltas. What is left out is left to the
    weaker layers. Raises InvalidError for a wrong name or value.
    """

    layer: Layer

    def __init__(
        self,
        *,
        parallelism: int | None = None,
        max_parallelism: int | None = None,
        checkpoint_interval: str | timedelta | None = None,
        checkpoint_timeout: str | timedelta | None = None,
        checkpoint_min_pause: str | timedelta | None = None,
        checkpoint_dir: str | os.PathLike[str] | None = None,
        checkpoint_retained: int | None = None,
        checkpoint_tolerable_failures: int | None = None,
        checkpoint_keep_on_stop: bool | None = None,
        state_backend: str | None = None,
        state_rocksdb_memory: int | str | None = None,
        state_local_dir: str | os.PathLike[str] | None = None,
        state_local_recovery: bool | None = None,
        restart: str | RestartStrategy | None = None,
        transaction_restart_allowance: str | timedelta | None = None,
        batch_size: int | None = None,
        batch_linger: str | timedelta | None = None,
        batch_step_target: str | timedelta | None = None,
        watermark_interval: str | timedelta | None = None,
        channel_bytes: int | str | None = None,
        network_transport: str | None = None,
        network_host: str | None = None,
        log_format: str | None = None,
        **unknown: Never,
    ) -> None:
        given = {
            name: value for name, value in locals().items() if name not in ("self", "unknown") and value is not None
        }
        fields = {setting.field: setting for setting in SETTINGS.values()}
        layer: dict[str, Given] = {}
        for name, value in (*given.items(), *unknown.items()):
            place = f"tg.Config({name}=…)"
            setting = setting_named(name, fields, place)
            layer[setting.name] = setting.read(value, place)
        if CHECKPOINT_DIR in layer:
            _check_program_folder(layer[CHECKPOINT_DIR])
        object.__setattr__(self, "layer", layer)


def _check_program_folder(folder: Given) -> None:
    if not folder.value.startswith(("/", "~")) and not is_remote(folder.value):
        raise InvalidError(
            f"{CHECKPOINT_DIR}: {folder.value!r} is relative, so a start from elsewhere would not find the job's log",
            remedy='Give an absolute path; Path(__file__).parent / "checkpoints" is one.',
            where=folder.place,
        )


class ConfigRow(msgspec.Struct, frozen=True):
    """One line of what `--show-config` prints."""

    name: str
    value: str
    place: str


class ResolvedConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The value of every setting; durations in seconds. Travels to workers as JSON."""

    parallelism: int
    max_parallelism: int
    checkpoint_interval: float
    checkpoint_timeout: float
    checkpoint_min_pause: float
    checkpoint_dir: str
    """An absolute path, or the URL of a remote storage."""
    checkpoint_retained: int
    checkpoint_tolerable_failures: int
    checkpoint_keep_on_stop: bool
    state_backend: str
    state_rocksdb_memory: int
    """Bytes, of each worker."""
    state_local_dir: str
    """An absolute path; '' for a user without a home."""
    state_local_recovery: bool
    restart: RestartStrategy
    transaction_restart_allowance: float
    batch_size: int
    batch_linger: float
    batch_step_target: float
    watermark_interval: float
    channel_bytes: int
    network_transport: str
    network_host: str
    """An address of the JobManager's machine, for TCP."""
    log_format: str
    places: dict[str, str]
    """By name of the setting, where its value was given."""

    def explain(self) -> tuple[ConfigRow, ...]:
        """Every setting, its value as it would be written, and where that came from."""
        rows = SETTINGS.values()
        return tuple(ConfigRow(row.name, row.render(getattr(self, row.field)), self.places[row.name]) for row in rows)


class StartOptions(msgspec.Struct, frozen=True):
    """What a start is asked for once, beside the configuration."""

    fresh: str | None = None
    """Begin without any state, once for each new value."""
    from_checkpoint: int | None = None
    """Go back to this completed checkpoint, once for each new value."""
    from_savepoint: str | None = None
    """Begin from the savepoint in this folder or at this URL, once for each new value."""
    claim_savepoint: bool = False
    """The savepoint becomes the job's own, and is removed when it is not needed any more."""
    allow_non_restored_state: bool = False
    """Drop state that the program has no operator or declaration for."""
    accept_lost_transactions: bool = False
    in_process: bool = False
    profile: str | None = None
    """Where to write a profile of the run: a file, a folder, or '' for the working folder."""
