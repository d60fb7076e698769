"""A million timers in one subtask, without a job around it: how long a barrier stops the records, and how long a start
takes to have them all again."""

import os
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tidegate.checkpoint.protocol import OperatorSnapshot
from tidegate.ids import CheckpointId, OperatorName, SubtaskIndex
from tidegate.operators.timers import PROCESSING_TIMERS, TimerQueue
from tidegate.state.backend import KeyedStateBackend
from tidegate.state.object_backend import ObjectStateBackend
from tidegate.state.rocksdb import RocksMemory, RocksStateBackend
from tidegate.testing.conformance.state_kit import KeptFiles

KEYS = int(os.environ.get("LOAD_TIMERS", "1000000"))
BARRIERS = 10
CHANGED = 1000
OPERATOR, SUBTASK = OperatorName("alarms"), SubtaskIndex(0)
PAUSE_BOUND = 0.1
"""Seconds for a barrier behind which a thousand of a million keys have changed; twenty times what was measured."""
NEVER = 2**60


def made(backend: str, folder: Path) -> KeyedStateBackend:
    if backend == "fs":
        return ObjectStateBackend(OPERATOR, SUBTASK, 1, 128)
    return RocksStateBackend(OPERATOR, SUBTASK, 1, 128, folder, RocksMemory())


class Barriers:
    """Captures of one backend, stored at once, and how long each one held up the task."""

    def __init__(self, backend: KeyedStateBackend, files: KeptFiles) -> None:
        self._backend = backend
        self._files = files
        self._last = 0
        self.pauses: list[float] = []
        self.storing: list[float] = []

    def take(self) -> OperatorSnapshot:
        self._last += 1
        checkpoint = CheckpointId(self._last)
        capture, pause = timed(lambda: self._backend.capture(checkpoint))
        handles, storing = timed(lambda: capture.store(self._files))
        self._backend.completed(checkpoint)
        self.pauses.append(pause)
        self.storing.append(storing)
        return OperatorSnapshot(OPERATOR, key_type=capture.key_type, states=capture.states, handles=handles)


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """Its result, and the CPU seconds of this thread: what it would take with a core of its own."""
    begun = time.thread_time()
    return work(), time.thread_time() - begun


def register(backend: KeyedStateBackend, queue: TimerQueue, keys: range) -> None:
    for key in keys:
        backend.set_current_key(key)
        queue.register(NEVER + key % 1000, key)


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("backend", ["fs", "rocksdb"])
def test_a_barrier_stops_a_million_timers_for_what_has_changed_alone(tmp_path: Path, backend: str) -> None:
    files = KeptFiles()
    with closing(made(backend, tmp_path / "first")) as state:
        queue, barriers = TimerQueue(state, PROCESSING_TIMERS), Barriers(state, files)
        registering = 0.0
        for number in range(BARRIERS):
            keys = range(number * KEYS // BARRIERS, (number + 1) * KEYS // BARRIERS)
            registering += timed(lambda keys=keys: register(state, queue, keys))[1]
            barriers.take()
        register(state, queue, range(KEYS, KEYS + CHANGED))
        snapshot = barriers.take()
    *while_filling, pause = barriers.pauses
    with closing(made(backend, tmp_path / "second")) as state:
        _, restoring = timed(lambda: state.restore([snapshot], files))
        queue = TimerQueue(state, PROCESSING_TIMERS)
        _, loading = timed(queue.load)
        assert queue.next == NEVER
        due, firing = timed(lambda: len([key for _, key, _ in queue.take_due(NEVER + 1000, KEYS // 10, lambda: False)]))
        assert due == KEYS // 10
    print(
        f"\n{backend}: {KEYS} timers, {KEYS / registering:,.0f} registered a second; pause {pause * 1000:.1f} ms with"
        f" {CHANGED} new ones, {max(while_filling) * 1000:.0f} ms with {KEYS // BARRIERS};"
        f" restored in {restoring:.1f} s, indexed in {loading:.1f} s; {due / firing:,.0f} fired a second"
    )
    assert pause <= PAUSE_BOUND
