"""A storage in this process's memory, for the `memory` preset and for tests. Nothing survives the process.

It is the storage port at its simplest: no folders, no failures. It must never be used where another process, or a later
one, has to find what was stored.
"""

from tidegate.storage.paths import checked, checked_prefix
from tidegate.storage.port import AlreadyExists, NotFound


class _Blob:
    """A box for some bytes: unlike the bytes, it is never the same object as another writer's."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = bytes(data)


class MemoryStorage:
    """Blobs in a dict. Any number of threads may call it: each operation is one atomic operation of the dict."""

    def __init__(self) -> None:
        self._blobs: dict[str, _Blob] = {}

    @property
    def location(self) -> str:
        return "memory:"

    def put_if_absent(self, path: str, data: bytes) -> None:
        blob = _Blob(data)
        if self._blobs.setdefault(checked(path), blob) is not blob:
            raise AlreadyExists(path)

    def write(self, path: str, data: bytes) -> None:
        self._blobs[checked(path)] = _Blob(data)

    def read(self, path: str) -> bytes:
        blob = self._blobs.get(checked(path))
        if blob is None:
            raise NotFound(path)
        return blob.data

    def exists(self, path: str) -> bool:
        return checked(path) in self._blobs

    def list(self, prefix: str) -> list[str]:
        checked_prefix(prefix)
        return sorted(path for path in tuple(self._blobs) if path.startswith(prefix))

    def delete(self, path: str) -> None:
        self._blobs.pop(checked(path), None)
