"""The memory that all databases of a process share, and where their threads and tables stay."""

from pathlib import Path

from tidegate.state.rocksdb import RocksMemory
from tidegate.state.rocksdb.database import Database

MEBIBYTE = 1 << 20


def fill(database: Database, first: int, count: int) -> None:
    batch = database.batch()
    for number in range(first, first + count):
        batch.put(b"%010d" % number, number.to_bytes(8, "big") * 64)
    database.write(batch)


def test_several_databases_together_stay_within_one_limit(folder: Path) -> None:
    memory = RocksMemory(8 * MEBIBYTE)
    databases = [Database(folder / str(number), memory) for number in range(4)]
    used = []
    for first in range(0, 40_000, 1000):
        for database in databases:
            fill(database, first, 1000)
            assert database.get(b"%010d" % (first // 2)) is not None
            used.append(memory.used)
    assert len(used) * 1000 * 512 > 8 * memory.limit
    # What is being read or flushed at the moment stands above it.
    assert max(used) < 1.5 * memory.limit
    for database in databases:
        database.close()


def test_nothing_is_made_before_the_first_database(folder: Path) -> None:
    memory = RocksMemory()
    assert memory.limit == 256 * MEBIBYTE
    assert vars(memory) == {"limit": memory.limit}
    Database(folder / "one", memory).close()
    assert len(vars(memory)) == 3


def test_write_buffers_follow_the_limit(folder: Path) -> None:
    assert [RocksMemory(limit * MEBIBYTE).write_buffer // MEBIBYTE for limit in (8, 64, 256, 4096)] == [1, 8, 32, 32]


def test_the_list_of_tables_does_not_grow_with_each_checkpoint(folder: Path) -> None:
    database = Database(folder / "one", RocksMemory(8 * MEBIBYTE))
    sizes = []
    for checkpoint in range(400):
        fill(database, checkpoint, 1)
        database.flush()
        database.snapshot(folder / "cut")
        sizes.append(sum(path.stat().st_size for path in (folder / "cut").glob("MANIFEST-*")))
    assert max(sizes) < 40 * 1024
    assert sizes[-1] < max(sizes)
    database.close()
