"""The conformance kit notices a backend that breaks a promise."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

from tidegate.checkpoint.protocol import StateInfo
from tidegate.errors import InternalError
from tidegate.ids import OperatorName, SubtaskIndex
from tidegate.state.backend import EncodedState
from tidegate.state.object_backend import ObjectCapture, ObjectStateBackend
from tidegate.testing.conformance.state_backend import StateBackendConformance
from tidegate.testing.conformance.state_kit import Basket


class CapturesLate(ObjectStateBackend):
    """What it captures is the state when it is encoded, not at the barrier."""

    def capture(self) -> ObjectCapture:
        capture = super().capture()
        later = super().capture

        class Late(ObjectCapture):
            def encode(self) -> Sequence[EncodedState]:
                return later().encode()

        return Late(capture.key_type, capture._frozen, self._groups, self._max_parallelism, self._where)


class KeepsAllGroups(ObjectStateBackend):
    """Restores also what belongs to other subtasks."""

    def restore(self, key_type: str, states: Sequence[StateInfo], pieces: Iterable[bytes]) -> None:
        self._groups = range(self._max_parallelism)
        super().restore(key_type, states, pieces)


class LosesAPiece(ObjectStateBackend):
    """Forgets the last of several pieces."""

    def restore(self, key_type: str, states: Sequence[StateInfo], pieces: Iterable[bytes]) -> None:
        all_pieces = list(pieces)
        super().restore(key_type, states, all_pieces[:-1] if len(all_pieces) > 1 else all_pieces)


class MixesKeyTypes(ObjectStateBackend):
    """Takes 1 and True for one key."""

    def set_current_key(self, key: Any) -> None:
        self._cursor.key = key


def _suite(backend: type[ObjectStateBackend]) -> StateBackendConformance:
    class Suite(StateBackendConformance):
        def backend(self, subtask: SubtaskIndex, parallelism: int, max_parallelism: int) -> ObjectStateBackend:
            return backend(OperatorName("totals"), subtask, parallelism, max_parallelism)

    return Suite()


@pytest.mark.parametrize(
    ("broken", "promise"),
    [
        (CapturesLate, StateBackendConformance.test_what_happens_after_the_barrier_is_not_in_the_capture),
        (
            CapturesLate,
            lambda suite: suite.test_a_capture_is_a_cut_also_through_objects_that_user_code_holds(Basket),
        ),
        (
            KeepsAllGroups,
            lambda suite: suite.test_at_another_parallelism_every_key_is_in_the_subtask_of_its_group_and_nowhere_else(
                1, 3
            ),
        ),
        (
            LosesAPiece,
            lambda suite: suite.test_at_another_parallelism_every_key_is_in_the_subtask_of_its_group_and_nowhere_else(
                3, 1
            ),
        ),
        (MixesKeyTypes, StateBackendConformance.test_keys_of_another_type_are_refused_also_after_a_restore),
    ],
)
def test_a_broken_promise_fails_its_test(
    broken: type[ObjectStateBackend], promise: Callable[[StateBackendConformance], None]
) -> None:
    promise(_suite(ObjectStateBackend))
    with pytest.raises((AssertionError, InternalError, pytest.fail.Exception)):
        promise(_suite(broken))
