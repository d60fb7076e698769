"""Types as text, keys and values: what of stored state says how the rest of it is read."""

import datetime as dt
import json
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
from hypothesis import strategies as st

from tests.unit.enemy.decoder import SMALL, TEXTS, Decoder, as_bytes, text_of, to_json
from tidegate.checkpoint.protocol import StateInfo
from tidegate.errors import CorruptError, InvalidError
from tidegate.savepoints.json_text import json_text
from tidegate.savepoints.keys import key_from_text, plain_key, stored_key
from tidegate.savepoints.values import plain_value
from tidegate.serializers import (
    Evolution,
    Stamped,
    explain_evolution,
    join_elements,
    join_entries,
    serialized,
    serializer_for,
    split_elements,
    split_entries,
)
from tidegate.serializers.spelling import parse_schema, split_map_type
from tidegate.state.key_types import decode_keys, layout_of, parse_layout
from tidegate.state.keys import encode_key, join_parts, split_parts
from tidegate.testing.conformance.state_kit import Colour, Point


class Total(msgspec.Struct):
    user: str
    parts: list[int] = []
    next: "Total | None" = None


class Text:
    """A serializer of a program's own."""

    id = "text"
    version = 12

    def encode(self, value: str) -> bytes:
        return value.encode()

    def decode(self, data: bytes, version: int) -> str:
        return data.decode()


SCHEMAS = (
    "int",
    "list[int]",
    "dict[str, list[int]]",
    "tuple[int, ...]",
    "Literal['a', 1] | None",
    "Total{user: str, parts: list[int] = ..., next: Total | None = ...}",
    "closed array Point#type=point{x: int(ge=0, le=9), y: int = (1, [2])}",
    "Colour('red', 'blue')",
    "Node{next: Node^0}",
    "typeddict T{a?: datetime(tz=True)}",
    "namedtuple N{'a b': str(pattern='[)]')}",
)
MAP_TYPES = ("str -> int", "tuple[str, int] -> Total{user: str}", "int", "pickled(app.Model)")
KEY_TYPES = (
    "str",
    "tuple[str, tuple[int, None]]",
    "app:Point[x: int, y: tuple[str, str]]",
    "app.models:Colour",
    "datetime",
    "tuple[]",
    "str in 4 partitions by murmur2",
    "bytes in 32768 partitions by crc32",
)
LAYOUTS: tuple[tuple[Any, st.SearchStrategy[Any]], ...] = (
    ("a", st.text(max_size=4)),
    (1, st.integers()),
    (True, st.booleans()),
    (b"a", st.binary(max_size=4)),
    (Decimal("1.5"), st.decimals(allow_nan=False, allow_infinity=False)),
    (dt.datetime(2024, 2, 29, tzinfo=dt.UTC), st.datetimes(timezones=st.just(dt.UTC))),
    (dt.date(2024, 2, 29), st.dates()),
    (UUID(int=7), st.uuids()),
    (("a", (1, None)), st.tuples(st.text(max_size=3), st.tuples(st.integers(), st.none()))),
    (Point(1, "a"), st.builds(Point, st.integers(), st.text(max_size=3))),
    (Colour.RED, st.sampled_from(Colour)),
)


def _decode_key(layout: Any) -> Any:
    def decode(data: bytes) -> Any:
        (key,) = decode_keys([data], layout)
        return key

    return decode


def _key(key: Any, values: st.SearchStrategy[Any]) -> Decoder:
    """Keys as the program has them."""
    layout = layout_of(key)
    return Decoder(f"key {layout}", values, (key,), encode_key, _decode_key(layout))


def _plain_key(key: Any, values: st.SearchStrategy[Any]) -> Decoder:
    """Keys without the program."""
    layout = layout_of(key)
    plain = values.map(lambda one: plain_key(encode_key(one), layout))
    example = plain_key(encode_key(key), layout)
    return Decoder(
        f"plain key {layout}",
        plain,
        (example,),
        lambda one: stored_key(one, layout),
        lambda data: plain_key(data, layout),
    )


def _key_text(key: Any) -> Decoder:
    """Keys as somebody writes them on a command line."""
    layout = layout_of(key)
    example = plain_key(encode_key(key), layout)

    def encode(plain: Any) -> bytes:
        shown = json_text(plain)
        return as_bytes(json.loads(shown) if shown.startswith('"') else shown)

    def decode(data: bytes) -> Any:
        return plain_key(stored_key(key_from_text(text_of(data), layout), layout), layout)

    return Decoder(f"key as text {layout}", st.just(example), (example,), encode, decode, is_text=True)


