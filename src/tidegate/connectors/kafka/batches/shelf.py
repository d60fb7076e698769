"""What has arrived and was not handed out yet, partition by partition, in order. Pure.

Partitions take turns, a batch each, so that none runs far ahead of the others. Nothing overtakes anything of its own
partition: also what went wrong comes behind the records before it.
"""

from collections import deque

from tidegate.connectors.kafka.batches.commands import Fail, Hand, Pass
from tidegate.connectors.kafka.batches.reading import Reader
from tidegate.connectors.kafka.client import Chunk, TopicPartition

Item = Hand | Pass | Fail


class Shelf:
    """`reader` decodes."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._items: dict[TopicPartition, deque[Item]] = {}
        self._turns: deque[TopicPartition] = deque()
        self._index: dict[TopicPartition, int] = {}
        """Which batch of its first item is next."""
        self._taken: dict[TopicPartition, int] = {}

    def put(self, partition: TopicPartition, item: Item) -> None:
        items = self._items.setdefault(partition, deque())
        if not items:
            self._turns.append(partition)
        items.append(item)

    def drop(self, partition: TopicPartition) -> None:
        if self._items.pop(partition, None):
            self._turns.remove(partition)
        self._index.pop(partition, None)
        self._taken.pop(partition, None)

    def taken(self) -> dict[TopicPartition, int]:
        """Bytes that were used up since it was last asked."""
        taken, self._taken = self._taken, {}
        return taken

    def take(self, max_records: int) -> list[Chunk]:
        """Whole batches, until there are so many records or no more. Raises what went wrong when its turn has come and
        nothing was taken before it."""
        chunks: list[Chunk] = []
        records = 0
        while self._turns and records < max_records:
            partition = self._turns[0]
            items = self._items[partition]
            item = items[0]
            if isinstance(item, Fail):
                if chunks:
                    return chunks
                raise item.error
            chunk = self._next(partition, items, item)
            self._turns.popleft()
            if items:
                self._turns.append(partition)
            chunks.append(chunk)
            records += len(chunk.values)
        return chunks

    def _next(self, partition: TopicPartition, items: deque[Item], item: Hand | Pass) -> Chunk:
        if isinstance(item, Pass):
            items.popleft()
            return self._reader.empty(partition, item.end)
        index = self._index.get(partition, 0)
        chunk = self._reader.chunk(item.batches, index)
        seen = item.batches.visible
        begin = seen[index].start if index else 0
        if index + 1 < len(seen):
            self._index[partition] = index + 1
            end = seen[index + 1].start
        else:
            self._index.pop(partition, None)
            items.popleft()
            end = item.size
        self._taken[partition] = self._taken.get(partition, 0) + end - begin
        return chunk
