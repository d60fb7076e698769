"""The RocksDB state backend beside the object backend: a keyed sum over keys that are used again and again, and over
keys of which each comes rarely.

Each run is a process of its own: it reads and updates one `int` of the key for each record, in batches, with a barrier
now and then whose capture is stored. Ratios of one run on one machine mean something, single rates do not.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tidegate.checkpoint.store import CheckpointStore
from tidegate.ids import Attempt, CheckpointId, JobName, OperatorName, SubtaskIndex, TaskId, VertexName
from tidegate.runtime.control import RuntimeOptions
from tidegate.runtime.snapshots import OperatorFiles
from tidegate.state.backend import KeyedStateBackend
from tidegate.state.descriptors import ValueState
from tidegate.state.object_backend import ObjectStateBackend
from tidegate.state.rocksdb import RocksMemory, RocksStateBackend
from tidegate.storage.local import LocalStorage

OPERATOR = OperatorName("sum")
BARRIERS = 4
SEED = 7


def made(backend: str, folder: Path) -> KeyedStateBackend:
    if backend == "object":
        return ObjectStateBackend(OPERATOR, SubtaskIndex(0), 1, 128)
    return RocksStateBackend(OPERATOR, SubtaskIndex(0), 1, 128, folder / "database", RocksMemory())


def run(backend_name: str, keys: int, records: int) -> dict[str, float]:
    """Rates in records a second, with and without what the checkpoints take on the way; memory in MB."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        store = CheckpointStore(LocalStorage(folder / "checkpoints"), JobName("bench"))
        task = TaskId(VertexName("sum"), SubtaskIndex(0))
        files = OperatorFiles(store, task, OPERATOR, Attempt(1), RuntimeOptions())
        backend = made(backend_name, folder)
        total: Any = backend.register(ValueState(int, default=0, name="total"))
        chance = random.Random(SEED)
        drawn = [f"key-{chance.randrange(keys)}" for _ in range(records)]
        seconds, pauses = 0.0, []
        for number in range(BARRIERS):
            began = time.perf_counter()
            for key in drawn[number * records // BARRIERS : (number + 1) * records // BARRIERS]:
                backend.set_current_key(key)
                total.update(total.value() + 1)
            at_barrier = time.perf_counter()
            capture = backend.capture(CheckpointId(number + 1))
            pauses.append(time.perf_counter() - at_barrier)
            seconds += time.perf_counter() - began
            capture.store(files)
            backend.completed(CheckpointId(number + 1))
        backend.close()
    memory = peak_memory()
    return {"records": records / seconds, "pause": max(pauses), "memory": memory}


def peak_memory() -> float:
    """MB that were resident at once, of this process alone: `ru_maxrss` begins with what its parent had."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024


def in_a_process(backend: str, keys: int, records: int) -> dict[str, float]:
    command = [sys.executable, __file__, "--one", backend, "--keys", str(keys), "--records", str(records)]
    found: dict[str, float] = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--one", choices=("object", "rocksdb"), help="one run, in this process")
    parser.add_argument("--keys", type=int, default=5_000_000, help="of the run with many keys")
    parser.add_argument("--records", type=int, default=2_000_000)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(run(arguments.one, arguments.keys, arguments.records)))
        return
    for keys in (10_000, arguments.keys):
        objects, database = (in_a_process(backend, keys, arguments.records) for backend in ("object", "rocksdb"))
        print(f"{keys:,} keys, {arguments.records:,} records")
        for name, found in (("object", objects), ("rocksdb", database)):
            print(
                f"  {name:8} {found['records']:12,.0f} records/s, ratio {found['records'] / objects['records']:.2f}; "
                f"longest pause {found['pause'] * 1000:.1f} ms; {found['memory']:.0f} MB resident"
            )


if __name__ == "__main__":
    main()
