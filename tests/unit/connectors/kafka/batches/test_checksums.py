"""Whoever computes it, the checksum is the same; what is quicker is taken where it is there."""

import sys
import warnings
from types import ModuleType
from typing import Any

import pytest
from aiokafka.record._crecords.cutil import crc32c_cython
from hypothesis import given
from hypothesis import strategies as st

from tidegate.connectors.kafka.batches.checksums import crc32c, quickest


@given(st.binary(max_size=300))
def test_the_checksum_is_that_of_aiokafka(data: bytes) -> None:
    assert crc32c(data) == crc32c_cython(data)


def test_the_checksum_is_that_of_the_standard() -> None:
    assert crc32c(b"123456789") == crc32c_cython(b"123456789") == 0xE3069283


def a_library(implementation: str) -> ModuleType:
    made: Any = ModuleType("google_crc32c")
    made.implementation = implementation
    made.value = len
    return made


@pytest.mark.parametrize(
    ("found", "expected"), [(a_library("c"), len), (a_library("python"), crc32c_cython), (None, crc32c_cython)]
)
def test_the_library_is_used_where_it_is_there_and_compiled(
    monkeypatch: pytest.MonkeyPatch, found: Any, expected: Any
) -> None:
    monkeypatch.setitem(sys.modules, "google_crc32c", found)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert quickest() is expected
