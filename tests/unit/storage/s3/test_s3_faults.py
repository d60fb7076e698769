"""S3 as a storage when answers get lost and requests are refused."""

import os
import socket
from collections.abc import Callable

import pytest

from tests.unit.storage.s3.conftest import PAUSES
from tests.unit.storage.s3.server import (
    BUCKET,
    CREDENTIALS,
    FOLDER,
    SLOW_DOWN,
    Asked,
    Cut,
    Fault,
    Refusal,
    S3Server,
    Wrong,
    in_turn,
)
from tidegate.errors import InvalidError
from tidegate.storage import s3_requests
from tidegate.storage.port import AlreadyExists, Storage, StorageUnavailable
from tidegate.storage.s3 import S3Storage, open_s3

CONTENT = bytes(range(256)) * 400

# ---- answers that get lost -----------------------------------------------------------------------------------------


def test_a_put_whose_answer_was_lost_has_succeeded(server: S3Server, storage: S3Storage) -> None:
    server.judge = in_turn(Cut.AFTER, SLOW_DOWN, Cut.AFTER)
    storage.put_if_absent("a/b", b"mine")
    assert storage.read("a/b") == b"mine"
    assert all(asked.is_conditional for asked in server.asked if asked.method == "PUT")


def test_a_put_before_which_another_writer_came_is_refused_although_an_answer_was_lost(
    server: S3Server, storage: S3Storage
) -> None:
    """Also with the same bytes: the mark is compared, not the content."""

    def judge(asked: Asked) -> Fault:
        server.judge = lambda asked: None
        server.client.put_object(Bucket=BUCKET, Key=f"{FOLDER}/a/b", Body=b"the same")
        return Cut.BEFORE

    server.judge = judge
    with pytest.raises(AlreadyExists, match=r"^a/b$"):
        storage.put_if_absent("a/b", b"the same")


def test_a_put_without_any_answer_leaves_the_outcome_open_and_may_be_repeated(
    server: S3Server, storage: S3Storage
) -> None:
    server.judge = lambda asked: Cut.AFTER if asked.method == "PUT" else None
    with pytest.raises(StorageUnavailable, match=f"^s3://{BUCKET}/{FOLDER}: "):
        storage.put_if_absent("a/b", b"mine")
    server.behave()
    with pytest.raises(AlreadyExists):
        storage.put_if_absent("a/b", b"mine")
    assert storage.read("a/b") == b"mine"


def test_an_object_that_is_gone_before_its_mark_was_read_leaves_the_outcome_open(
    server: S3Server, storage: S3Storage
) -> None:
    def judge(asked: Asked) -> Fault:
        if asked.method != "HEAD":
            return Cut.AFTER if len(server.asked) == 1 else None
        server.judge = lambda asked: None
        server.client.delete_object(Bucket=BUCKET, Key=f"{FOLDER}/a/b")
        return None

    server.judge = judge
    with pytest.raises(StorageUnavailable, match="came and went"):
        storage.put_if_absent("a/b", b"mine")


def test_a_content_that_is_cut_in_the_middle_is_read_again(server: S3Server, storage: S3Storage) -> None:
    storage.put_if_absent("a/b", CONTENT)
    server.judge = in_turn(Cut.IN_THE_MIDDLE, Cut.IN_THE_MIDDLE, of=lambda asked: asked.method == "GET")
    assert storage.read("a/b") == CONTENT
    server.judge = lambda asked: Cut.IN_THE_MIDDLE
    with pytest.raises(StorageUnavailable):
        storage.read("a/b")


# ---- refusals ------------------------------------------------------------------------------------------------------


def test_what_is_refused_for_now_is_tried_again_a_bounded_number_of_times(server: S3Server, storage: S3Storage) -> None:
    server.judge = in_turn(SLOW_DOWN, SLOW_DOWN, SLOW_DOWN)
    storage.put_if_absent("a/b", b"late")
    assert len(server.asked) == 1 + len(PAUSES)
    server.behave()
    server.judge = lambda asked: SLOW_DOWN
    for call in every_operation(storage):
        server.asked.clear()
        with pytest.raises(StorageUnavailable, match="SlowDown"):
            call()
        assert len(server.asked) == 1 + len(PAUSES)
    server.behave()
    assert storage.list("") == ["a/b"]


def every_operation(storage: Storage) -> list[Callable[[], object]]:
    return [
        lambda: storage.put_if_absent("x/put", b"x"),
        lambda: storage.write("x/written", b"x"),
        lambda: storage.read("a/b"),
        lambda: storage.list("a/"),
        lambda: storage.delete("a/b"),
    ]


