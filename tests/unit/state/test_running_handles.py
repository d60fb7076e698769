"""A handle that runs ahead of itself keeps what one keeps that does not: whoever looks, captures or clears between two
batches finds everything."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.ids import CheckpointId, OperatorName, SubtaskIndex
from tidegate.state import object_handles
from tidegate.state.descriptors import AggregatingState
from tidegate.state.handles import Running, RunningHandle
from tidegate.state.object_backend import ObjectStateBackend
from tidegate.testing.conformance.state_kit import KeptFiles, Taken

NOTHING: Any = object()
Step = tuple[str, Any]


def appended(values: list[int], value: int) -> list[int]:
    values.append(value)
    return values


def added(total: int, value: int) -> int:
    return total + value


STATES: dict[str, AggregatingState[int, Any]] = {
    "immutable": AggregatingState(int, int, added, str, name="it"),
    "mutable": AggregatingState(list[int], list, appended, tuple, name="it"),
}
users = st.sampled_from("abcde")
steps: st.SearchStrategy[list[Step]] = st.lists(
    st.one_of(
        st.tuples(st.just("run"), st.lists(st.tuples(users, st.integers(0, 9)), max_size=6)),
        st.tuples(st.just("run"), st.lists(st.tuples(users, st.integers(0, 9)), max_size=6)),
        st.tuples(st.sampled_from(["add", "clear", "get", "replace", "peek"]), users),
        st.tuples(st.sampled_from(["keys", "sweep", "complete", "abandon", "restore"]), st.none()),
    ),
    max_size=14,
)


class Machine:
    """A backend with the state, and what must be in it."""

    def __init__(self, descriptor: AggregatingState[int, Any], checks: bool) -> None:
        self._descriptor = descriptor
        self._checks = checks
        self._files = KeptFiles()
        self._checkpoint = 0
        self._model: dict[str, Any] = {}
        self._begin(self._fresh())
        self._how = Running(descriptor.create, descriptor.add_function, 9, descriptor.result_function, None)

    def _fresh(self) -> ObjectStateBackend:
        return ObjectStateBackend(OperatorName("it"), SubtaskIndex(0), 1, 16, checks_mutation=self._checks)

    def _begin(self, backend: ObjectStateBackend) -> None:
        self._backend, self._handle = backend, backend.register(self._descriptor)
        assert isinstance(self._handle, RunningHandle)

    def _put(self, key: str, value: int) -> Any:
        """9 is left out."""
        accumulator = self._model[key] if key in self._model else self._descriptor.create()
        self._model[key] = accumulator if value == 9 else self._descriptor.add_function(accumulator, value)
        return self._descriptor.result_function(self._model[key])

    def step(self, what: str, given: Any) -> None:
        if isinstance(given, str):
            self._backend.set_current_key(given)
        match what:
            case "run":
                outputs: list[Any] = []
                self._backend.cursor_over([key for key, _ in given])
                # The object itself is what is left out: small numbers are one.
                self._handle.run(self._how, [key for key, _ in given], [value for _, value in given], outputs)
                assert outputs == [self._put(key, value) for key, value in given]
            case "add":
                self._handle.add(4)
                self._put(given, 4)
            case "clear":
                self._handle.clear()
                self._model.pop(given, None)
            case "replace":
                self._handle.replace(self._descriptor.create())
                self._model[given] = self._descriptor.create()
            case "get":
                expected = self._model.get(given, NOTHING)
                assert self._handle.get() == (
                    None if expected is NOTHING else self._descriptor.result_function(expected)
                )
            case "peek":
                assert self._handle.peek() == self._model.get(given)
            case "keys":
                assert sorted(self._backend.keys("it")) == sorted(self._model)
            case "sweep":
                assert set(self._backend.sweep("it", 100)) <= set(self._model)
            case _:
                self._capture(what)

    def _capture(self, what: str) -> None:
        self._checkpoint += 1
        id = CheckpointId(self._checkpoint)
        taken = Taken(self._backend.capture(id), self._files)
        snapshot = taken.snapshot(range(16))
        if what == "abandon":
            self._backend.abandoned(id)
            return
        self._backend.completed(id)
        other = self._fresh()
        other.restore([snapshot], self._files)
        before = self._backend, self._handle
        self._begin(other)
        self.check()
        if what == "complete":
            self._backend, self._handle = before

    def check(self) -> None:
        assert dict(self._handle.kept) == self._model


@pytest.mark.parametrize("name", STATES)
@given(steps, st.booleans(), st.sampled_from([-1, 1, object_handles.MOST_AHEAD]))
@settings(max_examples=150, deadline=None)
def test_it_is_as_if_each_value_had_been_added_by_itself(
    name: str, given: list[Step], checks: bool, most_ahead: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(object_handles, "MOST_AHEAD", most_ahead)
        machine = Machine(STATES[name], checks)
        for what, argument in given:
            machine.step(what, argument)
        machine.check()


def test_what_is_caught_up_with_at_a_barrier_is_bounded() -> None:
    backend = ObjectStateBackend(OperatorName("it"), SubtaskIndex(0), 1, 16)
    handle = backend.register(STATES["immutable"])
    how = Running(int, added, None, None, None)
    keys = list(range(object_handles.MOST_AHEAD + 1))
    for owners in (keys, keys[:3], [-1], keys):
        backend.cursor_over(owners)
        handle.run(how, owners, [1] * len(owners), [])
        assert handle._is_ahead is (owners is keys and len(handle._settled) == 0)
    assert dict(handle.kept) == {-1: 1} | {key: 3 if key < 3 else 2 for key in keys}
    backend.capture(CheckpointId(1))
    outputs: list[int] = []
    handle.run(how, keys[:1], [1], outputs)
    assert (outputs, handle._is_ahead) == ([4], True)
