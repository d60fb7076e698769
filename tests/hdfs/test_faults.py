"""What goes wrong around HDFS: writers that die or wake up late, answers that are lost, users without rights."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.hdfs.java import wait_until
from tests.hdfs.minicluster import MiniCluster
from tests.hdfs.proxy import Proxy
from tests.hdfs.uploads import half_an_upload, make_old
from tests.hdfs.writers import put_one
from tests.unit.checkpoint.records import entry
from tidegate.checkpoint.log import Created
from tidegate.checkpoint.store import CheckpointStore, Taken, Won
from tidegate.errors import InvalidError
from tidegate.ids import JobName
from tidegate.storage.hdfs import ABANDONED_AFTER, TEMPORARY, HdfsStorage, open_hdfs
from tidegate.storage.port import AlreadyExists, NotFound, StorageUnavailable
from tidegate.storage.webhdfs import Refused
from tidegate.testing.conformance.storage import StartProcess

DATA = b"0123456789abcdef" * 1000


@pytest.fixture
def url(proxy: Proxy, folder: str) -> str:
    return f"webhdfs://{proxy.address}/{folder}"


@pytest.fixture
def storage(url: str) -> HdfsStorage:
    """Through the proxy."""
    return open_hdfs(url, writable=True)


@pytest.fixture
def direct(hdfs: MiniCluster, folder: str) -> HdfsStorage:
    """The same place, not through the proxy."""
    return hdfs.open(folder)


def everything_in(hdfs: MiniCluster, folder: str) -> list[str]:
    """Also what `list` does not show."""
    return [status.path_suffix for status in hdfs.client().children(f"/{folder}")]


# ---- what the design rests on --------------------------------------------------------------------------------------


def test_of_racing_renames_the_namenode_carries_out_exactly_one(hdfs: MiniCluster, folder: str) -> None:
    client, racers = hdfs.client(), 8
    for race in range(10):
        for racer in range(racers):
            client.create(f"/{folder}/{race}-{racer}", str(racer).encode())
        together = threading.Barrier(racers)

        def rename(racer: int, race: int = race, together: threading.Barrier = together) -> str:
            together.wait()
            try:
                client.rename(f"/{folder}/{race}-{racer}", f"/{folder}/won-{race}", replace=False)
            except Refused as refusal:
                return refusal.name
            return "won"

        with ThreadPoolExecutor(racers) as pool:
            outcomes = list(pool.map(rename, range(racers)))
        assert sorted(outcomes) == ["FileAlreadyExistsException"] * (racers - 1) + ["won"]
        assert client.open(f"/{folder}/won-{race}") == str(outcomes.index("won")).encode()


def test_an_exclusive_creation_alone_would_show_a_part_of_a_file(hdfs: MiniCluster, folder: str) -> None:
    with half_an_upload(hdfs, f"/{folder}/final", DATA):
        assert hdfs.open(folder).list("") == ["final"]
    wait_until(lambda: hdfs.open(folder).read("final") != b"", "the end of the upload")
    assert hdfs.open(folder).read("final") == DATA[: len(DATA) // 2]


# ---- writers that die ----------------------------------------------------------------------------------------------


def test_a_writer_killed_before_its_rename_leaves_nothing_that_can_be_seen(
    hdfs: MiniCluster, proxy: Proxy, url: str, direct: HdfsStorage, folder: str, start: StartProcess
) -> None:
    proxy.lose_requests("RENAME")
    gone = threading.Event()
    proxy.before = lambda operation: operation != "RENAME" or (gone.wait(60) and False)
    writer = start(put_one, url, "final", DATA)
    wait_until(lambda: "RENAME" in proxy.operations, "the request to rename")
    writer.kill()
    gone.set()
    assert [name for name in everything_in(hdfs, folder) if name.startswith(TEMPORARY)], "nothing was in the way"
    assert direct.list("") == []
    assert not direct.exists("final")
    direct.put_if_absent("final", b"of another")
    assert direct.list("") == ["final"]
    assert direct.read("final") == b"of another"


@pytest.mark.parametrize("is_taken", [False, True])
def test_a_rename_that_arrives_after_the_death_of_its_writer_shows_all_or_changes_nothing(
    proxy: Proxy, url: str, direct: HdfsStorage, start: StartProcess, is_taken: bool
) -> None:
    gone, answered = threading.Event(), threading.Event()

    def answer(operation: str) -> bool:
        if operation == "RENAME":
            answered.set()
        return True

    proxy.before = lambda operation: operation != "RENAME" or gone.wait(60)
    proxy.after = answer
    writer = start(put_one, url, "final", DATA)
    wait_until(lambda: "RENAME" in proxy.operations, "the request to rename")
    writer.kill()
    if is_taken:
        direct.put_if_absent("final", b"of another")
    gone.set()
    assert answered.wait(60)
    assert direct.read("final") == (b"of another" if is_taken else DATA)


@pytest.mark.parametrize("is_alive", [False, True], ids=["killed", "paused"])
def test_what_a_writer_left_in_the_middle_of_its_content_is_removed_by_the_next_start_but_not_at_once(
    hdfs: MiniCluster, direct: HdfsStorage, folder: str, is_alive: bool
) -> None:
    draft = f"{TEMPORARY}0-1-2"
    with half_an_upload(hdfs, f"/{folder}/{draft}", DATA) as upload:
        if not is_alive:
            upload.close()
        assert direct.list("") == []
        direct.check_writable()
        assert everything_in(hdfs, folder) == [draft]
        make_old(hdfs, f"/{folder}/{draft}", ABANDONED_AFTER + 1000)
        direct.check_writable()
        assert everything_in(hdfs, folder) == []
        if is_alive:
            # It goes on, and its file does not come back.
            upload.sendall(DATA[len(DATA) // 2 :])
            assert b" 201 " not in upload.recv(4096)
    assert everything_in(hdfs, folder) == []


def test_a_writer_whose_unfinished_file_was_removed_under_it_writes_it_again(
    hdfs: MiniCluster, proxy: Proxy, storage: HdfsStorage, folder: str
) -> None:
    def remove_drafts(operation: str) -> bool:
        if operation == "RENAME":
            for name in everything_in(hdfs, folder):
                hdfs.client().delete(f"/{folder}/{name}")
        return True

    proxy.before = remove_drafts
    with pytest.raises(StorageUnavailable, match="was removed by somebody else"):
        storage.put_if_absent("final", DATA)
    assert not storage.exists("final")
    proxy.before = lambda operation: True
    storage.put_if_absent("final", DATA)
    assert storage.read("final") == DATA


def test_a_put_that_is_refused_leaves_no_unfinished_file(hdfs: MiniCluster, direct: HdfsStorage, folder: str) -> None:
    direct.put_if_absent("final", DATA)
    with pytest.raises(AlreadyExists):
        direct.put_if_absent("final", DATA)
    assert everything_in(hdfs, folder) == ["final"]


def test_folders_that_a_deletion_empties_are_removed_up_to_the_root(
    hdfs: MiniCluster, direct: HdfsStorage, folder: str
) -> None:
    direct.put_if_absent("a/b/c/one", b"")
    direct.put_if_absent("a/b/two", b"")
    direct.delete("a/b/c/one")
    assert everything_in(hdfs, f"{folder}/a/b") == ["two"]
    direct.delete("a/b/two")
    assert everything_in(hdfs, folder) == []


def test_who_reads_while_a_file_is_replaced_sees_one_or_the_other(direct: HdfsStorage) -> None:
    contents = [bytes([65 + number]) * 100_000 for number in range(2)]
    direct.write("file", contents[0])
    done = threading.Event()
    wrong: list[str] = []

    def read() -> None:
        while not done.is_set():
            try:
                if direct.read("file") not in contents:
                    wrong.append("mixed or cut off")
            except NotFound:
                wrong.append("not there")
            except StorageUnavailable:
                # The blocks that it had begun to read are those of the file that was replaced.
                continue

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(30):
        direct.write("file", contents[number % 2])
    done.set()
    reader.join()
    assert not wrong


# ---- answers that are lost -----------------------------------------------------------------------------------------


def test_after_a_lost_answer_the_put_is_found_to_be_ones_own(proxy: Proxy, storage: HdfsStorage) -> None:
    proxy.lose_answers("RENAME")
    with pytest.raises(StorageUnavailable, match="ended the connection before its answer"):
        storage.put_if_absent("final", DATA)
    proxy.lose_answers()
    with pytest.raises(AlreadyExists):
        storage.put_if_absent("final", DATA)
    assert storage.read("final") == DATA


def test_a_rename_is_sent_once_whatever_becomes_of_its_answer(proxy: Proxy, storage: HdfsStorage) -> None:
    proxy.operations.clear()
    proxy.lose_answers("RENAME")
    with pytest.raises(StorageUnavailable):
        storage.put_if_absent("final", DATA)
    assert proxy.operations.count("RENAME") == 1


CALLS: dict[str, tuple[Callable[[HdfsStorage], object], object]] = {
    "CREATE": (lambda storage: storage.write("new", DATA), None),
    "RENAME": (lambda storage: storage.write("new", DATA), None),
    "OPEN": (lambda storage: storage.read("there"), DATA),
    "GETFILESTATUS": (lambda storage: storage.exists("there"), True),
    "LISTSTATUS_BATCH": (lambda storage: storage.list(""), ["there"]),
    "DELETE": (lambda storage: storage.delete("there"), None),
    "MKDIRS": (lambda storage: storage.check_writable(), None),
}


@pytest.mark.parametrize("operation", sorted(CALLS))
@pytest.mark.parametrize("lose", [Proxy.lose_requests, Proxy.lose_answers], ids=["request", "answer"])
def test_where_no_answer_comes_the_storage_is_unavailable_and_the_call_can_be_repeated(
    proxy: Proxy, storage: HdfsStorage, operation: str, lose: Callable[..., None]
) -> None:
    call, result = CALLS[operation]
    storage.put_if_absent("there", DATA)
    lose(proxy, operation)
    with pytest.raises(StorageUnavailable, match=f"webhdfs://{proxy.address}/tests/"):
        call(storage)
    proxy.lose_answers()
    assert call(storage) == result


@pytest.mark.parametrize("is_foreign", [False, True])
def test_the_checkpoint_log_finds_out_who_won_after_a_lost_answer(
    proxy: Proxy, storage: HdfsStorage, direct: HdfsStorage, is_foreign: bool
) -> None:
    own, foreign = (entry(0, Created(), nonce=nonce, attempt=0) for nonce in ("own", "foreign"))
    lost = Proxy.lose_requests if is_foreign else Proxy.lose_answers
    lost(proxy, "RENAME")
    with pytest.raises(StorageUnavailable):
        CheckpointStore(storage, JobName("job")).append(own)
    if is_foreign:
        assert CheckpointStore(direct, JobName("job")).append(foreign) == Won()
    proxy.lose_answers()
    assert CheckpointStore(storage, JobName("job")).append(own) == (Taken(foreign) if is_foreign else Won())


# ---- what does not pass by itself ----------------------------------------------------------------------------------


def test_a_user_without_rights_is_told_the_path_the_user_and_the_remedy(
    hdfs: MiniCluster, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    hdfs.open(folder).put_if_absent("there", b"")
    monkeypatch.setenv("HADOOP_USER_NAME", "somebody")
    storage = hdfs.open(folder)
    assert storage.read("there") == b""
    calls: tuple[Callable[[], None], ...] = (
        storage.check_writable,
        lambda: storage.put_if_absent("x", b""),
        lambda: storage.delete("there"),
    )
    for call in calls:
        with pytest.raises(InvalidError, match="Permission denied: user=somebody") as raised:
            call()
        assert hdfs.url(folder) in str(raised.value)
        assert "as user somebody" in str(raised.value)
        assert "HADOOP_USER_NAME" in raised.value.failure.remedy


def test_a_folder_in_the_place_of_a_file_is_named(direct: HdfsStorage) -> None:
    direct.put_if_absent("folder/file", b"")
    calls: tuple[Callable[[], None], ...] = (
        lambda: direct.put_if_absent("folder", b""),
        lambda: direct.write("folder", b""),
        lambda: direct.delete("folder"),
    )
    for call in calls:
        with pytest.raises(InvalidError, match="A folder stands where a file belongs"):
            call()
    assert direct.list("") == ["folder/file"]
    assert not direct.exists("folder")
    with pytest.raises(NotFound):
        direct.read("folder")


def test_a_file_in_the_place_of_a_folder_is_named(hdfs: MiniCluster, direct: HdfsStorage, folder: str) -> None:
    direct.put_if_absent("file", b"")
    with pytest.raises(InvalidError, match="is a file"):
        direct.put_if_absent("file/within", b"")
    with pytest.raises(InvalidError, match="A file stands where a folder belongs"):
        hdfs.open(f"{folder}/file").check_writable()
    assert direct.list("file/") == []


def test_a_port_that_is_not_for_http_is_named(hdfs: MiniCluster) -> None:
    with pytest.raises(InvalidError, match=r"does not answer as WebHDFS does(?s:.*)port 9870"):
        open_hdfs(f"webhdfs://{hdfs.rpc_address}/x", writable=True)
