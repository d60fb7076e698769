"""State without keys: what its handles promise, that a capture is a cut, and what becomes of it at any parallelism."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidegate as tg
from tidegate.checkpoint.protocol import OperatorSnapshot
from tidegate.errors import CorruptError, InternalError, InvalidError
from tidegate.ids import CheckpointId, OperatorName, SubtaskIndex
from tidegate.state.descriptors import StateDescriptor
from tidegate.state.operator_pieces import ELEMENTS
from tidegate.state.operator_state import OperatorStateBackend
from tidegate.testing.conformance.state_kit import KeptFiles

NAME = OperatorName("it")
ONE = CheckpointId(1)
PARALLELISMS = [1, 2, 3, 4, 7]


class Rule(msgspec.Struct):
    """A mutable value."""

    words: list[str]


def backend(subtask: int = 0, parallelism: int = 1) -> OperatorStateBackend:
    return OperatorStateBackend(NAME, SubtaskIndex(subtask), parallelism)


def snapshot(made: OperatorStateBackend, files: KeptFiles, checkpoint: int = 1) -> OperatorSnapshot:
    capture = made.capture(CheckpointId(checkpoint))
    if capture is None:
        return OperatorSnapshot(NAME)
    return OperatorSnapshot(NAME, operator_states=capture.states, operator_handles=capture.store(files))


def restored(
    snapshots: Sequence[OperatorSnapshot], files: KeptFiles, subtask: int = 0, parallelism: int = 1
) -> OperatorStateBackend:
    made = backend(subtask, parallelism)
    made.restore(snapshots, files)
    return made


def numbers(redistribution: Any = "split") -> tg.OperatorListState[int]:
    return tg.OperatorListState(int, redistribution=redistribution, name="numbers")


def rules() -> tg.BroadcastState[str, int]:
    return tg.BroadcastState(str, int, name="rules")


def writable(made: OperatorStateBackend) -> OperatorStateBackend:
    made.may_write_broadcast = True
    return made


# ---- handles ---------------------------------------------------------------------------------------------------------


def test_a_list_is_got_added_to_extended_replaced_and_cleared() -> None:
    state = backend().register(numbers())
    assert state.get() == []
    state.add(1)
    state.extend([2, 3])
    kept = state.get()
    assert kept == list(state) == [1, 2, 3]
    state.update([9])
    assert (state.get(), kept) == ([9], [1, 2, 3])
    state.clear()
    assert state.get() == []


def test_what_get_returns_is_a_copy_of_the_list() -> None:
    state = backend().register(numbers())
    state.add(1)
    state.get().append(2)
    assert state.get() == [1]


def test_elements_of_another_type_are_refused_and_none_of_several_is_added() -> None:
    state = backend().register(numbers())
    for wrong in ([1, "2"], [None], [1.5]):
        with pytest.raises(InvalidError, match="numbers"):
            state.extend(wrong)
        with pytest.raises(InvalidError, match="numbers"):
            state.update(wrong)
    with pytest.raises(InvalidError, match="numbers"):
        state.add("1")
    assert state.get() == []


def test_a_broadcast_map_keeps_the_order_in_which_entries_were_first_put() -> None:
    state = writable(backend()).register(rules())
    for key, value in (("b", 1), ("a", 2), ("c", 3), ("b", 4)):
        state.put(key, value)
    assert state.items() == [("b", 4), ("a", 2), ("c", 3)]
    assert (state.keys(), state.values()) == (["b", "a", "c"], [4, 2, 3])
    state.remove("a")
    state.remove("never there")
    assert ("a" in state, "b" in state, state.get("a"), state.get("a", 7), state.get("b")) == (False, True, None, 7, 4)
    assert not state.is_empty()
    state.clear()
    assert state.is_empty()


def test_keys_and_values_of_another_type_are_refused_by_a_broadcast_map() -> None:
    state = writable(backend()).register(rules())
    with pytest.raises(InvalidError, match="rules"):
        state.put(1, 1)
    with pytest.raises(InvalidError, match="rules"):
        state.put("a", "b")
    with pytest.raises(InvalidError, match="rules"):
        state.get(1)
    assert state.is_empty()


def test_a_broadcast_map_is_read_only_where_nothing_was_broadcast() -> None:
    made = writable(backend())
    state = made.register(rules())
    state.put("a", 1)
    made.may_write_broadcast = False
    writes: list[Callable[[], None]] = [lambda: state.put("a", 2), lambda: state.remove("a"), state.clear]
    for write in writes:
        with pytest.raises(InvalidError, match=r"state rules is written outside process_broadcast_element"):
            write()
    assert state.items() == [("a", 1)]


def test_an_unknown_redistribution_is_refused() -> None:
    with pytest.raises(InvalidError, match="redistribution='even'"):
        numbers("even")


def test_two_states_of_one_name_are_refused() -> None:
    made = backend()
    made.register(numbers())
    with pytest.raises(InvalidError, match="registered twice"):
        made.register(tg.BroadcastState(str, int, name="numbers"))


def test_keyed_state_has_no_place_here() -> None:
    with pytest.raises(InternalError, match="without keys"):
        backend().register(tg.ValueState(int, name="total"))


# ---- captures --------------------------------------------------------------------------------------------------------


def test_a_capture_holds_what_was_there_at_the_barrier_whatever_is_written_afterwards() -> None:
    files, made = KeptFiles(), writable(backend())
    elements, entries = made.register(numbers()), made.register(rules())
    elements.update([1, 2])
    entries.put("a", 1)
    capture = made.capture(ONE)
    assert capture is not None
    elements.add(3)
    entries.put("a", 2)
    entries.put("b", 3)
    taken = OperatorSnapshot(NAME, operator_states=capture.states, operator_handles=capture.store(files))
    again = restored([taken], files)
    assert again.register(numbers()).get() == [1, 2]
    assert again.register(rules()).items() == [("a", 1)]


def test_a_capture_is_a_cut_also_through_elements_that_user_code_changes() -> None:
    files, made = KeptFiles(), writable(backend())
    listed, mapped = tg.OperatorListState(Rule, name="listed"), tg.BroadcastState(str, Rule, name="mapped")
    elements, entries = made.register(listed), made.register(mapped)
    elements.add(Rule(["a"]))
    entries.put("k", Rule(["b"]))
    capture = made.capture(ONE)
    assert capture is not None
    elements.get()[0].words.append("later")
    entries.get("k").words.append("later")
    taken = OperatorSnapshot(NAME, operator_states=capture.states, operator_handles=capture.store(files))
    again = restored([taken], files)
    assert again.register(listed).get() == [Rule(["a"])]
    assert again.register(mapped).items() == [("k", Rule(["b"]))]
    assert elements.get() == [Rule(["a", "later"])]


def test_elements_that_were_changed_without_update_are_in_the_next_capture() -> None:
    files, made = KeptFiles(), backend()
    listed = tg.OperatorListState(Rule, name="listed")
    elements = made.register(listed)
    elements.add(Rule(["a"]))
    snapshot(made, files)
    elements.get()[0].words.append("later")
    assert restored([snapshot(made, files, 2)], files).register(listed).get() == [Rule(["a", "later"])]


def test_pickled_elements_come_back() -> None:
    files, made = KeptFiles(), backend()
    declared = tg.OperatorListState(tg.pickled(complex), name="it")
    made.register(declared).extend([1j, 2 + 3j])
    assert restored([snapshot(made, files)], files).register(declared).get() == [1j, 2 + 3j]


def test_nothing_is_stored_for_states_that_are_empty_but_they_are_still_said_to_be_there() -> None:
    files, made = KeptFiles(), backend()
    made.register(numbers())
    taken = snapshot(made, files)
    assert [(info.name, info.kind) for info in taken.operator_states] == [("numbers", "list-split")]
    assert (taken.operator_handles, files.contents) == ((), {})


def test_an_operator_without_such_state_has_no_capture() -> None:
    assert backend().capture(ONE) is None


def test_the_file_of_a_capture_carries_the_id_of_its_checkpoint() -> None:
    files, made = KeptFiles(), backend()
    made.register(numbers()).add(1)
    first, second = (snapshot(made, files, checkpoint).operator_handles[0] for checkpoint in (7, 8))
    assert [str(handle.path).partition("/")[2] for handle in (first, second)] == ["7-elements", "8-elements"]
    assert first.form == ELEMENTS


# ---- at another parallelism ------------------------------------------------------------------------------------------


def stored(lists: Sequence[Sequence[int]], redistribution: str, files: KeptFiles) -> list[OperatorSnapshot]:
    """What so many subtasks store, each with its list, and with a map that all have alike."""
    taken = []
    for subtask, elements in enumerate(lists):
        made = writable(backend(subtask, len(lists)))
        made.register(numbers(redistribution)).update(elements)
        made.register(rules()).put("a", 1)
        taken.append(snapshot(made, files))
    return taken


LISTS = st.lists(st.lists(st.integers(0, 99), max_size=9), min_size=1, max_size=5)


@given(lists=LISTS, parallelism=st.integers(1, 6))
def test_split_lists_are_dealt_out_in_order_and_as_even_as_possible(lists: list[list[int]], parallelism: int) -> None:
    files = KeptFiles()
    taken = stored(lists, "split", files)
    parts = [restored(taken, files, i, parallelism).register(numbers()).get() for i in range(parallelism)]
    everything = [number for elements in lists for number in elements]
    assert [number for part in parts for number in part] == everything
    if parallelism != len(lists):
        assert max(map(len, parts)) - min(map(len, parts)) <= 1


@given(lists=LISTS)
def test_at_the_same_parallelism_each_subtask_goes_on_with_its_own_list(lists: list[list[int]]) -> None:
    files = KeptFiles()
    taken = stored(lists, "split", files)
    assert [restored(taken, files, i, len(lists)).register(numbers()).get() for i in range(len(lists))] == lists


@given(lists=LISTS, parallelism=st.integers(1, 6))
def test_of_united_lists_every_subtask_gets_all(lists: list[list[int]], parallelism: int) -> None:
    files = KeptFiles()
    taken = stored(lists, "union", files)
    everything = [number for elements in lists for number in elements]
    for subtask in range(parallelism):
        made = restored(taken, files, subtask, parallelism)
        assert made.register(numbers("union")).get() == everything


@pytest.mark.parametrize("before", PARALLELISMS)
@pytest.mark.parametrize("after", PARALLELISMS)
def test_each_subtask_gets_one_copy_of_what_was_broadcast(before: int, after: int) -> None:
    files, taken = KeptFiles(), []
    for subtask in range(before):
        made = writable(backend(subtask, before))
        made.register(rules()).put("copy of", subtask)
        taken.append(snapshot(made, files))
    copies = [restored(taken, files, subtask, after).register(rules()).get("copy of") for subtask in range(after)]
    assert copies == [subtask % before for subtask in range(after)]


def test_only_the_copy_that_a_subtask_takes_is_read_where_there_are_no_lists() -> None:
    files, taken = KeptFiles(), []
    for subtask in range(3):
        made = writable(backend(subtask, 3))
        made.register(rules()).put("copy of", subtask)
        taken.append(snapshot(made, files))
    files.contents = {path: data for path, data in files.contents.items() if path.startswith("1/")}
    assert restored(taken, files, 1, 2).register(rules()).get("copy of") == 1


def test_a_subtask_that_kept_nothing_gives_nothing() -> None:
    files = KeptFiles()
    taken = stored([[], [1, 2], []], "split", files)
    taken[0] = OperatorSnapshot(NAME)
    parts = [restored(taken, files, i, 2).register(numbers()).get() for i in range(2)]
    assert parts == [[1], [2]]


def test_what_was_rescaled_is_rescaled_again_without_loss() -> None:
    lists, files = [[0, 1, 2], [3, 4]], KeptFiles()
    for parallelism in (3, 1, 4, 4, 2):
        taken = stored(lists, "split", files)
        lists = [restored(taken, files, i, parallelism).register(numbers()).get() for i in range(parallelism)]
    assert lists == [[0, 1], [2, 3, 4]]


# ---- what is refused at a restore ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (numbers("union"), ["list-split of int", "list-union of int", "cannot become"]),
        (
            tg.BroadcastState(str, int, name="numbers"),
            ["list-split of int", "broadcast of str -> int", "cannot become"],
        ),
        (tg.OperatorListState(list[int], name="numbers"), ["list-split of int", "list[int]"]),
        (tg.OperatorListState(str, name="numbers"), ["list-split of int", "list-split of str"]),
    ],
)
def test_a_state_that_is_declared_otherwise_is_refused_by_name(now: StateDescriptor[Any], words: list[str]) -> None:
    files = KeptFiles()
    made = restored(stored([[1]], "split", files), files)
    with pytest.raises(InvalidError, match="state numbers was stored as") as caught:
        made.register(now)
    assert [word for word in words if word not in str(caught.value)] == []


def test_elements_are_read_with_a_field_more() -> None:
    class One(msgspec.Struct):
        user: str

    class Two(msgspec.Struct):
        user: str
        amount: int = 7

    One.__name__ = Two.__name__ = "Order"
    files, made = KeptFiles(), writable(backend())
    made.register(tg.OperatorListState(One, name="orders")).add(One("ann"))
    made.register(tg.BroadcastState(str, One, name="by_user")).put("ann", One("ann"))
    again = restored([snapshot(made, files)], files)
    assert again.register(tg.OperatorListState(Two, name="orders")).get() == [Two("ann", 7)]
    assert again.register(tg.BroadcastState(str, Two, name="by_user")).items() == [("ann", Two("ann", 7))]


def test_restored_states_that_nobody_declares_are_named() -> None:
    files = KeptFiles()
    made = restored(stored([[1]], "split", files), files)
    assert made.unclaimed == ("numbers", "rules")
    made.register(numbers())
    assert made.unclaimed == ("rules",)


def test_a_handle_of_another_form_is_corrupt() -> None:
    files = KeptFiles()
    taken = stored([[1]], "split", files)[0]
    handle = msgspec.structs.replace(taken.operator_handles[0], form="piece")
    with pytest.raises(CorruptError, match="'piece'"):
        restored([msgspec.structs.replace(taken, operator_handles=(handle,))], files)


def test_a_state_that_is_stored_twice_or_that_the_checkpoint_does_not_name_is_corrupt() -> None:
    files = KeptFiles()
    taken = stored([[1]], "split", files)[0]
    twice = msgspec.structs.replace(taken, operator_handles=taken.operator_handles * 2)
    with pytest.raises(CorruptError, match="stored twice"):
        restored([twice], files)
    unnamed = msgspec.structs.replace(taken, operator_states=taken.operator_states[:1])
    with pytest.raises(CorruptError, match="rules is not among"):
        restored([unnamed], files)


def test_state_cannot_be_restored_once_it_is_in_use() -> None:
    files = KeptFiles()
    taken = stored([[1]], "split", files)
    made = backend()
    made.register(numbers())
    with pytest.raises(InternalError, match="after it had been registered"):
        made.restore(taken, files)
