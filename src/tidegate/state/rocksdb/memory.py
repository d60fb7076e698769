"""The memory of RocksDB in one worker process, and the one place that imports rocksdict, when it is first needed.

All databases of a process share one block cache, to which their write buffers are charged, too: so `limit` bounds what
RocksDB takes for data, indexes and filters, whatever the number of operators and subtasks. Nothing here may be made
per database: two caches would be two limits.
"""

import importlib
import importlib.util
from functools import cached_property
from typing import Any

from tidegate.errors import InvalidError

MEBIBYTE = 1 << 20
DEFAULT_LIMIT = 256 * MEBIBYTE

_BUFFER_MIN = MEBIBYTE
_BUFFER_MAX = 32 * MEBIBYTE
_OPEN_FILES = 128
"""Of one database. Each has its footer in memory beside the cache: a few KiB."""
_MANIFEST = 32 * 1024
_SORTED_RUNS = 6
"""With so many, some are merged. More means fewer bytes written, and more places to look at for a key."""
_BACKGROUND_JOBS = 2
_BLOOM_BITS = 10
_BLOCK = 16 * 1024


def check_installed() -> None:
    """Raise InvalidError, naming the command, unless RocksDB can be used."""
    if importlib.util.find_spec("rocksdict") is None:
        raise InvalidError(
            "state.backend rocksdb needs the package rocksdict, which is not installed",
            remedy="Run: pip install 'tidegate[rocksdb]'",
        )


def library() -> Any:
    """The module rocksdict. Raises InvalidError when it is not installed."""
    check_installed()
    return importlib.import_module("rocksdict")


class RocksMemory:
    """What the databases of one worker process share. limit: bytes of block cache and write buffers together.

    Raises InvalidError for a limit below 8 MiB: write buffers would be flushed all the time.
    """

    LIMIT_MIN = 8 * MEBIBYTE

    def __init__(self, limit: int = DEFAULT_LIMIT) -> None:
        if limit < self.LIMIT_MIN:
            raise InvalidError(
                f"state.rocksdb.memory is {limit} bytes", remedy=f"Give RocksDB at least {self.LIMIT_MIN} bytes."
            )
        self.limit = limit

    @property
    def write_buffer(self) -> int:
        """Bytes that one database collects before it writes a file, at most."""
        return max(_BUFFER_MIN, min(_BUFFER_MAX, self.limit // 8))

    @property
    def used(self) -> int:
        """Bytes in use now: blocks, indexes, filters, write buffers."""
        return int(self._cache.get_usage())

    @cached_property
    def _cache(self) -> Any:
        return library().Cache(self.limit)

    @cached_property
    def _buffers(self) -> Any:
        # Half of the limit: beyond it the fullest write buffer is flushed. Writers are never stopped for it.
        manager = library().WriteBufferManager
        return manager.new_write_buffer_manager_with_cache(self.limit // 2, False, self._cache)

    def options(self) -> Any:
        """Of one database that shares this memory."""
        rocksdict = library()
        options = rocksdict.Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_write_buffer_manager(self._buffers)
        options.set_write_buffer_size(self.write_buffer)
        options.set_max_write_buffer_number(2)
        options.set_max_background_jobs(_BACKGROUND_JOBS)
        options.set_max_open_files(_OPEN_FILES)
        options.set_target_file_size_base(self.write_buffer)
        # Stored whole with each checkpoint, and longer with each: begun anew before that costs something.
        options.set_max_manifest_file_size(_MANIFEST)
        options.set_keep_log_file_num(1)
        options.set_max_log_file_size(MEBIBYTE)
        # No thread of RocksDB's own that only counts.
        options.set_stats_dump_period_sec(0)
        options.set_stats_persist_period_sec(0)
        options.set_compression_type(rocksdict.DBCompressionType.lz4())
        # Runs of similar size are merged: what is written stays in proportion to what changes, also where the keys that
        # change lie everywhere, while merging by levels would write the whole level for each checkpoint's few keys.
        options.set_compaction_style(rocksdict.DBCompactionStyle.universal())
        options.set_level_zero_file_num_compaction_trigger(_SORTED_RUNS)
        options.set_block_based_table_factory(self._tables(rocksdict))
        return options

    def _tables(self, rocksdict: Any) -> Any:
        tables = rocksdict.BlockBasedOptions()
        tables.set_block_cache(self._cache)
        tables.set_block_size(_BLOCK)
        tables.set_bloom_filter(_BLOOM_BITS, False)
        tables.set_cache_index_and_filter_blocks(True)
        tables.set_pin_l0_filter_and_index_blocks_in_cache(True)
        # Whole, the filter of a table of millions of small rows is larger than a shard of the cache (a 64th of it): it
        # would be read and unpacked again for every look at a key.
        tables.set_index_type(rocksdict.BlockBasedIndexType.two_level_index_search())
        tables.set_partition_filters(True)
        tables.set_metadata_block_size(_BLOCK // 4)
        tables.set_pin_top_level_index_and_filter(True)
        tables.set_format_version(5)
        tables.set_checksum_type(rocksdict.ChecksumType.xxh3())
        return tables
