"""One decoder as a row of a table: what is encoded, by what, and what reading anything else may end in."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
from hypothesis import strategies as st

from tidegate.errors import CorruptError, InternalError, InvalidError


@dataclass(frozen=True)
class Decoder:
    """A row.

    values: what can be encoded; examples: some of them, for tests that go through every byte. encode, decode: the real
    ones; decode of what encode made gives what it was given. refusals: what decode may raise, and nothing else.
    seal: puts the right checksum to changed bytes, where there is one. damage_shows: every changed byte is noticed.
    """

    name: str
    values: st.SearchStrategy[Any]
    examples: tuple[Any, ...]
    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]
    refusals: tuple[type[Exception], ...] = (CorruptError, InvalidError)
    seal: Callable[[bytes], bytes] | None = None
    damage_shows: bool = False
    is_text: bool = False
    """For bombs that only make sense as text."""
    is_slow: bool = False
    """Each call takes milliseconds: fewer of them."""
    hostile: tuple[bytes, ...] = field(default=())
    """Bytes that are bad for this decoder in particular."""

    @property
    def samples(self) -> Iterator[bytes]:
        return map(self.encode, self.examples)


INTERNAL = (InternalError,)
"""For what comes over the job's own channels: whatever is no message there is a bug."""


def text_of(data: bytes) -> str:
    """Bytes as a command line or an environment would give them."""
    return data.decode("utf-8", "surrogateescape")


def as_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def to_json(value: Any) -> bytes:
    return msgspec.json.encode(value)


NAMES = st.from_regex(r"[A-Za-z0-9_-]{1,8}", fullmatch=True)
TEXTS = st.text(max_size=12)
SMALL = st.integers(0, 2**40)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
