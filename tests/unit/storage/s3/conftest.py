"""One simulated S3 for each module, empty at the begin of each test, and a storage on it."""

from collections.abc import Iterator

import pytest

from tests.unit.storage.s3.server import BUCKET, FOLDER, S3Server
from tidegate.storage.s3 import S3Storage, open_s3

PAUSES = (0.001, 0.001, 0.001)


@pytest.fixture(scope="module")
def one_server() -> Iterator[S3Server]:
    made = S3Server()
    yield made
    made.close()


@pytest.fixture(scope="module")
def one_storage(one_server: S3Server) -> Iterator[S3Storage]:
    """Making its client takes longer than most tests."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        for name, value in one_server.environment.items():
            monkeypatch.setenv(name, value)
        made = open_s3(f"s3://{BUCKET}/{FOLDER}", pauses=PAUSES)
        made.list("")
        yield made


@pytest.fixture
def server(one_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    for name, value in one_server.environment.items():
        monkeypatch.setenv(name, value)
    one_server.begin_again()
    yield one_server
    one_server.behave()


@pytest.fixture
def storage(server: S3Server, one_storage: S3Storage) -> S3Storage:
    return one_storage
