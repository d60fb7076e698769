"""S3 passes the conformance kit, also when answers get lost and requests are refused; and moto is strict enough to show
it."""

import itertools
from functools import partial
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.unit.storage.s3.server import BUCKET, SLOW_DOWN, Asked, Cut, Fault, S3Server, Wrong
from tidegate.storage.s3 import S3Storage, open_s3
from tidegate.testing.conformance.storage import Opener, SharedStorageConformance, StorageConformance

_numbers = itertools.count()


@pytest.fixture(autouse=True)
def environment(server: S3Server) -> None:
    """Every test needs the server, also one that only opens storages in other processes."""


@pytest.fixture
def opener() -> Opener:
    return partial(open_s3, f"s3://{BUCKET}/a/prefix-{next(_numbers)}", pauses=(0.005,) * 9)


@pytest.fixture
def storage(opener: Opener) -> S3Storage:
    storage = opener()
    assert isinstance(storage, S3Storage)
    return storage


class TestS3Storage(StorageConformance):
    """Without faults, where one process sees it; `make test-long` also has what several processes see."""


@pytest.mark.slow
class TestS3StorageOfSeveralProcesses(SharedStorageConformance):
    pass


class TestS3StorageWithFaults(SharedStorageConformance):
    """Of seven requests one is refused for now, and the success of one is not told."""

    @pytest.fixture(autouse=True)
    def faults(self, server: S3Server) -> None:
        count = itertools.count()
        faults: dict[int, Fault] = {2: SLOW_DOWN, 5: Cut.AFTER_SUCCESS}

        def judge(_: Asked) -> Fault:
            return faults.get(next(count) % 7)

        server.judge = judge


# ---- what the proof rests on ---------------------------------------------------------------------------------------


def _put(client: Any) -> None:
    client.put_object(Bucket=BUCKET, Key="moto/one", Body=b"x", IfNoneMatch="*")


def _put_in_parts(client: Any) -> None:
    at = {"Bucket": BUCKET, "Key": "moto/parts"}
    upload = client.create_multipart_upload(**at)["UploadId"]
    etag = client.upload_part(**at, UploadId=upload, PartNumber=1, Body=b"x")["ETag"]
    parts = {"Parts": [{"PartNumber": 1, "ETag": etag}]}
    client.complete_multipart_upload(**at, UploadId=upload, MultipartUpload=parts, IfNoneMatch="*")


@pytest.mark.parametrize("put", [_put, _put_in_parts])
def test_moto_refuses_a_second_conditional_put(server: S3Server, put: Any) -> None:
    put(server.client)
    with pytest.raises(ClientError) as refusal:
        put(server.client)
    assert refusal.value.response["Error"]["Code"] == "PreconditionFailed"


def test_the_kit_notices_an_s3_that_passes_over_the_condition(server: S3Server, storage: S3Storage) -> None:
    server.judge = lambda asked: Wrong.UNCONDITIONAL
    with pytest.raises(AssertionError, match="the second put went through"):
        StorageConformance().test_a_put_over_something_changes_nothing(storage)
