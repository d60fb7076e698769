"""The pause that a barrier makes in the object state backend, and what each checkpoint writes, beside full captures.

Many keys are filled; then again and again some of them are written and a checkpoint is taken. The pause is the time of
`capture`, during which no record is processed. Storing and merging run on another thread, as in a worker, while the
writes of the next checkpoint go on: their longest standstill is measured too.
"""

import argparse
import random
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from tidegate.checkpoint.protocol import StateHandle
from tidegate.checkpoint.store import CheckpointStore
from tidegate.ids import Attempt, CheckpointId, JobName, OperatorName, SubtaskIndex, TaskId, VertexName
from tidegate.runtime.control import RuntimeOptions
from tidegate.runtime.snapshots import OperatorFiles
from tidegate.state.descriptors import ValueState
from tidegate.state.object_backend import ObjectStateBackend
from tidegate.storage.local import LocalStorage

BATCH = 200
"""Records between two looks at the clock."""


class CountingFiles:
    """The files of an operator, with a count of the bytes that were written."""

    def __init__(self, inner: OperatorFiles) -> None:
        self._inner = inner
        self.written = 0

    def write(self, part: str, data: bytes, groups: range, *, form: str = "piece", name: str = "") -> StateHandle:
        self.written += len(data)
        return self._inner.write(part, data, groups, form=form, name=name)

    def read_state(self, handle: StateHandle) -> bytes:
        return self._inner.read_state(handle)


class Checkpoint(NamedTuple):
    """Times in seconds."""

    pause: float
    computed: float
    """CPU time of the pause: what it would be with a core of its own."""
    storing: float
    """On the other thread, while records were processed."""
    merging: float
    standstill: float
    """The longest time for `BATCH` records while the other thread worked."""
    delta_bytes: int
    merge_bytes: int
    handles: int
    chain_bytes: int
    alone: float = 0.0
    """The longest time for `BATCH` records while no other thread worked."""


class Subject:
    """One backend with its files; records are written to random keys."""

    def __init__(self, arguments: argparse.Namespace, folder: Path, *, is_incremental: bool) -> None:
        self.keys = [f"user-{number:07}" for number in range(arguments.keys)]
        self._size = arguments.bytes
        self._touched = max(1, int(arguments.keys * arguments.touched))
        self._random = random.Random(1)
        self._is_mutable = arguments.mutable
        self._backend = ObjectStateBackend(OperatorName("it"), SubtaskIndex(0), 1, 128, is_incremental=is_incremental)
        declared: Any = list[bytes] if arguments.mutable else bytes
        self._handle = self._backend.register(ValueState(declared, name="value"))
        store = CheckpointStore(LocalStorage(folder), JobName("bench"))
        task = TaskId(VertexName("it"), SubtaskIndex(0))
        self._files = CountingFiles(OperatorFiles(store, task, OperatorName("it"), Attempt(1), RuntimeOptions()))
        self._last = 0
        for key in self.keys:
            self.write(key)

    def write(self, key: str) -> None:
        data = self._random.randbytes(self._size)
        self._backend.set_current_key(key)
        self._handle.update([data] if self._is_mutable else data)

    def touch(self) -> float:
        """Write the keys of one interval, while no other thread works; the longest time for `BATCH` records."""
        chosen, longest = self._random.sample(self.keys, self._touched), 0.0
        for start in range(0, len(chosen), BATCH):
            longest = max(longest, self._batch(chosen[start : start + BATCH]))
        return longest

    def _batch(self, keys: list[str]) -> float:
        before = time.perf_counter()
        for key in keys:
            self.write(key)
        return time.perf_counter() - before

    def checkpoint(self) -> Checkpoint:
        self._last += 1
        checkpoint, before = CheckpointId(self._last), self._files.written
        started, computing = time.perf_counter(), time.thread_time()
        capture = self._backend.capture(checkpoint)
        pause, computed = time.perf_counter() - started, time.thread_time() - computing
        handles: list[StateHandle] = []
        storing, still = self._beside(lambda: handles.extend(capture.store(self._files)))
        stored = self._files.written
        self._backend.completed(checkpoint)
        work = self._backend.maintenance()
        merging = 0.0
        if work is not None:
            merging, longest = self._beside(lambda: work.run(self._files))
            still = max(still, longest)
            work.finish(None)
        return Checkpoint(
            pause,
            computed,
            storing,
            merging,
            still,
            stored - before,
            self._files.written - stored,
            len(handles),
            sum(handle.size for handle in handles),
        )

    def _beside(self, work: Callable[[], None]) -> tuple[float, float]:
        """How long `work` takes on another thread, and the longest standstill of this one, which writes meanwhile."""
        finished: list[float] = []

        def run() -> None:
            work()
            finished.append(time.perf_counter())

        thread = threading.Thread(target=run)
        started = time.perf_counter()
        thread.start()
        longest = 0.0
        while thread.is_alive():
            longest = max(longest, self._batch(self.keys[:BATCH]))
        thread.join()
        return finished[0] - started, longest


