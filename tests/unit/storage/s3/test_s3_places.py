"""Which places on S3 can be used, what they show, and who may use them at once."""

import subprocess
import sys
import threading

import pytest

from tests.unit.storage.s3.conftest import PAUSES
from tests.unit.storage.s3.server import BUCKET, FOLDER, Cut, Fault, Refusal, S3Server, Wrong, in_turn
from tidegate.checkpoint.log import Created, Entry
from tidegate.checkpoint.store import CheckpointStore, Taken, Won
from tidegate.errors import InvalidError
from tidegate.ids import Attempt, JobName, LogInstance, LogPosition
from tidegate.storage.port import AlreadyExists, NotFound
from tidegate.storage.s3 import PROBE, S3Storage, open_s3

# ---- listings that lag behind --------------------------------------------------------------------------------------


def test_a_start_that_a_listing_shows_no_log_cannot_begin_a_second_one(server: S3Server, storage: S3Storage) -> None:
    """S3 promises more; but whoever runs a job is decided by the put and by no listing."""
    store = CheckpointStore(storage, JobName("totals"))
    assert store.append(created("first")) == Won()
    server.judge = lambda asked: Wrong.LISTS_NOTHING if asked.is_listing else None
    assert store.read_log() == []
    assert store.append(created("second")) == Taken(created("first"))


def test_a_writer_whose_listing_lags_stops_and_does_not_go_on(server: S3Server, storage: S3Storage) -> None:
    store = CheckpointStore(storage, JobName("totals"))
    assert store.append(created("first")) == Won()
    server.judge = lambda asked: Wrong.LISTS_NOTHING if asked.is_listing else None
    assert store.append(created("first", position=1)) == Taken(None)


def created(nonce: str, position: int = 0) -> Entry:
    return Entry(LogPosition(position), nonce, LogInstance(nonce), Attempt(0), 0.0, Created())


# ---- the place -----------------------------------------------------------------------------------------------------


def test_opening_asks_nothing_and_proving_leaves_nothing(server: S3Server) -> None:
    storage = open_s3(f"s3://{BUCKET}/{FOLDER}/")
    assert server.asked == []
    storage.put_if_absent("a/b", b"stays")
    for _ in range(2):
        storage.check_writable()
    assert set(server.objects) == {f"{FOLDER}/a/b"}
    assert storage.list("") == ["a/b"]
    assert storage.location == f"s3://{BUCKET}/{FOLDER}"


def test_starts_at_the_same_moment_do_not_disturb_each_other(server: S3Server) -> None:
    failures: list[BaseException] = []

    def check() -> None:
        try:
            open_s3(f"s3://{BUCKET}", writable=True, pauses=PAUSES)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=check) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


@pytest.mark.parametrize(
    ("fault", "method", "said"),
    [
        (Wrong.UNCONDITIONAL, "PUT", "two job managers could run one job"),
        (Wrong.LISTS_NOTHING, "GET", "not in the listing"),
        (Refusal(403, "AccessDenied"), "DELETE", "AccessDenied"),
    ],
)
def test_a_storage_that_is_not_like_s3_in_what_counts_is_refused_at_the_start(
    server: S3Server, storage: S3Storage, fault: Fault, method: str, said: str
) -> None:
    server.judge = lambda asked: fault if asked.method == method else None
    with pytest.raises(InvalidError, match=said):
        storage.check_writable()
    assert len(server.objects) == (method == "DELETE")


def test_a_probe_that_a_killed_start_left_is_in_nobodys_way(server: S3Server, storage: S3Storage) -> None:
    server.client.put_object(Bucket=BUCKET, Key=f"{FOLDER}/{PROBE}left", Body=b"first")
    storage.check_writable()
    assert storage.list("") == []


def test_lost_answers_do_not_make_a_good_storage_look_wrong(server: S3Server, storage: S3Storage) -> None:
    server.judge = in_turn(Cut.AFTER, Cut.AFTER, Cut.BEFORE, Cut.AFTER)
    storage.check_writable()
    assert server.objects == {}


def test_a_listing_of_many_pages_is_whole(
    server: S3Server, storage: S3Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "3")
    paths = sorted(f"a/{number}" for number in range(10))
    for path in paths:
        storage.put_if_absent(path, b"")
    server.asked.clear()
    assert storage.list("a/") == paths
    assert len(server.asked) == 4


def test_what_others_put_beside_the_blobs_is_not_shown(server: S3Server, storage: S3Storage) -> None:
    for key in (f"{FOLDER}/", f"{FOLDER}/a/", f"{FOLDER}/a b", f"{FOLDER}/.hidden/x", f"{FOLDER}x/y", "top"):
        server.client.put_object(Bucket=BUCKET, Key=key, Body=b"")
    storage.put_if_absent("a/b", b"")
    assert storage.list("") == ["a/b"]
    assert storage.list("a/") == ["a/b"]


def test_no_path_leads_out_of_the_folder(storage: S3Storage) -> None:
    for path in ("../x", "/x", "a//b", PROBE, ""):
        with pytest.raises(InvalidError, match="cannot be the path"):
            storage.read(path)
    with pytest.raises(NotFound, match=r"^a/b$"):
        storage.read("a/b")


def test_many_threads_may_use_one_storage(storage: S3Storage) -> None:
    won: list[tuple[str, bytes]] = []

    def run(data: bytes) -> None:
        for number in range(5):
            try:
                storage.put_if_absent(f"race/{number}", data)
            except AlreadyExists:
                continue
            won.append((f"race/{number}", data))

    threads = [threading.Thread(target=run, args=(b"%d" % number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(path for path, _ in won) == storage.list("race/")
    assert all(storage.read(path) == data for path, data in won)


def test_a_process_that_used_it_ends_without_a_word(server: S3Server) -> None:
    code = f"from tidegate.storage.resolve import open_storage; open_storage('s3://{BUCKET}/x', writable=True)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
