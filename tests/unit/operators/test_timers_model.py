"""Timers against a model: whatever is registered, deleted, fired, restored and rescaled, each timer fires exactly once,
in order, and none that was deleted."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.checkpoint.protocol import OperatorSnapshot
from tidegate.ids import CheckpointId, OperatorName, SubtaskIndex
from tidegate.operators.timers import PROCESSING_TIMERS, TimerQueue
from tidegate.state.key_groups import key_group, subtask_of
from tidegate.state.keys import encode_key
from tidegate.state.object_backend import ObjectStateBackend
from tidegate.testing.conformance.state_kit import KeptFiles

GROUPS = 16
NAME = OperatorName("it")
Timer = tuple[str, int]


class Subtasks:
    """The queues of all subtasks, and what they go on from."""

    def __init__(self, parallelism: int, snapshots: list[OperatorSnapshot], files: KeptFiles) -> None:
        self.backends = [ObjectStateBackend(NAME, SubtaskIndex(i), parallelism, GROUPS) for i in range(parallelism)]
        for backend in self.backends:
            if snapshots:
                backend.restore(snapshots, files)
        self.queues = [TimerQueue(backend, PROCESSING_TIMERS) for backend in self.backends]
        for queue in self.queues:
            queue.load()

    def of(self, key: str) -> TimerQueue:
        """The queue of a key, which is then the current one."""
        subtask = subtask_of(key_group(key, GROUPS), len(self.queues), GROUPS)
        self.backends[subtask].set_current_key(key)
        return self.queues[subtask]

    def fire(self, now: int, most: int = 10**6) -> list[list[Timer]]:
        """By subtask, in order, at most so many of each."""
        return [
            [(key, timestamp) for timestamp, key, _ in queue.take_due(now, most, lambda: False)]
            for queue in self.queues
        ]

    def in_order(self, timers: set[Timer], now: int) -> list[list[Timer]]:
        """Those that are due at `now`, by subtask."""
        due = sorted((timer for timer in timers if timer[1] <= now), key=lambda timer: (timer[1], encode_key(timer[0])))
        subtasks = [subtask_of(key_group(key, GROUPS), len(self.queues), GROUPS) for key, _ in due]
        return [
            [timer for timer, its in zip(due, subtasks, strict=True) if its == subtask]
            for subtask in range(len(self.queues))
        ]

    def checkpoint(self, number: int, files: KeptFiles) -> list[OperatorSnapshot]:
        captures = [backend.capture(CheckpointId(number)) for backend in self.backends]
        return [OperatorSnapshot(NAME, key_type=c.key_type, states=c.states, handles=c.store(files)) for c in captures]


keys = st.sampled_from(["a", "b", "c", "d", "e", "f"])
times = st.integers(-3, 40)
operations = st.lists(
    st.one_of(
        st.tuples(st.just("register"), keys, times),
        st.tuples(st.just("delete"), keys, times),
        st.tuples(st.just("fire"), st.integers(0, 15), st.none()),
        st.tuples(st.just("fire some"), st.integers(0, 15), st.integers(1, 3)),
        st.tuples(st.just("restart"), st.integers(1, 4), st.none()),
        st.tuples(st.just("go back"), st.integers(1, 4), st.none()),
    ),
    max_size=60,
)


@given(operations)
@settings(max_examples=150, deadline=None)
def test_timers_are_a_set_of_keys_and_times_from_which_what_is_due_is_taken(done: list[tuple[Any, ...]]) -> None:
    files = KeptFiles()
    subtasks, wanted, now, number = Subtasks(1, [], files), set[Timer](), 0, 0
    kept: tuple[list[OperatorSnapshot], set[Timer]] = ([], set())
    for what, one, other in done:
        if what == "register":
            subtasks.of(one).register(other, one)
            wanted.add((one, other))
        elif what == "delete":
            subtasks.of(one).delete(other, one)
            wanted.discard((one, other))
        elif what == "fire":
            now += one
            fired = subtasks.fire(now)
            due = {timer for timer in wanted if timer[1] <= now}
            assert sorted(timer for part in fired for timer in part) == sorted(due)
            for part in fired:
                assert part == sorted(part, key=lambda timer: (timer[1], encode_key(timer[0])))
            wanted -= due
        elif what == "fire some":
            now += one
            for part, first in zip(subtasks.fire(now, other), subtasks.in_order(wanted, now), strict=True):
                assert part == first[:other]
                wanted -= set(part)
        else:
            if what == "restart":
                number += 1
                kept = (subtasks.checkpoint(number, files), wanted.copy())
            subtasks, wanted = Subtasks(one, kept[0], files), kept[1].copy()
        assert {queue.next for queue in subtasks.queues} - {None} <= {timestamp for _, timestamp in wanted}
    assert sorted(timer for part in subtasks.fire(10**6) for timer in part) == sorted(wanted)
