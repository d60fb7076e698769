"""An optional part of what a transactional sink does; the rest is in `contracts`."""

from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class FlushingSink(Protocol):
    """A sink whose `prepare` does more than to send what was written: batches of the next transaction need not wait for
    the rest of it."""

    def flush(self, txn: Any) -> None:
        """Called before `prepare`, on the side thread. When it returns, nothing that is written to another transaction
        can overtake what was written to this one. Raises as `prepare` does; that must then raise, too."""
        ...
