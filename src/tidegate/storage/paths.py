"""What may be the path of a blob: one rule for every storage, so that none of them can be led out of its own place."""

import re

from tidegate.errors import InvalidError

_COMPONENT = r"[A-Za-z0-9_-][A-Za-z0-9._-]*"
_PATH = re.compile(rf"{_COMPONENT}(?:/{_COMPONENT})*")
_REMEDY = "Use letters, digits, '_', '-', '.' and '/'; no part may begin with a dot."


def is_path(text: str) -> bool:
    """Whether `text` can be the path of a blob."""
    return _PATH.fullmatch(text) is not None


def checked(path: str) -> str:
    """`path` itself. Raises `InvalidError` for one that is absolute, leaves the storage, or has a part that begins with
    a dot (those are the storage's own)."""
    if not is_path(path):
        raise InvalidError(f"{path!r} cannot be the path of a stored file", remedy=_REMEDY)
    return path


def checked_prefix(prefix: str) -> str:
    """`prefix` itself: '' or a path followed by '/'. Raises `InvalidError` for any other."""
    if prefix and (not prefix.endswith("/") or not is_path(prefix[:-1])):
        raise InvalidError(f"{prefix!r} cannot be the path of a folder that ends in '/'", remedy=_REMEDY)
    return prefix
