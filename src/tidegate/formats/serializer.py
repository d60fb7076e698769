"""What a sink asks of a format. What a source asks of it is `tidegate.operators.contracts.Deserializer`.

A format works on whole batches, holds nothing that changes, and may be used by several threads. It must pass None, the
tombstone, through in both directions: whether a record without a value means anything is not the format's to decide.
"""

from typing import Any, Protocol


class Serializer(Protocol):
    """From the values of a stream to what a sink writes."""

    def encode(self, values: list[Any]) -> list[bytes | None]:
        """One for each value, in order; None where the value is None. Raises on the first that cannot be encoded."""
        ...
