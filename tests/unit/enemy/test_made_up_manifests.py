"""Manifests whose checksum is right and whose content cannot be: nobody goes through key groups that do not exist."""

from pathlib import Path

import msgspec
import pytest

from tests.unit.checkpoint import records
from tests.unit.enemy.stored import entry_file, read_entry, read_savepoint, savepoint_file, seal_document
from tidegate.checkpoint.log import Completed
from tidegate.checkpoint.manifest import Manifest
from tidegate.checkpoint.protocol import StateHandle
from tidegate.checkpoint.store import CheckpointStore
from tidegate.errors import CorruptError, TidegateError
from tidegate.ids import JobName
from tidegate.storage.local import LocalStorage

IMPOSSIBLE = (0, -1, 32769, 2**63 - 1)
WRONG_GROUPS = ((-1, 7), (0, 2**62), (2**62, 2**62), (0, 32768), (5, -2))


def _damaged(manifest: Manifest) -> None:
    settled = msgspec.structs.replace(manifest, operators=manifest.operators[:2])
    for read, data in ((read_entry, entry_file(Completed(manifest))), (read_savepoint, savepoint_file(settled))):
        with pytest.raises(CorruptError, match=r"max_parallelism|no key groups"):
            read(data)


@pytest.mark.parametrize("max_parallelism", IMPOSSIBLE)
def test_a_number_of_groups_that_cannot_be_is_damage(max_parallelism: int) -> None:
    _damaged(msgspec.structs.replace(records.manifest(), max_parallelism=max_parallelism))


@pytest.mark.parametrize(("first", "last"), WRONG_GROUPS)
def test_groups_that_there_are_not_are_damage(first: int, last: int) -> None:
    handle = msgspec.structs.replace(records.INLINE, first_group=first, last_group=last)
    _damaged(records.manifest(handles=(handle,)))


@pytest.mark.parametrize(
    "path",
    ["../precious", "chk-1-1/../../../precious", "/precious", "chk-1-1/.hidden", "", "chk-1-1/a\0b", "shared/1/.."],
)
def test_a_path_that_leads_out_of_the_folder_is_neither_read_nor_deleted(path: str, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_bytes(b"\x00\xffx")
    store = CheckpointStore(LocalStorage(tmp_path / "checkpoints"), JobName("orders"))
    handle = msgspec.structs.replace(records.INLINE, path=path, inline=None)
    with pytest.raises(TidegateError):
        store.read_state(handle)
    with pytest.raises(TidegateError):
        store.delete_files([path])
    assert precious.exists()


@pytest.mark.parametrize(
    "path", ["../precious", "state/../../precious", "state/totals.0/../../precious", "savepoint.json"]
)
def test_a_savepoint_that_names_what_is_outside_of_it_is_damaged(path: str) -> None:
    manifest = records.manifest(
        handles=(StateHandle(0, 7, 3, records.INLINE.checksum, path=f"state/{'t' * len(path)}.0"),)
    )
    settled = msgspec.structs.replace(manifest, operators=manifest.operators[:2])
    data = savepoint_file(settled)
    inside = manifest.operators[1].snapshots[0].handles[0].path
    assert inside is not None
    with pytest.raises(CorruptError, match="not the path of a file"):
        read_savepoint(seal_document("savepoint")(data.replace(inside.encode(), path.encode())))
