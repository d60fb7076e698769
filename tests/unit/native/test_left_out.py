"""Without the compiled part, because somebody leaves it out, all that it does is done in Python, and comes to the same
bytes and records."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.unit.native.reading import ALL, by_reader, check_read
from tidegate.connectors.kafka.batches.building import Building
from tidegate.connectors.kafka.batches.partitioning import Partitioner
from tidegate.connectors.kafka.batches.reading import spans
from tidegate.connectors.kafka.batches.writers import Columns, Producing
from tidegate.native import native
from tidegate.state.key_partitions import MURMUR2, KeyPartitions

ROOT = Path(__file__).parents[3]
COLUMNS = Columns(
    [b"value", None, b""], [b"key", b"", None], [1000, 999, 1 << 41], [[("größe", b"h"), ("", None)], None, []]
)
PROGRAM = """
from tests.unit.native.test_left_out import there_is
print(there_is(), end="")
"""


def there_is() -> str:
    """What the process that this is called in has, makes and reads."""
    building = Building(1 << 20, Producing(7, 3, True))
    building.add(COLUMNS)
    data = building.seal(11, 0.0).data
    keys: list[Any] = [b"key", b"", None, b"another"]
    place = KeyPartitions(4, MURMUR2).of(b"key")
    is_known = KeyPartitions(4, MURMUR2).are_in(place, [b"key"])
    return repr((native is None, is_known, data.hex(), _read(data), Partitioner(9).of(keys)))


def _read(data: bytes) -> str:
    (span,) = spans(data)
    return repr(by_reader(data, span, ALL, 0, checks=True))


def in_a_process(**environment: str) -> Any:
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert found.returncode == 0, found.stderr
    return eval(found.stdout, {})


def test_where_it_is_left_out_the_same_batch_is_written_and_read() -> None:
    without = in_a_process(TIDEGATE_NATIVE="0")
    assert without[:2] == (True, False)
    here = eval(there_is(), {})
    assert here[:2] == (native is None, native is not None)
    assert without[2:] == here[2:]
    data = bytes.fromhex(without[2])
    if native is not None:
        own, other = check_read(data)
        assert own == other
        assert own.values == COLUMNS.values


def test_any_other_word_leaves_nothing_out() -> None:
    for word in ("", "00"):
        assert in_a_process(TIDEGATE_NATIVE=word)[0] == (native is None)
