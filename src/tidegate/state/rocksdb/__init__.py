"""The state backend on RocksDB: state larger than memory, and checkpoints that share files.

Names from here are all that the rest of the engine uses. Importing them does not import rocksdict.
"""

from tidegate.state.rocksdb.backend import RocksStateBackend
from tidegate.state.rocksdb.cut import ROCKSDB
from tidegate.state.rocksdb.folders import remove_old_attempts
from tidegate.state.rocksdb.memory import RocksMemory, check_installed
from tidegate.state.rocksdb.reading import read_rows

__all__ = ["ROCKSDB", "RocksMemory", "RocksStateBackend", "check_installed", "read_rows", "remove_old_attempts"]
