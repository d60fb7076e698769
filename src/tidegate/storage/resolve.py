"""From the text of `checkpoints.dir` to a storage. Only kinds that pass the conformance kit are opened."""

import re
from pathlib import Path
from urllib.parse import unquote

from tidegate.errors import InvalidError
from tidegate.storage.local import LocalStorage
from tidegate.storage.memory import MemoryStorage
from tidegate.storage.port import Storage

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://|(file|memory):")
_LOCAL_HOSTS = ("", "localhost")
_REMEDY = "Use the path of a directory, file:///path/to/directory, or memory: (which does not outlive the process)."


def open_storage(url: str, *, writable: bool = False) -> Storage:
    """The storage that `url` names: a path of a directory, `file://…`, or `memory:` (a new, empty one each time).

    With `writable`, a directory is created and proved to take writes before this returns; otherwise nothing is touched.
    Raises `InvalidError` for what is not supported or cannot be written.
    """
    scheme = _SCHEME.match(url)
    if scheme is None:
        return _local(url, url, writable)
    kind = (scheme[1] or scheme[2]).lower()
    rest = url[scheme.end() :]
    if kind == "file":
        return _local(_path_of_file_url(url, rest), url, writable)
    if kind == "memory":
        return MemoryStorage()
    raise InvalidError(f"{url}: checkpoints in {kind}:// are not supported yet", remedy=_REMEDY)


def _path_of_file_url(url: str, rest: str) -> str:
    host, slash, path = rest.partition("/")
    if host not in _LOCAL_HOSTS or not slash:
        raise InvalidError(f"{url} does not name a directory of this machine", remedy=_REMEDY)
    return unquote(slash + path)


def _local(path: str, url: str, writable: bool) -> LocalStorage:
    if not path.strip():
        raise InvalidError(f"{url!r} names no directory", remedy=_REMEDY)
    storage = LocalStorage(Path(path).expanduser())
    if writable:
        storage.check_writable()
    return storage
