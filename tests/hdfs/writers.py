"""What writers in processes of their own do, one of which is killed, or outlives HDFS."""

import time
from collections.abc import Callable
from typing import TypeVar

from tidegate.storage.hdfs import open_hdfs
from tidegate.storage.port import AlreadyExists, Storage, StorageUnavailable

PAUSE = 0.02
_Result = TypeVar("_Result")


def put_one(url: str, path: str, data: bytes) -> None:
    open_hdfs(url).put_if_absent(path, data)


def put_numbered(url: str, count: int) -> None:
    """Whatever happens to HDFS meanwhile."""
    storage = Persistent(open_hdfs(url))
    for number in range(count):
        storage.put_if_absent(f"numbered/{number:03d}", content_of(number))


def content_of(number: int) -> bytes:
    return f"{number},".encode() * 5000


class Persistent:
    """A storage that is asked again until it answers, as the JobManager's shell does; after its own answer was lost it
    reads back what is there."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.repetitions = 0

    @property
    def location(self) -> str:
        return self._storage.location

    def put_if_absent(self, path: str, data: bytes) -> None:
        content, before = bytes(data), self.repetitions
        try:
            self._persist(lambda: self._storage.put_if_absent(path, content))
        except AlreadyExists:
            if self.repetitions == before or self.read(path) != content:
                raise

    def write(self, path: str, data: bytes) -> None:
        self._persist(lambda: self._storage.write(path, data))

    def read(self, path: str) -> bytes:
        return self._persist(lambda: self._storage.read(path))

    def exists(self, path: str) -> bool:
        return self._persist(lambda: self._storage.exists(path))

    def list(self, prefix: str) -> list[str]:
        return self._persist(lambda: self._storage.list(prefix))

    def delete(self, path: str) -> None:
        self._persist(lambda: self._storage.delete(path))

    def _persist(self, call: Callable[[], _Result]) -> _Result:
        while True:
            try:
                return call()
            except StorageUnavailable:
                self.repetitions += 1
                time.sleep(PAUSE)
