"""Which of the batches that a broker sent a reader may see. Pure.

A broker sends transactions that were aborted, too, and says which those are; it never sends what comes behind the first
open one to who reads committed records. Control batches end transactions and are never seen.
"""

from collections.abc import Sequence
from typing import NamedTuple

from tidegate.connectors.kafka.batches.reading import Span, is_abort


class Aborted(NamedTuple):
    """A transaction that was aborted: who wrote it, and where its first record is in the partition."""

    producer_id: int
    first_offset: int


def visible(records: bytes, found: Sequence[Span], aborted: Sequence[Aborted]) -> list[Span]:
    """Of batches in order: those of committed transactions and of none. `aborted` is all that is aborted among them, of
    one producer perhaps more than once. Raises ValueError for a control batch that cannot be read.
    """
    if not aborted:
        return [span for span in found if not span.is_control]
    coming = sorted(aborted, key=lambda one: one.first_offset, reverse=True)
    open_ids: set[int] = set()
    seen: list[Span] = []
    for span in found:
        while coming and coming[-1].first_offset < span.end_offset:
            open_ids.add(coming.pop().producer_id)
        if span.is_control:
            if span.producer_id in open_ids and is_abort(records, span):
                open_ids.discard(span.producer_id)
        elif not (span.is_transactional and span.producer_id in open_ids):
            seen.append(span)
    return seen
