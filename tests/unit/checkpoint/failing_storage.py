"""A storage that gives no answer when it is told so, and one from which entries vanish."""

from dataclasses import dataclass, field

from tidegate.storage.memory import MemoryStorage
from tidegate.storage.port import Storage, StorageUnavailable


@dataclass
class FailingStorage:
    """A storage that fails as asked: before a write, or after it, when the outcome is unknown to the caller."""

    inner: Storage = field(default_factory=MemoryStorage)
    before: int = 0
    after: int = 0
    reads: int = 0
    vanish: list[str] = field(default_factory=list)
    """Paths that another process deletes once they were listed."""

    location = "failing:"

    def put_if_absent(self, path: str, data: bytes) -> None:
        self._fail("before")
        self.inner.put_if_absent(path, data)
        self._fail("after")

    def write(self, path: str, data: bytes) -> None:
        self.inner.write(path, data)

    def read(self, path: str) -> bytes:
        self._fail("reads")
        return self.inner.read(path)

    def exists(self, path: str) -> bool:
        return self.inner.exists(path)

    def list(self, prefix: str) -> "list[str]":
        self._fail("reads")
        found = self.inner.list(prefix)
        if self.vanish:
            self.inner.delete(self.vanish.pop())
        return found

    def delete(self, path: str) -> None:
        self.inner.delete(path)

    def _fail(self, when: str) -> None:
        left = getattr(self, when)
        if left:
            setattr(self, when, left - 1)
            raise StorageUnavailable("no answer")
