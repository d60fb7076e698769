"""Whether a savepoint is what it must be: whole, of one moment, with nothing left to commit, and good for going on from
anywhere: in another folder, at another parallelism, as often as anybody likes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tidegate.checkpoint.manifest import Manifest
from tidegate.ids import CheckpointId, LogInstance
from tidegate.savepoints.format import FILE, SavepointReader
from tidegate.savepoints.places import StorageFolder
from tidegate.storage.memory import MemoryStorage
from tidegate.testing.sim.checkers import Violated
from tidegate.testing.sim.cuts import CutChecker
from tidegate.testing.sim.gate import OpenGate
from tidegate.testing.sim.job import Event
from tidegate.testing.sim.storage import Blobs, SimStorage, folder_of


@dataclass(frozen=True)
class KeptSavepoint:
    """A copy of one, taken when somebody was told that it is there."""

    path: str
    manifest: Manifest
    files: dict[str, bytes]
    before: tuple[Event, ...]
    """What had been read."""


class SavepointChecker:
    """Looks at each savepoint when it is complete, and again when somebody is told that it is."""

    def __init__(self, blobs: Blobs, cuts: CutChecker, committed: Callable[[], Sequence[set[int]]], violated: Violated):
        self._blobs = blobs
        self._cuts = cuts
        self._committed = committed
        self._violated = violated
        self.kept: dict[str, KeptSavepoint] = {}

    def created(self, path: str, data: bytes) -> None:
        """A blob came: the last one of a savepoint?"""
        if not path.endswith(f"/{FILE}"):
            return
        reader = self._reader(path.removesuffix(f"/{FILE}"))
        before = self._cuts.before(reader.manifest(), f"savepoint {path}", reader)
        for topic, ids in enumerate(self._committed() if before is not None else ()):
            missing = sorted({event.id for event in before or ()} - ids)
            if missing:
                self._violated(f"savepoint {path} is of a state whose events {missing} are not out in output {topic}")

    def check(self, location: str) -> None:
        """Somebody was told that the savepoint is at `location`."""
        folder = folder_of(location)
        reader = self._reader(folder)
        wrong = reader.verify()
        if wrong:
            self._violated(f"savepoint {location} is not whole: {wrong}")
            return
        manifest = reader.manifest()
        self._cuts.check_state(manifest, f"savepoint {location}", reader)
        before = self._cuts.before(manifest, f"savepoint {location}", reader)
        paths = self._blobs.memory.list(f"{folder}/")
        files = {path.removeprefix(f"{folder}/"): self._blobs.memory.read(path) for path in paths}
        self.kept[location] = KeptSavepoint(location, manifest, files, tuple(before or ()))

    def of_checkpoint(self, instance: LogInstance, checkpoint: CheckpointId) -> str | None:
        """The newest one that was made of this checkpoint and is still there."""
        found = [
            kept.path
            for kept in self.kept.values()
            if (kept.manifest.instance, kept.manifest.checkpoint) == (instance, checkpoint)
            and self._blobs.memory.exists(f"{folder_of(kept.path)}/{FILE}")
        ]
        return found[-1] if found else None

    def _reader(self, folder: str) -> SavepointReader:
        return SavepointReader(StorageFolder(SimStorage(self._blobs, OpenGate()), folder))


def put_savepoint(memory: MemoryStorage, kept: KeptSavepoint) -> None:
    """The savepoint at its place in another world."""
    for path, data in kept.files.items():
        memory.write(f"{folder_of(kept.path)}/{path}", data)
