"""From the text of `checkpoints.dir` to a storage. Only kinds that pass the conformance kit are opened.

What a remote kind needs is imported when it is first used: it may be missing, and it takes time.
"""

import os
import re
from pathlib import Path
from urllib.parse import unquote

from tidegate.errors import InvalidError
from tidegate.storage.local import LocalStorage
from tidegate.storage.memory import MemoryStorage
from tidegate.storage.port import Storage
from tidegate.storage.urls import PLACES, not_supported, split_remote

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://|(file|memory):")
_LOCAL_HOSTS = ("", "localhost")
_REMEDY = f"Give {PLACES}; or memory: (which does not outlive the process)."


def open_storage(url: str, *, writable: bool = False) -> Storage:
    """The storage that `url` names: a path of a directory, `file://…`, `s3://…`, `webhdfs://…`, or `memory:` (a new,
    empty one each time).

    With `writable`, the place is proved to take writes before this returns, and a directory is created; otherwise
    nothing is touched. Raises `InvalidError` for what is not supported or cannot be written.
    """
    scheme = _SCHEME.match(url)
    if scheme is None:
        return _local(url, url, writable)
    kind = (scheme[1] or scheme[2]).lower()
    rest = url[scheme.end() :]
    match kind:
        case "file":
            return _local(_path_of_file_url(url, rest), url, writable)
        case "memory":
            return MemoryStorage()
        case "s3":
            return _s3(url, writable)
        case "hdfs" | "webhdfs":
            return _hdfs(url, writable)
    raise not_supported(kind)


def _path_of_file_url(url: str, rest: str) -> str:
    host, slash, path = rest.partition("/")
    if host not in _LOCAL_HOSTS or not slash:
        raise InvalidError(f"{url} does not name a directory of this machine", remedy=_REMEDY)
    return unquote(slash + path)


def _local(path: str, url: str, writable: bool) -> LocalStorage:
    if not path.strip() or "\0" in path:
        raise InvalidError(f"{url!r} names no directory", remedy=_REMEDY)
    # Not Path.expanduser, which raises where there is no such user.
    storage = LocalStorage(Path(os.path.expanduser(path)))
    if writable:
        storage.check_writable()
    return storage


def _s3(url: str, writable: bool) -> Storage:
    split_remote(url)  # What is wrong with the URL is said before what is missing for it.
    try:
        from tidegate.storage.s3 import open_s3
    except ImportError as missing:
        if (missing.name or "").partition(".")[0] == "tidegate":
            raise
        raise InvalidError(
            f"checkpoints in s3:// need a package that is not installed: {missing.name}",
            remedy="Run: pip install 'tidegate[s3]'",
        ) from missing
    return open_s3(url, writable=writable)


def _hdfs(url: str, writable: bool) -> Storage:
    from tidegate.storage.hdfs import open_hdfs

    return open_hdfs(url, writable=writable)
