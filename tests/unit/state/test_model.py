"""The object backend against plain dicts: any operations, captures, changes after a capture, restores at any width."""

import copy
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tidegate.ids import OperatorName, SubtaskIndex
from tidegate.state.descriptors import ListState, MapState, ReducingState, StateDescriptor, ValueState
from tidegate.state.key_groups import key_group, subtask_of
from tidegate.state.object_backend import ObjectCapture, ObjectStateBackend
from tidegate.testing.conformance.state_kit import Basket

MAX_PARALLELISM = 8
KEYS = [(f"user-{number}", number if number % 3 else None) for number in range(8)]
DESCRIPTORS: tuple[StateDescriptor[Any], ...] = (
    ValueState(int | None, name="value"),
    ValueState(list[int], default_factory=list, name="numbers"),
    ListState(int, name="list"),
    MapState(str, Basket, name="map"),
    ReducingState(int, lambda one, other: one * 3 + other, name="reducing"),
)
Model = dict[str, dict[Any, Any]]

keys = st.sampled_from(KEYS)
numbers = st.integers(-5, 5)
names = st.sampled_from("xyz")


class Width:
    """The backends of all subtasks at one parallelism, seen as one."""

    def __init__(self, parallelism: int) -> None:
        self.parallelism = parallelism
        self.backends = [
            ObjectStateBackend(OperatorName("totals"), SubtaskIndex(i), parallelism, MAX_PARALLELISM)
            for i in range(parallelism)
        ]
        self.handles: list[dict[str, Any]] = []

    def register(self) -> None:
        self.handles = [
            {descriptor.name: backend.register(descriptor) for descriptor in DESCRIPTORS} for backend in self.backends
        ]

    def at(self, key: Any) -> dict[str, Any]:
        owner = subtask_of(key_group(key, MAX_PARALLELISM), self.parallelism, MAX_PARALLELISM)
        self.backends[owner].set_current_key(key)
        return self.handles[owner]

    def capture(self) -> list[ObjectCapture]:
        return [backend.capture() for backend in self.backends]

    def content(self) -> Model:
        """All that is kept, in the form of the model; a key in two subtasks is an error."""
        found: Model = {descriptor.name: {} for descriptor in DESCRIPTORS}
        for capture in self.capture():
            for frozen, descriptor in zip(capture._frozen, DESCRIPTORS, strict=True):
                for key, value in frozen.entries.items():
                    assert key not in found[descriptor.name]
                    plain = descriptor.stored.decode(frozen.encode(value))
                    found[descriptor.name][key] = dict(plain) if descriptor.kind == "map" else plain
        return found


class StateMachine(RuleBasedStateMachine):
    @initialize(parallelism=st.integers(1, MAX_PARALLELISM))
    def start(self, parallelism: int) -> None:
        self.live = Width(parallelism)
        self.live.register()
        self.model: Model = {descriptor.name: {} for descriptor in DESCRIPTORS}
        self.captured: tuple[list[ObjectCapture], Model] | None = None

    @rule(key=keys, value=st.none() | numbers)
    def update_value(self, key: Any, value: int | None) -> None:
        self.live.at(key)["value"].update(value)
        self.model["value"][key] = value

    @rule(key=keys, value=numbers)
    def mutate_value(self, key: Any, value: int) -> None:
        self.live.at(key)["numbers"].value().append(value)
        self.model["numbers"].setdefault(key, []).append(value)

    @rule(key=keys, values=st.lists(numbers, max_size=3))
    def extend_list(self, key: Any, values: list[int]) -> None:
        self.live.at(key)["list"].extend(values)
        if values:
            self.model["list"].setdefault(key, []).extend(values)

    @rule(key=keys, values=st.lists(numbers, max_size=2))
    def update_list(self, key: Any, values: list[int]) -> None:
        self.live.at(key)["list"].update(values)
        self.model["list"].pop(key, None)
        if values:
            self.model["list"][key] = list(values)

    @rule(key=keys, name=names)
    def put(self, key: Any, name: str) -> None:
        self.live.at(key)["map"].put(name, Basket([name]))
        self.model["map"].setdefault(key, {})[name] = Basket([name])

    @rule(key=keys, name=names)
    def mutate_entry(self, key: Any, name: str) -> None:
        basket = self.live.at(key)["map"].get(name)
        if basket is not None:
            basket.items.append("more")
            self.model["map"][key][name].items.append("more")

    @rule(key=keys, name=names)
    def remove(self, key: Any, name: str) -> None:
        self.live.at(key)["map"].remove(name)
        self.model["map"].get(key, {}).pop(name, None)
        if not self.model["map"].get(key, True):
            del self.model["map"][key]

    @rule(key=keys, value=numbers)
    def add(self, key: Any, value: int) -> None:
        self.live.at(key)["reducing"].add(value)
        reduced = self.model["reducing"]
        reduced[key] = reduced[key] * 3 + value if key in reduced else value

    @rule(key=keys, name=st.sampled_from([descriptor.name for descriptor in DESCRIPTORS]))
    def clear(self, key: Any, name: str) -> None:
        self.live.at(key)[name].clear()
        self.model[name].pop(key, None)

    @rule()
    def capture(self) -> None:
        self.captured = (self.live.capture(), copy.deepcopy(self.model))

    @rule(parallelism=st.integers(1, MAX_PARALLELISM))
    def die_and_restore(self, parallelism: int) -> None:
        if self.captured is None:
            return
        captures, self.model = self.captured[0], copy.deepcopy(self.captured[1])
        pieces = [piece.data for capture in captures for piece in capture.encode()]
        self.live = Width(parallelism)
        for backend in self.live.backends:
            backend.restore("", captures[0].states, pieces)
        self.live.register()

    @invariant()
    def all_subtasks_together_hold_the_model(self) -> None:
        if hasattr(self, "live"):
            assert self.live.content() == self.model


TestAgainstDicts = StateMachine.TestCase
TestAgainstDicts.settings = settings(max_examples=60, stateful_step_count=30)
