"""Configuration: the settings, the layers in which they are given, and for each value where it came from.

`values` and `restart` read and write single values, `settings` is the table of all, `layers` puts together what was
given. Only `ConfigLayers.of_this_process` looks at the process that it runs in.
"""

from tidegate.config.layers import ConfigLayers, read_layers
from tidegate.config.restart import (
    ExponentialDelay,
    FailureRate,
    FixedDelay,
    RestartNone,
    RestartStrategy,
    parse_restart,
)
from tidegate.config.settings import SETTINGS, Config, ConfigRow, ResolvedConfig, Setting, StartOptions
from tidegate.config.values import format_duration, format_size, parse_duration

__all__ = [
    "SETTINGS",
    "Config",
    "ConfigLayers",
    "ConfigRow",
    "ExponentialDelay",
    "FailureRate",
    "FixedDelay",
    "ResolvedConfig",
    "RestartNone",
    "RestartStrategy",
    "Setting",
    "StartOptions",
    "format_duration",
    "format_size",
    "parse_duration",
    "parse_restart",
    "read_layers",
]
