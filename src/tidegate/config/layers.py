"""The layers in which settings are given, read, put one over the other, and resolved to one value each.

Weakest first: defaults, `tidegate.toml` in the working folder, the program's `tg.Config(...)`, `TIDEGATE_…` variables,
the command line. Only `ConfigLayers.of_this_process` looks at the process that it runs in.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tidegate.config.settings import (
    CHECKPOINT_DIR,
    LOCAL_DIR,
    SETTINGS,
    VARIABLE_PREFIX,
    Config,
    Given,
    Layer,
    ResolvedConfig,
    setting_named,
)
from tidegate.errors import InvalidError
from tidegate.storage.urls import is_remote

FILE_NAME = "tidegate.toml"
_LONGEST_FILE, _LONGEST_LINE = 1 << 16, 1 << 10
"""Characters. TOML's reader takes time and memory that grow with the square of a name's length."""
_BESIDE_NAMES = re.compile(r"[\s\"']")
INTERNAL_VARIABLES = ("TIDEGATE_FAIL_POINT", "TIDEGATE_KAFKA_", "TIDEGATE_NATIVE", "TIDEGATE_TEST", "TIDEGATE_WORKER")
"""Variables whose names begin so are no settings: the engine's own."""
_SERVICE_LINK = re.compile(r"(\w+_)?(SERVICE_(HOST|PORT)(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)")
"""What Kubernetes sets in every container beside a service that is called tidegate or tidegate-…, after the prefix."""


@dataclass(frozen=True)
class ConfigLayers:
    """What was given where. `folder` is what relative checkpoint folders are relative to, `home` what '~' means."""

    folder: Path
    home: Path
    default_dir: str
    default_local_dir: str = ""
    file: Layer = field(default_factory=dict)
    program: Layer = field(default_factory=dict)
    environment: Layer = field(default_factory=dict)
    command_line: Layer = field(default_factory=dict)

    @classmethod
    def of_this_process(cls, options: Iterable[tuple[str, str, str]] = ()) -> "ConfigLayers":
        """The layers that surround a program here and now; `options` as in `read_layers`."""
        return read_layers(Path.cwd(), Path(os.path.expanduser("~")), os.environ, options)

    def with_program(self, config: Config | None) -> "ConfigLayers":
        """These layers, with what the program sets."""
        return replace(self, program=config.layer if config is not None else {})

    def resolve(self) -> ResolvedConfig:
        """The strongest value of each setting. Raises InvalidError when two of them contradict each other."""
        merged = {name: Given(setting.default, "default") for name, setting in SETTINGS.items()}
        merged[CHECKPOINT_DIR] = Given(self.default_dir, "default")
        merged[LOCAL_DIR] = Given(self.default_local_dir, "default")
        for layer in (self.file, self.program, self.environment, self.command_line):
            merged |= layer
        least, most = merged["parallelism"], merged["max_parallelism"]
        if least.value > most.value:
            raise InvalidError(
                f"parallelism {least.value} is more than max_parallelism {most.value} (from: {most.place})",
                remedy="Lower it, or raise max_parallelism before the job has state: it cannot change later.",
                where=least.place,
            )
        values = {SETTINGS[name].field: given.value for name, given in merged.items()}
        values["checkpoint_dir"] = self._absolute(values["checkpoint_dir"])
        return ResolvedConfig(**values, places={name: given.place for name, given in merged.items()})

    def _absolute(self, path: str) -> str:
        if not path:
            raise InvalidError(
                "this user has no home folder to keep checkpoints in", remedy=f"Set {CHECKPOINT_DIR} or XDG_STATE_HOME."
            )
        if is_remote(path):
            return path
        expanded = str(self.home) + path[1:] if path == "~" or path.startswith("~/") else path
        return os.path.normpath(self.folder / expanded)


