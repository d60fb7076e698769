"""Texts that users write into files, environments and command lines."""

import os
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
from hypothesis import strategies as st

from tests.unit.enemy.decoder import NAMES, Decoder, as_bytes, text_of
from tidegate.cli.app import _assignment
from tidegate.config.layers import FILE_NAME, read_layers
from tidegate.config.restart import (
    ExponentialDelay,
    FailureRate,
    FixedDelay,
    RestartNone,
    parse_restart,
)
from tidegate.config.settings import SETTINGS, ResolvedConfig
from tidegate.config.values import (
    format_duration,
    format_size,
    format_yes_or_no,
    parse_choice,
    parse_duration,
    parse_folder,
    parse_local_folder,
    parse_size,
    parse_whole,
    parse_yes_or_no,
)
from tidegate.errors import InvalidError
from tidegate.storage.urls import tidy_remote


def _text(
    name: str,
    values: st.SearchStrategy[Any],
    examples: tuple[Any, ...],
    render: Callable[[Any], str],
    parse: Callable[[str], Any],
) -> Decoder:
    return Decoder(
        name,
        values,
        examples,
        lambda value: as_bytes(render(value)),
        lambda data: parse(text_of(data)),
        (InvalidError,),
        is_text=True,
    )


SECONDS = st.integers(0, 10**12).map(lambda microseconds: microseconds / 1e6)
WHOLE_SECONDS = st.integers(1, 10**6).map(float)
RESTARTS = st.one_of(
    st.just(RestartNone()),
    st.builds(FixedDelay, st.integers(1, 99), WHOLE_SECONDS),
    st.builds(FailureRate, st.integers(1, 99), WHOLE_SECONDS, WHOLE_SECONDS),
    WHOLE_SECONDS.map(lambda seconds: ExponentialDelay(seconds, 2 * seconds, reset_after=seconds)),
)

# ---- whole layers ----------------------------------------------------------------------------------------------------


def resolved(
    *,
    file: bytes | None = None,
    environment: dict[str, str] | None = None,
    options: list[tuple[str, str, str]] | None = None,
) -> ResolvedConfig:
    """What a start resolves its configuration to, with everything that is done with it on the way."""
    with TemporaryDirectory() as folder:
        if file is not None:
            Path(folder, FILE_NAME).write_bytes(file)
        config = read_layers(Path(folder), Path("/home/user"), environment or {}, options or []).resolve()
    config.explain()
    # It travels to workers as JSON, and folders are made of it.
    as_it_arrives = msgspec.json.decode(msgspec.json.encode(_printable(config)), type=ResolvedConfig)
    assert as_it_arrives == _printable(config)
    for path in (config.checkpoint_dir, config.state_local_dir):
        os.path.exists(path)
    return config


def _printable(config: ResolvedConfig) -> ResolvedConfig:
    """Without bytes of a path that are no UTF-8: those stay in this process."""
    return msgspec.structs.replace(
        config, checkpoint_dir=ascii(config.checkpoint_dir), state_local_dir=ascii(config.state_local_dir)
    )


def _of_file(data: bytes) -> dict[str, Any]:
    return _given(resolved(file=data), FILE_NAME)


def _given(config: ResolvedConfig, place: str) -> dict[str, Any]:
    """The settings that were given at `place`, rendered."""
    return {row.name: row.value for row in config.explain() if place in row.place}


def _to_file(values: dict[str, str]) -> bytes:
    return "\n".join(f'{name} = "{value}"' for name, value in values.items()).encode()


def _of_environment(data: bytes) -> dict[str, str]:
    """'NAME=value' lines."""
    pairs = (line.partition("=") for line in text_of(data).split("\n"))
    environment = {name: value for name, separator, value in pairs if separator}
    return _given(resolved(environment=environment), "TIDEGATE_")


def _to_environment(values: dict[str, str]) -> bytes:
    return "\n".join(f"{SETTINGS[name].variable}={value}" for name, value in values.items()).encode()


def _of_options(data: bytes) -> dict[str, str]:
    options = [_assignment(line) for line in text_of(data).split("\n")]
    return _given(resolved(options=options), "--set")


def _to_options(values: dict[str, str]) -> bytes:
    return "\n".join(f"{name}={value}" for name, value in values.items()).encode()


SOME_SETTINGS = {"checkpoints.interval": "5s", "batch.size": "64", "channel.bytes": "1MiB", "state.backend": "rocksdb"}
LAYERS = st.lists(st.sampled_from(sorted(SOME_SETTINGS)), min_size=1, unique=True).map(
    lambda names: {name: SOME_SETTINGS[name] for name in SETTINGS if name in names}
)

TEXTS = (
    _text("duration", SECONDS, (90.0, 0.5, 0.0), format_duration, parse_duration),
    _text("size", st.integers(1024, 2**50), (4096, 10**9), format_size, parse_size),
    _text("whole number", st.integers(0, 10**9), (42,), str, lambda text: parse_whole(text, 0)),
    _text("choice", st.sampled_from(["fs", "memory"]), ("fs",), str, lambda text: parse_choice(text, ("fs", "memory"))),
    _text("yes or no", st.booleans(), (True,), format_yes_or_no, parse_yes_or_no),
    _text("folder", NAMES.map(lambda name: f"/flows/{name}"), ("/flows/a", "s3://bucket/a"), str, parse_folder),
    _text("local folder", NAMES.map(lambda name: f"/flows/{name}"), ("/flows/a",), str, parse_local_folder),
    _text("remote place", NAMES.map(lambda name: f"s3://{name}/a"), ("webhdfs://a:1/b",), str, tidy_remote),
    _text("restart strategy", RESTARTS, (FixedDelay(3, 5.0), ExponentialDelay()), str, parse_restart),
    Decoder(
        "tidegate.toml",
        LAYERS,
        (SOME_SETTINGS,),
        _to_file,
        _of_file,
        (InvalidError,),
        is_text=True,
        is_slow=True,
        hostile=(
            b"[a]\nb = " + b"[" * 100_000,
            b'a = """' + b" " * 20_000 + b'"""',
            b'a = """\n' + b"[" * 20_000 + b'"""',
            b"batch.size = 0x" + b"f" * 9000,
            b"channel.bytes = 0x" + b"f" * 9000,
            b"checkpoints.interval = 0x" + b"f" * 9000,
            b"a." * 50_000 + b"b = 1",
            b'checkpoints.dir = "/a\\u0000b"',
            b'state.local_dir = "/a\\u0000b"',
            b'checkpoints.interval = "999999999.999999d"',
            b"batch.size = nan",
            b"restart = 1979-05-27",
            b"channel.bytes = 99999999999999999999999999",
            b'state.local_dir = "~nobody-of-that-name/x"',
            b'checkpoints.dir = "~nobody-of-that-name/x"',
        ),
    ),
    Decoder(
        "environment",
        LAYERS,
        (SOME_SETTINGS,),
        _to_environment,
        _of_environment,
        (InvalidError,),
        is_text=True,
        is_slow=True,
        hostile=(b"TIDEGATE_" + b"X" * 100_000 + b"=1", b"TIDEGATE_" + b"A_SERVICE_PORT" * 5000 + b"=1"),
    ),
    Decoder(
        "--set",
        LAYERS,
        (SOME_SETTINGS,),
        _to_options,
        _of_options,
        (InvalidError,),
        is_text=True,
        is_slow=True,
        hostile=(b"x" * 100_000 + b"=1", b"state.backend=" + b"fs" * 50_000),
    ),
)
