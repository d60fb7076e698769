"""Bytes as they are, and text. Neither may change a record: what cannot be read back as it was raises."""

from itertools import repeat
from typing import Any

_AS_THEY_ARE = {bytes, type(None)}


class Bytes:
    """Records as the bytes that they are. Encoding accepts `bytes`, `bytearray` and `memoryview`, else raises
    TypeError."""

    def decode(self, raw: list[Any]) -> list[Any]:
        return raw

    def decode_one(self, raw: Any) -> Any:
        return raw

    def encode(self, values: list[Any]) -> list[bytes | None]:
        if set(map(type, values)) <= _AS_THEY_ARE:
            return values
        return [None if value is None else _as_bytes(value) for value in values]

    def __repr__(self) -> str:
        return "Bytes()"


def _as_bytes(value: Any) -> bytes:
    """`bytes(5)` would be five zeros: only what already is a run of bytes passes."""
    if not isinstance(value, bytes | bytearray | memoryview):
        raise TypeError(f"the format Bytes() writes bytes, not {type(value).__name__}: {value!r}")
    return bytes(value)


class String:
    """Records as text in `encoding`. Decoding raises UnicodeDecodeError, encoding UnicodeEncodeError or TypeError."""

    def __init__(self, encoding: str = "utf-8") -> None:
        "".encode(encoding)
        self.encoding = encoding

    def decode(self, raw: list[Any]) -> list[Any]:
        encoding = self.encoding
        try:
            return list(map(bytes.decode, raw, repeat(encoding)))
        except TypeError:
            return [None if one is None else str(one, encoding) for one in raw]

    def decode_one(self, raw: Any) -> Any:
        return None if raw is None else str(raw, self.encoding)

    def encode(self, values: list[Any]) -> list[bytes | None]:
        try:
            return list(map(str.encode, values, repeat(self.encoding)))
        except TypeError:
            return [None if value is None else self._encode_one(value) for value in values]

    def _encode_one(self, value: Any) -> bytes:
        if not isinstance(value, str):
            raise TypeError(f"the format {self!r} writes str, not {type(value).__name__}: {value!r}")
        return value.encode(self.encoding)

    def __repr__(self) -> str:
        return f"String({self.encoding!r})"
