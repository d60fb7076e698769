"""Functions of many records at once: `stream.map_batch(...)` and `stream.process_batch(...)`, with lists or with Arrow
tables. What a program says here becomes one operator, of `operators/batches.py`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

from tidegate.api.builder import GraphBuilder
from tidegate.api.validation import about, check_function, check_parallelism
from tidegate.errors import InvalidError
from tidegate.graph.logical import InputEdge, LogicalNode
from tidegate.ids import OperatorName
from tidegate.operators.arrow_tables import ArrowTables
from tidegate.operators.batches import BatchForm, Lists, MapBatchOperator, ProcessBatchOperator
from tidegate.operators.context import Context
from tidegate.operators.contracts import Operator
from tidegate.operators.user_code import copy_function

if TYPE_CHECKING:
    from tidegate.api.stream import Stream

Record = TypeVar("Record", covariant=True)
Result = TypeVar("Result")
Given = TypeVar("Given", contravariant=True)
Taken = TypeVar("Taken", covariant=True)
Format = Literal["list", "arrow"]


class BatchFunction(ABC, Generic[Given, Taken]):
    """A function of many records with something to open, a model for example: `map_batch(Score("model.bin"), ...)`.

    Each subtask works with its own copy (`copy.deepcopy`) of the object that the program made, so a model is loaded in
    `open`. `Given` and `Taken` are lists of records, or `pyarrow.Table`.
    """

    def open(self, ctx: Context) -> None:
        """Called once in each attempt before the first batch."""

    @abstractmethod
    def __call__(self, records: Given) -> Taken:
        """Called for each batch. The list belongs to the function, the records do not: they must not be changed."""

    def close(self) -> None:
        """Called when the attempt ends in good order, after `open` succeeded. For manners only."""


class BatchMethods(Generic[Record]):
    """What a stream has of them."""

    _builder: GraphBuilder
    _behind: "Callable[[OperatorName], Stream[Any]]"

    def _edge(self) -> InputEdge:
        """To an operator that has this stream's records."""
        raise NotImplementedError

    @overload
    def map_batch(
        self,
        function: Callable[[list[Record]], Iterable[Result]],
        *,
        name: str | None = None,
        size: int | None = None,
        format: Literal["list"] = "list",
        parallelism: int | None = None,
    ) -> "Stream[Result]": ...
    @overload
    def map_batch(
        self,
        function: Callable[[Any], Any],
        *,
        name: str | None = None,
        size: int | None = None,
        format: Literal["arrow"],
        types: tuple[type[Any], type[Result]],
        parallelism: int | None = None,
    ) -> "Stream[Result]": ...
    def map_batch(
        self,
        function: Callable[[Any], Any],
        *,
        name: str | None = None,
        size: int | None = None,
        format: Format = "list",
        types: tuple[Any, Any] | None = None,
        parallelism: int | None = None,
    ) -> "Stream[Any]":
        """One record for each, of many at once: `function(records)` returns as many as it is given, in their order.
        They keep the timestamps.

        A batch is what the engine has together at the moment, at most `size` records (all of it when left out), and
        another one after a restart: what comes out for a record should not depend on those beside it. With `format`
        "arrow" the function gets and returns a `pyarrow.Table`, made of records of the first of the `types`, with a
        column for each field, and made into records of the second. A function with something to open is a
        `BatchFunction`.
        """
        operator, form = self._checked("map_batch", name, function, size, format, types)
        return self._added(
            operator,
            "map_batch",
            lambda: MapBatchOperator(_own(function, operator), size, form),
            parallelism,
        )

    @overload
    def process_batch(
        self,
        function: Callable[[list[Record]], Iterable[Result]],
        *,
        name: str | None = None,
        size: int | None = None,
        format: Literal["list"] = "list",
        timestamp_assigner: Callable[[Result], int] | None = None,
        parallelism: int | None = None,
    ) -> "Stream[Result]": ...
    @overload
    def process_batch(
        self,
        function: Callable[[Any], Any],
        *,
        name: str | None = None,
        size: int | None = None,
        format: Literal["arrow"],
        types: tuple[type[Any], type[Result]],
        timestamp_assigner: Callable[[Result], int] | None = None,
        parallelism: int | None = None,
    ) -> "Stream[Result]": ...
    def process_batch(
        self,
        function: Callable[[Any], Any],
        *,
        name: str | None = None,
        size: int | None = None,
        format: Format = "list",
        types: tuple[Any, Any] | None = None,
        timestamp_assigner: Callable[[Any], int] | None = None,
        parallelism: int | None = None,
    ) -> "Stream[Any]":
        """Any number of records for many at once: what `function(records)` yields or returns. As `map_batch` otherwise.

        Nothing says which record an output is of, so it has no timestamp, unless `timestamp_assigner` takes one from
        it, in milliseconds since 1970.
        """
        operator, form = self._checked("process_batch", name, function, size, format, types)
        if timestamp_assigner is not None:
            check_function(operator, "timestamp_assigner", timestamp_assigner)
        return self._added(
            operator,
            "process_batch",
            lambda: ProcessBatchOperator(_own(function, operator), size, form, timestamp_assigner),
            parallelism,
        )

    def _checked(
        self, kind: str, name: str | None, function: object, size: object, format: object, types: Any
    ) -> tuple[OperatorName, BatchForm]:
        """The operator's name, and what its function gets."""
        operator = self._builder.name(kind, name)
        _check_batch_function(operator, kind, function)
        if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 1):
            raise InvalidError(
                f"operator {operator} has size {size!r}",
                remedy="Give a whole number of records from 1, or leave it out.",
            )
        return operator, _form(operator, format, types)

    def _added(
        self, operator: OperatorName, kind: str, factory: Callable[[], Operator], parallelism: int | None
    ) -> "Stream[Any]":
        width = check_parallelism(operator, parallelism)
        self._builder.add(LogicalNode(operator, kind, (self._edge(),), width, factory=factory))
        return self._behind(operator)


def _check_batch_function(operator: OperatorName, kind: str, function: object) -> None:
    if isinstance(function, type) and issubclass(function, BatchFunction):
        raise InvalidError(
            f"operator {operator} was given the class {function.__name__} instead of a function",
            remedy=f"Make an instance: {kind}({function.__name__}(...), ...).",
        )
    check_function(operator, kind, function)
    if not isinstance(function, BatchFunction) and callable(getattr(function, "open", None)):
        raise InvalidError(
            f"operator {operator} was given an object of type {type(function).__name__}, whose open nobody would call",
            remedy="Derive it from BatchFunction.",
        )


def _form(operator: OperatorName, format: object, types: Any) -> BatchForm:
    if format == "arrow":
        if not isinstance(types, tuple) or len(types) != 2:
            raise InvalidError(
                f"operator {operator} makes Arrow tables, of which types={types!r} does not say the columns",
                remedy="Give types=(Order, Score): the class of the records that come in, and of those that come out.",
            )
        try:
            return ArrowTables(*types)
        except InvalidError as error:
            raise about(operator, error) from error
    if format != "list":
        raise InvalidError(f"operator {operator} has format={format!r}", remedy='Give "list" or "arrow".')
    if types is not None:
        raise InvalidError(f"operator {operator} has types= and lists", remedy='Leave it out, or say format="arrow".')
    return Lists()


def _own(function: Callable[[Any], Any], operator: OperatorName) -> Callable[[Any], Any]:
    """What one subtask calls."""
    return copy_function(function, operator) if isinstance(function, BatchFunction) else function
