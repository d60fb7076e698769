"""An HDFS that is killed, paused or in safe mode: the storage is unavailable and says why, and afterwards all is there.

NameNode and DataNode are one process here, and die and come back together.
"""

import time
from collections.abc import Callable, Iterator

import pytest

from tests.hdfs.java import wait_until
from tests.hdfs.minicluster import MiniCluster
from tests.hdfs.writers import content_of, put_numbered
from tidegate.storage.hdfs import HdfsStorage
from tidegate.storage.port import AlreadyExists, StorageUnavailable
from tidegate.storage.webhdfs import WebHdfs
from tidegate.testing.conformance.storage import StartProcess

COUNT = 60
SHORT_PATIENCE = 0.5


@pytest.fixture
def storage(mortal_hdfs: MiniCluster, folder: str) -> HdfsStorage:
    return mortal_hdfs.open(folder)


def test_what_was_put_survives_the_death_of_hdfs_which_is_unavailable_meanwhile(
    mortal_hdfs: MiniCluster, storage: HdfsStorage
) -> None:
    storage.put_if_absent("log/1", b"one")
    storage.write("state", b"two")
    mortal_hdfs.kill()
    for call in (lambda: storage.read("log/1"), lambda: storage.list(""), lambda: storage.put_if_absent("log/2", b"")):
        with pytest.raises(StorageUnavailable, match=r"cannot be reached: .*Connection refused"):
            call()
    mortal_hdfs.start()
    assert storage.list("") == ["log/1", "state"]
    assert (storage.read("log/1"), storage.read("state")) == (b"one", b"two")
    with pytest.raises(AlreadyExists):
        storage.put_if_absent("log/1", b"another")


@pytest.mark.slow
def test_a_writer_that_persists_outlives_hdfs_and_nothing_is_torn(
    mortal_hdfs: MiniCluster, storage: HdfsStorage, folder: str, start: StartProcess
) -> None:
    writer = start(put_numbered, mortal_hdfs.url(folder), COUNT)
    wait_until(lambda: len(storage.list("numbered/")) > COUNT // 4, "a quarter of the writes")
    mortal_hdfs.kill()
    mortal_hdfs.start()
    writer.join()
    paths = [f"numbered/{number:03d}" for number in range(COUNT)]
    assert storage.list("") == paths
    assert [storage.read(path) for path in paths] == [content_of(number) for number in range(COUNT)]


@pytest.mark.slow
def test_what_the_answers_are_while_hdfs_starts_can_pass(mortal_hdfs: MiniCluster, storage: HdfsStorage) -> None:
    storage.put_if_absent("file", b"content")
    mortal_hdfs.kill()
    mortal_hdfs.begin_start()

    def is_back() -> bool:
        try:
            storage.check_writable()
            return storage.read("file") == b"content"
        except StorageUnavailable:
            return False

    wait_until(is_back, "the start of HDFS")


@pytest.fixture
def paused(mortal_hdfs: MiniCluster) -> Iterator[MiniCluster]:
    mortal_hdfs.pause()
    yield mortal_hdfs
    mortal_hdfs.resume()


def test_a_paused_hdfs_is_waited_for_no_longer_than_the_patience(
    storage: HdfsStorage, paused: MiniCluster, folder: str
) -> None:
    impatient = HdfsStorage(WebHdfs([paused.address], storage.hdfs.user, SHORT_PATIENCE), f"/{folder}")
    before = time.monotonic()
    with pytest.raises(StorageUnavailable, match=f"no answer came from {paused.address}: timed out"):
        impatient.put_if_absent("file", b"content")
    assert time.monotonic() - before < 10 * SHORT_PATIENCE


def test_a_file_asked_for_before_a_pause_is_put_at_most_once(
    mortal_hdfs: MiniCluster, storage: HdfsStorage, folder: str
) -> None:
    impatient = HdfsStorage(WebHdfs([mortal_hdfs.address], storage.hdfs.user, SHORT_PATIENCE), f"/{folder}")
    draft = f"/{folder}/.tmp-0"
    mortal_hdfs.client().create(draft, b"content")
    mortal_hdfs.pause()
    try:
        with pytest.raises(StorageUnavailable):
            impatient.hdfs.rename(draft, f"/{folder}/file", replace=False)
    finally:
        mortal_hdfs.resume()
    wait_until(lambda: storage.exists("file"), "the late rename")
    with pytest.raises(AlreadyExists):
        storage.put_if_absent("file", b"content")
    assert storage.read("file") == b"content"


@pytest.fixture
def in_safe_mode(mortal_hdfs: MiniCluster) -> Iterator[MiniCluster]:
    mortal_hdfs.administer("-safemode", "enter")
    yield mortal_hdfs
    mortal_hdfs.administer("-safemode", "leave")


def test_in_safe_mode_files_are_read_and_the_reason_for_no_writes_is_said(
    storage: HdfsStorage, request: pytest.FixtureRequest
) -> None:
    storage.put_if_absent("file", b"content")
    request.getfixturevalue("in_safe_mode")
    assert storage.read("file") == b"content"
    calls: tuple[Callable[[], None], ...] = (
        lambda: storage.put_if_absent("other", b""),
        lambda: storage.delete("file"),
        storage.check_writable,
    )
    for call in calls:
        with pytest.raises(StorageUnavailable, match=r"SafeModeException(?s:.*)safemode get"):
            call()
    assert storage.list("") == ["file"]


@pytest.mark.slow
def test_a_full_quota_may_pass(mortal_hdfs: MiniCluster, storage: HdfsStorage, folder: str) -> None:
    storage.put_if_absent("file", b"content")
    mortal_hdfs.administer("-setQuota", "2", f"/{folder}")
    with pytest.raises(StorageUnavailable, match="NSQuotaExceededException"):
        storage.put_if_absent("other", b"")
    mortal_hdfs.administer("-clrQuota", f"/{folder}")
    storage.put_if_absent("other", b"")
