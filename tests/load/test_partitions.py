"""Ten thousand partitions of the embedded log, read by four subtasks."""

import itertools
from pathlib import Path

import pytest

from tests.integration.running import Bench
from tests.load.many_partitions import SUBTASKS, ManyPartitions, assert_shared_out_and_read_on
from tidegate.connectors.local import partitioner
from tidegate.local import LocalLog

TOPIC = "wide-in"
PARTITIONS = 10_000


def keys_by_partition(partitions: int) -> dict[int, bytes]:
    """A key for each: so that one write reaches them all."""
    found: dict[int, bytes] = {}
    for number in itertools.count():
        key = b"%d" % number
        found.setdefault(partitioner.assign([key], partitions, 0)[0], key)
        if len(found) == partitions:
            return found
    raise AssertionError("numbers never end")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_ten_thousand_partitions_are_shared_out_and_read_on_behind_a_kill(tmp_path: Path, bench: Bench) -> None:
    log, keys = tmp_path / "log", keys_by_partition(PARTITIONS)
    with LocalLog(log) as opened:
        opened.create_topic(TOPIC, PARTITIONS)

    def append(topic: str, values: dict[int, str]) -> None:
        with LocalLog(log) as opened:
            opened.append(topic, None, [one.encode() for one in values.values()], [keys[number] for number in values])

    assert_shared_out_and_read_on(ManyPartitions(bench, [TOPIC], append), PARTITIONS)
    assert PARTITIONS % SUBTASKS == 0
