"""What is read from the checkpoint folder and from savepoints."""

import struct
from typing import Any

import msgspec
import xxhash
from hypothesis import strategies as st

from tests.unit.checkpoint import records
from tests.unit.enemy.decoder import NAMES, SMALL, TEXTS, Decoder, as_bytes, text_of
from tidegate.checkpoint.log import Body, Completed, Entry, Unreadable
from tidegate.checkpoint.manifest import Manifest
from tidegate.checkpoint.protocol import OperatorSnapshot, StateHandle, StateInfo
from tidegate.checkpoint.store import CheckpointStore, attempt_of, checksum, decode_entry, encode_entry
from tidegate.errors import CorruptError
from tidegate.ids import JobName, KeyGroup, LogPosition, OperatorName, TransactionalId
from tidegate.savepoints.format import FILE, SavepointReader, SavepointWriter
from tidegate.serializers import join_entries, split_entries
from tidegate.state.chain import read_rows
from tidegate.state.key_groups import key_group
from tidegate.state.key_types import decode_keys, parse_layout
from tidegate.state.keys import encode_key
from tidegate.state.operator_pieces import read_operator_piece, write_operator_piece
from tidegate.state.pieces import Column, Piece, write_piece
from tidegate.state.rocksdb.rows import DatabaseInfo, StateRows, by_key, cut_parts, decode_info, encode_info, join_parts
from tidegate.storage.memory import MemoryStorage
from tidegate.testing.conformance.state_kit import KeptFiles

# ---- entries and manifests -------------------------------------------------------------------------------------------


def read_entry(data: bytes) -> Entry:
    found = decode_entry(LogPosition(2), data)
    if isinstance(found, Unreadable):
        raise CorruptError(found.why)
    # What everybody who reads a log asks of a manifest.
    if isinstance(manifest := getattr(found.body, "manifest", None), Manifest):
        use_manifest(manifest)
    return found


def use_manifest(manifest: Manifest) -> None:
    """Ask everything of it that can be asked without its files."""
    assert manifest.state_bytes >= 0
    assert len(manifest.files) <= len(list(manifest.handles))
    for operator in manifest.operators:
        assert len(operator.splits) >= len(operator.unassigned)
        assert len(operator.pending) <= sum(len(snapshot.pending) for snapshot in operator.snapshots)


def seal_document(name: str) -> Any:
    """With the checksum of what stands behind `name`, as far as it can be found."""

    def seal(data: bytes) -> bytes:
        _, mark, text = data.partition(b'"%s": ' % name.encode())
        if not mark or not text.endswith(b"}"):
            return data
        return b'{"format": 1, "checksum": "%s", %s%s}' % (checksum(text[:-1]).encode(), mark, text[:-1])

    return seal


HANDLES = st.binary(max_size=9).map(lambda data: StateHandle(0, 7, len(data), checksum(data), inline=data))
MANIFESTS = st.builds(
    lambda handles, checkpoint, attempt: records.manifest(checkpoint, attempt, tuple(handles)),
    st.lists(HANDLES, max_size=2),
    SMALL,
    st.integers(1, 99),
)
BODIES = st.one_of(st.sampled_from([entry.body for entry in records.ENTRIES]), MANIFESTS.map(Completed))


def entry_file(body: Body) -> bytes:
    return encode_entry(records.entry(2, body))


def savepoint_file(manifest: Manifest) -> bytes:
    storage = MemoryStorage()
    SavepointWriter(storage).finish(manifest)
    return storage.read(FILE)


def _without_pending(manifest: Manifest) -> Manifest:
    return msgspec.structs.replace(manifest, operators=manifest.operators[:2])


def read_savepoint(data: bytes) -> Manifest:
    storage = MemoryStorage()
    storage.write(FILE, data)
    manifest = SavepointReader(storage).manifest()
    use_manifest(manifest)
    return manifest


STATE = b"\x00state of some operator\xff" * 3
HANDLE = StateHandle(0, 7, len(STATE), checksum(STATE), path="chk-1-1/totals.0.1-0")
SAVED = msgspec.structs.replace(HANDLE, path="state/totals.0")


def _read_state(data: bytes) -> bytes:
    storage = MemoryStorage()
    storage.write(f"orders/{HANDLE.path}", data)
    return CheckpointStore(storage, JobName("orders")).read_state(HANDLE)


def _read_saved_state(data: bytes) -> bytes:
    storage = MemoryStorage()
    storage.write(str(SAVED.path), data)
    return SavepointReader(storage).read_state(SAVED)


# ---- pieces ----------------------------------------------------------------------------------------------------------

STATES = ("total", "recent")
KEYS = parse_layout("str")
ROWS = st.dictionaries(st.text(max_size=4), st.binary(max_size=6), max_size=6)


