"""Rolling aggregates give what the plain loop gives that is written down here, record by record, in one loop over the
object backend as well as by one call after the other: the same outputs, the same state, the same errors."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidegate as tg
from tests.unit.api.programs import EmptySource, NullSink
from tests.unit.operators.bench import context
from tests.unit.state.rocksdb.tools import make_folder
from tidegate import aggregates
from tidegate.elements import Batch
from tidegate.errors import InternalError, InvalidError, TidegateError, UserCodeError
from tidegate.ids import OperatorName, SubtaskIndex
from tidegate.operators.keyed import AggregateOperator
from tidegate.runtime.chain import Chain
from tidegate.state import object_handles
from tidegate.state.backend import KeyedStateBackend
from tidegate.state.object_backend import ObjectStateBackend
from tidegate.state.rocksdb import RocksMemory, RocksStateBackend

NAME = OperatorName("it")
PLACE = "operator it, subtask 1, attempt 3"
Record = tuple[str, Any]
"""What is to fail, and a number or None."""
Emit = Callable[[Any, Any], Any] | None
Rows = list[tuple[Any, Record]]
Outcome = tuple[list[Any], str | None]
"""All outputs, and the error in which they end."""


def objects() -> ObjectStateBackend:
    return ObjectStateBackend(NAME, SubtaskIndex(1), 2, 128, checks_mutation=True)


@contextmanager
def database() -> Iterator[KeyedStateBackend]:
    with make_folder() as folder:
        memory = RocksMemory(RocksMemory.LIMIT_MIN)
        made = RocksStateBackend(NAME, SubtaskIndex(0), 1, 128, Path(folder) / "it", memory)
        yield made
        made.close()


# ---- what is aggregated --------------------------------------------------------------------------------------------


def number_of(record: Record) -> Any:
    what, number = record
    if what == "of":
        raise LookupError(f"told to fail with {number}")
    if what == "stop":
        raise StopIteration
    return "text" if what == "add" else number


def joined(total: int, record: Record) -> Any:
    number = number_of(record)
    return total if number is None else total + number


def appended(numbers: list[int], record: Record) -> list[int]:
    number = number_of(record)
    if number is not None:
        numbers.append(1 * number)
    return numbers


def added_all(one: list[int], other: list[int]) -> list[int]:
    return [*one, *other]


def total_of(numbers: list[int]) -> int:
    return 100 // (sum(numbers) - 7)


def last_or_none(kept: int | None, record: Record) -> int | None:
    return None if kept == 3 else number_of(record)


def halved(kept: float, record: Record) -> Any:
    """An int as often as not, which is kept as a float."""
    return kept / 2 if record[1] == 1 else int(kept) + joined(0, record)


def text_for_four(kept: int, record: Record) -> Any:
    return "four" if record[1] == 4 else joined(kept, record)


def inverse(total: int) -> float:
    return 1 / (total - 5)


MAYBE: Any = int | None
AGGREGATES: dict[str, tg.Aggregate[Record, Any, Any]] = {
    "count": aggregates.count(),
    "sum": aggregates.sum(number_of, type=int),
    "sum of floats": aggregates.sum(lambda record: joined(0, record) / 10, type=float),
    "mean": aggregates.mean(number_of, type=int),
    "min": aggregates.min(number_of, type=int),
    "max": aggregates.max(number_of, type=int),
    "first": aggregates.first(number_of, type=int),
    "last by": aggregates.last(number_of, type=int, by=lambda record: -(record[1] or 0)),
    "collect": aggregates.collect(number_of, type=int),
    "several": aggregates.combine(sum=aggregates.sum(number_of, type=int), count=aggregates.count()),
    "own": tg.Aggregate(int, int, joined, lambda one, other: one + other, inverse),
    "lists": tg.Aggregate(list[int], list, appended, added_all, total_of),
    "lists as they are": tg.Aggregate(list[int], list, appended, added_all, list),
    "pickled": tg.Aggregate(tg.pickled(list), list, appended, added_all, len),
    "none": tg.Aggregate(MAYBE, lambda: None, last_or_none, lambda one, other: other, lambda kept: kept),
    "floats": tg.Aggregate(float, float, halved, lambda one, other: one + other, lambda kept: kept),
    "wrong": tg.Aggregate(int, int, text_for_four, lambda one, other: one + other, lambda kept: kept),
}


def told(key: Any, result: Any) -> Any:
    if result == 6:
        raise ValueError(f"{key} has come to 6")
    return None if result == 2 else (key, result)


def plainly(
    aggregate: tg.Aggregate[Record, Any, Any], emit: Emit, batches: list[Rows]
) -> tuple[list[Any], Record | None, dict[Any, Any]]:
    """All outputs of whole batches, the record that fails, and what is kept of each key."""
    kept: dict[Any, Any] = {}
    outputs: list[Any] = []
    for rows in batches:
        of_batch: list[Any] = []
        for key, record in rows:
            try:
                added = aggregate.add(kept[key] if key in kept else aggregate.create(), record)
                if aggregate.type in (int, MAYBE) and not isinstance(added, int | None):
                    raise TypeError("another type")
                kept[key] = float(added) if aggregate.type is float else added
                result = aggregate.result(kept[key])
                of_batch.append(result if emit is None else emit(key, result))
            except Exception:
                return outputs, record, kept
        outputs += of_batch
    return outputs, None, kept


def run(operator: AggregateOperator, backend: KeyedStateBackend, batches: list[Rows], timed: bool = False) -> Outcome:
    """What the operator makes of the batches."""
    outputs: list[Any] = []
    operator.open(context(100, backend))
    for rows in batches:
        stamps = list(range(len(rows))) if timed else None
        batch = Batch([record for _, record in rows], [key for key, _ in rows], stamps)
        try:
            given = operator.process(batch)
        except TidegateError as error:
            return outputs, f"{type(error).__name__} at {error.failure.where}: {error.failure.message}"
        assert [(one.keys, one.timestamps, one.tag) for one in given] == [(None, stamps, None)] * bool(rows)
        outputs += [value for one in given for value in one.values]
    return outputs, None


def kept_in(backend: KeyedStateBackend, operator: AggregateOperator) -> dict[Any, Any]:
    found = {}
    for key in list(backend.keys("accumulator")):
        backend.set_current_key(key)
        found[key] = operator._handle.peek()
    return found


def operator_of(aggregate: tg.Aggregate[Record, Any, Any], emit: Emit) -> AggregateOperator:
    """Of a program."""
    job, source = tg.Job("rolling"), EmptySource[Record]()
    keyed = job.source(source, name="source").key_by(lambda record: record[0])
    rolling: tg.Stream[Any] = (
        keyed.aggregate(aggregate, name="it") if emit is None else keyed.aggregate(aggregate, emit, name="it")
    )
    rolling.sink(NullSink(), name="out")
    factory = job.graph().node(NAME).factory
    assert factory is not None
    made = factory()
    assert isinstance(made, AggregateOperator)
    return made


def plain(aggregate: tg.Aggregate[Record, Any, Any], emit: Emit) -> AggregateOperator:
    """One that calls the state for each record, whatever that can."""

    class Plain(AggregateOperator):
        def open(self, *given: Any) -> None:
            super().open(*given)
            self._is_quick = False

    made = operator_of(aggregate, emit)
    made.__class__ = Plain
    return made


records = st.tuples(
    st.sampled_from([""] * 40 + ["of", "stop", "add"]), st.one_of(st.none(), st.integers(0, 4), st.integers(0, 4))
)
streams = st.lists(st.lists(st.tuples(st.sampled_from(["a", "b", None]), records), max_size=9), max_size=5)


@pytest.mark.parametrize("name", AGGREGATES)
@given(streams, st.booleans(), st.booleans(), st.sampled_from([-1, 1, object_handles.MOST_AHEAD]))
@settings(max_examples=40, deadline=None)
def test_the_loop_over_objects_gives_what_the_plain_loop_gives(
    name: str, batches: list[Rows], timed: bool, has_function: bool, most_ahead: int
) -> None:
    aggregate, emit = AGGREGATES[name], told if has_function else None
    outputs, failing, kept = plainly(aggregate, emit, batches)
    quick, slow = operator_of(aggregate, emit), plain(aggregate, emit)
    backends = objects(), objects()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(object_handles, "MOST_AHEAD", most_ahead)
        outcome = run(quick, backends[0], batches, timed)
    assert quick._is_quick
    assert outcome == run(slow, backends[1], batches, timed)
    assert repr(outcome[0]) == repr(outputs)
    assert (outcome[1] is None) == (failing is None)
    if failing is None:
        assert kept_in(backends[0], quick) == kept_in(backends[1], slow) == kept
    elif "is declared int" not in str(outcome[1]):
        assert f"Error at {PLACE}: " in str(outcome[1])
        assert f" on record {failing!r}: " in str(outcome[1])


@pytest.mark.parametrize("name", AGGREGATES)
@given(streams, st.booleans())
@settings(max_examples=4, deadline=None)
def test_a_database_gives_what_objects_give(name: str, batches: list[Rows], has_function: bool) -> None:
    aggregate, emit = AGGREGATES[name], told if has_function else None
    quick, slow, backend = operator_of(aggregate, emit), operator_of(aggregate, emit), objects()
    with database() as other:
        outcome = run(quick, backend, batches)
        assert outcome == run(slow, other, batches)
        assert not slow._is_quick
        if outcome[1] is None:
            assert kept_in(backend, quick) == kept_in(other, slow)


# ---- one by one ----------------------------------------------------------------------------------------------------


def opened(name: str, emit: Emit = None) -> AggregateOperator:
    made = operator_of(AGGREGATES[name], emit)
    made.open(context(100, objects()))
    return made


def test_each_record_gives_what_its_key_has_come_to_with_its_timestamp() -> None:
    operator = opened("sum", lambda key, total: f"{key} {total}")
    (first,) = operator.process(Batch([("", 1), ("", 10), ("", 2)], ["a", "b", "a"], [7, 8, 9]))
    (second,) = operator.process(Batch([("", 3)], ["a"]))
    assert (first.values, first.timestamps, first.keys) == (["a 1", "b 10", "a 3"], [7, 8, 9], None)
    assert (second.values, second.timestamps) == (["a 6"], None)


def test_a_result_of_none_is_an_output_like_any_other() -> None:
    (out,) = opened("max").process(Batch([("", None), ("", 4), ("", None)], ["a", "b", "b"]))
    assert out.values == [None, 4, 4]


def test_results_are_made_before_an_accumulator_that_can_change_takes_the_next_record() -> None:
    (out,) = opened("lists as they are").process(Batch([("", 1), ("", 2), ("", 3)], ["a", "a", "b"]))
    assert out.values == [[1], [1, 2], [3]]


def test_no_records_give_no_batch() -> None:
    assert opened("sum").process(Batch([], [])) == []


def test_a_chain_counts_what_comes_out() -> None:
    chain = Chain([(NAME, opened("count"))])
    chain.push(Batch([("", 1)] * 5, list("abcab")))
    assert chain.next_output() is not None
    assert chain.next_output() is None
    assert [(count.records_in, count.records_out) for count in chain.counts] == [(5, 5)]


@pytest.mark.parametrize(
    ("name", "record", "said", "frame"),
    [
        ("sum", ("of", 1), "LookupError on record ('of', 1): told to fail with 1", "in number_of"),
        ("own", ("of", 1), "LookupError on record ('of', 1): told to fail with 1", "in joined"),
        ("own", ("", 5), "ZeroDivisionError on record ('', 5): ", "in inverse"),
        ("count", ("", 6), "ValueError on record ('', 6): a has come to 6", "in told"),
        ("sum", ("stop", 1), "StopIteration on record ('stop', 1): ", ""),
    ],
)
def test_what_fails_is_named_with_the_users_frames_first(name: str, record: Record, said: str, frame: str) -> None:
    operator = opened(name, told)
    before: list[Record] = [("", None)] * 5 if name == "count" else [("", None)]
    with pytest.raises(UserCodeError) as caught:
        operator.process(Batch([*before, record, ("of", 2)], ["a"] * (len(before) + 2)))
    assert caught.value.failure.message.startswith(said)
    assert caught.value.failure.where == PLACE
    frames = [line for line in caught.value.failure.traceback.splitlines() if line.strip().startswith("File ")]
    assert [frame in line for line in frames[:1]] == [True] * bool(frame)


def test_an_accumulator_of_another_type_than_declared_is_an_invalid_program() -> None:
    with pytest.raises(InvalidError, match="state accumulator is declared int and was given a str") as caught:
        opened("wrong").process(Batch([("", 4)], ["a"]))
    assert caught.value.failure.where == PLACE


def test_what_the_engine_owes_the_operator_is_checked() -> None:
    with pytest.raises(InternalError, match="without state"):
        operator_of(AGGREGATES["sum"], None).open(context())
    with pytest.raises(InternalError, match="without keys"):
        opened("sum").process(Batch([("", 1)]))
