"""Bytes that somebody has been at: samples that were changed, and bytes that are made to hurt whoever reads them."""

import struct
from collections.abc import Iterator

from hypothesis import strategies as st

from tests.unit.enemy.decoder import Decoder

BITS = (0x01, 0x10, 0x20, 0x80, 0xFF)
HUGE = 0xFFFFFFFF
JUNK = (
    b"\x91" * 2000,
    b"[" * 2000,
    b'{"a":' * 2000,
    b"9" * 5000,
    b"\xdd\xff\xff\xff\xff",
    b"\xc6\xff\xff\xff\xff",
    b"\xff" * 8,
    b"\x00" * 8,
    b"\xd3\x80" + b"\x00" * 7,
    b"\xcf" + b"\xff" * 8,
    b"'",
    b'"',
    b"\\",
    b"\\x",
    b"\\ud800",
    b"[",
    b"]",
    b"{",
    b"}",
    b"(",
    b")",
    b",",
    b": ",
    b" | ",
    b" -> ",
    b"..",
    b"~",
    b"%",
    b"\n",
    b"1e999",
    b"NaN",
    b"-",
    b"null",
    b"None",
    "٣".encode(),
    b"\xed\xa0\x80",
    b"\xc0\x80",
)
"""What hurts where it is put into something that is right otherwise."""


def bombs(size: int) -> Iterator[bytes]:
    """Of about so many bytes: what a careless reader nests, backtracks or allocates by."""
    for text in (
        "\x91",
        "\x81\xa1a",
        "[",
        '{"a":',
        "(",
        "list[",
        "A{a: ",
        "tuple[",
        "9",
        "-",
        " ",
        ".",
        "a",
        "'",
        '"',
        "\\",
        "a=",
        "#",
        "=",
        ":",
        "|",
        "int | ",
        ", ",
        "\x00",
        "\n",
        "[[",
        "a.",
        "::",
        "1,",
        "\xff",
        "\\'",
        "[1]\n",
        "a:1,",
        "stamped[",
        "$",
        "e",
        "n",
    ):
        raw = text.encode("latin-1")
        yield raw * (size // len(raw))
    yield from (struct.pack(">BI", code, HUGE) for code in (0xC6, 0xDB, 0xDD, 0xDF, 0xC9))
    yield b"\x94" + struct.pack(">BI", 0xDD, HUGE) * 4


def nests() -> Iterator[bytes]:
    """Right in themselves, and nested more or less deeply: what goes through them may be deeper in calls than what
    read them."""
    for depth in (40, 60, 200, 330, 480, 900):
        for begin, inner, end in (
            ("\x91", "\xc0", ""),
            ("[", "1", "]"),
            ('{"a":', "1", "}"),
            ("list[", "int", "]"),
            ("tuple[", "int", "]"),
            ("A{a: ", "int", "}"),
            ("a:A[x: ", "int", "]"),
            ("stamped[", "msgpack/1", "]"),
            ("list[", "text/3", "]"),
            ("a.", "b = 1", ""),
            ("a = ", "1", ""),
            ("e", "sx", ""),
            ("t\x00\x00\x00\x01", "n", ""),
            ("{a=", "1", "}"),
        ):
            yield (begin * depth + inner + end * depth).encode("latin-1")


def flips(data: bytes) -> Iterator[bytes]:
    """Every byte changed, in several ways, one at a time."""
    for position in range(len(data)):
        for bits in BITS:
            changed = bytearray(data)
            changed[position] ^= bits
            yield bytes(changed)


def cuts(data: bytes) -> Iterator[bytes]:
    """Every beginning of it, and some more at its end."""
    yield from (data[:length] for length in range(len(data)))
    yield from (data + more for more in (b"\x00", b" ", b"}", data))


@st.composite
def changed(draw: st.DrawFn, decoder: Decoder) -> bytes:
    """Something that was encoded, with a few changes, and mostly with the checksum that belongs to it."""
    data = draw(st.sampled_from(list(decoder.samples)) | decoder.values.map(decoder.encode))
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(data)))
        end = start + draw(st.sampled_from([0, 0, 1, 1, 2, 4, 8, 64]))
        data = data[:start] + draw(st.sampled_from(JUNK) | st.binary(max_size=4)) + data[end:]
    return decoder.seal(data) if decoder.seal is not None and draw(st.integers(0, 3)) else data
