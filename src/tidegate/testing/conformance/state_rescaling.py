"""What a keyed state backend promises where keys belong to subtasks, as tests: of captures, and of restores at any
parallelism. The same for all keys, whatever says their groups.
"""

import itertools
from typing import Any

import pytest

from tidegate.errors import InternalError
from tidegate.ids import KeyGroup, SubtaskIndex
from tidegate.state.backend import KeyedStateBackend
from tidegate.state.descriptors import ValueState
from tidegate.state.key_groups import subtask_of
from tidegate.testing.conformance.state_kit import MAX_PARALLELISM, USERS, StateBackendKit, Taken

NUMBER = ValueState(int, name="number")


class StateRescalingConformance(StateBackendKit):
    """The suite: each test is one promise."""

    def numbers(self, backend: KeyedStateBackend, handle: Any = None) -> dict[str, int]:
        """What each user has in the state `NUMBER`."""
        handle = handle if handle is not None else backend.register(NUMBER)
        found = {}
        for user in USERS:
            backend.set_current_key(user)
            if handle.value() is not None:
                found[user] = handle.value()
        return found

    def test_any_completed_checkpoint_gives_back_the_state_at_its_barrier(self) -> None:
        backend = self.one()
        handle = backend.register(NUMBER)
        expected: dict[str, int] = {}
        completed: list[tuple[Taken, dict[str, int]]] = []
        for round_ in range(30):
            for user in USERS[round_ % 7 : 50 : 7]:
                backend.set_current_key(user)
                if round_ % 5 == 4:
                    handle.clear()
                    expected.pop(user, None)
                else:
                    handle.update(round_)
                    expected[user] = round_
            completed.append((self.complete(backend), dict(expected)))
        for taken, state in completed:
            assert self.numbers(self.restored(taken)) == state

    @pytest.mark.parametrize(("old", "new"), [*itertools.product((1, 3, MAX_PARALLELISM), repeat=2)])
    def test_at_another_parallelism_every_key_is_in_the_subtask_of_its_group_and_nowhere_else(
        self, old: int, new: int
    ) -> None:
        descriptor = ValueState(int, name="number")
        captures = [self.take(backend) for backend in self.filled(descriptor, old)]
        for subtask in range(new):
            backend = self.restored(*captures, subtask=subtask, parallelism=new)
            number = backend.register(descriptor)
            for expected, user in enumerate(USERS):
                backend.set_current_key(user)
                owner = self.owner_of(user, new)
                assert number.value() == (expected if owner == subtask else None)

    def test_pieces_say_which_groups_they_cover(self) -> None:
        for subtask, backend in enumerate(self.filled(ValueState(int, name="number"), 3)):
            handles = self.take(backend).handles
            groups = {KeyGroup(g) for handle in handles for g in range(handle.first_group, handle.last_group + 1)}
            assert groups
            assert {subtask_of(group, 3, MAX_PARALLELISM) for group in groups} == {subtask}

    def test_a_key_of_another_subtask_is_never_stored(self) -> None:
        backend = self.backend(SubtaskIndex(0), 2, MAX_PARALLELISM)
        total = backend.register(ValueState(int, name="total"))
        foreign = next(user for user in USERS if self.owner_of(user, 2) == 1)
        backend.set_current_key(foreign)
        total.update(1)
        with pytest.raises(InternalError, match=foreign):
            _ = self.take(backend).handles

    def test_files_of_an_abandoned_checkpoint_are_never_named_again(self) -> None:
        backend = self.filled(NUMBER)[0]
        handle = backend.register(ValueState(int, name="other"))
        last = self.complete(backend)
        given_up: set[str] = set()
        for round_ in range(20):
            backend.set_current_key(USERS[round_])
            handle.update(round_)
            if round_ % 3 == 2:
                last = self.complete(backend)
            else:
                given_up |= self.abandon(backend, last).paths - last.paths
            assert not last.paths & given_up
            after = self.restored(last)
            assert len(self.numbers(after)) == len(USERS)
        after = self.restored(self.complete(backend))
        after.register(ValueState(int, name="other"))
        assert sorted(after.keys("other")) == sorted(USERS[:20])

    def test_checkpoints_go_on_through_any_parallelism(self) -> None:
        """Files are kept for the newest checkpoint alone."""
        backends = self.filled(NUMBER, 2)
        expected = {user: number for number, user in enumerate(USERS)}
        taken = [self.complete(backend) for backend in backends]
        named: set[str] = set()
        for parallelism in (3, 1, 4, 4, 2):
            backends = [self.restored(*taken, subtask=i, parallelism=parallelism) for i in range(parallelism)]
            handles = [backend.register(NUMBER) for backend in backends]
            for round_ in range(8):
                for user in USERS[round_ + parallelism :: 11]:
                    owner = self.owner_of(user, parallelism)
                    backends[owner].set_current_key(user)
                    handles[owner].update(round_)
                    expected[user] = round_
                taken = [self.complete(backend) for backend in backends]
                needed = {path for one in taken for path in one.paths}
                named |= needed
                self.files.delete(named - needed)
            found: dict[str, int] = {}
            for subtask in range(parallelism):
                part = self.numbers(self.restored(*taken, subtask=subtask, parallelism=parallelism))
                assert not part.keys() & found.keys()
                found |= part
            assert found == expected

    def test_a_subtask_that_has_no_group_of_a_snapshot_takes_nothing_from_it(self) -> None:
        taken = [self.complete(backend) for backend in self.filled(NUMBER, 4)]
        backend = self.backend(SubtaskIndex(1), 4, MAX_PARALLELISM)
        backend.restore([taken[1].snapshot()], self.files)
        found = self.numbers(backend)
        assert found
        assert {self.owner_of(user, 4) for user in found} == {1}