def columns_of(rows: dict[str, bytes]) -> dict[KeyGroup, list[Column]]:
    """One column a group, of the first state."""
    found: dict[KeyGroup, list[Column]] = {}
    for key, value in rows.items():
        column = found.setdefault(key_group(key, 8), [Column(0, [], [])])[0]
        column.keys.append(encode_key(key))
        column.values.append(value)
    return found


def _piece(rows: dict[str, bytes]) -> bytes:
    return write_piece(range(8), 8, "str", STATES, columns_of(rows))


def _old_piece(rows: dict[str, bytes]) -> bytes:
    """Format 1 differs in what it cannot say."""
    data = _piece(rows)
    return data[:4] + b"\x00\x01" + data[6:]


def _seal_piece(data: bytes) -> bytes:
    return data if len(data) < 14 else data[:6] + xxhash.xxh3_64_intdigest(data[14:]).to_bytes(8, "big") + data[14:]


def _rows_of_piece(data: bytes) -> dict[str, bytes]:
    piece = Piece(data)
    assert piece.size(range(8)) <= len(data)
    found: dict[str, bytes] = {}
    for group in piece.groups(range(8)):
        for _, column in piece.columns(group):
            found |= dict(zip(decode_keys(column.keys, KEYS), column.values, strict=True))
    return found


BASE = {"user-1": b"\x01", "user-2": b"\x02"}


def _chain_of(data: bytes) -> dict[str, bytes]:
    """A full piece, and `data` as the changes on top of it."""
    files = KeptFiles()
    handles = tuple(files.write(f"1-{n}", one, range(8)) for n, one in enumerate((_piece(BASE), data)))
    states = tuple(StateInfo(name, "value", "bytes", "msgpack/1") for name in STATES)
    snapshot = OperatorSnapshot(OperatorName("totals"), key_type="str", states=states, handles=handles)
    found = list(read_rows(snapshot, files, range(8)))
    rows = zip(decode_keys([row.key for row in found], KEYS), found, strict=True)
    return {key: row.value for key, row in rows if BASE.get(key) != row.value}


def _changes(rows: dict[str, bytes]) -> bytes:
    return write_piece(range(8), 8, "str", STATES, columns_of(rows), is_full=False)


def _seal_operator_piece(data: bytes) -> bytes:
    return data if len(data) < 14 else data[:6] + xxhash.xxh3_64_intdigest(data[14:]).to_bytes(8, "big") + data[14:]


# ---- rocksdb's form --------------------------------------------------------------------------------------------------

INFO = DatabaseInfo(0, 7, 8, "str", 17, (StateRows("total", 0, "whole"), StateRows("recent", 1, "chunks")))


def _database_rows(rows: list[tuple[bytes, bytes]]) -> bytes:
    """Names and values of rows, each with its length."""
    parts = [part for row in rows for part in row]
    return b"".join(struct.pack(">H", len(part)) + part for part in parts)


def _framed(data: bytes) -> list[tuple[bytes, bytes]]:
    parts: list[bytes] = []
    while data:
        length = int.from_bytes(data[:2], "big")
        parts.append(data[2 : 2 + length])
        data = data[2 + length :]
    return list(zip(parts[::2], parts[1::2], strict=False))


def _canonical(layout: Any, serializer: str) -> Any:
    """From the rows of one key to its value."""

    def decode(data: bytes) -> Any:
        # A database has each row once, and in order.
        rows = by_key(sorted(dict(_framed(data)).items()))
        found = [(one.group, one.key, join_parts(layout, one.parts, serializer)) for one in rows if one.state == 0]
        if layout == "entries":
            # Nobody looks into an entry before somebody takes the map apart, and then the last of several holds.
            entries = [dict(split_entries(whole, serializer)) for _, _, whole in found]
            wholes = [join_entries(list(one.items()), serializer) for one in entries]
            return [(group, key, whole) for (group, key, _), whole in zip(found, wholes, strict=True)]
        return found

    return decode


def _cut(layout: Any, serializer: str) -> Any:
    def encode(found: list[tuple[int, bytes, bytes]]) -> bytes:
        numbers = iter(range(1, 1 << 30))
        return _database_rows(
            [
                (struct.pack(">HHI", group, 0, len(key)) + key + part, value)
                for group, key, whole in found
                for part, value in cut_parts(layout, whole, serializer, numbers)
            ]
        )

    return encode


def _packed(value: Any) -> bytes:
    return msgspec.msgpack.encode(value)


KEYED = st.tuples(st.integers(0, 7), st.binary(max_size=5))


def _found(values: st.SearchStrategy[bytes]) -> st.SearchStrategy[list[tuple[int, bytes, bytes]]]:
    keyed = st.dictionaries(KEYED, values, max_size=3)
    return keyed.map(_in_order)


