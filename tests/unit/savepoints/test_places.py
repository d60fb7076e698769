"""Savepoints and jobs are found where users say they are: in a folder, in the job's own, in a bucket."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tests.unit.savepoints.checkpoints import Job
from tests.unit.storage.s3.server import BUCKET, S3Server
from tidegate.checkpoint.manifest import Manifest
from tidegate.checkpoint.store import CheckpointStore
from tidegate.errors import InvalidError
from tidegate.ids import Attempt, CheckpointId, JobName, LogInstance
from tidegate.savepoints.exporting import export_savepoint
from tidegate.savepoints.importing import import_savepoint
from tidegate.savepoints.places import find_job, open_savepoint, open_target
from tidegate.savepoints.reading import read_state
from tidegate.storage.resolve import open_storage


class Counts(tg.KeyedProcessFunction[Any, Any, Any]):
    count = tg.ValueState(int)


EXPECTED = {number: number * number for number in range(100)}


@pytest.fixture
def job(tmp_path: Path) -> Job:
    made = Job(tmp_path / "flows", Counts)
    for number, square in EXPECTED.items():
        made.at(number)["count"].update(square)
    return made


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    made = S3Server()
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    yield made
    made.close()


def counts(place: str | Path) -> dict[int, int]:
    return {row["key"]: row["value"] for row in read_state(place, "totals")}


def save(job: Job, manifest: Manifest, path: str | None, scratch: Path) -> str:
    target = open_target(path, job.store, manifest)
    export_savepoint(manifest, job.store, target, scratch)
    return target.location


def test_without_a_path_a_savepoint_is_in_the_jobs_folder_and_none_of_its_files(job: Job, tmp_path: Path) -> None:
    manifest = job.complete()
    before = job.store.state_files()
    location = save(job, manifest, None, tmp_path / "scratch")
    assert Path(location).parent == job.folder / "savepoints"
    assert counts(location) == EXPECTED
    assert job.store.state_files() == before
    second = save(job, job.complete(), None, tmp_path / "scratch")
    assert second != location
    assert counts(job.folder) == EXPECTED


def test_a_path_is_a_folder_that_is_made(job: Job, tmp_path: Path) -> None:
    location = save(job, job.complete(), str(tmp_path / "a" / "b"), tmp_path / "scratch")
    assert location == str(tmp_path / "a" / "b")
    assert counts(location) == EXPECTED


@pytest.mark.usefixtures("server")
def test_a_savepoint_in_a_bucket_is_written_read_and_begun_from(job: Job, tmp_path: Path) -> None:
    url = f"s3://{BUCKET}/savepoints/first"
    manifest = job.complete()
    assert save(job, manifest, url, tmp_path / "scratch") == url
    assert counts(url) == EXPECTED
    assert open_savepoint(url).verify() == []
    with pytest.raises(InvalidError, match="savepoints/first holds a savepoint already"):
        save(job, manifest, url, tmp_path / "scratch")
    store = CheckpointStore(open_storage(f"s3://{BUCKET}/flows"), JobName("orders-job"))
    imported = import_savepoint(open_savepoint(url).storage, store, Attempt(2), CheckpointId(5), LogInstance("log2"))
    assert store.verify_manifest(imported) == []


@pytest.mark.usefixtures("server")
def test_a_job_in_a_bucket_is_found_by_its_folder_and_by_the_one_around_it() -> None:
    for name in ("orders-job", "other"):
        store = CheckpointStore(open_storage(f"s3://{BUCKET}/flows"), JobName(name))
        store.storage.put_if_absent(f"{name}/log/{0:020d}.json", b"{}")
        assert find_job(f"s3://{BUCKET}/flows/{name}").location == store.location
        if name == "orders-job":
            assert find_job(f"s3://{BUCKET}/flows").location == store.location
    with pytest.raises(InvalidError, match=rf"holds 2 jobs\nName one of: s3://{BUCKET}/flows/orders-job, "):
        find_job(f"s3://{BUCKET}/flows")
