"""Without transactions: at least once waits at each barrier for every record, without guarantee nobody waits."""

import pytest

from tests.unit.connectors.kafka.scripted import ID, HandClock, KeepingFactory
from tidegate.checkpoint.protocol import Committable
from tidegate.connectors.kafka.encoding import Encoding
from tidegate.connectors.kafka.plain_sink import PlainSinkWriter, UnguaranteedSinkWriter
from tidegate.elements import Batch
from tidegate.errors import InternalError, InvalidError, UnavailableError
from tidegate.formats import Bytes
from tidegate.testing.conformance.sink_kit import permit


def test_at_least_once_waits_at_each_barrier_and_has_nothing_to_commit() -> None:
    factory = KeepingFactory()
    writer = PlainSinkWriter(Encoding("totals", Bytes()), factory)
    for number in range(3):
        handle = writer.begin(ID)
        writer.write(handle, Batch([b"%d" % number]))
        assert writer.prepare(handle) is None
    writer.check([])
    writer.close()
    (producer,) = factory.opened
    assert producer.asked == ["totals", "flush", "flush", "flush"]
    assert [call[1] for call in producer.calls] == [[b"0"], [b"1"], [b"2"]]
    assert producer.is_dropped
    with pytest.raises(InternalError):
        writer.commit(Committable("x"), permit())


def test_at_least_once_no_barrier_passes_with_a_record_that_failed() -> None:
    factory = KeepingFactory()
    writer = PlainSinkWriter(Encoding("totals", Bytes()), factory)
    handle = writer.begin(ID)
    factory.opened[0].fails = UnavailableError("timed out")
    with pytest.raises(UnavailableError):
        writer.prepare(handle)
    factory.opened[0].fails = None
    with pytest.raises(TypeError):
        writer.write(handle, Batch(["text"]))
    assert writer.has_room(handle)
    with pytest.raises(UnavailableError, match="an earlier write failed"):
        writer.prepare(handle)


def test_without_guarantee_no_barrier_waits_and_losses_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    factory, clock = KeepingFactory(), HandClock()
    writer = UnguaranteedSinkWriter(Encoding("totals", Bytes()), factory, clock)
    handle = writer.begin(ID)
    writer.write(handle, Batch([b"a"]))
    assert writer.prepare(handle) is None
    assert "flush" not in factory.opened[0].asked
    assert factory.on_failure is not None
    for seconds in (0, 1, 11):
        clock.wall += seconds
        factory.on_failure(InvalidError("too large"), 2)
    assert writer.lost_records == 6
    assert caplog.text.count("too large") == 2
    assert "6 records could not be written" in caplog.text
    factory.opened[0].fails = UnavailableError("broker gone")
    writer.close()
    assert factory.opened[0].asked[-1] == "flush"
    assert factory.opened[0].is_dropped
    assert "broker gone" in caplog.text