def read_layers(
    folder: Path, home: Path, environment: Mapping[str, str], options: Iterable[tuple[str, str, str]] = ()
) -> ConfigLayers:
    """All layers but the program's. `options`: name of the setting, text, and the option that it was given with.

    Raises InvalidError for a wrong name or value in any of them, also where a stronger layer would hide it.
    """
    given = ((setting_named(name, SETTINGS, place), value, place) for name, value, place in options)
    return ConfigLayers(
        folder=folder,
        home=home,
        default_dir=_default_dir(home, environment, "XDG_STATE_HOME", ".local/state"),
        default_local_dir=_default_dir(home, environment, "XDG_CACHE_HOME", ".cache"),
        file=_file_layer(folder / FILE_NAME),
        environment=_environment_layer(environment),
        command_line={setting.name: setting.read(value, place) for setting, value, place in given},
    )


def _default_dir(home: Path, environment: Mapping[str, str], variable: str, otherwise: str) -> str:
    """Empty for a user without a home."""
    given = Path(environment.get(variable, ""))
    folder = (given if given.is_absolute() else home / otherwise) / "tidegate"
    return str(folder) if folder.is_absolute() else ""


def _environment_layer(environment: Mapping[str, str]) -> dict[str, Given]:
    """A variable that is empty counts as not set."""
    variables = {setting.variable: setting for setting in SETTINGS.values()}
    layer: dict[str, Given] = {}
    for name in sorted(environment):
        if environment[name] and _is_setting(name):
            setting = setting_named(name, variables, "environment")
            layer[setting.name] = setting.read(environment[name], name)
    return layer


def _is_setting(variable: str) -> bool:
    rest = variable.removeprefix(VARIABLE_PREFIX)
    others = variable.startswith(INTERNAL_VARIABLES) or _SERVICE_LINK.fullmatch(rest)
    return rest != variable and not others


def _file_layer(path: Path) -> dict[str, Given]:
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(_LONGEST_FILE + 1)
        if len(text) > _LONGEST_FILE or max(map(len, text.splitlines()), default=0) > _LONGEST_LINE:
            raise ValueError(f"it has more than {_LONGEST_FILE} characters, or a line of more than {_LONGEST_LINE}")
        content = _parsed(text)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidError(f"cannot be read: {error}", remedy="Mend or remove the file.", where=str(path)) from None
    lines = _lines_of_names(text)
    layer: dict[str, Given] = {}
    for name, value in _flat(content):
        place = FILE_NAME + next((f", line {lines[part]}" for part in _beginnings(name) if part in lines), "")
        layer[name] = setting_named(name, SETTINGS, place).read(value, place)
    return layer


def _parsed(text: str) -> dict[str, Any]:
    """Most programs have no file, and the parser is not imported for them. Raises ValueError."""
    import tomllib

    return tomllib.loads(text)


def _flat(content: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Values by their names, in the order of the file."""
    waiting = [("", iter(content.items()))]
    while waiting:
        prefix, items = waiting[-1]
        for name, value in items:
            if isinstance(value, dict):
                waiting.append((f"{prefix}{name}.", iter(value.items())))
                break
            yield prefix + name, value
        else:
            waiting.pop()


def _beginnings(name: str) -> Iterator[str]:
    """'a.b.c', 'a.b', 'a'."""
    while name:
        yield name
        name = name.rpartition(".")[0]


def _lines_of_names(text: str) -> dict[str, int]:
    """For each name, also of a table, the line on which it first stands: TOML's own reader does not tell."""
    lines: dict[str, int] = {}
    table = ""
    for number, line in enumerate(text.splitlines(), start=1):
        # Text of several lines may hold anything: nothing here may take longer than the line is long.
        if line.lstrip().startswith("["):
            table = _BESIDE_NAMES.sub("", line.lstrip().lstrip("[").partition("]")[0])
            lines.setdefault(table, number)
        elif "=" in line:
            name = _BESIDE_NAMES.sub("", line.partition("=")[0])
            lines.setdefault(f"{table}.{name}" if table else name, number)
    return lines
