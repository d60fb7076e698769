"""The loops of operators give what the plain loops give that are written down here, record by record: the same outputs
in the same batches, the same state, the same errors."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidegate as tg
from tests.unit.operators.bench import context
from tests.unit.operators.test_windows_model import ASSIGNERS, node_of
from tidegate.elements import MAX_WATERMARK, Batch
from tidegate.errors import UserCodeError
from tidegate.ids import OperatorName, SubtaskIndex
from tidegate.operators.keyed import KeyedProcessOperator, ReduceOperator
from tidegate.operators.stateless import FlatMapOperator
from tidegate.operators.user_code import OnError
from tidegate.operators.windows import WindowOperator
from tidegate.state.descriptors import ValueState
from tidegate.state.object_backend import ObjectStateBackend

Action = tuple[str, int]
Output = tuple[str | None, list[Any], list[int] | None]
Outcome = tuple[list[Output], str | None]
"""All batches, and the error in which they end."""


def backend() -> ObjectStateBackend:
    return ObjectStateBackend(OperatorName("it"), SubtaskIndex(1), 2, 128)


def state_of(backend: ObjectStateBackend, names: Iterable[str]) -> dict[str, dict[Any, Any]]:
    return {name: dict(backend._handles[name].kept) for name in names}


# ---- process -------------------------------------------------------------------------------------------------------


class Acting(tg.KeyedProcessFunction[Any, list[Action], Any]):
    """Does what its records say."""

    count = tg.ValueState(int, default=0)
    aside = tg.SideOutput[Any]("aside")

    def process_element(self, value: list[Action], ctx: tg.KeyedContext[Any]) -> Iterator[Any]:
        for what, number in value:
            match what:
                case "emit":
                    for _ in range(number):
                        self.count.update(self.count.value() + 1)
                        yield ctx.key, ctx.timestamp, self.count.value()
                case "emit none":
                    yield None
                case "aside":
                    ctx.output(self.aside, (ctx.key, number))
                case "clear":
                    self.count.clear()
                case _:
                    raise ValueError(f"told to fail with {number}")


class Returning(Acting):
    """Does it before anything is emitted, and returns None rather than nothing."""

    def process_element(self, value: list[Action], ctx: tg.KeyedContext[Any]) -> Any:
        return list(super().process_element(value, ctx)) or None


class Mistaken(Acting):
    """Returns what is no records, where there is exactly one thing to do."""

    def process_element(self, value: list[Action], ctx: tg.KeyedContext[Any]) -> Any:
        return ({"emit": "text", "clear": 7}.get(value[0][0]) if len(value) == 1 else None) or super().process_element(
            value, ctx
        )


actions = st.lists(
    st.one_of(
        st.tuples(st.just("emit"), st.integers(0, 9)),
        st.tuples(st.sampled_from(["emit", "emit", "emit none", "aside", "clear"]), st.just(1)),
    ),
    max_size=3,
)
failing = st.one_of(*[actions] * 30, st.just([("emit", 1), ("fail", 3), ("emit", 1)]))
process_batches = st.lists(
    st.lists(st.tuples(st.sampled_from(["a", "b", "c", None]), failing), min_size=1, max_size=12), max_size=5
)


def plainly(
    function: Acting, backend: ObjectStateBackend, batch: Batch, size: int, sides: bool
) -> Iterator[Output | str]:
    """What has to come out of a process operator: each record after the other, a batch as soon as it is full."""
    timed = batch.timestamps is not None
    main: list[Any] = []
    aside: list[Any] = []

    class Ctx:
        key: Any = None
        timestamp: int | None = None

        def output(self, tag: Any, value: Any) -> None:
            if not sides:
                raise AssertionError("not asked for")
            aside.append((value, self.timestamp))

    def taken() -> Iterator[Output]:
        for tag, rows in ((None, main), ("aside", aside)):
            if rows:
                yield tag, [value for value, _ in rows], [stamp for _, stamp in rows] if timed else None
                rows.clear()

    ctx: Any = Ctx()
    for position, value in enumerate(batch.values):
        assert batch.keys is not None
        ctx.key = batch.keys[position]
        ctx.timestamp = None if batch.timestamps is None else batch.timestamps[position]
        backend.set_current_key(ctx.key)
        try:
            outputs: Any = function.process_element(value, ctx)
            if isinstance(outputs, str | int):
                raise TypeError(f"the function returned one {type(outputs).__name__}")
            for output in () if outputs is None else outputs:
                main.append((output, ctx.timestamp))
                if len(main) + len(aside) >= size:
                    yield from taken()
        except Exception as error:
            yield f"{type(error).__name__} on record {value!r}: {error}"
            return
        if len(aside) >= size:
            yield from taken()
    yield from taken()


def outcome_of(outputs: Callable[[], Iterable[Batch]]) -> Outcome:
    seen: list[Output] = []
    try:
        seen.extend((batch.tag, batch.values, batch.timestamps) for batch in outputs())
    except UserCodeError as error:
        return seen, error.failure.message
    return seen, None


@pytest.mark.parametrize("function", [Acting, Returning, Mistaken])
@given(process_batches, st.integers(1, 7), st.booleans(), st.booleans())
@settings(max_examples=120, deadline=None)
def test_a_process_function_gives_what_the_plain_loop_gives(
    function: type[Acting], batches: list[list[tuple[Any, list[Action]]]], size: int, timed: bool, sides: bool
) -> None:
    real, plain = backend(), backend()
    operator = KeyedProcessOperator(function(), ("aside",) if sides else ())
    operator.open(context(size, real))
    reference = function()
    vars(reference)["count"] = plain.register(function.count)
    for rows in batches:
        values = [[act for act in value if sides or act[0] != "aside"] for _, value in rows]
        batch = Batch(values, [key for key, _ in rows], list(range(10, 10 + len(rows))) if timed else None)
        expected = list(plainly(reference, plain, batch, size, sides))
        error = expected.pop() if expected and isinstance(expected[-1], str) else None
        outputs, failure = outcome_of(lambda batch=batch: operator.process(batch))  # type: ignore[misc]
        assert outputs == expected
        assert (failure is None) == (error is None)
        assert failure is None or failure.startswith(str(error))
        if failure is not None:
            return
    assert state_of(real, ["count"]) == state_of(plain, ["count"])


def test_a_record_that_yields_very_much_is_never_collected() -> None:
    made = 0

    class Much(tg.KeyedProcessFunction[str, int, int]):
        def process_element(self, value: int, ctx: tg.KeyedContext[str]) -> Iterator[int]:
            nonlocal made
            for number in range(value):
                made += 1
                yield number

    operator = KeyedProcessOperator(Much())
    operator.open(context(100, backend()))
    outputs = operator.process(Batch([10**9], ["a"]))
    assert [next(outputs).values for _ in range(3)] == [list(range(start, start + 100)) for start in (0, 100, 200)]
    assert made == 300


# ---- flat_map ------------------------------------------------------------------------------------------------------


@given(
    st.lists(st.lists(st.integers(0, 9), max_size=4), min_size=1, max_size=9),
    st.integers(1, 5),
    st.booleans(),
    st.sampled_from([OnError(), OnError(skip=True), OnError(tag="bad")]),
)
@settings(max_examples=150, deadline=None)
def test_flat_map_gives_what_the_plain_loop_gives(
    records: list[list[int]], size: int, timed: bool, on_error: OnError
) -> None:
    """A 9 in a record makes it fail there."""

    def outputs_of(record: list[int]) -> Iterator[float]:
        return (1 / (number - 9) for number in record)

    emitted: list[tuple[float, int]] = []
    bad: list[tuple[list[int], int]] = []
    failing = None
    for stamp, record in enumerate(records):
        whole = 9 not in record
        good = record if whole else record[: record.index(9)]
        if whole or on_error.fails:
            emitted += [(output, stamp) for output in outputs_of(good)]
        if not whole:
            bad.append((record, stamp))
            if on_error.fails:
                failing = record
                break
    pieces = [emitted[start : start + size] for start in range(0, len(emitted), size)]
    if failing is not None and pieces and len(pieces[-1]) < size:
        pieces.pop()
    pieces_of = [(None, piece) for piece in pieces] + ([("bad", bad)] if bad and on_error.tag else [])
    expected = [
        (tag, [value for value, _ in piece], [stamp for _, stamp in piece] if timed else None)
        for tag, piece in pieces_of
    ]
    operator = FlatMapOperator(outputs_of, on_error)
    operator.open(context(size))
    batch = Batch(records, None, list(range(len(records))) if timed else None)
    outputs, failure = outcome_of(lambda: operator.process(batch))
    assert outputs == expected
    assert (failure or "").startswith("" if failing is None else f"ZeroDivisionError on record {failing!r}")
    assert operator.records_skipped == (len(bad) if on_error.skip else 0)


# ---- reduce --------------------------------------------------------------------------------------------------------


@given(st.lists(st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.integers(-3, 3)), max_size=9), max_size=5))
@settings(max_examples=100, deadline=None)
def test_reduce_gives_what_the_plain_loop_gives(batches: list[list[tuple[str | None, int]]]) -> None:
    def divide(so_far: int, value: int) -> int:
        return (so_far + 5) // value

    operator, so_far = ReduceOperator(divide, ValueState(int, name="value")), dict[str | None, int]()
    kept = backend()
    operator.open(context(100, kept))
    for rows in batches:
        expected: list[int] = []
        failing = None
        for key, value in rows:
            if key in so_far and value == 0:
                failing = value
                break
            so_far[key] = divide(so_far[key], value) if key in so_far else value
            expected.append(so_far[key])
        batch = Batch([value for _, value in rows], [key for key, _ in rows])
        outputs, failure = outcome_of(lambda batch=batch: operator.process(batch))  # type: ignore[misc]
        if failing is not None:
            assert failure is not None
            assert failure.startswith("ZeroDivisionError on record 0: ")
            return
        assert outputs == ([(None, expected, None)] if expected else [])
    assert state_of(kept, ["value"]) == {"value": so_far}


# ---- windows -------------------------------------------------------------------------------------------------------

window_steps = st.lists(
    st.one_of(
        st.lists(st.tuples(st.sampled_from(["a", "b", ""]), st.integers(0, 60)), min_size=1, max_size=8),
        st.integers(-5, 70),
    ),
    max_size=12,
)


@pytest.mark.parametrize("assigner", [name for name in ASSIGNERS if name != "sessions"])
@given(window_steps, st.sampled_from([0, 7]), st.integers(1, 4))
@settings(max_examples=100, deadline=None)
def test_windows_are_the_same_as_when_every_record_might_be_late(
    assigner: str, steps: list[Any], lateness: int, size: int
) -> None:
    node = node_of(ASSIGNERS[assigner], lateness)
    both = [(node.factory(), backend()) for _ in range(2)]
    for operator, state in both:
        assert isinstance(operator, WindowOperator)
        operator.open(context(size, state))
    both[1][0]._process = both[1][0]._process_late  # the plain loop
    number = 0
    for step in [*steps, MAX_WATERMARK]:
        outcomes = []
        for operator, _ in both:
            if isinstance(step, list):
                numbers = list(range(number, number + len(step)))
                batch = Batch(numbers, [key for key, _ in step], [stamp for _, stamp in step])
                outcomes.append(outcome_of(lambda o=operator, b=batch: o.process(b)))  # type: ignore[misc]
            else:
                outcomes.append(outcome_of(lambda o=operator, w=step: advanced(o, w)))  # type: ignore[misc]
        number += len(step) if isinstance(step, list) else 0
        assert outcomes[0] == outcomes[1]
        names = both[0][1]._handles.keys()
        assert state_of(both[0][1], names) == state_of(both[1][1], names)


def advanced(operator: Any, watermark: int) -> Iterator[Batch]:
    while (outputs := operator.advance_watermark(watermark, lambda: False)) is not None:
        yield from outputs


def test_a_record_that_cannot_be_added_to_its_window_is_named() -> None:
    job_node = node_of(tg.TumblingEventTimeWindows("10ms"), 0)
    operator = job_node.factory()
    state = backend()
    operator.open(context(10, state))

    def add(accumulator: Any, value: int) -> Any:
        raise ValueError(f"no {value}")

    operator._spec = replace(operator._spec, adds=(add,))
    outputs, failure = outcome_of(lambda: operator.process(Batch([7, 8], ["a", "a"], [1, 2])))
    assert (outputs, failure) == ([], "ValueError on record 7: no 7")
