"""An optional part of what a source's reader does; the rest is in `contracts`."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable


@runtime_checkable
class WatchedReader(Protocol):
    """A reader that need not be asked again and again whether something has come."""

    def watched(self) -> Sequence[int]:
        """Asked behind a `poll` that found nothing: file descriptors that become readable when it may find something,
        all that are needed for that; none where only asking tells. `poll` takes what they have, or they would stay
        readable. It is polled now and then all the same."""
        ...


def watched_by(reader: object) -> Sequence[int]:
    """Nothing where it is no such reader."""
    return reader.watched() if isinstance(reader, WatchedReader) else ()
