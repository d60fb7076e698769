"""Whoever reads bytes or text from outside gives back what was written, or the error that its documentation says:
never another exception, never a hang, never more memory than there is to read."""

import time
import tracemalloc
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.enemy.damage import bombs, changed, cuts, flips, nests
from tests.unit.enemy.decoder import Decoder
from tests.unit.enemy.table import DECODERS
from tidegate.errors import TidegateError

each = pytest.mark.parametrize("decoder", DECODERS, ids=lambda decoder: decoder.name)
with_checksum = pytest.mark.parametrize(
    "decoder", [one for one in DECODERS if one.damage_shows], ids=lambda decoder: decoder.name
)
quick = settings(max_examples=25, suppress_health_check=list(HealthCheck))
thorough = settings(max_examples=1000, suppress_health_check=list(HealthCheck))

REFUSED = object()
CPU_SECONDS = 4.0
"""What is read in time that grows with its square takes many times as much."""
BYTES_PER_BYTE = 250
BYTES_AT_LEAST = 2_000_000


@pytest.fixture(autouse=True)
def nothing_is_unpickled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A data frame is the one thing here that is: it comes from the job's own workers. Made up ones must not run."""
    monkeypatch.setattr("pickle.loads", _refuse)


def _refuse(data: Any) -> Any:
    raise ValueError("no pickle of this test's")


def outcome(decoder: Decoder, data: bytes) -> Any:
    """What `data` is read as, or REFUSED. Any error but those that are documented is the test's."""
    try:
        return decoder.decode(data)
    except decoder.refusals as error:
        refusal = error
    assert not isinstance(refusal, TidegateError) or refusal.failure.message
    return REFUSED


def check_any(decoder: Decoder, data: bytes) -> None:
    """What is read is something that can be written, and is then read as the same."""
    found = outcome(decoder, data)
    if found is not REFUSED:
        assert outcome(decoder, decoder.encode(found)) == found


@each
def test_what_is_encoded_is_decoded(decoder: Decoder) -> None:
    for value in decoder.examples:
        assert decoder.decode(decoder.encode(value)) == value

    @quick
    @given(decoder.values)
    def whatever_it_is(value: Any) -> None:
        assert decoder.decode(decoder.encode(value)) == value

    whatever_it_is()


@each
def test_any_bytes_are_read_as_something_right_or_refused(decoder: Decoder) -> None:
    for data in decoder.hostile:
        check_any(decoder, data)

    @quick
    @given(st.binary(max_size=64) | changed(decoder))
    def whatever_they_are(data: bytes) -> None:
        check_any(decoder, data)

    whatever_they_are()


@pytest.mark.slow
@pytest.mark.timeout(1800)
@each
def test_any_bytes_at_all(decoder: Decoder) -> None:
    @settings(thorough, max_examples=200 if decoder.is_slow else 1000)
    @given(st.binary(max_size=200) | changed(decoder))
    def whatever_they_are(data: bytes) -> None:
        check_any(decoder, data)

    whatever_they_are()


@with_checksum
def test_every_changed_byte_is_noticed_or_changes_nothing(decoder: Decoder) -> None:
    for value, data in zip(decoder.examples, decoder.samples, strict=True):
        for damaged in flips(data):
            found = outcome(decoder, damaged)
            assert found is REFUSED or found == value, damaged


@each
def test_what_is_cut_off_is_refused_or_read_as_something_right(decoder: Decoder) -> None:
    for value, data in zip(decoder.examples, decoder.samples, strict=True):
        for damaged in cuts(data[:300] if decoder.is_slow else data):
            if decoder.damage_shows:
                found = outcome(decoder, damaged)
                assert found is REFUSED or found == value, damaged
            else:
                check_any(decoder, damaged)


@each
def test_a_bomb_takes_no_time_and_no_memory(decoder: Decoder) -> None:
    go_through_bombs(decoder, 5_000 if decoder.is_slow else 20_000)


@pytest.mark.slow
@each
def test_a_large_bomb_takes_no_time_and_no_memory(decoder: Decoder) -> None:
    go_through_bombs(decoder, 20_000 if decoder.is_slow else 1_000_000)


def go_through_bombs(decoder: Decoder, size: int) -> None:
    """Each bomb alone, and with a right checksum or in the middle of something right where there is one."""
    sample = next(iter(decoder.samples))
    middle = len(sample) // 2
    for bomb in (*bombs(size), *nests()):
        hidden = sample[:middle] + bomb + sample[middle:]
        for data in (bomb, hidden if decoder.seal is None else decoder.seal(hidden)):
            started = time.process_time()
            outcome(decoder, data)
            seconds = time.process_time() - started
            assert seconds < CPU_SECONDS, f"{seconds:.1f} s for {len(data)} bytes: {data[:40]!r}"
    # What is imported and cached at the first call stays, whatever is decoded.
    outcome(decoder, sample)
    for bomb in bombs(2_000):
        hidden = sample[:middle] + bomb + sample[middle:]
        for data in (bomb, hidden if decoder.seal is None else decoder.seal(hidden)):
            tracemalloc.start()
            try:
                outcome(decoder, data)
                _, peak = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            assert peak < BYTES_PER_BYTE * len(data) + BYTES_AT_LEAST, f"{peak} bytes for {len(data)}: {data[:40]!r}"
