"""What comes from other systems: records, what sinks put into checkpoints, ids of splits, what a manifest names."""

import csv
import io
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
from hypothesis import strategies as st

from tests.unit.enemy.decoder import JSON, NAMES, SMALL, TEXTS, Decoder, as_bytes, text_of, to_json
from tidegate.checkpoint.protocol import CommitPermit, Committable, OperatorDecision, RecoverySpec
from tidegate.connectors.collections import CollectionRecovery, _Store
from tidegate.connectors.files import CsvSource, JsonLinesSource
from tidegate.connectors.kafka.client import TopicPartition, partition_of
from tidegate.connectors.kafka.connection import Connection
from tidegate.connectors.kafka.outcomes import Prepared
from tidegate.connectors.local.log import LocalLog
from tidegate.connectors.local.sink import LocalRecovery
from tidegate.errors import CorruptError, InvalidError
from tidegate.formats import Bytes, Json, String
from tidegate.operators.reaching import open_recovery


class Order(msgspec.Struct):
    user: str
    amount: float = 0.0


# ---- formats ---------------------------------------------------------------------------------------------------------


def _format(
    name: str, format: Any, values: st.SearchStrategy[Any], example: Any, refusals: tuple[type[Exception], ...]
) -> Decoder:
    def encode(value: Any) -> bytes:
        (data,) = format.encode([value])
        # A record without a value is what JSON's null is read as.
        return b"null" if data is None else bytes(data)

    def decode(data: bytes) -> Any:
        (value,) = format.decode([data])
        assert format.decode([None, data]) == [None, value]
        return value

    return Decoder(f"format {name}", values, (example,), encode, decode, refusals)


# ---- files of records ------------------------------------------------------------------------------------------------


def _records(source: Any, path: Path) -> list[Any]:
    """All of one file, read a few at a time."""
    (split,) = source.discover(None)
    reader = source.open_reader(None)
    found: list[Any] = []
    reader.add_splits([split])
    while (fetched := reader.poll(3)) is not None:
        found += fetched.values
    return list(source.deserializer.decode(found))


def _file(name: str, make: Any, values: st.SearchStrategy[Any], example: Any, encode: Any) -> Decoder:
    def decode(data: bytes) -> Any:
        with TemporaryDirectory() as folder:
            path = Path(folder, "records")
            path.write_bytes(data)
            return _records(make(path), path)

    return Decoder(name, values, (example,), encode, decode, (CorruptError, InvalidError, ValueError), is_slow=True)


def _lines(values: list[Any]) -> bytes:
    return b"".join(to_json(value) + b"\n" for value in values)


