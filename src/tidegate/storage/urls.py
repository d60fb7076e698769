"""Which URLs can name a place for checkpoints, for whoever reads settings and for whoever opens storages.

A URL is shown, logged and kept in processes' arguments. So one that could hold a secret is refused here, before anybody
shows it, and the message does not repeat it. This module must never open anything.
"""

import re

from tidegate.errors import InvalidError

REMOTE = ("s3", "hdfs", "webhdfs")
"""Schemes of storages that no folder of this machine stands for."""

PLACES = "a folder, local or on a shared mount, s3://bucket/path or webhdfs://host:port/path"
"""What there is to choose from, for messages."""

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")


def is_remote(text: str) -> bool:
    """Whether `text` names a place in a remote storage, and not a folder."""
    return _scheme(text) in REMOTE


def split_remote(url: str) -> tuple[str, str, str]:
    """Scheme, host (or bucket) and path of a remote URL; the path without '/' at its ends, '' when there is none.

    Raises InvalidError for one with credentials, a query or a fragment, without a host, or with a path that has an
    empty part or a part of dots. The path is taken as it is: nothing in it is decoded.
    """
    scheme = _scheme(url)
    host, _, path = url[len(scheme) + 3 :].partition("/")
    if "@" in host or re.search(r"[?#]", url):
        raise InvalidError(
            f"this {scheme}:// URL has a user, a query or a fragment, and a URL of checkpoints is shown and logged",
            remedy=f"Write only {scheme}://{'bucket' if scheme == 's3' else 'host:port'}/path; credentials come from "
            "the environment.",
        )
    path = path.rstrip("/")
    if not host or not host.isprintable() or not _is_plain(path):
        raise InvalidError(f"{url!r} names no place for checkpoints", remedy=f"Give {PLACES}.")
    return scheme, host, path


def tidy_remote(url: str) -> str:
    """A remote URL without '/' at its end, its scheme in small letters. Raises InvalidError as `split_remote` does."""
    scheme, host, path = split_remote(url)
    return f"{scheme}://{host}/{path}".rstrip("/")


def parent_of(url: str) -> tuple[str, str]:
    """The folder that holds what a remote URL names, and the last part of its path, which is '' where it has none."""
    scheme, host, path = split_remote(url)
    folder, _, name = path.rpartition("/")
    return f"{scheme}://{host}/{folder}".rstrip("/"), name


def not_supported(scheme: str) -> InvalidError:
    """The answer to a URL of any other kind."""
    return InvalidError(
        f"checkpoints in {scheme}:// are not supported: it is not proved that of several writers there exactly one "
        "creates a file",
        remedy=f"Give {PLACES}.",
    )


def _scheme(text: str) -> str:
    found = _SCHEME.match(text)
    return found[1].lower() if found else ""


def _is_plain(path: str) -> bool:
    return not path or (path.isprintable() and all(part.strip(".") for part in path.split("/")))
