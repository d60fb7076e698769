"""A keyed state backend against plain dicts: any operations, checkpoints that complete, are abandoned or are heard of
late or never, merges at any time, crashes, restores at any parallelism. For Hypothesis.

    class Machine(StateModel):
        def backend(self, subtask, parallelism, max_parallelism): ...

    TestAgainstDicts = Machine.TestCase

The world is as unkind as the real one may be: a file is gone as soon as no kept checkpoint names it, and after a crash
everything that no kept checkpoint names is gone.
"""

import copy
from abc import abstractmethod
from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tidegate.checkpoint.protocol import OperatorSnapshot, StateHandle
from tidegate.errors import CorruptError
from tidegate.ids import CheckpointId, SubtaskIndex
from tidegate.state.backend import KeyedStateBackend, Maintenance
from tidegate.state.descriptors import (
    AggregatingState,
    ListState,
    MapState,
    ReducingState,
    StateDescriptor,
    ValueState,
)
from tidegate.state.key_groups import grouping_of, groups_of, subtask_of
from tidegate.state.keys import encode_key
from tidegate.testing.conformance.state_kit import Basket, KeptFiles, Taken

MAX_PARALLELISM = 8
KEYS = [(f"user-{number}", number if number % 3 else None) for number in range(7)]


def _put(basket: Basket, item: str) -> Basket:
    basket.items.append(item)
    return basket


DESCRIPTORS: tuple[StateDescriptor[Any], ...] = (
    ValueState(int | None, name="value"),
    ValueState(list[int], default_factory=list, name="numbers"),
    ListState(int, name="list"),
    ListState(Basket, name="baskets"),
    MapState(str, Basket, name="map"),
    MapState(str, int, name="counts"),
    ReducingState(int, lambda one, other: one * 3 + other, name="reducing"),
    AggregatingState(Basket, Basket, _put, lambda basket: "".join(basket.items), name="aggregating"),
)
Model = dict[str, dict[Any, Any]]

keys = st.sampled_from(KEYS)
numbers = st.integers(-5, 5)
names = st.sampled_from("xy")


class Kept(NamedTuple):
    """A completed checkpoint."""

    checkpoint: CheckpointId
    snapshots: list[OperatorSnapshot]
    model: Model


class Message(NamedTuple):
    """Of a checkpoint's end, on its way to one subtask."""

    checkpoint: CheckpointId
    has_completed: bool


class Step(NamedTuple):
    """What happens around one barrier."""

    first: int
    """Of the keys that change before it."""
    completes: bool
    hears_late: bool
    """What is on its way reaches all subtasks after this barrier."""
    hears: bool
    """What is on its way reaches all subtasks before the next barrier."""
    merges: int
    """How many subtasks finish a merge."""


steps = st.builds(
    Step, st.integers(0, 6), st.sampled_from([True, True, False]), st.booleans(), st.booleans(), st.integers(0, 3)
)


class Subtask:
    """One subtask of the running attempt: its backend, and what is on its way to it."""

    def __init__(self, backend: KeyedStateBackend, snapshots: list[OperatorSnapshot], files: KeptFiles) -> None:
        self.backend = backend
        with_state = [snapshot for snapshot in snapshots if snapshot.handles]
        if with_state:
            backend.restore(with_state, files)
        self.handles: dict[str, Any] = {each.name: backend.register(each) for each in DESCRIPTORS}
        self.messages: list[Message] = []
        self.merge: Maintenance | None = None


def _clip(snapshot: OperatorSnapshot, groups: range) -> OperatorSnapshot:
    def clipped(handle: StateHandle) -> StateHandle:
        first, last = max(handle.first_group, groups[0]), min(handle.last_group, groups[-1])
        return msgspec.structs.replace(handle, first_group=first, last_group=last)

    handles = (clipped(handle) for handle in snapshot.handles)
    kept = tuple(handle for handle in handles if handle.first_group <= handle.last_group)
    return msgspec.structs.replace(snapshot, handles=kept)


