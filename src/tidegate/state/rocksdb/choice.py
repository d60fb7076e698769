"""Which handle serves a declared state in RocksDB: by its kind, and for maps by how their rows are laid out."""

from typing import Any

from tidegate.errors import InvalidError
from tidegate.state.descriptors import (
    AggregatingState,
    ListState,
    MapState,
    ReducingState,
    StateDescriptor,
    ValueState,
)
from tidegate.state.rocksdb.cache import CachedState, Home
from tidegate.state.rocksdb.handles import RocksAggregatingHandle, RocksReducingHandle, RocksValueHandle
from tidegate.state.rocksdb.lists import RocksListHandle
from tidegate.state.rocksdb.maps import RocksMapHandle, WholeMapHandle
from tidegate.state.rocksdb.rows import StateRows


def make_handle(descriptor: StateDescriptor[Any], rows: StateRows, home: Home) -> CachedState:
    """The handle of a declared state. Raises InvalidError for a kind that this backend does not have."""
    match descriptor:
        case ValueState():
            return RocksValueHandle(descriptor, rows, home)
        case ReducingState():
            return RocksReducingHandle(descriptor, rows, home)
        case AggregatingState():
            return RocksAggregatingHandle(descriptor, rows, home)
        case ListState():
            return RocksListHandle(descriptor, rows, home)
        case MapState() if rows.layout == "entries":
            return RocksMapHandle(descriptor, rows, home)
        case MapState():
            return WholeMapHandle(descriptor, rows, home)
    raise InvalidError(f"state {descriptor.name} is of kind {descriptor.kind}, which this state backend does not have")
