"""Co-partitioned keys: the partitions of the input already keep them together, so that nothing has to be exchanged.

The producer's partitioner says the partition of a key, and the partition says its key group: state and partition are
always with the same subtask. Stored state rests on it, so what a partitioner gives for a key may never change. Pure.
"""

import re
import struct
import zlib
from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec

from tidegate.errors import CorruptError, InvalidError
from tidegate.ids import KeyGroup
from tidegate.native import native

__all__ = ["CRC32", "MURMUR2", "PARTITIONED_TYPES", "PARTITIONERS", "KeyPartitions", "partitioned_key_type"]

MURMUR2 = "murmur2"
"""Of Java's clients and of Tidegate; librdkafka's `murmur2_random`."""
CRC32 = "crc32"
"""Of librdkafka's clients unless they are told otherwise: its `consistent_random`."""
PARTITIONERS = (MURMUR2, CRC32)
PARTITIONED_TYPES = ("str", "bytes")
"""The types of keys that a partitioner knows the bytes of."""

_TEXT = re.compile(r"(?P<count>[1-9][0-9]{0,4}) partitions by (?P<partitioner>[a-z0-9]+)")
_MOST = 32_768
"""Partitions; never more than the largest max_parallelism."""
_SHOWN = 200
"""Characters of a wrong text that an error repeats."""


class KeyPartitions(msgspec.Struct, frozen=True):
    """How many partitions the input has, and what says the partition of a key."""

    count: int
    partitioner: str
    """One of `PARTITIONERS`."""

    @classmethod
    def declared(cls, count: int, partitioner: str) -> "KeyPartitions":
        """As a program says it. Raises InvalidError."""
        if type(count) is not int or not 1 <= count <= _MOST:
            raise InvalidError(
                f"partitions={count!r} is not a number from 1 to {_MOST}",
                remedy="Say how many partitions the topic has, or leave partitions= out.",
            )
        if partitioner not in PARTITIONERS:
            raise InvalidError(
                f"partitioner={partitioner!r} is not known", remedy=f"Use one of {', '.join(PARTITIONERS)}."
            )
        return cls(count, partitioner)

    @classmethod
    def parse(cls, text: str) -> "KeyPartitions":
        """Those whose text is `text`. Raises CorruptError."""
        found = _TEXT.fullmatch(text)
        if found is None or int(found["count"]) > _MOST or found["partitioner"] not in PARTITIONERS:
            raise CorruptError(f"{text[:_SHOWN]!r} does not say how keys are partitioned")
        return cls(int(found["count"]), found["partitioner"])

    def of(self, key: str | bytes) -> int:
        """The partition of a key. Raises InvalidError for one that is neither str nor bytes."""
        if type(key) is str:
            return self.of_bytes(key.encode("utf-8", "surrogatepass"))
        if type(key) is bytes:
            return self.of_bytes(key)
        raise InvalidError(
            f"a partitioner gives no partition to a key of type {type(key).__name__}",
            remedy="Co-partitioned keys are str or bytes: convert them, or leave partitions= out.",
        )

    def of_bytes(self, data: bytes) -> int:
        """The partition of the key that Kafka has as `data`."""
        return partition_function(self.partitioner)(data, self.count)

    def are_in(self, partition: int, keys: list[Any]) -> bool:
        """Whether that all of them are in a partition can be said at once: where the compiled part is there and knows
        the partitioner. If not, each must be looked at."""
        if native is None or self.partitioner != MURMUR2:
            return False
        return native.first_elsewhere(keys, partition, self.count) < 0

    def group_of(self, key: str | bytes, max_parallelism: int) -> KeyGroup:
        """The key group of a key. Raises InvalidError for one that is neither str nor bytes."""
        return self.group_of_partition(self.of(key), max_parallelism)

    def group_of_partition(self, partition: int, max_parallelism: int) -> KeyGroup:
        """The key group of all keys of a partition."""
        return KeyGroup(partition * max_parallelism // self.count)

    def require_groups(self, max_parallelism: int, where: str = "") -> None:
        """Raises InvalidError when there are fewer key groups than partitions. where: the operator, for the error."""
        if self.count > max_parallelism:
            raise InvalidError(
                f"{self} do not fit into max_parallelism {max_parallelism}",
                remedy="Raise max_parallelism, which is fixed once state is stored, or leave partitions= out.",
                where=where,
            )

    def __str__(self) -> str:
        return f"{self.count} partitions by {self.partitioner}"


def partitioned_key_type(key_type: str, partitions: KeyPartitions) -> str:
    """The type of co-partitioned keys as it is stored: `str in 4 partitions by murmur2`.

    Raises InvalidError unless `key_type` is one of `PARTITIONED_TYPES`.
    """
    if key_type not in PARTITIONED_TYPES:
        raise InvalidError(
            f"keys of type {key_type or 'unknown'} cannot be in {partitions}",
            remedy="Declare key_type=str or key_type=bytes, or leave partitions= out.",
        )
    return f"{key_type} in {partitions}"


@cache
def partition_function(partitioner: str) -> Callable[[bytes, int], int]:
    """From a key, as Kafka has it, and the number of partitions to the key's partition."""
    if partitioner == CRC32:
        return lambda key, count: zlib.crc32(key) % count
    try:
        # Compiled, where it is installed.
        from confluent_kafka.cimpl import murmur2
    except ImportError:
        return own_murmur2
    return murmur2


_MULTIPLIER = 0x5BD1E995
_WORD = 0xFFFFFFFF


def own_murmur2(key: bytes, count: int) -> int:
    """The partition of a key, of so many, as Java's `Utils.toPositive(Utils.murmur2(key)) % count`."""
    words = len(key) // 4
    state = 0x9747B28C ^ len(key)
    for word in struct.unpack_from(f"<{words}I", key):
        mixed = word * _MULTIPLIER & _WORD
        mixed = (mixed ^ mixed >> 24) * _MULTIPLIER & _WORD
        state = state * _MULTIPLIER & _WORD ^ mixed
    rest = key[words * 4 :]
    if rest:
        state = (state ^ int.from_bytes(rest, "little")) * _MULTIPLIER & _WORD
    state = (state ^ state >> 13) * _MULTIPLIER & _WORD
    return ((state ^ state >> 15) & 0x7FFFFFFF) % count
