"""Rows as JSON, one a line: what people read, and what `state read --key` takes back."""

import json
import math
from typing import Any

import msgspec


def json_text(value: Any) -> str:
    """`value`, plain or of the program, as one line of JSON.

    Bytes are in base64, moments in ISO format, floats that are no numbers are text. A dict whose keys are not all text
    or all whole numbers becomes a list of pairs; what JSON cannot say at all is shown as Python shows it.
    """
    builtin = msgspec.to_builtins(value, enc_hook=repr)
    return json.dumps(_jsonable(builtin), separators=(",", ":"))


def _jsonable(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    if isinstance(value, dict):
        for kind in (str, int):
            if all(type(key) is kind for key in value):
                return {str(key): _jsonable(part) for key, part in value.items()}
        return [[_jsonable(key), _jsonable(part)] for key, part in value.items()]
    return [_jsonable(part) for part in value] if isinstance(value, list | tuple) else value
