"""Durations, sizes and numbers are read as people write them, written back, and refused with what to write."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.config.values import (
    format_duration,
    format_size,
    format_yes_or_no,
    parse_choice,
    parse_duration,
    parse_folder,
    parse_host,
    parse_local_folder,
    parse_positive_duration,
    parse_size,
    parse_whole,
    parse_yes_or_no,
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


@pytest.mark.parametrize(("word", "means"), [("true", True), ("No", False), ("on", True), (False, False)])
def test_yes_and_no_have_several_words(word: object, means: bool) -> None:
    assert parse_yes_or_no(word) is means
    assert parse_yes_or_no(format_yes_or_no(means)) is means


@pytest.mark.parametrize("word", ["", "2", 1, None, "ja"])
def test_what_is_neither_yes_nor_no_is_refused(word: object) -> None:
    with pytest.raises(InvalidError, match="is neither true nor false"):
        parse_yes_or_no(word)


@pytest.mark.parametrize("path", ["scratch", "", "s3://bucket/x", 3, None])
def test_a_local_folder_is_an_absolute_path_of_this_machine(path: object) -> None:
    assert parse_local_folder("/var/scratch") == "/var/scratch"
    with pytest.raises(InvalidError, match="is not a folder of this machine"):
        parse_local_folder(path)


def test_a_file_url_is_the_folder_that_it_names() -> None:
    assert parse_folder("file:///var/check%20points") == "/var/check points"


@pytest.mark.parametrize(
    ("url", "meant"),
    [
        ("s3://bucket/some/flows/", "s3://bucket/some/flows"),
        ("S3://bucket", "s3://bucket"),
        ("webhdfs://namenode:9870/flows", "webhdfs://namenode:9870/flows"),
        ("hdfs://namenode/flows", "hdfs://namenode/flows"),
    ],
)
def test_a_url_of_a_remote_storage_is_kept_in_one_spelling(url: str, meant: str) -> None:
    assert parse_folder(url) == meant


@pytest.mark.parametrize(
    "url",
    ["gs://bucket/x", "abfs://x/y", "memory:", "file://host/x", "s3:/bucket", "s3://", "s3://b/a//b", "s3://b/../x"],
)
def test_a_place_that_cannot_be_used_is_answered_with_those_that_can(url: str) -> None:
    with pytest.raises(InvalidError) as error:
        parse_folder(url)
    assert "s3://bucket/path" in error.value.failure.remedy


@pytest.mark.parametrize("url", ["s3://key:hidden@bucket/x", "s3://bucket/x?secret=hidden", "webhdfs://a@host/#hidden"])
def test_a_url_that_could_hold_a_secret_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(InvalidError, match="has a user, a query or a fragment") as error:
        parse_folder(url)
    assert "hidden" not in str(error.value)


@pytest.mark.parametrize("value", ["", None, 3, b"/x"])
def test_what_is_no_text_of_a_path_is_no_folder(value: object) -> None:
    with pytest.raises(InvalidError, match="is not a folder"):
        parse_folder(value)


@pytest.mark.parametrize(
    ("written", "meant"), [("127.0.0.1", "127.0.0.1"), ("10.1.2.3", "10.1.2.3"), ("0:0:0:0:0:0:0:1", "::1")]
)
def test_the_address_of_a_machine_is_kept_in_one_spelling(written: str, meant: str) -> None:
    assert parse_host(written) == meant


@pytest.mark.parametrize(
    "written", ["0.0.0.0", "::", "224.0.0.1", "fe80::1%eth0", "localhost", "127.0.0.1:80", "*", "", None, 2130706433]
)
def test_what_is_not_the_address_of_one_machine_is_refused(written: object) -> None:
    with pytest.raises(InvalidError, match="is not the address of one machine"):
        parse_host(written)