class StateModel(RuleBasedStateMachine):
    """To be overridden: `backend`."""

    key_type = ""
    """That a backend is told of its keys. Co-partitioned keys are a str each."""

    @abstractmethod
    def backend(self, subtask: SubtaskIndex, parallelism: int, max_parallelism: int) -> KeyedStateBackend:
        """An empty backend of a new attempt."""

    @initialize(parallelism=st.integers(1, MAX_PARALLELISM), retained=st.integers(1, 3))
    def start(self, parallelism: int, retained: int) -> None:
        self.files = KeptFiles()
        self.retained = retained
        self.kept: list[Kept] = []
        self.model: Model = {descriptor.name: {} for descriptor in DESCRIPTORS}
        self.last = CheckpointId(0)
        self.taken: list[Taken] = []
        """Of the checkpoint that is neither completed nor abandoned."""
        self.at_barrier: Model = {}
        self.subtasks: list[Subtask] = []
        self.deploy(parallelism, [])

    def deploy(self, parallelism: int, snapshots: list[OperatorSnapshot]) -> None:
        for subtask in self.subtasks:
            subtask.backend.close()
        self.taken = []
        self.subtasks = []
        for index in range(parallelism):
            groups = groups_of(SubtaskIndex(index), parallelism, MAX_PARALLELISM)
            backend = self.backend(SubtaskIndex(index), parallelism, MAX_PARALLELISM)
            self.subtasks.append(Subtask(backend, [_clip(each, groups) for each in snapshots], self.files))
        self.check()

    def teardown(self) -> None:
        for subtask in getattr(self, "subtasks", []):
            subtask.backend.close()

    def given(self, key: Any) -> Any:
        """The key of the backends that stands for one of `KEYS`."""
        return key[0] if self.key_type else key

    def at(self, key: Any) -> dict[str, Any]:
        given = self.given(key)
        group = grouping_of(self.key_type, MAX_PARALLELISM).group_of(encode_key(given))
        owner = self.subtasks[subtask_of(group, len(self.subtasks), MAX_PARALLELISM)]
        owner.backend.set_current_key(given)
        return owner.handles

    # ---- operations ------------------------------------------------------------------------------------------------

    @rule(key=keys, value=st.none() | numbers)
    def update_value(self, key: Any, value: int | None) -> None:
        self.at(key)["value"].update(value)
        self.model["value"][key] = value

    @rule(key=keys, value=numbers)
    def change_what_was_read(self, key: Any, value: int) -> None:
        self.at(key)["numbers"].value().append(value)
        self.model["numbers"].setdefault(key, []).append(value)

    @rule(key=keys, values=st.lists(numbers, max_size=3))
    def extend_list(self, key: Any, values: list[int]) -> None:
        self.at(key)["list"].extend(values)
        if values:
            self.model["list"].setdefault(key, []).extend(values)

    @rule(key=keys, values=st.lists(numbers, max_size=2))
    def update_list(self, key: Any, values: list[int]) -> None:
        self.at(key)["list"].update(values)
        self.model["list"].pop(key, None)
        if values:
            self.model["list"][key] = list(values)

    @rule(key=keys, name=names)
    def add_and_change_elements(self, key: Any, name: str) -> None:
        handle = self.at(key)["baskets"]
        for basket in handle:
            basket.items.append(name)
        handle.add(Basket([name]))
        kept = self.model["baskets"].setdefault(key, [])
        for basket in kept:
            basket.items.append(name)
        kept.append(Basket([name]))

    @rule(key=keys, name=names)
    def put(self, key: Any, name: str) -> None:
        handles = self.at(key)
        handles["map"].put(name, Basket([name]))
        handles["counts"].put(name, len(name))
        self.model["map"].setdefault(key, {})[name] = Basket([name])
        self.model["counts"].setdefault(key, {})[name] = len(name)

    @rule(key=keys, name=names)
    def change_an_entry(self, key: Any, name: str) -> None:
        basket = self.at(key)["map"].get(name)
        if basket is not None:
            basket.items.append("more")
            self.model["map"][key][name].items.append("more")

    @rule(key=keys, name=names)
    def remove(self, key: Any, name: str) -> None:
        handles = self.at(key)
        for state in ("map", "counts"):
            handles[state].remove(name)
            self.model[state].get(key, {}).pop(name, None)
            if not self.model[state].get(key, True):
                del self.model[state][key]

    @rule(key=keys, value=numbers, name=names)
    def add(self, key: Any, value: int, name: str) -> None:
        handles = self.at(key)
        handles["reducing"].add(value)
        handles["aggregating"].add(name)
        reduced, aggregated = self.model["reducing"], self.model["aggregating"]
        reduced[key] = reduced[key] * 3 + value if key in reduced else value
        aggregated.setdefault(key, Basket([])).items.append(name)
        assert handles["aggregating"].get() == "".join(aggregated[key].items)

    @rule(key=keys, name=st.sampled_from([descriptor.name for descriptor in DESCRIPTORS]))
    def clear(self, key: Any, name: str) -> None:
        self.at(key)[name].clear()
        self.model[name].pop(key, None)

    # ---- checkpoints -----------------------------------------------------------------------------------------------

    @precondition(lambda self: not self.taken)
    @rule()
    def barrier(self) -> None:
        self.last = CheckpointId(self.last + 1)
        self.taken = [Taken(subtask.backend.capture(self.last), self.files) for subtask in self.subtasks]
        self.at_barrier = copy.deepcopy(self.model)

    @precondition(lambda self: self.taken)
    @rule()
    def complete(self) -> None:
        snapshots = [taken.snapshot(range(MAX_PARALLELISM)) for taken in self.taken]
        for snapshot in snapshots:
            for handle in snapshot.handles:
                assert handle.path in self.files.contents, f"{handle.path} is named and was deleted"
        self.kept.append(Kept(self.last, snapshots, self.at_barrier))
        dropped, self.kept = self.kept[: -self.retained], self.kept[-self.retained :]
        self._delete(handle for kept in dropped for snapshot in kept.snapshots for handle in snapshot.handles)
        self._tell(has_completed=True)

    @precondition(lambda self: self.taken)
    @rule(acknowledged=st.integers(0, MAX_PARALLELISM))
    def abandon(self, acknowledged: int) -> None:
        self._delete(handle for taken in self.taken[:acknowledged] for handle in taken.handles)
        self._tell(has_completed=False)

    @precondition(lambda self: not self.taken)
    @rule(steps=st.lists(steps, min_size=1, max_size=12))
    def several_checkpoints(self, steps: list[Step]) -> None:
        """Many in one step, so that short runs have them in all orders."""
        for step in steps:
            for key in KEYS[step.first : step.first + 3]:
                self.update_value(key, step.first)
            self.barrier()
            if step.hears_late:
                self.hear_everything()
            if step.completes:
                self.complete()
            else:
                self.abandon(step.first)
            if step.hears:
                self.hear_everything()
            for index in range(step.merges):
                self.merge(index)

    def _tell(self, *, has_completed: bool) -> None:
        self.taken = []
        for subtask in self.subtasks:
            subtask.messages.append(Message(self.last, has_completed))

    def _delete(self, handles: Iterable[StateHandle]) -> None:
        """All of these that no kept checkpoint names."""
        needed = self._needed
        self.files.delete([handle.path for handle in handles if handle.path not in needed])

    @property
    def _needed(self) -> set[str | None]:
        return {handle.path for kept in self.kept for snapshot in kept.snapshots for handle in snapshot.handles}

    @rule()
    def hear_everything(self) -> None:
        for index in range(len(self.subtasks)):
            self._hear(index)

    @rule(index=st.integers(0, MAX_PARALLELISM - 1), missed=st.integers(0, 2))
    def hear(self, index: int, missed: int) -> None:
        """The first ones of what is on its way to a subtask may get lost."""
        if index < len(self.subtasks):
            del self.subtasks[index].messages[:missed]
            self._hear(index)

    def _hear(self, index: int) -> None:
        subtask = self.subtasks[index]
        messages, subtask.messages = subtask.messages, []
        for message in messages:
            if not message.has_completed:
                subtask.backend.abandoned(message.checkpoint)
                continue
            subtask.backend.completed(message.checkpoint)
            if subtask.merge is None:
                subtask.merge = subtask.backend.maintenance()

    @rule(index=st.integers(0, MAX_PARALLELISM - 1))
    def merge(self, index: int) -> None:
        if index >= len(self.subtasks) or self.subtasks[index].merge is None:
            return
        merge, self.subtasks[index].merge = self.subtasks[index].merge, None
        assert merge is not None
        error: CorruptError | None = None
        try:
            merge.run(self.files)
        except CorruptError as problem:  # what it was to read may have been deleted meanwhile
            error = problem
        merge.finish(error)

    # ---- crashes ---------------------------------------------------------------------------------------------------

    @rule(parallelism=st.integers(1, MAX_PARALLELISM), back=st.integers(0, 2))
    def die_and_restore(self, parallelism: int, back: int) -> None:
        """Usually from the newest checkpoint; going back to an older one gives up what is newer."""
        if back and len(self.kept) > back:
            del self.kept[-back:]
        needed = self._needed
        self.files.contents = {path: data for path, data in self.files.contents.items() if path in needed}
        if self.kept:
            self.model = copy.deepcopy(self.kept[-1].model)
        else:
            self.model = {descriptor.name: {} for descriptor in DESCRIPTORS}
        self.deploy(parallelism, self.kept[-1].snapshots if self.kept else [])

    @rule()
    def check(self) -> None:
        """All subtasks together hold the model, and nothing else."""
        for descriptor in DESCRIPTORS:
            name = descriptor.name
            found = [key for subtask in self.subtasks for key in subtask.backend.keys(name)]
            assert sorted(found, key=repr) == sorted(map(self.given, self.model[name]), key=repr)
            for key, expected in self.model[name].items():
                kept = self.at(key)[name].peek()
                assert kept == expected
                if isinstance(expected, dict):
                    assert list(kept) == list(expected)
