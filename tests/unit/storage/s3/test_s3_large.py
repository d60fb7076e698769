"""What is large goes to S3 in parts, with the same promises."""

import threading

import pytest

from tests.unit.storage.s3.server import BUCKET, FOLDER, SLOW_DOWN, Asked, Cut, Fault, Refusal, S3Server, in_turn
from tidegate.storage.port import AlreadyExists, StorageUnavailable
from tidegate.storage.s3 import S3Storage, open_s3
from tidegate.testing.conformance.storage import StartProcess

LARGE = bytes(range(256)) * (20 * 2**20 // 256)
"""Three parts."""


def test_what_is_large_goes_in_parts_and_is_invisible_until_all_are_there(server: S3Server, storage: S3Storage) -> None:
    seen: list[str] = []

    def judge(asked: Asked) -> Fault:
        if asked.completes():
            server.judge = lambda asked: None
            seen.extend([*server.objects, "looked"])
        return None

    server.judge = judge
    storage.put_if_absent("large", LARGE)
    assert seen == ["looked"]
    assert storage.read("large") == LARGE
    with pytest.raises(AlreadyExists):
        storage.put_if_absent("large", LARGE)
    storage.write("large", LARGE[::-1])
    assert storage.read("large") == LARGE[::-1]
    assert server.uploads == []


@pytest.mark.parametrize("kind", ["put_if_absent", "write"])
def test_parts_and_completions_whose_answers_were_lost_have_succeeded(
    server: S3Server, storage: S3Storage, kind: str
) -> None:
    server.judge = in_turn(
        Cut.AFTER, SLOW_DOWN, Cut.BEFORE, Cut.AFTER, of=lambda asked: asked.completes() or asked.method == "PUT"
    )
    getattr(storage, kind)("large", LARGE)
    assert storage.read("large") == LARGE
    assert server.uploads == []


def test_an_upload_that_cannot_be_completed_leaves_nothing(server: S3Server, storage: S3Storage) -> None:
    server.judge = lambda asked: SLOW_DOWN if asked.completes() else None
    with pytest.raises(StorageUnavailable):
        storage.put_if_absent("large", LARGE)
    assert server.objects == {}
    assert server.uploads == []


@pytest.mark.parametrize("of_mine", [True, False])
def test_an_upload_that_is_gone_counts_only_if_it_was_completed(
    server: S3Server, storage: S3Storage, of_mine: bool
) -> None:
    """Storages forget an upload once it is completed; then the completion whose answer was lost finds none."""
    gone = Refusal(404, "NoSuchUpload")
    server.judge = in_turn(Cut.AFTER if of_mine else Cut.BEFORE, gone, of=Asked.completes)
    if of_mine:
        storage.put_if_absent("large", LARGE)
        assert storage.read("large") == LARGE
    else:
        with pytest.raises(StorageUnavailable):
            storage.put_if_absent("large", LARGE)


def put_large(url: str) -> None:
    open_s3(url).put_if_absent("large", LARGE)


def test_a_writer_killed_before_the_last_part_leaves_no_object_and_nothing_in_the_way(
    server: S3Server, storage: S3Storage, start: StartProcess
) -> None:
    came, go = threading.Event(), threading.Event()

    def judge(asked: Asked) -> Fault:
        if asked.completes():
            came.set()
            go.wait(60)
            return Cut.BEFORE
        return None

    server.judge = judge
    writer = start(put_large, f"s3://{BUCKET}/{FOLDER}")
    assert came.wait(60)
    writer.kill()
    server.behave()
    go.set()
    assert storage.list("") == []
    storage.put_if_absent("large", LARGE[::-1])
    assert storage.read("large") == LARGE[::-1]
