"""A chain passes batches through its operators depth first, as lazily as they are, and lets side outputs leave at
once."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from tidegate.elements import Batch
from tidegate.errors import InternalError
from tidegate.ids import OperatorName
from tidegate.operators.contracts import Operator, OperatorContext
from tidegate.operators.sink import SinkOperator
from tidegate.operators.source import SourceOperator
from tidegate.runtime.chain import Chain, OperatorCounts

Output = tuple[str, list[object]] | tuple[str, list[object], str]


class Plain:
    """An operator made of a function from values to output batches, which writes down what it is called with."""

    def __init__(self, process: Callable[[list[int]], Iterable[Batch]], at_end: Iterable[Batch] = ()) -> None:
        self._process = process
        self._at_end = at_end
        self.seen: list[list[int]] = []
        self.ends = 0

    def open(self, context: OperatorContext) -> None:
        raise AssertionError("a chain opens nothing")

    def process(self, batch: Batch) -> Iterable[Batch]:
        self.seen.append(batch.values)
        return self._process(batch.values)

    def end_of_input(self) -> Iterable[Batch]:
        self.ends += 1
        return self._at_end

    def close(self) -> None:
        raise AssertionError("a chain closes nothing")


def one_by_one(values: list[int]) -> Iterator[Batch]:
    for value in values:
        yield Batch([value])


def same(values: list[int]) -> list[Batch]:
    return [Batch(values)]


def nothing(values: list[int]) -> list[Batch]:
    return []


def odd_to_side(values: list[int]) -> Iterator[Batch]:
    for value in values:
        yield Batch([value], tag="odd" if value % 2 else None)


def chain_of(*operators: tuple[str, Operator], outside: Iterable[str] = ()) -> Chain:
    return Chain(
        [(OperatorName(name), operator) for name, operator in operators], frozenset(map(OperatorName, outside))
    )


def next_of(chain: Chain) -> Output | None:
    output = chain.next_output()
    if output is None:
        return None
    name, batch = output
    return (name, batch.values) if batch.tag is None else (name, batch.values, batch.tag)


def drain(chain: Chain) -> list[Output]:
    outputs = []
    while (output := next_of(chain)) is not None:
        outputs.append(output)
    return outputs


def test_a_batch_passes_all_operators_in_order() -> None:
    chain = chain_of(
        ("double", Plain(lambda values: [Batch([2 * value for value in values])])),
        ("add", Plain(lambda values: [Batch([value + 1 for value in values])])),
    )
    chain.push(Batch([1, 2]))
    assert drain(chain) == [("add", [3, 5])]
    assert chain.idle


def test_each_output_passes_the_operators_behind_before_the_next_is_asked_for() -> None:
    last = Plain(same)
    chain = chain_of(("split", Plain(one_by_one)), ("twice", Plain(lambda values: [Batch(values)] * 2)), ("last", last))
    chain.push(Batch([1, 2]))
    assert next_of(chain) == ("last", [1])
    assert last.seen == [[1]]
    assert drain(chain) == [("last", [1]), ("last", [2]), ("last", [2])]


def test_a_generator_is_asked_for_no_more_than_the_output_that_is_wanted() -> None:
    yielded = []

    def endless(values: list[int]) -> Iterator[Batch]:
        for value in range(10**9):
            yielded.append(value)
            yield Batch([value])

    chain = chain_of(("endless", Plain(endless)), ("same", Plain(same)))
    chain.push(Batch([0]))
    assert yielded == []
    assert [next_of(chain) for _ in range(3)] == [("same", [0]), ("same", [1]), ("same", [2])]
    assert yielded == [0, 1, 2]
    assert not chain.idle


def test_a_chain_is_busy_until_the_last_generator_is_exhausted() -> None:
    finished = []

    def with_afterthought(values: list[int]) -> Iterator[Batch]:
        yield Batch(values)
        finished.append(True)

    chain = chain_of(("first", Plain(with_afterthought)))
    chain.push(Batch([1]))
    assert next_of(chain) == ("first", [1])
    assert not chain.idle, "a barrier now would cut in the middle of a batch"
    assert not finished
    assert next_of(chain) is None
    assert chain.idle
    assert finished


def test_side_outputs_leave_at_once_and_are_not_seen_by_the_next_operator() -> None:
    last = Plain(same)
    chain = chain_of(("split", Plain(odd_to_side)), ("last", last))
    chain.push(Batch([1, 2, 3]))
    assert drain(chain) == [("split", [1], "odd"), ("last", [2]), ("split", [3], "odd")]
    assert last.seen == [[2]]


def test_a_main_output_that_others_consume_leaves_and_goes_on() -> None:
    chain = chain_of(("first", Plain(one_by_one)), ("last", Plain(same)), outside=["first"])
    chain.push(Batch([1, 2]))
    assert drain(chain) == [("first", [1]), ("last", [1]), ("first", [2]), ("last", [2])]


def test_the_end_of_input_runs_each_operator_and_passes_what_it_emits_to_those_behind() -> None:
    first = Plain(same, at_end=[Batch([10]), Batch([11])])
    middle = Plain(one_by_one, at_end=iter([Batch([20])]))
    last = Plain(same, at_end=[Batch([30])])
    chain = chain_of(("first", first), ("middle", middle), ("last", last))
    chain.end_of_input()
    assert not chain.idle
    assert not chain.ended
    assert drain(chain) == [("last", [10]), ("last", [11]), ("last", [20]), ("last", [30])]
    assert chain.ended
    assert [operator.ends for operator in (first, middle, last)] == [1, 1, 1]


def test_an_operator_that_had_ended_is_not_ended_again() -> None:
    first, last = Plain(same, at_end=[Batch([10])]), Plain(same, at_end=[Batch([20])])
    names = OperatorName("first"), OperatorName("last")
    chain = Chain([(names[0], first), (names[1], last)], ended={names[0]})
    chain.end_of_input()
    assert drain(chain) == [("last", [20])]
    assert first.ends == 0


def test_the_end_of_input_is_as_lazy_as_a_batch() -> None:
    first, last = Plain(same, at_end=one_by_one([1, 2])), Plain(same)
    chain = chain_of(("first", first), ("last", last))
    chain.end_of_input()
    assert first.ends == 0
    assert next_of(chain) == ("last", [1])
    assert last.ends == 0


def test_records_are_counted_in_and_out_per_operator() -> None:
    chain = chain_of(("split", Plain(odd_to_side)), ("none", Plain(nothing)), ("last", Plain(same)))
    chain.push(Batch([1, 2, 3, 4]))
    drain(chain)
    chain.push(Batch([6]))
    drain(chain)
    assert chain.counts == (
        OperatorCounts(OperatorName("split"), 5, 5),
        OperatorCounts(OperatorName("none"), 3, 0),
        OperatorCounts(OperatorName("last"), 0, 0),
    )


def test_what_an_operator_raises_passes_through() -> None:
    def failing(values: list[int]) -> Iterator[Batch]:
        yield Batch(values)
        raise ZeroDivisionError

    chain = chain_of(("failing", Plain(failing)), ("same", Plain(same)))
    chain.push(Batch([1]))
    assert next_of(chain) == ("same", [1])
    with pytest.raises(ZeroDivisionError):
        next_of(chain)


def test_work_for_a_busy_or_ended_chain_is_an_internal_error() -> None:
    chain = chain_of(("first", Plain(same)))
    chain.push(Batch([1]))
    with pytest.raises(InternalError, match="chain of first while it was busy"):
        chain.push(Batch([2]))
    with pytest.raises(InternalError, match="was busy"):
        chain.end_of_input()
    drain(chain)
    chain.end_of_input()
    drain(chain)
    with pytest.raises(InternalError, match="had ended"):
        chain.push(Batch([3]))


def test_a_chain_without_operators_is_an_internal_error() -> None:
    with pytest.raises(InternalError):
        Chain([])


def test_a_chain_has_nothing_to_give_before_it_is_given_something() -> None:
    chain = chain_of(("first", Plain(same)))
    assert chain.idle
    assert not chain.ended
    assert next_of(chain) is None


# ---- timers ----------------------------------------------------------------------------------------------------------


class Timed(Plain):
    """Has a timer that is due at 5, for ever."""

    next_timer = 5

    def fire_timers(self, now: int, must_stop: Callable[[], bool]) -> Iterator[Batch]:
        yield Batch([f"timer at {now}"])


def test_operators_with_timers_take_turns_and_what_they_emit_passes_those_behind() -> None:
    last = Plain(same)
    chain = chain_of(("one", Timed(same)), ("two", Timed(same)), ("last", last))
    assert chain.next_timer == 5
    for now in (7, 8, 9):
        chain.fire_timers(now, lambda: False)
        assert drain(chain) == [("last", [f"timer at {now}"])]
    assert [count.records_out for count in chain.counts] == [2, 3, 3]
    chain.fire_timers(4, lambda: False)
    assert chain.idle
    chain.push(Batch([1]))
    with pytest.raises(InternalError, match="while it was busy"):
        chain.fire_timers(5, lambda: False)


def test_nobody_has_timers_that_had_ended_or_when_the_input_has() -> None:
    names = OperatorName("ended"), OperatorName("alive")
    chain = Chain([(names[0], Timed(same)), (names[1], Timed(same))], ended={names[0]})
    chain.fire_timers(5, lambda: False)
    assert drain(chain) == [("alive", ["timer at 5"])]
    chain.end_of_input()
    drain(chain)
    assert chain.next_timer is None


class Ready:
    """A deserializer that only makes a list of what it gets, where it `keeps`."""

    def __init__(self, keeps: bool) -> None:
        self.keeps = keeps

    def decode(self, raw: Iterable[object]) -> list[object]:
        return list(raw)

    def decode_one(self, raw: object) -> object:
        return raw


@pytest.mark.parametrize(
    ("keeps", "takes", "outside", "expected"),
    [
        (True, True, (), range),
        (False, True, (), list),
        (True, False, (), list),
        (True, True, ("read",), list),
    ],
)
def test_only_a_source_and_a_sink_that_both_can_pass_on_what_was_read_as_it_is(
    keeps: bool, takes: bool, outside: tuple[str, ...], expected: type
) -> None:
    written: list[Batch] = []
    source, sink = SourceOperator(Ready(keeps)), SinkOperator(lambda batch, refuse: written.append(batch), takes)
    chain = chain_of(("read", source), ("write", sink), outside=outside)
    values: Any = range(3)
    chain.push(Batch(values, None, [7, 8, 9]))
    while chain.next_output() is not None:
        pass
    assert [(type(one.values), list(one.values), one.timestamps) for one in written] == [
        (expected, [0, 1, 2], [7, 8, 9])
    ]
    assert [(count.records_in, count.records_out) for count in chain.counts] == [(3, 3), (3, 0)]


def test_an_operator_between_source_and_sink_gets_a_list() -> None:
    written: list[Batch] = []
    between = Plain(same)
    chain = chain_of(
        ("read", SourceOperator(Ready(True))),
        ("keep", between),
        ("write", SinkOperator(lambda batch, refuse: written.append(batch), True)),
    )
    values: Any = range(3)
    chain.push(Batch(values))
    assert chain.next_output() is None
    assert between.seen == [[0, 1, 2]]
    assert [one.values for one in written] == [[0, 1, 2]]
