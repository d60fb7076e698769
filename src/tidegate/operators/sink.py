"""The end of a chain: hands batches to whoever writes them into the sink's open transaction, and emits nothing."""

from collections.abc import Callable, Iterable

from tidegate.elements import Batch
from tidegate.operators.stateless import StatelessOperator
from tidegate.operators.user_code import raise_user_error


class SinkOperator(StatelessOperator):
    """`write` is called only while the sink is writable: the task does not drive the chain otherwise."""

    def __init__(self, write: Callable[[Batch], None], takes_columns: bool = False) -> None:
        """`takes_columns`: as a `ColumnSink` says."""
        super().__init__()
        self._write = write
        self.takes_columns = takes_columns

    def process(self, batch: Batch) -> Iterable[Batch]:
        try:
            self._write(batch)
        except Exception as error:
            raise_user_error(error, self._context, "when a batch was given to the sink")
        return ()
