"""A later look for new partitions costs little, however many are known: it is repeated for as long as a job runs."""

import time
from collections.abc import Collection, Iterable

import pytest

from tidegate.connectors.kafka.client import At, Isolation, Topic, TopicPartition
from tidegate.connectors.kafka.discovery import Discovery, Offsets, Selection
from tidegate.errors import LostDataError

PARTITIONS = 10_000
LOOK_BOUND = 2.0
"""Seconds. Where all were compared with all, a look took longer than that; now some hundredths."""


class WideTopic:
    """The questions to a cluster with one topic, and for which partitions offsets were asked."""

    bootstrap = "127.0.0.1:9092"

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self.asked: list[TopicPartition] = []

    def names(self) -> list[str]:
        return ["wide"]

    def topics(self, names: Collection[str]) -> dict[str, Topic]:
        return {"wide": Topic("wide", "id", tuple(range(self.partitions)), False)}

    def offsets(self, partitions: Iterable[TopicPartition], at: At, isolation: Isolation) -> Offsets:
        wanted = list(partitions)
        self.asked += wanted
        return dict.fromkeys(wanted, 7)


def test_a_look_asks_for_offsets_of_new_partitions_only() -> None:
    cluster = WideTopic(PARTITIONS)
    discovery = Discovery(lambda: cluster, Selection(("wide",)))
    known = frozenset(split.id for split in discovery.splits(None))
    assert len(known) == len(cluster.asked) == PARTITIONS
    cluster.asked.clear()
    cluster.partitions += 2
    begun = time.thread_time()
    found = discovery.splits(known)
    assert time.thread_time() - begun < LOOK_BOUND
    assert [split.id for split in found] == [f"wide/{PARTITIONS}", f"wide/{PARTITIONS + 1}"]
    assert cluster.asked == [TopicPartition("wide", PARTITIONS), TopicPartition("wide", PARTITIONS + 1)]


def test_one_of_thousands_that_is_gone_is_named() -> None:
    cluster = WideTopic(PARTITIONS)
    discovery = Discovery(lambda: cluster, Selection(("wide",)))
    known = frozenset(split.id for split in discovery.splits(None))
    cluster.partitions -= 1
    with pytest.raises(LostDataError, match=rf"^wide/{PARTITIONS - 1} at 127"):
        discovery.splits(known)
