"""HDFS with two NameNodes: whichever is active is found, and what was put on one is there on the other."""

from collections.abc import Iterator

import pytest

from tests.hdfs.java import wait_until
from tests.hdfs.pair import Pair
from tests.hdfs.writers import content_of, put_numbered
from tidegate.storage.hdfs import HdfsStorage, open_hdfs
from tidegate.storage.port import AlreadyExists, StorageUnavailable
from tidegate.testing.conformance.storage import StartProcess

pytestmark = pytest.mark.slow
COUNT = 60


@pytest.fixture
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with Pair(tmp_path_factory.mktemp("pair")) as made:
        yield made


@pytest.fixture
def storage(pair: Pair) -> HdfsStorage:
    return open_hdfs(pair.url("check/points"))


def test_when_another_namenode_becomes_active_the_same_storage_goes_on(pair: Pair, storage: HdfsStorage) -> None:
    storage.put_if_absent("log/1", b"one")
    pair.stand_by("one")
    with pytest.raises(StorageUnavailable, match=f"{pair.addresses['two']} is not active"):
        storage.read("log/1")
    pair.activate("two")
    assert storage.read("log/1") == b"one"
    with pytest.raises(AlreadyExists):
        storage.put_if_absent("log/1", b"another")
    storage.put_if_absent("log/2", b"two")
    assert storage.list("") == ["log/1", "log/2"]


def test_a_writer_that_persists_outlives_the_death_of_the_active_namenode(
    pair: Pair, storage: HdfsStorage, start: StartProcess
) -> None:
    writer = start(put_numbered, pair.url("check/points"), COUNT)
    wait_until(lambda: len(storage.list("numbered/")) > COUNT // 4, "a quarter of the writes")
    pair.kill("one")
    pair.activate("two")
    writer.join()
    paths = [f"numbered/{number:03d}" for number in range(COUNT)]
    assert storage.list("") == paths
    assert [storage.read(path) for path in paths] == [content_of(number) for number in range(COUNT)]
