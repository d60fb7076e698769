"""The kinds of values that settings have, read from text or from Python and written back: durations, sizes, counts.

A duration is a float of seconds inside and '500ms' outside. Each reader raises InvalidError that shows the value; which
setting it was and where it stood is added by the caller.
"""

import difflib
import os
import re
from collections.abc import Iterable
from datetime import timedelta
from urllib.parse import unquote

from tidegate.errors import InvalidError
from tidegate.storage.urls import PLACES, REMOTE, is_remote, not_supported, tidy_remote

_UNITS = {"d": "days", "h": "hours", "m": "minutes", "s": "seconds", "ms": "milliseconds"}
_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)(ms|s|m|h|d)", re.ASCII)
_SIZES = {"GiB": 2**30, "MiB": 2**20, "KiB": 2**10, "B": 1}
_SIZE = re.compile(r"(\d{1,9})(GiB|MiB|KiB|B)", re.ASCII)
_NUMBER = re.compile(r"\d{1,12}", re.ASCII)
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(?://)?")
_LARGEST = 2**31 - 1


def parse_duration(value: object) -> float:
    """Seconds of '500ms', '10s', '5m', '1h', '2d' or a timedelta; 0 needs no unit. Raises InvalidError."""
    if isinstance(value, timedelta) and value >= timedelta(0):
        return value.total_seconds()
    if isinstance(value, str) and (match := _DURATION.fullmatch(value)):
        return timedelta(**{_UNITS[match[2]]: float(match[1])}).total_seconds()
    if str(value) == "0":
        return 0.0
    raise InvalidError(
        f"{value!r} is not a duration", remedy="Write 500ms, 10s, 5m, 1h or 2d; in Python also a timedelta."
    )


def parse_positive_duration(value: object) -> float:
    """As `parse_duration`, but 0 is refused too."""
    if seconds := parse_duration(value):
        return seconds
    raise InvalidError(f"{value!r} is no time at all", remedy="Give a duration above 0.")


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
    raise InvalidError(f"{value!r} is not a whole number {limits}")


def parse_size(value: object) -> int:
    """Bytes of '64KiB', '4MiB', '1GiB', '5000B' or a number; at least 1 KiB. Raises InvalidError."""
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    number = int(match[1]) * _SIZES[match[2]] if match else value
    if isinstance(number, int) and not isinstance(number, bool) and number >= 1024:
        return number
    raise InvalidError(
        f"{value!r} is not a size of at least 1KiB", remedy="Write 64KiB, 4MiB or 1GiB, or a number of bytes."
    )


def format_size(number: int) -> str:
    """`number` of bytes as `parse_size` reads it, in the largest unit that needs no fraction."""
    return next(f"{number // size}{unit}" for unit, size in _SIZES.items() if number % size == 0)


def parse_choice(value: object, choices: tuple[str, ...]) -> str:
    """One of `choices`. Raises InvalidError."""
    if isinstance(value, str) and value in choices:
        return value
    raise InvalidError(f"{value!r} is not known{nearest(str(value), choices)}", remedy=f"Use {' or '.join(choices)}.")


_WORDS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


def parse_yes_or_no(value: object) -> bool:
    """True or False, or one of their words. Raises InvalidError."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in _WORDS:
        return _WORDS[value.lower()]
    raise InvalidError(f"{value!r} is neither true nor false", remedy="Write true or false.")


def format_yes_or_no(value: bool) -> str:
    return "true" if value else "false"


def parse_local_folder(value: object) -> str:
    """The path of a folder of this machine. Raises InvalidError, also for one that depends on where a process was
    started."""
    text = os.fspath(value) if isinstance(value, str | os.PathLike) else ""
    if not isinstance(text, str) or not text.startswith(("/", "~")):
        raise InvalidError(f"{value!r} is not a folder of this machine", remedy="Give an absolute path.")
    return os.path.expanduser(text)


def parse_folder(value: object) -> str:
    """The path of a folder, from text, a path or a file:// URL, or the URL of a place in a remote storage, without '/'
    at its end. Raises InvalidError, also for storages that are not supported."""
    text = os.fspath(value) if isinstance(value, str | os.PathLike) else ""
    if not isinstance(text, str) or not text:
        raise InvalidError(f"{value!r} is not a folder", remedy=f"Give {PLACES}.")
    if is_remote(text):
        return tidy_remote(text)
    scheme = _SCHEME.match(text)
    if scheme is None:
        return text
    if text.startswith("file:///"):
        return unquote(text.removeprefix("file://"))
    if scheme[1].lower() in (*REMOTE, "file"):
        raise InvalidError(f"{text!r} names no folder of this machine and is no URL", remedy=f"Give {PLACES}, as text.")
    raise not_supported(scheme[1])


def nearest(wrong: str, right: Iterable[str]) -> str:
    """'; did you mean parallelism?', or nothing when no right name is near."""
    near = difflib.get_close_matches(wrong, list(right), n=1, cutoff=0.5)
    return f"; did you mean {near[0]}?" if near else ""
