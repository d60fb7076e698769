"""Which partition a record goes to, for many records at once: the same as with Java's client and librdkafka's
murmur2_random, so that keys land where other producers put them.

Pure. Nothing is remembered of a key: the compiled hash takes less than looking up what was found before.
"""

from collections.abc import Sequence
from itertools import repeat

from confluent_kafka.cimpl import murmur2

from tidegate.native import native


class Partitioner:
    """Of a topic with that many partitions."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._next = 0

    def of(self, keys: Sequence[bytes | None]) -> list[int]:
        """A partition for each; records without a key are spread. Raises TypeError for a key that is not bytes."""
        count = self.count
        if native is not None:
            found = native.partitions_of(keys if isinstance(keys, list | tuple) else list(keys), count)
            return found if -1 not in found else [self._spread() if one < 0 else one for one in found]
        try:
            return list(map(murmur2, keys, repeat(count)))  # type: ignore[arg-type]
        except TypeError:
            # It hashes no None.
            return [self._spread() if key is None else murmur2(key, count) for key in keys]

    def ranges(self, records: int) -> list[tuple[int, int]]:
        """Partitions for so many records without keys: for runs of neighbours, each with its length."""
        each, left = divmod(records, self.count)
        runs = [(self._spread(), each + 1) for _ in range(left)]
        if each:
            begin = self._next + 1
            runs += [((begin + index) % self.count, each) for index in range(self.count - left)]
        return runs

    def _spread(self) -> int:
        self._next = (self._next + 1) % self.count
        return self._next
