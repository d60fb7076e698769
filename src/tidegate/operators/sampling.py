"""Samples of a stream: which records are in one depends on them alone.

The canonical bytes of what is looked at are hashed: so the same records are taken in every attempt, in every process
and at every parallelism, and other streams that are sampled by the same are sampled alike. No random number is drawn.
"""

from collections.abc import Callable
from typing import Any

import xxhash

from tidegate.errors import InvalidError
from tidegate.state.keys import encode_key

_HASHES = 2**64
_SALT = 0x53414D504C45
"""Other hashes than those that keys are routed by: a sample takes from every key group alike."""


class Sampler:
    """Says of a record whether it is in the sample: a function for `filter`. `fraction` from 0 to 1; `by` gives what
    could be a key; another `seed`, another sample."""

    def __init__(self, fraction: float, by: Callable[[Any], Any], seed: int) -> None:
        self._below = round(fraction * _HASHES)
        self._by = by
        self._seed = (_SALT + seed) % _HASHES

    def __call__(self, record: Any) -> bool:
        return xxhash.xxh3_64_intdigest(encode_key(self._by(record)), self._seed) < self._below


def check_fraction(operator: str, fraction: object, seed: object) -> None:
    """Whether they can be those of a sample. Raises InvalidError."""
    if isinstance(fraction, bool) or not isinstance(fraction, int | float) or not 0 <= fraction <= 1:
        raise InvalidError(f"operator {operator} samples {fraction!r}", remedy="Give a number from 0 to 1.")
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise InvalidError(f"operator {operator} has seed {seed!r}", remedy="Give a whole number.")
