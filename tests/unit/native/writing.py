"""What a writer of batches makes of columns, and whether two of them, and Kafka's own rules, make the same."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tests.unit.native import model
from tidegate.connectors.kafka.batches.writers import AiokafkaWriter, Columns, NativeWriter, Producing, Writer

Part = tuple[Columns, int]
Make = Callable[[int, Producing], Writer]


class Trace(NamedTuple):
    """All that can be seen of a writer: after each `add` what it gave, its records, and its bytes; what it raised."""

    steps: list[tuple[int | None, int, int]]
    raised: list[type[Exception]]
    batch: bytes | None


def trace(make: Make, parts: Sequence[Part], limit: int, who: Producing, sequence: int) -> Trace:
    """A batch of no records is never built."""
    writer = make(limit, who)
    found = Trace([], [], None)
    for columns, begin in parts:
        behind = None
        try:
            behind = writer.add(columns, begin)
        except Exception as error:
            found.raised.append(type(error))
        found.steps.append((behind, writer.records, writer.size))
    return found._replace(batch=bytes(writer.build(sequence)) if writer.records else None)


def check_written(parts: Sequence[Part], limit: int, who: Producing, sequence: int) -> Trace:
    native = trace(NativeWriter, parts, limit, who, sequence)
    assert native == trace(model.Writer, parts, limit, who, sequence)
    # To aiokafka's builder a first timestamp of -1 is none, and the next record's is the first one; Kafka has no such
    # rule. Producers give no record a timestamp that is not positive.
    if first_time(parts) != -1:
        assert native == trace(AiokafkaWriter, parts, limit, who, sequence)
    return native


def check_refused(parts: Sequence[Part], limit: int, who: Producing, sequence: int) -> Trace:
    """With records among them that cannot be written: both writers refuse the same, and have the same before it."""
    native = trace(NativeWriter, parts, limit, who, sequence)
    assert native == trace(AiokafkaWriter, parts, limit, who, sequence)
    return native


def first_time(parts: Sequence[Part]) -> int | None:
    return next((time for columns, begin in parts for time in columns.timestamps[begin:]), None)