@pytest.mark.parametrize(
    "fault",
    [
        Refusal(500, "InternalError"),
        Refusal(503, "ServiceUnavailable"),
        Refusal(504, "GatewayTimeout"),
        Refusal(429, "Whatever"),
        Refusal(409, "OperationAborted"),
        Refusal(409, "ConditionalRequestConflict"),
        Refusal(400, "RequestTimeout"),
        Wrong.NOT_XML,
        Cut.BEFORE,
    ],
)
def test_what_may_pass_is_tried_again_and_then_unavailable(server: S3Server, storage: S3Storage, fault: Fault) -> None:
    server.judge = lambda asked: fault
    with pytest.raises(StorageUnavailable):
        storage.put_if_absent("a/b", b"")
    server.judge = in_turn(fault)
    storage.put_if_absent("a/b", b"")


@pytest.mark.parametrize(
    ("refusal", "remedy"),
    [
        (Refusal(403, "AccessDenied"), "Allow s3:ListBucket"),
        (Refusal(403, "InvalidAccessKeyId"), "AWS_ACCESS_KEY_ID"),
        (Refusal(403, "SignatureDoesNotMatch"), "AWS_SECRET_ACCESS_KEY"),
        (Refusal(400, "ExpiredToken"), "AWS_SESSION_TOKEN"),
        (Refusal(404, "NoSuchBucket"), "Create the bucket"),
        (Refusal(400, "AuthorizationHeaderMalformed"), "Set AWS_REGION"),
        (Refusal(403, "RequestTimeTooSkewed"), "clock"),
        (Refusal(501, "NotImplemented"), "honours If-None-Match"),
        (Refusal(400, "SomethingNew"), "choose another checkpoints.dir"),
    ],
)
def test_what_will_not_pass_is_said_once_with_its_place_and_remedy(
    server: S3Server, storage: S3Storage, refusal: Refusal, remedy: str
) -> None:
    server.judge = lambda asked: refusal
    for call in every_operation(storage):
        with pytest.raises(InvalidError, match=f"^s3://{BUCKET}/{FOLDER}: .*{refusal.code}") as caught:
            call()
        assert remedy in caught.value.failure.remedy
    assert len(server.asked) == len(every_operation(storage))


def test_a_bucket_that_is_not_there_is_named(server: S3Server) -> None:
    storage = open_s3("s3://no-such-bucket/x", pauses=PAUSES)
    for call in (*every_operation(storage), lambda: storage.exists("a/b"), storage.check_writable):
        with pytest.raises(InvalidError, match=r"s3://no-such-bucket/x: .*NoSuchBucket") as caught:
            call()
        assert "Create the bucket" in caught.value.failure.remedy


def test_nobody_at_the_endpoint_is_unavailable(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with pytest.raises(StorageUnavailable, match=r"127\.0\.0\.1:1"):
        open_s3(f"s3://{BUCKET}/x", writable=True, pauses=PAUSES)


@pytest.mark.parametrize("variable", ["AWS_ENDPOINT_URL", "HTTP_PROXY"])
def test_what_a_url_in_the_environment_holds_before_its_host_is_not_shown(
    server: S3Server, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.2:1")
    monkeypatch.setenv(variable, "http://user:hidden@127.0.0.1:1")
    with pytest.raises(StorageUnavailable) as caught:
        open_s3(f"s3://{BUCKET}/x", writable=True, pauses=PAUSES)
    assert "hidden" not in str(caught.value)


def test_an_endpoint_that_never_answers_is_unavailable(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_requests, "READ_TIMEOUT", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        with pytest.raises(StorageUnavailable, match=r"[Tt]imeout"):
            open_s3(f"s3://{BUCKET}/x", pauses=()).read("a")


def test_an_endpoint_that_is_no_url_is_refused(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "127.0.0.1:1")
    with pytest.raises(InvalidError, match=r"Invalid endpoint: 127\.0\.0\.1:1"):
        open_s3(f"s3://{BUCKET}/x", writable=True)


def test_missing_credentials_are_named_with_what_gives_them(
    server: S3Server, tmp_path: os.PathLike[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in CREDENTIALS:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(InvalidError, match=f"s3://{BUCKET}/x: .*credentials") as caught:
        open_s3(f"s3://{BUCKET}/x", writable=True)
    assert "AWS_PROFILE" in caught.value.failure.remedy


@pytest.mark.parametrize("name", ["AWS_REGION", "AWS_DEFAULT_REGION"])
def test_region_and_endpoint_come_from_the_usual_variables(
    server: S3Server, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.delenv("AWS_REGION")
    monkeypatch.setenv(name, "ap-south-1")
    open_s3(f"s3://{BUCKET}/x").list("")
    assert "/ap-south-1/s3/" in server.asked[-1].headers["HTTP_AUTHORIZATION"]
