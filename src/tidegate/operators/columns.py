"""Optional parts of what sources and sinks do, so that records that a source's reader brings and a sink writes as they
are need not become objects between the two; the rest is in `contracts`."""

from typing import Protocol, runtime_checkable


@runtime_checkable
class KeepingDeserializer(Protocol):
    """A deserializer that may have nothing to do but to make a list."""

    keeps: bool
    """What a reader brings is a sequence of the stream's values already."""


@runtime_checkable
class ColumnSink(Protocol):
    """A sink that can write what a reader brings."""

    takes_columns: bool
    """The values of a batch need not be a list: any sequence that the reader of a source brings will do."""


def keeps(deserializer: object) -> bool:
    return isinstance(deserializer, KeepingDeserializer) and deserializer.keeps


def takes_columns(sink: object) -> bool:
    return isinstance(sink, ColumnSink) and sink.takes_columns