# ---- values ----------------------------------------------------------------------------------------------------------

TOTALS = st.builds(Total, TEXTS, st.lists(SMALL, max_size=3), st.none() | st.builds(Total, TEXTS))


def _values(name: str, declared: Any, values: st.SearchStrategy[Any], example: Any) -> Decoder:
    serializer = serializer_for(declared)
    return Decoder(f"value {name}", values, (example,), serializer.encode, serializer.decode)


def _whole(name: str, join: Any, split: Any, serializer: str, values: st.SearchStrategy[Any], example: Any) -> Decoder:
    return Decoder(
        f"whole {name} of {serializer}",
        values,
        (example,),
        lambda parts: join(parts, serializer),
        lambda data: split(data, serializer),
        (CorruptError,),
    )


def _plain_value(kind: str, value_type: str, serializer: str, values: st.SearchStrategy[Any], example: Any) -> Decoder:
    decode = plain_value(StateInfo("state", kind, value_type, serializer))

    def encode(plain: Any) -> bytes:
        return msgspec.msgpack.encode(list(plain.items()) if kind == "map" else plain)

    return Decoder(f"plain {kind} of {value_type}", values, (example,), encode, decode, (CorruptError,))


PACKED = TEXTS.map(msgspec.msgpack.encode)
PACKED_ENTRIES = st.lists(st.tuples(PACKED, PACKED), max_size=3)
ENTRY = (msgspec.msgpack.encode("a"), msgspec.msgpack.encode(1))

# ---- what is stored against what is declared -------------------------------------------------------------------------

DECLARED = StateInfo("state", "value", "Total{user: str, parts: list[int] = ...}", "msgpack/1")
STATE_INFOS = st.builds(
    StateInfo,
    st.just("state"),
    st.sampled_from(["value", "list", "map"]),
    st.sampled_from((*SCHEMAS, *MAP_TYPES)),
    st.sampled_from(["msgpack/1", "pickle/1", "text/3", "list[text/3]", "stamped[msgpack/1]"]),
)


def _evolved(data: bytes) -> StateInfo:
    """What was asked about, once it has been answered against several declarations."""
    try:
        info = msgspec.json.decode(data, type=StateInfo)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise CorruptError("no state at all") from error
    for declared in (DECLARED, msgspec.structs.replace(DECLARED, kind="map", value_type="str -> int"), info):
        for serializer in ("msgpack/1", "text/12", "list[text/12]"):
            found = explain_evolution(info, msgspec.structs.replace(declared, serializer=serializer))
            assert isinstance(found, Evolution)
    return info


def _version(data: bytes) -> str:
    """The id of a serializer that a program's own is to read."""
    serializer_for(serialized(str, Text())).reader(text_of(data))
    return text_of(data)


