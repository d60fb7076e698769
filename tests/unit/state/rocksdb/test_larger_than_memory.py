"""State three times as large as the memory that the process may use.

The kernel enforces the limit (RLIMIT_DATA: heap and private writable memory, of Python, RocksDB and its threads alike):
whoever wanted more would get no memory and die. Resident memory, which the limit does not cover in full, is asserted.
Threads get small stacks, since the limit counts what they reserve and not what they use.
"""

import json
import resource
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

MEMORY = 96 << 20
VALUE = 1500
KEYS = 3 * MEMORY // VALUE


@pytest.mark.slow
def test_state_three_times_as_large_as_memory_runs_with_checkpoints_whose_size_follows_the_change(
    tmp_path: Path,
) -> None:
    program = Path(__file__).with_name("larger_than_memory.py")
    run = subprocess.run(
        [sys.executable, str(program), str(tmp_path), str(KEYS), str(VALUE), str(MEMORY)],
        stdout=subprocess.PIPE,
        check=True,
        timeout=110,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_STACK, (1 << 20, 1 << 20)),
    )
    seen = json.loads(run.stdout)
    assert seen["rss"] < MEMORY * 4 / 3
    change = KEYS // 100 * VALUE
    first, *later = seen["sizes"]
    assert first > 2.5 * MEMORY
    # A checkpoint holds what changed since the last, and runs that were merged; rarely one, everything.
    assert statistics.median(later) < 5 * change
    assert sum(later) < 2 * first
