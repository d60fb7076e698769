"""Which partition a record goes to, for many records at once: the same as with Java's client and librdkafka's
murmur2_random, so that keys land where other producers put them.

Pure. Keys that were seen are looked up; keys that were not are hashed together, all of one length at a time, each in a
lane of one large number.
"""

from array import array
from collections.abc import Sequence
from itertools import repeat

SEED = 0x9747B28C
FACTOR = 0x5BD1E995
LANE = 64
"""Bits: twice as many as a hash has, so that no product reaches the next lane."""
WORD = (1 << 32) - 1
SIGNLESS = 0x7FFFFFFF
KNOWN_MAX = 100_000
"""Keys that are remembered, of one topic."""


class Partitioner:
    """Of a topic with that many partitions."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._known: dict[bytes, int] = {}
        self._next = 0

    def of(self, keys: Sequence[bytes | None]) -> list[int]:
        """A partition for each; records without a key are spread."""
        try:
            return list(map(self._known.__getitem__, keys))  # type: ignore[arg-type]
        except KeyError:
            self._learn({key for key in keys if key is not None})
        return [self._spread() if key is None else self._known[key] for key in keys]

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

    def _learn(self, keys: set[bytes]) -> None:
        """All of these are known afterwards, whatever was known before."""
        new = keys - self._known.keys()
        if len(self._known) + len(new) > KNOWN_MAX:
            self._known.clear()
            new = keys
        by_length: dict[int, list[bytes]] = {}
        for key in new:
            by_length.setdefault(len(key), []).append(key)
        for length, alike in by_length.items():
            hashes = murmur2(alike, length)
            self._known.update(zip(alike, ((one & SIGNLESS) % self.count for one in hashes), strict=True))


def murmur2(keys: Sequence[bytes], length: int) -> list[int]:
    """The hashes of keys that are all so long. Each key has a lane of its own in every number here."""
    count = len(keys)
    ones = int.from_bytes(array("Q", repeat(1, count)).tobytes(), "little")
    mask = ones * WORD
    hashes = ones * (SEED ^ length)
    words = -(-length // 4)
    padding = bytes(-length % 4)
    columns = array("I", padding.join(keys) + padding)
    for index in range(length // 4):
        word = _lanes(columns[index::words]) * FACTOR & mask
        word = (word ^ (word >> 24) & ones * (WORD >> 24)) * FACTOR & mask
        hashes = (hashes * FACTOR & mask) ^ word
    if length % 4:
        hashes = (hashes ^ _lanes(columns[words - 1 :: words])) * FACTOR & mask
    hashes = (hashes ^ (hashes >> 13) & ones * (WORD >> 13)) * FACTOR & mask
    hashes ^= (hashes >> 15) & ones * (WORD >> 15)
    return array("Q", hashes.to_bytes(8 * count, "little")).tolist()


def _lanes(words: "array[int]") -> int:
    return int.from_bytes(array("Q", words).tobytes(), "little")
