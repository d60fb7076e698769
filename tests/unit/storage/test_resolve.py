"""From the text of a setting to a storage."""

import sys
from pathlib import Path

import pytest

from tidegate.errors import InvalidError
from tidegate.storage.local import LocalStorage
from tidegate.storage.memory import MemoryStorage
from tidegate.storage.resolve import open_storage


def test_a_path_opens_a_directory_and_touches_nothing(tmp_path: Path) -> None:
    storage = open_storage(f"{tmp_path}/with spaces/and:colon")
    assert isinstance(storage, LocalStorage)
    assert storage.location == f"{tmp_path}/with spaces/and:colon"
    assert list(tmp_path.iterdir()) == []


def test_a_relative_path_is_below_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert open_storage("checkpoints").location == str(tmp_path / "checkpoints")


def test_a_tilde_is_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert open_storage("~/checkpoints").location == str(tmp_path / "checkpoints")


@pytest.mark.parametrize("form", ["file://{}", "file:{}", "file://localhost{}", "FILE://{}"])
def test_a_file_url_opens_a_directory(tmp_path: Path, form: str) -> None:
    storage = open_storage(form.format(f"{tmp_path}/with%20spaces%23/x"))
    assert isinstance(storage, LocalStorage)
    assert storage.location == f"{tmp_path}/with spaces#/x"


@pytest.mark.parametrize("url", ["memory:", "memory://"])
def test_memory_opens_a_new_empty_storage_each_time(url: str) -> None:
    first, second = open_storage(url), open_storage(url, writable=True)
    assert isinstance(first, MemoryStorage)
    first.put_if_absent("a", b"")
    assert second.list("") == []


def test_a_directory_that_is_to_be_written_is_created_and_tried_at_once(tmp_path: Path) -> None:
    open_storage(str(tmp_path / "a" / "b"), writable=True)
    assert (tmp_path / "a" / "b").is_dir()
    (tmp_path / "file").touch()
    with pytest.raises(InvalidError, match="file"):
        open_storage(str(tmp_path / "file"), writable=True)


@pytest.mark.parametrize("scheme", ["gs", "gcs", "abfs", "az", "https", "s3a"])
def test_what_is_not_supported_is_named_with_what_is(scheme: str) -> None:
    with pytest.raises(InvalidError, match=f"{scheme}:// are not supported") as caught:
        open_storage(f"{scheme}://bucket/checkpoints")
    assert "s3://bucket/path" in caught.value.failure.remedy


def test_s3_without_its_packages_names_the_command_that_installs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [name for name in sys.modules if name.startswith("tidegate.storage.s3")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(InvalidError, match="not installed: s3fs") as caught:
        open_storage("s3://bucket/checkpoints")
    assert "pip install 'tidegate[s3]'" in caught.value.failure.remedy


@pytest.mark.parametrize("url", ["s3://", "s3:///x", "s3://b", "s3://bucket/a//b", "s3://bucket/./b", "s3://_b/x"])
def test_what_names_no_place_in_a_bucket_is_refused(url: str) -> None:
    with pytest.raises(InvalidError, match=r"names no place|cannot be the name of a bucket"):
        open_storage(url)


@pytest.mark.parametrize("url", ["", "  ", "file:", "file://otherhost/x", "file://otherhost", "file:x"])
def test_what_names_no_directory_is_refused(url: str) -> None:
    with pytest.raises(InvalidError):
        open_storage(url)