TYPES_AND_KEYS = (
    Decoder(
        "type",
        st.sampled_from(SCHEMAS).map(parse_schema),
        tuple(map(parse_schema, SCHEMAS)),
        lambda schema: as_bytes(str(schema)),
        lambda data: parse_schema(text_of(data)),
        (InvalidError,),
        is_text=True,
        hostile=(
            b"Literal[" + b"9" * 5000 + b"]",
            b"Literal['\\x']",
            b"Literal[b'\xc3\xa9']",
            b"Literal['\n']",
            b"Literal['\\N{no such}']",
            b"A{'\\x': int}",
            b"Literal[007]",
            b"A{a: A^" + b"9" * 5000 + b"}",
            b"A#t=" + b"9" * 5000 + b"{}",
            b"list[" * 50_000,
            b"A{a: " * 50_000,
            b"int | " * 50_000,
            b"A#" + b"=" * 50_000,
            b"A#'" + b"a=" * 20_000,
            b"A{" + b"a" * 50_000,
            b"A{a: int = " + b"(" * 50_000,
            b"Literal['\0']",
        ),
    ),
    Decoder(
        "type of a map",
        st.sampled_from(MAP_TYPES).map(split_map_type),
        tuple(map(split_map_type, MAP_TYPES)),
        lambda pair: as_bytes(" -> ".join(filter(None, pair))),
        lambda data: split_map_type(text_of(data)),
        (InvalidError,),
        is_text=True,
        hostile=(b"pickled(" + b")(" * 50_000,),
    ),
    Decoder(
        "type of keys",
        st.sampled_from(KEY_TYPES).map(parse_layout),
        tuple(map(parse_layout, KEY_TYPES)),
        lambda layout: as_bytes(str(layout)),
        lambda data: parse_layout(text_of(data)),
        (CorruptError,),
        is_text=True,
        hostile=(
            b"tuple[" * 50_000,
            b"a" * 50_000,
            b"a." * 50_000,
            b"a: " * 50_000,
            b"str in " * 50_000,
            b"str in " + b"9" * 50_000 + b" partitions by murmur2",
            b"str in 4 partitions by " + b"a" * 50_000,
        ),
    ),
    Decoder(
        "keys of a stored type",
        st.sampled_from(("str", "tuple[str, int]", "str in 4 partitions by murmur2")),
        ("str", "bytes in 12 partitions by crc32"),
        str.encode,
        lambda data: decode_keys([], parse_layout(text_of(data))) or text_of(data),
        is_text=True,
        hostile=(
            b".:x",
            b"..a:b",
            b"os:system",
            b"tidegate.errors:EXIT_CODES",
            b":x",
            b"tests.unit.enemy.raises_on_import:X",
            b"tests.unit.enemy.ends_on_import:X",
            b"tidegate:" + b"a." * 5000 + b"b",
        ),
    ),
    Decoder(
        "parts of a key",
        st.lists(st.binary(max_size=5), max_size=4),
        ([b"sa", b""],),
        join_parts,
        split_parts,
        (CorruptError,),
        hostile=(b"\xff\xff\xff\xff",),
    ),
    Decoder(
        "evolution",
        STATE_INFOS,
        (DECLARED,),
        to_json,
        _evolved,
        (CorruptError,),
        hostile=tuple(
            to_json(msgspec.structs.replace(DECLARED, value_type=one, serializer=other))
            for one, other in (
                ("serialized(a.B)", "text/" + "9" * 5000),
                ("serialized(a.B)", "text/٣"),
                ("Literal[" + "9" * 5000 + "]", "msgpack/1"),
                ("list[" * 5000, "msgpack/1"),
                ("int", "stamped[" * 5000),
                ("int", "list[" * 5000 + "]" * 5000),
            )
        ),
    ),
    Decoder(
        "serializer's version",
        st.integers(1, 12).map(lambda version: f"text/{version}"),
        ("text/1", "stamped[text/3]"),
        str.encode,
        _version,
        (InvalidError,),
        is_text=True,
        hostile=(
            b"text/" + b"9" * 5000,
            b"stamped[" * 5000 + b"text/1" + b"]" * 5000,
            "text/٣".encode(),
            "text/³".encode(),
        ),
    ),
    *(_key(key, values) for key, values in LAYOUTS),
    *(_plain_key(key, values) for key, values in LAYOUTS),
    *(_key_text(key) for key, _ in LAYOUTS),
    _values("struct", Total, TOTALS, Total("a", [1], Total("b"))),
    _values("stamped", Stamped(Total), st.tuples(SMALL, TOTALS), (7, Total("a"))),
    _values("of a program's own", serialized(str, Text()), TEXTS, "a"),
    _whole("list", join_elements, split_elements, "msgpack/1", st.lists(PACKED, max_size=3), [ENTRY[0]]),
    _whole("list", join_elements, split_elements, "list[text/3]", st.lists(st.binary(max_size=4), max_size=3), [b"a"]),
    _whole("map", join_entries, split_entries, "msgpack/1", PACKED_ENTRIES, [ENTRY]),
    _whole(
        "map",
        join_entries,
        split_entries,
        "map[text/3]",
        st.lists(st.tuples(PACKED, st.binary(max_size=4)), max_size=3),
        [(ENTRY[0], b"\xff")],
    ),
    _plain_value("value", "int", "msgpack/1", SMALL, 7),
    _plain_value("list", "str", "msgpack/1", st.lists(TEXTS, max_size=3), ["a"]),
    _plain_value("map", "str -> int", "msgpack/1", st.dictionaries(TEXTS, SMALL, max_size=3), {"a": 1}),
    _plain_value(
        "value",
        "Total{user: str, size: int = -1}",
        "msgpack/1",
        st.just({"user": "a", "size": 3}),
        {"user": "a", "size": 3},
    ),
)
