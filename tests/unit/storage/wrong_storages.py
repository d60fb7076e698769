"""Storages that break the port's promise in the two ways that happen, to show that the conformance kit notices."""

from pathlib import Path

from tidegate.storage.local import LocalStorage
from tidegate.storage.port import AlreadyExists


class CheckThenWriteStorage(LocalStorage):
    """Looks whether the path is free and then writes: two writers can both find it free."""

    def put_if_absent(self, path: str, data: bytes) -> None:
        if self.exists(path):
            raise AlreadyExists(path)
        self.write(path, data)


class TearingStorage(LocalStorage):
    """Creates the file under its name and then fills it: exactly one wins, but a kill leaves a part."""

    def put_if_absent(self, path: str, data: bytes) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            with Path.open(file, "xb", buffering=0) as opened:
                for start in range(0, len(data), 512):
                    opened.write(data[start : start + 512])
        except FileExistsError:
            raise AlreadyExists(path) from None
