"""A simulated storage behind the storage port: blobs in memory that outlive every process, reached through a gate.

`put_if_absent` is atomic and nothing is ever torn: that is the port's promise, and the kit for storages tests it
elsewhere. What a caller may learn wrong is only whether its call had an effect.
"""

from collections.abc import Callable

from tidegate.storage.memory import MemoryStorage
from tidegate.storage.port import AlreadyExists, StorageUnavailable
from tidegate.testing.sim.gate import Gate

OnCreate = Callable[[str, bytes], None]
"""Path and content of what has just been created."""


LOCATION = "sim:"


def folder_of(location: str) -> str:
    """The folder that a storage of here calls `location`."""
    return location.removeprefix(f"{LOCATION}/")


class Blobs:
    """What is stored. `on_create` and `on_delete` are told of every change."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.memory = MemoryStorage()
        self.created_at: dict[str, float] = {}
        """Seconds."""
        self._now = now
        self.on_create: list[OnCreate] = []
        self.on_delete: list[Callable[[str], None]] = []

    def put_if_absent(self, path: str, data: bytes) -> None:
        self.memory.put_if_absent(path, data)
        self.created_at[path] = self._now()
        for told in self.on_create:
            told(path, data)

    def delete(self, path: str) -> None:
        if self.memory.exists(path):
            self.memory.delete(path)
            for told in self.on_delete:
                told(path)


class SimStorage:
    """The storage as one process sees it."""

    def __init__(self, blobs: Blobs, gate: Gate) -> None:
        self._blobs = blobs
        self._gate = gate

    @property
    def location(self) -> str:
        return LOCATION

    def put_if_absent(self, path: str, data: bytes) -> None:
        self._gate.call(
            f"creates {path}", lambda: self._blobs.put_if_absent(path, data), StorageUnavailable, can_land_later=True
        )

    def write(self, path: str, data: bytes) -> None:
        self._gate.call(f"writes {path}", lambda: self._replace(path, data), StorageUnavailable)

    def _replace(self, path: str, data: bytes) -> None:
        try:
            self._blobs.put_if_absent(path, data)
        except AlreadyExists:
            self._blobs.memory.write(path, data)

    def read(self, path: str) -> bytes:
        return self._gate.call(f"reads {path}", lambda: self._blobs.memory.read(path), StorageUnavailable)

    def exists(self, path: str) -> bool:
        return self._gate.call(f"looks for {path}", lambda: self._blobs.memory.exists(path), StorageUnavailable)

    def list(self, prefix: str) -> list[str]:
        return self._gate.call(f"lists {prefix}", lambda: self._blobs.memory.list(prefix), StorageUnavailable)

    def delete(self, path: str) -> None:
        self._gate.call(f"deletes {path}", lambda: self._blobs.delete(path), StorageUnavailable, can_land_later=True)
