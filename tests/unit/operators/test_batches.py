"""Functions of many records: what they get and give, as lists and as Arrow tables, and how they fail."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

import tidegate as tg
from tests.unit.operators.bench import context, rows
from tests.unit.runtime.harness import HandSource
from tidegate.elements import Batch
from tidegate.errors import InvalidError, UserCodeError
from tidegate.ids import OperatorName
from tidegate.operators.contracts import Operator


class Order(msgspec.Struct, frozen=True):
    user: str
    amount: int | None


class Score(msgspec.Struct, frozen=True):
    user: str
    share: float


def operator_of(kind: str, function: Any, **arguments: Any) -> Operator:
    job = tg.Job("shop")
    getattr(job.source(HandSource(), name="src"), kind)(function, name="it", **arguments)
    factory = job._builder.node(OperatorName("it")).factory
    assert factory is not None
    return factory()


def run(kind: str, function: Any, batch: Batch, batch_size: int = 100, **arguments: Any) -> list[Batch]:
    operator = operator_of(kind, function, **arguments)
    operator.open(context(batch_size))
    return list(operator.process(batch))


# ---- lists ---------------------------------------------------------------------------------------------------------


def test_map_batch_gives_a_result_for_each_record_with_its_timestamp() -> None:
    (batch,) = run("map_batch", lambda orders: [order * 10 for order in orders], Batch([1, 2, 3], None, [7, 8, 9]))
    assert (batch.values, batch.timestamps, batch.keys, batch.tag) == ([10, 20, 30], [7, 8, 9], None, None)


def test_a_batch_is_cut_to_the_size_that_was_asked_for() -> None:
    sizes: list[int] = []

    def seen(records: list[int]) -> list[int]:
        sizes.append(len(records))
        return records

    given = run("map_batch", seen, Batch(list(range(7)), None, list(range(7))), size=3)
    assert sizes == [3, 3, 1]
    assert [value for batch in given for value in batch.values] == list(range(7))
    assert [stamp for batch in given for stamp in batch.timestamps or ()] == list(range(7))


def test_the_list_belongs_to_the_function() -> None:
    batch = Batch([1, 2, 3])

    def emptied(records: list[int]) -> list[int]:
        taken = list(records)
        records.clear()
        return taken

    assert rows(run("map_batch", emptied, batch)) == [(None, [1, 2, 3])]
    assert batch.values == [1, 2, 3]


def test_a_generator_may_give_the_results() -> None:
    def doubled(records: list[int]) -> Iterator[int]:
        yield from (record * 2 for record in records)

    assert rows(run("map_batch", doubled, Batch([1, 2]))) == [(None, [2, 4])]
    assert rows(run("process_batch", doubled, Batch([1, 2]))) == [(None, [2, 4])]


@pytest.mark.parametrize("returned", [[1], [1, 2, 3], []])
def test_map_batch_refuses_another_number_of_results(returned: list[int]) -> None:
    with pytest.raises(
        UserCodeError, match=rf"on a batch of 2 records: the function returned {len(returned)} results.*process_batch"
    ):
        run("map_batch", lambda records: returned, Batch([1, 2]))


@pytest.mark.parametrize("kind", ["map_batch", "process_batch"])
@pytest.mark.parametrize(
    ("returned", "said"), [(None, "NoneType and not a list"), (3, "int and not a list"), ("ab", "one str")]
)
def test_what_is_no_list_is_refused(kind: str, returned: Any, said: str) -> None:
    with pytest.raises(UserCodeError, match=said):
        run(kind, lambda records: returned, Batch([1, 2]))


def test_process_batch_gives_any_number_in_batches_of_the_engines_size() -> None:
    given = run("process_batch", lambda numbers: [n for n in numbers for _ in range(n)], Batch([0, 3, 2]), batch_size=2)
    assert rows(given) == [(None, [1 and 3, 3]), (None, [3, 2]), (None, [2])]


def test_what_process_batch_yields_leaves_before_the_rest_is_made() -> None:
    made: list[int] = []

    def endless(records: list[int]) -> Iterator[int]:
        for number in range(10**9):
            made.append(number)
            yield number

    operator = operator_of("process_batch", endless)
    operator.open(context(2))
    assert next(iter(operator.process(Batch([1])))).values == [0, 1]
    assert made == [0, 1]


def test_outputs_of_process_batch_have_the_timestamps_that_are_taken_from_them_or_none() -> None:
    batch = Batch([1, 2], None, [5, 6])
    (without,) = run("process_batch", lambda numbers: numbers, batch)
    (with_them,) = run("process_batch", lambda numbers: numbers, batch, timestamp_assigner=lambda n: n * 1000)
    assert (without.timestamps, with_them.timestamps) == (None, [1000, 2000])


@pytest.mark.parametrize("stamp", [None, 1.5, True, 2**70])
def test_what_is_no_timestamp_is_refused(stamp: Any) -> None:
    with pytest.raises(UserCodeError, match="is no timestamp"):
        run("process_batch", lambda numbers: numbers, Batch([1]), timestamp_assigner=lambda number: stamp)


def test_what_the_function_raises_names_the_batch() -> None:
    def failing(records: list[int]) -> list[float]:
        return [1 / record for record in records]

    for kind in ("map_batch", "process_batch"):
        with pytest.raises(UserCodeError, match="ZeroDivisionError on a batch of 3 records") as caught:
            run(kind, failing, Batch([1, 0, 2]))
        assert "return [1 / record for record in records]" in caught.value.failure.traceback
        assert "tidegate/operators" not in caught.value.failure.traceback


# ---- functions with something to open ------------------------------------------------------------------------------


class Model(tg.BatchFunction[list[int], list[int]]):
    def __init__(self) -> None:
        self.said: list[str] = []
        self.factor = 0

    def open(self, ctx: tg.Context) -> None:
        self.factor = ctx.parallelism
        self.said.append(f"open {ctx.subtask}")

    def __call__(self, records: list[int]) -> list[int]:
        return [record * self.factor for record in records]

    def close(self) -> None:
        self.said.append("close")


def test_a_model_is_opened_and_closed_once_in_each_subtask_and_is_the_subtasks_own() -> None:
    model = Model()
    operator = operator_of("map_batch", model)
    operator.open(context())
    assert rows(operator.process(Batch([1, 2]))) == [(None, [2, 4])]
    operator.close()
    operator.close()
    assert operator._function.said == ["open 1", "close"]  # type: ignore[attr-defined]
    assert model.said == []


def test_what_open_and_close_raise_says_where() -> None:
    class Broken(Model):
        def open(self, ctx: tg.Context) -> None:
            raise OSError("no such model")

        def close(self) -> None:
            raise OSError("still in use")

    operator = operator_of("process_batch", Broken())
    with pytest.raises(UserCodeError, match="OSError in open: no such model"):
        operator.open(context())
    operator.close()  # what was never open is not closed
    operator = operator_of("process_batch", Model())
    operator.open(context())
    operator._close = Broken().close  # type: ignore[attr-defined]
    with pytest.raises(UserCodeError, match="OSError in close: still in use"):
        operator.close()


class OpenedByNobody:
    def open(self) -> None: ...

    def __call__(self, records: list[int]) -> list[int]:
        return records


async def asynchronous(records: list[int]) -> list[int]:
    return records


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("text", "needs a function"),
        (Model, "instead of a function"),
        (OpenedByNobody(), "whose open nobody would call"),
        (asynchronous, "async function"),
    ],
)
def test_what_cannot_be_a_batch_function_is_refused(function: Any, said: str) -> None:
    with pytest.raises(InvalidError, match=said):
        operator_of("map_batch", function)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"size": 0}, "size 0"),
        ({"size": True}, "size True"),
        ({"size": 2.0}, "size 2.0"),
        ({"format": "pandas"}, "format='pandas'"),
        ({"types": (Order, Score)}, "types= and lists"),
        ({"format": "arrow"}, "types=None does not say the columns"),
        ({"format": "arrow", "types": Order}, "does not say the columns"),
        ({"format": "arrow", "types": (Order, int)}, "operator it: int has no fields"),
    ],
)
def test_arguments_that_cannot_be_are_refused(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidError, match=said):
        operator_of("map_batch", list, **arguments)
