"""A simulated storage behind the storage port: blobs in memory that outlive every process, reached through a gate.

What the port promises holds, and nothing else does: `put_if_absent` is atomic and leaves nothing when its caller dies
in the middle, while `write` leaves a torn blob then, and also where no answer came. A listing shows everything that was
there all the time, in the order of paths; where it is made in pages, what comes or goes meanwhile may be in it or not.
"""

from collections.abc import Callable

from tidegate.storage.memory import MemoryStorage
from tidegate.storage.port import StorageUnavailable
from tidegate.testing.sim.gate import Gate

OnCreate = Callable[[str, bytes], None]
"""Path and content of what has just been created."""
SMALLEST_LISTING_IN_PAGES = 2
LOCATION = "sim:"


def folder_of(location: str) -> str:
    """The folder that a storage of here calls `location`."""
    return location.removeprefix(f"{LOCATION}/")


class Blobs:
    """What is stored. `on_create`, `on_replace` and `on_delete` are told of every change."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.memory = MemoryStorage()
        self.created_at: dict[str, float] = {}
        """Seconds."""
        self._now = now
        self.lists_in_pages = False
        self.on_create: list[OnCreate] = []
        self.on_replace: list[OnCreate] = []
        self.on_delete: list[Callable[[str], None]] = []

    def put_if_absent(self, path: str, data: bytes) -> None:
        self.memory.put_if_absent(path, data)
        self.created_at[path] = self._now()
        for told in self.on_create:
            told(path, data)

    def replace(self, path: str, data: bytes) -> None:
        """Create it, or put other content in its place."""
        if not self.memory.exists(path):
            self.put_if_absent(path, data)
            return
        self.memory.write(path, data)
        for told in self.on_replace:
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
        torn = data[: len(data) // 2]
        self._gate.call(f"begins to write {path}", lambda: self._blobs.replace(path, torn), StorageUnavailable)
        self._gate.call(f"writes {path}", lambda: self._blobs.replace(path, data), StorageUnavailable)

    def read(self, path: str) -> bytes:
        return self._gate.call(f"reads {path}", lambda: self._blobs.memory.read(path), StorageUnavailable)

    def exists(self, path: str) -> bool:
        return self._gate.call(f"looks for {path}", lambda: self._blobs.memory.exists(path), StorageUnavailable)

    def list(self, prefix: str) -> list[str]:
        found = self._gate.call(f"lists {prefix}", lambda: self._blobs.memory.list(prefix), StorageUnavailable)
        if not self._blobs.lists_in_pages or len(found) < SMALLEST_LISTING_IN_PAGES:
            return found
        middle = found[len(found) // 2]
        later = self._gate.call(
            f"lists {prefix} from {middle}", lambda: self._blobs.memory.list(prefix), StorageUnavailable
        )
        return [path for path in found if path < middle] + [path for path in later if path >= middle]

    def delete(self, path: str) -> None:
        self._gate.call(f"deletes {path}", lambda: self._blobs.delete(path), StorageUnavailable, can_land_later=True)
