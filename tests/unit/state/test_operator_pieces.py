"""The stored form of state without keys: whole, or refused."""

import pytest

from tidegate.errors import CorruptError
from tidegate.state.operator_pieces import read_operator_piece, write_operator_piece

STATES = [("a", b"\x90"), ("b", b"\x93\x01\x02\x03")]
STORED = "54474f5300013ac49977492e17859292a161c4019092a162c40493010203"
"""The same, as the first version of the form has them."""


def test_a_piece_gives_back_what_was_written() -> None:
    assert read_operator_piece(write_operator_piece(STATES)) == STATES
    assert read_operator_piece(write_operator_piece([])) == []


@pytest.mark.parametrize("position", range(len(write_operator_piece(STATES))))
def test_every_flipped_byte_of_a_piece_is_noticed(position: int) -> None:
    data = bytearray(write_operator_piece(STATES))
    data[position] ^= 1
    with pytest.raises(CorruptError, match="piece of state without keys"):
        read_operator_piece(bytes(data))


def test_a_piece_that_is_cut_off_or_of_a_later_format_is_refused() -> None:
    data = write_operator_piece(STATES)
    for length in (0, 5, len(data) - 1):
        with pytest.raises(CorruptError, match="piece of state without keys"):
            read_operator_piece(data[:length])
    with pytest.raises(CorruptError, match="format 2") as caught:
        read_operator_piece(data[:4] + b"\x00\x02" + data[6:])
    assert "later" in caught.value.failure.remedy


def test_the_form_is_that_of_checkpoints_that_are_already_stored() -> None:
    stored = bytes.fromhex(STORED)
    assert write_operator_piece(STATES) == stored
    assert read_operator_piece(stored) == STATES