def measure(arguments: argparse.Namespace, *, is_incremental: bool, rounds: int) -> list[Checkpoint]:
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
        subject = Subject(arguments, Path(folder), is_incremental=is_incremental)
        checkpoints = [subject.checkpoint()]
        for _ in range(rounds):
            alone = subject.touch()
            checkpoints.append(subject.checkpoint()._replace(alone=alone))
    return checkpoints


def report(name: str, checkpoints: list[Checkpoint]) -> float:
    """Print figures of all checkpoints but the first, which is full in any case; the median pause."""
    first, rest = checkpoints[0], checkpoints[1:]
    pauses = [one.pause for one in rest]
    merges = [one for one in rest if one.merging]
    median = statistics.median(pauses)
    print(f"{name}: {len(rest)} checkpoints")
    print(f"  pause at the barrier        median {median * 1e3:.3f} ms, longest {max(pauses) * 1e3:.3f} ms")
    print(f"  of that CPU time            median {statistics.median(one.computed for one in rest) * 1e3:.3f} ms")
    print(f"  bytes of a checkpoint       median {statistics.median(one.delta_bytes for one in rest):,.0f}")
    print(f"  storing, beside processing  median {statistics.median(one.storing for one in rest):.2f} s")
    print(f"  merges                      {len(merges)}, {sum(one.merge_bytes for one in rest):,} bytes in all")
    if merges:
        print(f"                              longest {max(one.merging for one in merges):.2f} s")
    print(f"  longest for {BATCH} records     {max(one.standstill for one in rest):.3f} s beside storing and merging,")
    print(f"                              {max(one.alone for one in rest):.3f} s alone")
    print(f"  handles                     at most {max(one.handles for one in rest)}")
    print(f"  stored in all               {max(one.chain_bytes for one in rest):,} bytes at most")
    print(f"  first checkpoint            pause {first.pause * 1e3:.3f} ms, {first.delta_bytes:,} bytes")
    return median


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=2_000_000)
    parser.add_argument("--bytes", type=int, default=100, help="of each value")
    parser.add_argument("--touched", type=float, default=0.01, help="share of the keys written between checkpoints")
    parser.add_argument("--rounds", type=int, default=60, help="incremental checkpoints")
    parser.add_argument("--full-rounds", type=int, default=5)
    parser.add_argument(
        "--mutable", action="store_true", help="values that can change, written as bytes at the barrier"
    )
    arguments = parser.parse_args()
    incremental = report("incremental", measure(arguments, is_incremental=True, rounds=arguments.rounds))
    full = report("full", measure(arguments, is_incremental=False, rounds=arguments.full_rounds))
    print(f"a full capture pauses {full / incremental:,.0f} times as long")


if __name__ == "__main__":
    main()
