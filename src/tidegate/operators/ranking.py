"""Rolling rankings: of each key the best records so far, put out anew whenever they change.

A ranking is kept with the best record last, so that the one that has to go is the first. Nothing but these records is
kept of a key, and nothing is put out that is the same as before.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from tidegate.elements import Batch
from tidegate.errors import InvalidError
from tidegate.operators.context import OutputBuffer
from tidegate.operators.contracts import OperatorContext
from tidegate.operators.keyed import backend_of, keys_of
from tidegate.operators.user_code import describe, raise_user_error
from tidegate.state.descriptors import ListState

T = TypeVar("T")


def insert_ranked(ranking: list[T], record: T, n: int, by: Callable[[T], Any]) -> bool:
    """Put `record` into `ranking`, at most `n` records, the best last and of equals the first that came. Returns
    whether that changed it: not when the record is not among the best, or `by(record)` is None."""
    rank = by(record)
    if rank is None or (len(ranking) >= n and rank <= by(ranking[0])):
        return False
    ranking.insert(bisect_left(ranking, rank, key=by), record)
    del ranking[:-n]
    return True


def check_n(what: str, n: object) -> None:
    """Whether `n` can be the number of records of a ranking. Raises InvalidError."""
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise InvalidError(f"{what} was given n={n!r}", remedy="Give a whole number from 1.")


class TopNOperator:
    """Emits `result(key, records)`, best first, for each record that changes the best `n` of its key."""

    def __init__(
        self,
        n: int,
        by: Callable[[Any], Any],
        result: Callable[[Any, list[Any]], Any],
        descriptor: ListState[Any],
    ) -> None:
        self._n = n
        self._by = by
        self._result = result
        self._descriptor = descriptor

    def open(self, context: OperatorContext) -> None:
        self._operator = context
        self._backend = backend_of(context)
        self._handle = self._backend.register(self._descriptor)

    def process(self, batch: Batch) -> Iterator[Batch]:
        stamps: Iterable[int | None] = batch.timestamps or [None] * len(batch)
        waiting = OutputBuffer((), timed=batch.timestamps is not None)
        for key, stamp, value in zip(keys_of(batch, self._operator), stamps, batch.values, strict=True):
            self._backend.set_current_key(key)
            self._rank(waiting, key, value)
            if stamp is not None:
                waiting.stamp(stamp)
            if len(waiting.main) >= self._operator.batch_size:
                yield from waiting.take()
        yield from waiting.take()

    def _rank(self, waiting: OutputBuffer, key: Any, value: Any) -> None:
        ranking = self._handle.get()
        try:
            if insert_ranked(ranking, value, self._n, self._by):
                self._handle.update(ranking)
                waiting.main.values.append(self._result(key, ranking[::-1]))
        except Exception as error:
            raise_user_error(error, self._operator, f"on record {describe(value)}")

    def end_of_input(self) -> Iterable[Batch]:
        return ()

    def close(self) -> None:
        """Nothing of its own to release."""
