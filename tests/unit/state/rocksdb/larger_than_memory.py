"""A worker's state in a process that may only have a part of it in memory: run by `test_larger_than_memory`.

Arguments: a folder, keys, bytes a value, bytes of memory. Prints one JSON object with what was seen.
"""

import json
import random
import resource
import sys
import time
from pathlib import Path

from tidegate.checkpoint.protocol import OperatorSnapshot, StateHandle
from tidegate.checkpoint.store import checksum
from tidegate.ids import CheckpointId, OperatorName, SubtaskIndex
from tidegate.state.descriptors import ValueState
from tidegate.state.rocksdb import RocksMemory, RocksStateBackend

OPERATOR = OperatorName("large")
ROCKS_MEMORY = 16 << 20
CACHE = 8 << 20


class Folder:
    """Stored files, in a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.path.mkdir()
        self.written = 0

    def write(self, part: str, data: bytes, groups: range, *, form: str = "", name: str = "") -> StateHandle:
        (self.path / part).write_bytes(data)
        self.written += len(data)
        return StateHandle(groups.start, groups.stop - 1, len(data), checksum(data), part, form=form, name=name)

    def read_state(self, handle: StateHandle) -> bytes:
        return (self.path / str(handle.path)).read_bytes()


def value_of(key: int, version: int, size: int) -> str:
    """Text that compression does not make much smaller than half."""
    return random.Random(key * 1000 + version).randbytes(size // 2).hex()


def backend(folder: Path, memory: RocksMemory) -> RocksStateBackend:
    return RocksStateBackend(OPERATOR, SubtaskIndex(0), 1, 128, folder / "large.0", memory, cache_bytes=CACHE)


def peak_memory() -> int:
    """Bytes that were resident at once, of this program alone: `ru_maxrss` begins with what its parent had."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise OSError("the kernel does not say how much memory was resident")


def main(folder: Path, keys: int, size: int, limit: int) -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    descriptor = ValueState(str, default="", name="text")
    files, memory = Folder(folder / "stored"), RocksMemory(ROCKS_MEMORY)
    live = backend(folder / "1", memory)
    text = live.register(descriptor)
    versions: dict[int, int] = {}
    sizes, pauses = [], []
    started = time.perf_counter()
    for key in range(keys):
        live.set_current_key(key)
        text.update(value_of(key, 0, size))
    filled = time.perf_counter() - started
    chosen = random.Random(7)
    snapshot = OperatorSnapshot(OPERATOR)
    for checkpoint in range(1, 12):
        before, began = files.written, time.perf_counter()
        capture = live.capture(CheckpointId(checkpoint))
        pauses.append(time.perf_counter() - began)
        handles = capture.store(files)
        snapshot = OperatorSnapshot(OPERATOR, key_type=capture.key_type, states=capture.states, handles=handles)
        live.completed(CheckpointId(checkpoint))
        sizes.append(files.written - before)
        work = live.maintenance()
        if work is not None:
            work.run(files)
        for _ in range(keys // 100 if checkpoint < 11 else 0):
            key = chosen.randrange(keys)
            live.set_current_key(key)
            assert text.value() == value_of(key, versions.get(key, 0), size)
            versions[key] = versions.get(key, 0) + 1
            text.update(value_of(key, versions[key], size))
    live.close()
    again = backend(folder / "elsewhere" / "2", memory)
    again.restore([snapshot], files)
    text = again.register(descriptor)
    for key in (*versions, *range(0, keys, 50)):
        again.set_current_key(key)
        assert text.value() == value_of(key, versions.get(key, 0), size)
    again.close()
    seen = {
        "filled": filled,
        "sizes": sizes,
        "pauses": pauses,
        "rss": peak_memory(),
    }
    print(json.dumps(seen))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
