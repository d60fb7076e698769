"""Durations, sizes and numbers are read as people write them, written back, and refused with what to write."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.config.values import (
    format_duration,
    format_size,
    parse_choice,
    parse_duration,
    parse_folder,
    parse_positive_duration,
    parse_size,
    parse_whole,
)
from tidegate.errors import InvalidError


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("500ms", 0.5),
        ("9ms", 0.009),
        ("10s", 10),
        ("1.5s", 1.5),
        ("5m", 300),
        ("1h", 3600),
        ("2d", 172800),
        ("0", 0),
        (0, 0),
        (timedelta(minutes=1, milliseconds=1), 60.001),
    ],
)
def test_durations_are_read_as_seconds(written: object, seconds: float) -> None:
    assert parse_duration(written) == seconds


@pytest.mark.parametrize(
    "written",
    ["", "10", 10, "10 s", "-1s", "s", "1w", "1e3s", "\u0661s", True, False, None, 0.0, timedelta(seconds=-1), "1s\n"],
)
def test_what_is_no_duration_is_refused_with_how_to_write_one(written: object) -> None:
    with pytest.raises(InvalidError) as error:
        parse_duration(written)
    assert repr(written) in error.value.failure.message
    assert "500ms, 10s, 5m" in error.value.failure.remedy


@pytest.mark.parametrize("written", ["0", "0s", timedelta(0)])
def test_no_time_at_all_is_refused_where_time_must_pass(written: object) -> None:
    with pytest.raises(InvalidError, match="no time at all"):
        parse_positive_duration(written)


@pytest.mark.parametrize("text", ["0s", "0.5ms", "500ms", "1s", "90s", "1m", "90m", "1h", "36h", "1d"])
def test_durations_are_written_back_as_they_were_read(text: str) -> None:
    assert format_duration(parse_duration(text)) == text


@given(st.integers(min_value=0, max_value=10**12))
def test_every_duration_survives_being_written_and_read(micros: int) -> None:
    assert parse_duration(format_duration(micros / 1e6)) == micros / 1e6


@pytest.mark.parametrize(("written", "number"), [("4MiB", 2**22), ("64KiB", 2**16), ("1GiB", 2**30), (5000, 5000)])
def test_sizes_are_read_as_bytes_and_written_back(written: object, number: int) -> None:
    assert parse_size(written) == number
    assert parse_size(format_size(number)) == number


@pytest.mark.parametrize("written", ["4MB", "4", 1023, True, None, "1023B", "-4MiB"])
def test_what_is_no_size_is_refused(written: object) -> None:
    with pytest.raises(InvalidError, match="not a size of at least 1KiB"):
        parse_size(written)


@pytest.mark.parametrize("written", ["0", "5", 5, 0, "x", "1.0", 1.0, True, None, "-1", ""])
def test_numbers_outside_their_limits_and_what_is_no_number_are_refused(written: object) -> None:
    with pytest.raises(InvalidError, match="is not a whole number from 1 to 4"):
        parse_whole(written, 1, 4)


def test_both_limits_of_a_number_belong_to_it() -> None:
    assert [parse_whole(text, 1, 4) for text in ("1", "4")] == [1, 4]


def test_a_choice_near_a_right_one_is_answered_with_it() -> None:
    with pytest.raises(InvalidError, match=r"'memroy' is not known; did you mean memory\?"):
        parse_choice("memroy", ("memory", "fs"))


def test_a_choice_of_a_later_version_is_refused_as_such() -> None:
    with pytest.raises(InvalidError, match="'rocksdb' is not in this version yet") as error:
        parse_choice("rocksdb", ("memory", "fs"), ("rocksdb",))
    assert error.value.failure.remedy == "Use memory or fs."


def test_a_file_url_is_the_folder_that_it_names() -> None:
    assert parse_folder("file:///var/check%20points") == "/var/check points"


@pytest.mark.parametrize("url", ["s3://bucket/flows", "hdfs://host/x", "memory:", "file://host/x", "", None, 3, b"/x"])
def test_what_is_no_folder_of_this_machine_is_refused(url: object) -> None:
    with pytest.raises(InvalidError, match=r"not in this version yet|is not a folder") as error:
        parse_folder(url)
    assert "folder" in error.value.failure.remedy
