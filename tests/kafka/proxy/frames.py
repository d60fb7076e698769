"""Kafka's frames: a stream of bytes cut into requests or replies, and what the first bytes of each say.

Nothing here knows more of a frame than its header; what follows is carried as it is.
"""

import struct
from enum import IntEnum
from typing import NamedTuple

FRAME_BYTES_MAX = 200_000_000
"""A length above it is no length: what speaks here is not Kafka's plain protocol."""
_LENGTH = struct.Struct(">i")
_REQUEST = struct.Struct(">ihhi")
"""Length, api key, version, correlation id."""
_REPLY = struct.Struct(">ii")
"""Length, correlation id."""


class Api(IntEnum):
    """The kinds of requests, by their names in Kafka's protocol guide."""

    Produce = 0
    Fetch = 1
    ListOffsets = 2
    Metadata = 3
    OffsetCommit = 8
    OffsetFetch = 9
    FindCoordinator = 10
    JoinGroup = 11
    Heartbeat = 12
    LeaveGroup = 13
    SyncGroup = 14
    DescribeGroups = 15
    ListGroups = 16
    SaslHandshake = 17
    ApiVersions = 18
    CreateTopics = 19
    DeleteTopics = 20
    DeleteRecords = 21
    InitProducerId = 22
    OffsetForLeaderEpoch = 23
    AddPartitionsToTxn = 24
    AddOffsetsToTxn = 25
    EndTxn = 26
    WriteTxnMarkers = 27
    TxnOffsetCommit = 28
    DescribeConfigs = 32
    SaslAuthenticate = 36
    CreatePartitions = 37
    DeleteGroups = 42
    DescribeCluster = 60
    DescribeProducers = 61
    DescribeTransactions = 65
    ListTransactions = 66
    GetTelemetrySubscriptions = 71
    PushTelemetry = 72
    DescribeTopicPartitions = 75


NAMES = {api.value: api.name for api in Api}


def checked(names: tuple[str, ...]) -> frozenset[str]:
    """Raises ValueError for a name that no request has, and for no name at all: such a fault would never act."""
    unknown = [name for name in names if name not in Api.__members__]
    if unknown or not names:
        raise ValueError(
            f"{', '.join(unknown) or 'nothing'} is no kind of request; there are {', '.join(NAMES.values())}"
        )
    return frozenset(names)


class Request(NamedTuple):
    api: str
    """'EndTxn'; 'Api93' for one that has no name here."""
    correlation_id: int


def request_of(frame: bytes) -> Request:
    _, key, _, correlation_id = _REQUEST.unpack_from(frame)
    return Request(NAMES.get(key, f"Api{key}"), correlation_id)


def correlation_id_of(reply: bytes) -> int:
    number: int = _REPLY.unpack_from(reply)[1]
    return number


class NotKafkaError(Exception):
    """The stream does not consist of Kafka's frames."""


class Splitter:
    """Gathers bytes until a frame is whole."""

    def __init__(self, header: int) -> None:
        """`header`: bytes that a frame has at least."""
        self._header = header
        self._pending = bytearray()

    @staticmethod
    def of_requests() -> "Splitter":
        return Splitter(_REQUEST.size)

    @staticmethod
    def of_replies() -> "Splitter":
        return Splitter(_REPLY.size)

    def feed(self, data: bytes) -> list[bytes]:
        """The frames that `data` completes, each with its length in front. Raises NotKafkaError."""
        self._pending += data
        frames: list[bytes] = []
        begin = 0
        with memoryview(self._pending) as view:
            while len(view) - begin >= _LENGTH.size:
                (length,) = _LENGTH.unpack_from(view, begin)
                if not self._header - _LENGTH.size <= length <= FRAME_BYTES_MAX:
                    raise NotKafkaError(f"a frame of {length} bytes")
                end = begin + _LENGTH.size + length
                if end > len(view):
                    break
                frames.append(bytes(view[begin:end]))
                begin = end
        del self._pending[:begin]
        return frames
