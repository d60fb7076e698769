"""A sum that windows add by its values is the same as one that they add by its records."""

import operator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import tidegate as tg
from tests.unit.operators.bench import context
from tests.unit.runtime.harness import HandSource
from tidegate.elements import MAX_WATERMARK, Batch
from tidegate.errors import UserCodeError
from tidegate.ids import OperatorName, SubtaskIndex
from tidegate.state.object_backend import ObjectStateBackend

WRONG = 7
"""A record of which there is no value."""


def value_of(record: int) -> int | None:
    if record == WRONG:
        raise LookupError("nothing there")
    return None if record % 3 == 0 else record


def add(total: int, record: int) -> int:
    value = value_of(record)
    return total if value is None else total + value


BY_VALUE = tg.aggregates.sum(value_of, type=int)
BY_RECORD = tg.Aggregate(type=int, create=int, add=add, merge=operator.add, result=lambda total: total)


class Windows:
    def __init__(self, aggregate: Any) -> None:
        job = tg.Job("windows")
        windows = job.source(HandSource(), name="src").key_by(str).window(tg.TumblingEventTimeWindows("10ms"))
        windows.aggregate(aggregate, lambda key, window, total: (key, window.start, total), name="windows")
        node: Any = job._builder.node(OperatorName("windows"))
        self.operator = node.factory()
        self.backend = ObjectStateBackend(OperatorName("it"), SubtaskIndex(0), 1, 8, checks_mutation=True)
        self.operator.open(context(100, self.backend))

    def process(self, rows: list[tuple[str, int, int]]) -> str:
        keys, stamps, records = map(list, zip(*rows, strict=True))
        try:
            assert list(self.operator.process(Batch(records, keys, stamps))) == []
        except UserCodeError as error:
            return error.failure.message
        return ""

    def results(self) -> list[Any]:
        found = []
        while (outputs := self.operator.advance_watermark(MAX_WATERMARK, lambda: False)) is not None:
            found += [value for batch in outputs for value in batch.values]
        return found


Rows = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 30), st.integers(0, 9)), min_size=1, max_size=12)


@given(st.lists(Rows, max_size=4))
def test_by_value_and_by_record_give_the_same_totals_and_the_same_errors(batches: list[list[Any]]) -> None:
    one, other = Windows(BY_VALUE), Windows(BY_RECORD)
    said = [(one.process(rows), other.process(rows)) for rows in batches]
    assert all(mine == theirs for mine, theirs in said)
    if not any(mine for mine, _ in said):
        assert one.results() == other.results()


def test_the_record_without_a_value_is_named_and_values_are_what_is_added() -> None:
    windows = Windows(BY_VALUE)
    assert windows.operator._spec.by_value is not None
    assert windows.process([("a", 1, 1), ("b", 2, WRONG), ("a", 3, 2)]) == "LookupError on record 7: nothing there"


def test_a_window_whose_records_are_all_left_out_gives_nothing_but_zero() -> None:
    windows = Windows(BY_VALUE)
    assert windows.process([("a", 1, 3), ("a", 12, 4)]) == ""
    assert windows.results() == [("a", 0, 0), ("a", 10, 4)]
