"""The end of a chain: hands batches to whoever writes them into the sink's open transaction, and emits nothing."""

from collections.abc import Callable, Iterable
from typing import NoReturn

from tidegate.elements import Batch
from tidegate.operators.stateless import StatelessOperator
from tidegate.operators.user_code import raise_user_error


class SinkOperator(StatelessOperator):
    """`write` is called only while the sink is writable: the task does not drive the chain otherwise. It may keep a
    batch for a while; what the sink says of it then goes to the function given with it, which raises."""

    def __init__(
        self, write: Callable[[Batch, Callable[[Exception], NoReturn]], None], takes_columns: bool = False
    ) -> None:
        """`takes_columns`: as a `ColumnSink` says."""
        super().__init__()
        self._write = write
        self.takes_columns = takes_columns

    def process(self, batch: Batch) -> Iterable[Batch]:
        self._write(batch, self._refuse)
        return ()

    def _refuse(self, error: Exception) -> NoReturn:
        raise_user_error(error, self._context, "when a batch was given to the sink")