def _in_order(found: dict[tuple[int, bytes], bytes]) -> list[tuple[int, bytes, bytes]]:
    """As their rows are: a key's length is before it."""
    rows = [(group, key, value) for (group, key), value in found.items()]
    return sorted(rows, key=lambda row: (row[0], len(row[1]), row[1]))


# ---- ids and paths ---------------------------------------------------------------------------------------------------


def _id_of(data: bytes) -> TransactionalId:
    text = text_of(data)
    found = TransactionalId.parse(text)
    if found is None:
        raise CorruptError(f"{text!r} is not an id")
    assert str(found) == text, "two texts mean one id: one could be aborted for the other"
    return found


def _attempt_of(data: bytes) -> int:
    found = attempt_of(text_of(data))
    if found is None:
        raise CorruptError("no path of state")
    return found


STORED = (
    Decoder(
        "log entry",
        BODIES,
        (records.ENTRIES[2].body, records.ENTRIES[1].body, records.ENTRIES[4].body),
        entry_file,
        lambda data: read_entry(data).body,
        (CorruptError,),
        seal_document("entry"),
        damage_shows=True,
    ),
    Decoder(
        "savepoint.json",
        MANIFESTS.map(_without_pending),
        (_without_pending(records.manifest(handles=(records.INLINE,))),),
        savepoint_file,
        read_savepoint,
        seal=seal_document("savepoint"),
        damage_shows=True,
    ),
    Decoder("state file", st.just(STATE), (STATE,), bytes, _read_state, (CorruptError,), damage_shows=True),
    Decoder("savepoint's file", st.just(STATE), (STATE,), bytes, _read_saved_state, (CorruptError,), damage_shows=True),
    Decoder("piece", ROWS, (BASE, {}), _piece, _rows_of_piece, (CorruptError,), _seal_piece, damage_shows=True),
    Decoder(
        "piece of format 1",
        ROWS,
        (BASE, {}),
        _old_piece,
        _rows_of_piece,
        (CorruptError,),
        _seal_piece,
        damage_shows=True,
    ),
    Decoder(
        "run with changes",
        ROWS.map(lambda rows: {k: v for k, v in rows.items() if k not in BASE}),
        ({"a": b"\x03"},),
        _changes,
        _chain_of,
        (CorruptError,),
        _seal_piece,
        damage_shows=True,
    ),
    Decoder(
        "piece without keys",
        st.lists(st.tuples(NAMES, st.binary(max_size=9)), max_size=3),
        ([("seen", b"\x91\x01")],),
        write_operator_piece,
        read_operator_piece,
        (CorruptError,),
        _seal_operator_piece,
        damage_shows=True,
    ),
    Decoder(
        "rocksdb: what it holds",
        st.builds(DatabaseInfo, st.just(0), st.just(7), st.integers(8, 99), NAMES, SMALL, st.just(INFO.states)),
        (INFO,),
        encode_info,
        lambda data: decode_info(data, "totals"),
        (CorruptError,),
    ),
    Decoder(
        "rocksdb: whole",
        _found(st.binary(max_size=5)),
        ([(3, b"sa", b"\x01")],),
        _cut("whole", "msgpack/1"),
        _canonical("whole", "msgpack/1"),
        (CorruptError,),
    ),
    Decoder(
        "rocksdb: chunks",
        _found(st.lists(TEXTS, max_size=3).map(_packed)),
        ([(3, b"sa", b"\x92\x01\x02")],),
        _cut("chunks", "msgpack/1"),
        _canonical("chunks", "msgpack/1"),
        (CorruptError,),
    ),
    Decoder(
        "rocksdb: entries",
        _found(st.dictionaries(TEXTS, SMALL, min_size=1, max_size=3).map(lambda pairs: _packed(list(pairs.items())))),
        ([(3, b"sa", _packed([("a", 1), ("b", 2)]))],),
        _cut("entries", "msgpack/1"),
        _canonical("entries", "msgpack/1"),
        (CorruptError,),
    ),
    Decoder(
        "transactional id",
        st.builds(TransactionalId, NAMES, NAMES, SMALL, NAMES, SMALL, SMALL),
        (TransactionalId("app", "5f2c", 7, "write", 0, 3),),  # type: ignore[arg-type]
        lambda id: as_bytes(str(id)),
        _id_of,
        (CorruptError,),
        is_text=True,
        hostile=(b"app:5f2c:" + b"9" * 5000 + b":write:0:0", "app:5f2c:٣:write:0:0".encode(), b"app:5f2c:07:write:0:0"),
    ),
    Decoder(
        "path of state",
        SMALL,
        (7,),
        lambda attempt: b"chk-%d-1/totals.0.1-0" % attempt,
        _attempt_of,
        (CorruptError,),
        is_text=True,
        hostile=(b"chk-" + b"9" * 5000 + b"-1/x", b"shared/" + b"9" * 5000 + b"/x"),
    ),
)
