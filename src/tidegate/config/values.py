"""The kinds of values that settings have, read from text or from Python and written back: durations, sizes, counts.

A duration is a float of seconds inside and '500ms' outside. Each reader raises InvalidError that shows the value; which
setting it was and where it stood is added by the caller.
"""

import difflib
import ipaddress
import math
import os
import re
from collections.abc import Iterable
from datetime import timedelta
from urllib.parse import unquote

from tidegate.errors import InvalidError
from tidegate.storage.urls import PLACES, REMOTE, is_remote, not_supported, tidy_remote

_UNITS = {"d": "days", "h": "hours", "m": "minutes", "s": "seconds", "ms": "milliseconds"}
_DURATION = re.compile(r"(\d{1,13}(?:\.\d{1,6})?)(ms|s|m|h|d)", re.ASCII)
_SIZES = {"GiB": 2**30, "MiB": 2**20, "KiB": 2**10, "B": 1}
_SIZE = re.compile(r"(\d{1,16})(GiB|MiB|KiB|B)", re.ASCII)
_NUMBER = re.compile(r"\d{1,12}", re.ASCII)
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(?://)?")
_LARGEST = 2**31 - 1
_LARGEST_SIZE = 2**50
_LONGEST = 36_500 * 86_400.0
"""A hundred years, in seconds."""
_SHOWN = 100
"""Characters of a wrong value that an error repeats."""


def parse_duration(value: object) -> float:
    """Seconds of '500ms', '10s', '5m', '1h', '2d' or a timedelta; 0 needs no unit. Raises InvalidError."""
    if isinstance(value, timedelta) and value >= timedelta(0):
        seconds = value.total_seconds()
    elif isinstance(value, str) and (match := _DURATION.fullmatch(value)):
        seconds = timedelta(**{_UNITS[match[2]]: 1}).total_seconds() * float(match[1])
    else:
        seconds = 0.0 if value == "0" or (type(value) is int and value == 0) else math.inf
    if seconds <= _LONGEST:
        # To the microsecond, which is all that a duration says.
        return round(seconds * 1e6) / 1e6
    raise InvalidError(
        f"{shown(value)} is not a duration of at most {format_duration(_LONGEST)}",
        remedy="Write 500ms, 10s, 5m, 1h or 2d; in Python also a timedelta.",
    )


def parse_positive_duration(value: object) -> float:
    """As `parse_duration`, but 0 is refused too."""
    if seconds := parse_duration(value):
        return seconds
    raise InvalidError(f"{shown(value)} is no time at all", remedy="Give a duration above 0.")


def format_duration(seconds: float) -> str:
    """`seconds` as `parse_duration` reads it, in the largest unit that needs no fraction: '90s', '1m', '500ms'."""
    micros = round(seconds * 1e6)
    for unit, name in _UNITS.items():
        size = timedelta(**{name: 1}) // timedelta(microseconds=1)
        if micros and micros % size == 0:
            return f"{micros // size}{unit}"
    return f"{micros / 1000}ms" if micros else "0s"


def parse_whole(value: object, least: int, most: int = _LARGEST) -> int:
    """A whole number, or its digits, within limits that both belong to it. Raises InvalidError."""
    number = int(value) if isinstance(value, str) and _NUMBER.fullmatch(value) else value
    if isinstance(number, int) and not isinstance(number, bool) and least <= number <= most:
        return number
    limits = f"of at least {least}" if most == _LARGEST else f"from {least} to {most}"
    raise InvalidError(f"{shown(value)} is not a whole number {limits}")


def parse_size(value: object) -> int:
    """Bytes of '64KiB', '4MiB', '1GiB', '5000B' or a number; 1 KiB to 1024 TiB. Raises InvalidError."""
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    number = int(match[1]) * _SIZES[match[2]] if match else value
    if isinstance(number, int) and not isinstance(number, bool) and 1024 <= number <= _LARGEST_SIZE:
        return number
    raise InvalidError(
        f"{shown(value)} is not a size of at least 1KiB and at most {format_size(_LARGEST_SIZE)}",
        remedy="Write 64KiB, 4MiB or 1GiB, or a number of bytes.",
    )


def format_size(number: int) -> str:
    """`number` of bytes as `parse_size` reads it, in the largest unit that needs no fraction."""
    return next(f"{number // size}{unit}" for unit, size in _SIZES.items() if number % size == 0)


def parse_choice(value: object, choices: tuple[str, ...]) -> str:
    """One of `choices`. Raises InvalidError."""
    if isinstance(value, str) and value in choices:
        return value
    near = nearest(value, choices) if isinstance(value, str) else ""
    raise InvalidError(f"{shown(value)} is not known{near}", remedy=f"Use {' or '.join(choices)}.")


_WORDS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


def parse_yes_or_no(value: object) -> bool:
    """True or False, or one of their words. Raises InvalidError."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in _WORDS:
        return _WORDS[value.lower()]
    raise InvalidError(f"{shown(value)} is neither true nor false", remedy="Write true or false.")


def format_yes_or_no(value: bool) -> str:
    return "true" if value else "false"


def parse_local_folder(value: object) -> str:
    """The path of a folder of this machine. Raises InvalidError, also for one that depends on where a process was
    started."""
    text = os.fspath(value) if isinstance(value, str | os.PathLike) else ""
    path = os.path.expanduser(text) if isinstance(text, str) else ""
    if not path.startswith("/") or "\0" in path:
        raise InvalidError(f"{shown(value)} is not a folder of this machine", remedy="Give an absolute path.")
    return path


def parse_host(value: object) -> str:
    """An IP address that one machine has and others can connect to. Raises InvalidError."""
    text = value if isinstance(value, str) else ""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        address = ipaddress.ip_address("0.0.0.0")
    if address.is_unspecified or address.is_multicast or "%" in text:
        raise InvalidError(
            f"{shown(value)} is not the address of one machine",
            remedy="Give an IP address of this machine, such as 127.0.0.1.",
        )
    return str(address)


def parse_folder(value: object) -> str:
    """The path of a folder, from text, a path or a file:// URL, or the URL of a place in a remote storage, without '/'
    at its end. Raises InvalidError, also for storages that are not supported."""
    text = os.fspath(value) if isinstance(value, str | os.PathLike) else ""
    if not isinstance(text, str) or not text or "\0" in unquote(text):
        raise InvalidError(f"{shown(value)} is not a folder", remedy=f"Give {PLACES}.")
    if is_remote(text):
        return tidy_remote(text)
    scheme = _SCHEME.match(text)
    if scheme is None:
        return text
    if text.startswith("file:///"):
        return unquote(text.removeprefix("file://"))
    if scheme[1].lower() in (*REMOTE, "file"):
        raise InvalidError(
            f"{shown(text)} names no folder of this machine and is no URL", remedy=f"Give {PLACES}, as text."
        )
    raise not_supported(scheme[1])


def shown(value: object) -> str:
    """A value for an error, cut off where it is long: Python does not even write an integer of many digits."""
    text = repr(value) if not isinstance(value, int) or value.bit_length() < _SHOWN else "a number of many digits"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def nearest(wrong: str, right: Iterable[str]) -> str:
    """'; did you mean parallelism?', or nothing when no right name is near."""
    near = difflib.get_close_matches(wrong[:_SHOWN], list(right), n=1, cutoff=0.5)
    return f"; did you mean {near[0]}?" if near else ""
