"""JSON, checked against a type while it is read. It must never guess: what does not fit the type raises.

Values are decoded one by one and not as one joined array: two broken records could otherwise add up to valid ones.
"""

from typing import Any

import msgspec

_NULL = b"null"
"""What None becomes, and perhaps something else, too."""


class Json:
    """Records as JSON texts in UTF-8, one a record.

    `type` is anything that msgspec can decode to: a `msgspec.Struct`, a dataclass, a TypedDict, `dict[str, int]`,
    `int`. Without it any JSON passes. Decoding raises `msgspec.ValidationError` for valid JSON of another shape, and
    its base `msgspec.DecodeError` for what is no JSON or is nested too deeply; encoding raises TypeError for a value
    that JSON cannot express.
    """

    def __init__(self, type: Any = Any) -> None:
        self.type = type
        self._decode = msgspec.json.Decoder(type).decode
        self._encode = msgspec.json.Encoder().encode

    def decode(self, raw: list[Any]) -> list[Any]:
        try:
            return list(map(self._decode, raw))
        except RecursionError:
            raise _too_deep() from None
        except TypeError:
            # Something is None, or nothing that can be decoded.
            return [self.decode_one(one) for one in raw]

    def decode_one(self, raw: Any) -> Any:
        try:
            return None if raw is None else self._decode(raw)
        except RecursionError:
            raise _too_deep() from None

    def encode(self, values: list[Any]) -> list[bytes | None]:
        texts: list[bytes | None] = list(map(self._encode, values))
        if _NULL in texts:
            return [None if value is None else text for value, text in zip(values, texts, strict=True)]
        return texts

    def __repr__(self) -> str:
        return f"Json({getattr(self.type, '__name__', self.type)})"


def _too_deep() -> msgspec.DecodeError:
    return msgspec.DecodeError("JSON is nested too deeply")