def _rows(rows: list[dict[str, str]]) -> bytes:
    """With the columns that they have: any first line names some."""
    columns = list(rows[0]) if rows else ["user", "city"]
    written = io.StringIO(newline="")
    lines = [columns, *([row[column] for column in columns] for row in rows)]
    csv.writer(written, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(lines)
    return written.getvalue().encode()


# ---- committables ----------------------------------------------------------------------------------------------------

SECONDS = st.integers(0, 10**10).map(float)
PREPARED = Prepared("app:5f2c:7:write:0:3", 4000, 5, 1_700_000_000.25, 900.0, (TopicPartition("totals", 3),), 17)
PERMIT = CommitPermit(OperatorDecision("a test"))


def _prepared_of(data: bytes) -> Prepared:
    return Prepared.of(Committable(PREPARED.id, _payload(data)))


def _payload(data: bytes) -> dict[str, Any]:
    """As a manifest holds it: any JSON object."""
    try:
        return msgspec.json.decode(data, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise CorruptError("no payload at all") from error


def _committed_by(recovery: Any) -> Any:
    """Nothing is there to be committed: what is understood of a payload is told as an unknown transaction."""

    def decode(data: bytes) -> dict[str, Any]:
        payload = _payload(data)
        recovery.commit(Committable("app:5f2c:7:write:0:3", payload), PERMIT)
        return payload

    return decode


_FOLDER = TemporaryDirectory()
LOCAL = LocalRecovery(LocalLog(_FOLDER.name))

# ---- what a manifest names -------------------------------------------------------------------------------------------


def _arguments(connection: Connection) -> bytes:
    return to_json(connection.arguments())


def _connection_of(data: bytes) -> Connection:
    arguments = _payload(data)
    if not all(isinstance(value, str) for value in arguments.values()) or set(arguments) != {"bootstrap", "settings"}:
        raise CorruptError("a manifest's arguments are text, and a wrong name is refused before")
    return Connection.of_arguments(**arguments)


def _reached(data: bytes) -> bytes:
    open_recovery(RecoverySpec(text_of(data))).close()
    return data


SETTINGS = st.dictionaries(st.sampled_from(["client.id", "linger.ms", "socket.timeout.ms"]), NAMES, max_size=2)

OUTSIDE = (
    _format("Json", Json(), JSON.filter(lambda value: value is not None), {"a": [1, 2.5]}, (msgspec.DecodeError,)),
    _format(
        "Json of a struct",
        Json(Order),
        st.builds(Order, TEXTS, SMALL.map(float)),
        Order("a", 1.0),
        (msgspec.DecodeError,),
    ),
    _format("String", String(), TEXTS, "ä", (UnicodeDecodeError,)),
    _format("String in UTF-16", String("utf-16"), TEXTS, "ä", (UnicodeDecodeError,)),
    _format("Bytes", Bytes(), st.binary(max_size=9), b"\x00", ()),
    _file("JSON lines", JsonLinesSource, st.lists(JSON, max_size=3), [{"a": 1}, [2], None], _lines),
    _file(
        "CSV",
        CsvSource,
        st.lists(st.fixed_dictionaries({"user": NAMES, "city": TEXTS.filter(str.isprintable)}), max_size=3),
        [{"user": "ann", "city": 'a "b", c'}],
        _rows,
    ),
    Decoder(
        "Kafka's committable",
        st.builds(
            Prepared,
            st.just(PREPARED.id),
            SMALL,
            st.integers(0, 32767),
            SECONDS,
            SECONDS,
            st.lists(st.builds(TopicPartition, NAMES, st.integers(0, 2**31 - 1)), max_size=2).map(tuple),
            SMALL,
        ),
        (PREPARED,),
        lambda prepared: to_json(prepared.committable().payload),
        _prepared_of,
        (CorruptError,),
        hostile=tuple(
            to_json({**PREPARED.committable().payload, name: value})
            for name, value in (
                ("partitions", ["totals/" + "9" * 5000]),
                ("partitions", ["totals/٣"]),
                ("partitions", ["totals/-1"]),
                ("partitions", ["totals/1_0"]),
                ("partitions", ["totals/ 1"]),
                ("partitions", ["/1"]),
                ("epoch", "5"),
                ("epoch", -1),
                ("epoch", 2**40),
                ("producer_id", 2**70),
                ("started_at", 1e300),
                ("timeout", 1e300),
                ("records", -1),
            )
        ),
    ),
    Decoder(
        "the embedded log's committable",
        st.fixed_dictionaries({"epoch": SMALL, "start": SMALL}),
        ({"epoch": 1, "start": 2},),
        to_json,
        _committed_by(LOCAL),
        (CorruptError,),
        is_slow=True,
        hostile=(
            b'{"epoch": 1e300, "start": 1}',
            b'{"epoch": %d, "start": 1}' % 2**70,
            b'{"epoch": {}, "start": []}',
            b"{}",
        ),
    ),
    Decoder(
        "a collection's committable",
        st.fixed_dictionaries({"epoch": SMALL}),
        ({"epoch": 1},),
        to_json,
        _committed_by(CollectionRecovery(_Store())),
        (CorruptError,),
        hostile=(b'{"epoch": -1}', b'{"epoch": "x"}', b'{"epoch": [1]}', b"{}"),
    ),
    Decoder(
        "Kafka's split",
        st.builds(TopicPartition, NAMES, st.integers(0, 2**31 - 1)),
        (TopicPartition("orders", 3),),
        lambda partition: as_bytes(str(partition)),
        lambda data: partition_of(text_of(data)),
        (CorruptError,),
        is_text=True,
        hostile=(b"orders/" + b"9" * 5000, "orders/٣".encode(), b"orders/1_0", b"orders/-1"),
    ),
    Decoder(
        "Kafka's connection",
        st.builds(Connection, st.just("broker.example:9092"), SETTINGS),
        (Connection("a:1,b:2", {"linger.ms": 5}),),
        _arguments,
        _connection_of,
        hostile=tuple(
            to_json({"bootstrap": one, "settings": other})
            for one, other in (
                ("a:" + "9" * 5000, "{}"),
                ("a:٣", "{}"),
                ("a:1", "[" * 100_000),
                ("a:1", "[]"),
                ("a:1", "x"),
                ("a:1", '{"a": [1]}'),
                ("a:1", '{"a": ' + "9" * 5000 + "}"),
                ("a:1", '{"sasl.password": null}'),
                ("x" * 100_000, "{}"),
                ("a:1,", "{}"),
            )
        ),
    ),
    Decoder(
        "a factory that a manifest names",
        st.just(b"tests.unit.enemy.outside:open_nothing"),
        (b"tests.unit.enemy.outside:open_nothing",),
        bytes,
        _reached,
        (InvalidError,),
        is_text=True,
        hostile=(
            b"",
            b":",
            b".:x",
            b"..a:b",
            b"tests.unit.enemy.raises_on_import:x",
            b"tests.unit.enemy.ends_on_import:x",
            b"sys:flags",
            b"tests.unit.enemy.outside:SMALL",
            b"tests.unit.enemy.outside:open_with_argument",
            b"\x00:a",
            b"nowhere:x",
        ),
    ),
)


class Nothing:
    """The transactions of a sink that has none."""

    def close(self) -> None: ...


def open_nothing() -> Nothing:
    return Nothing()


def open_with_argument(place: str) -> Nothing:
    raise AssertionError(f"called for {place}")
