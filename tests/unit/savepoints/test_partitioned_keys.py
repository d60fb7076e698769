"""State of co-partitioned keys is exported, read and compared as any other; rows can be written for any partitions."""

import itertools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tests.unit.savepoints.checkpoints import MAX_PARALLELISM, Job, Watched, restored
from tidegate.checkpoint.manifest import Manifest
from tidegate.errors import CorruptError, InvalidError
from tidegate.ids import OperatorName
from tidegate.savepoints.bootstrap import write_savepoint
from tidegate.savepoints.comparing import KeyChange, key_changes
from tidegate.savepoints.exporting import export_savepoint
from tidegate.savepoints.format import SavepointReader
from tidegate.savepoints.keys import key_from_text, plain_key, stored_key
from tidegate.savepoints.operator_rows import OperatorRows
from tidegate.savepoints.places import StoredState, open_savepoint, open_stored, stored_checkpoint
from tidegate.savepoints.reading import StateRows, list_states, read_state
from tidegate.savepoints.rows import read_operator
from tidegate.state.descriptors import InternalMapState
from tidegate.state.key_groups import subtask_of
from tidegate.state.key_partitions import CRC32, MURMUR2, KeyPartitions, partitioned_key_type
from tidegate.state.key_types import parse_layout
from tidegate.storage.local import LocalStorage

FOUR = KeyPartitions(4, MURMUR2)
TEXT = partitioned_key_type("str", FOUR)
USERS = [f"user-{number}" for number in range(40)]
BACKENDS = ["object", "rocksdb"]


class Totals(tg.KeyedProcessFunction[Any, Any, Any]):
    total = tg.ValueState(int)
    words = tg.ListState(str)
    timers = InternalMapState(int, int, name=".timers")


def fill(job: Job, users: Iterable[str] = USERS) -> None:
    for number, user in enumerate(users):
        handles = job.at(user)
        handles["total"].update(number)
        handles["words"].extend(["x", user])
        handles["timers"].put(number, number * 2)


def rows_of(place: Path, **options: Any) -> list[tuple[str, str, Any]]:
    found = [(row["key"], row["state"], row["value"]) for row in read_state(place, "totals", **options)]
    return sorted(found, key=lambda row: (str(row[0]), row[1]))


EXPECTED = sorted(
    [(user, "total", number) for number, user in enumerate(USERS)] + [(user, "words", ["x", user]) for user in USERS]
)


def found_by(
    manifest: Manifest, files: Any, parallelism: int, backend: str, local: Path, key_type: str
) -> list[dict[str, tuple[int, list[str], list[tuple[int, int]]]]]:
    """What each subtask of a job has that goes on from it."""
    found = []
    for restored_, handles in restored(manifest, files, Totals, parallelism, backend, local, key_type):
        own = {}
        for user in list(restored_.keys("total")):
            restored_.set_current_key(user)
            own[user] = (handles["total"].value(), handles["words"].get(), handles["timers"].items())
        found.append(own)
        restored_.close()
    return found


def check_restored(manifest: Manifest, files: Any, parallelism: int, backend: str, local: Path, key_type: str) -> None:
    """Every key is in the subtask of its partition, with all that it had."""
    grouping = KeyPartitions.parse(key_type.removeprefix("str in ")) if key_type else None
    found = found_by(manifest, files, parallelism, backend, local, key_type)
    assert sorted(user for own in found for user in own) == sorted(USERS)
    for subtask, own in enumerate(found):
        for user, what in own.items():
            number = USERS.index(user)
            assert what == (number, ["x", user], [(number, number * 2)])
            if grouping is not None:
                group = grouping.group_of(user, MAX_PARALLELISM)
                assert subtask_of(group, parallelism, MAX_PARALLELISM) == subtask


@pytest.mark.parametrize(("first", "second"), [*itertools.product(BACKENDS, repeat=2)])
def test_checkpoints_and_savepoints_of_one_backend_are_gone_on_with_by_the_other_at_any_parallelism(
    tmp_path: Path, first: str, second: str
) -> None:
    job = Job(tmp_path / "flows", Totals, parallelism=3, backend=first, key_type=TEXT)
    fill(job)
    job.complete()
    for number, user in enumerate(USERS[::3]):
        job.at(user)["total"].update(-number)
        job.at(user)["total"].update(USERS.index(user))
    manifest = job.complete()
    export_savepoint(manifest, job.store, LocalStorage(tmp_path / "save"), tmp_path / "scratch")
    savepoint = open_savepoint(str(tmp_path / "save"))
    assert savepoint.verify() == []
    for parallelism in (1, 2, 5):
        check_restored(manifest, job.store, parallelism, second, tmp_path / f"a{parallelism}", TEXT)
        check_restored(savepoint.manifest(), savepoint, parallelism, second, tmp_path / f"b{parallelism}", TEXT)


@pytest.mark.parametrize("backend", BACKENDS)
def test_rows_are_read_of_all_keys_and_of_one(tmp_path: Path, backend: str) -> None:
    job = Job(tmp_path / "flows", Totals, parallelism=3, backend=backend, key_type=TEXT)
    fill(job)
    manifest = job.complete()
    export_savepoint(manifest, job.store, LocalStorage(tmp_path / "save"), tmp_path / "scratch")
    for place in (job.folder, tmp_path / "save"):
        assert {(one.state, one.key_type) for one in list_states(place)} >= {("total", TEXT), ("words", TEXT)}
        assert rows_of(place) == rows_of(place, decode=Totals) == EXPECTED
        for user in USERS[::7]:
            assert rows_of(place, key=user) == [row for row in EXPECTED if row[0] == user]
        assert rows_of(place, key="nobody") == []
        for wrong in (None, b"user-1", 1):
            with pytest.raises(InvalidError, match="not a key of type str in 4 partitions by murmur2"):
                rows_of(place, key=wrong)
    record = manifest.operator(OperatorName("totals"))
    assert record is not None
    groups = [row.group for row in read_operator(record, job.store, range(MAX_PARALLELISM), tmp_path / "more")]
    assert groups == sorted(groups)
    assert set(groups) == {0, 4, 8, 12}


@pytest.mark.parametrize("backend", BACKENDS)
def test_for_one_key_only_the_files_of_its_subtask_are_read(tmp_path: Path, backend: str) -> None:
    job = Job(tmp_path / "flows", Totals, parallelism=4, backend=backend, key_type=TEXT)
    fill(job)
    manifest = job.complete()
    record = manifest.operator(OperatorName("totals"))
    assert record is not None
    for user in USERS[:8]:
        watched = Watched(job.store)
        assert len(list(StateRows(StoredState(manifest, watched, "it"), "totals", key=user))) == 2
        owner = subtask_of(FOUR.group_of(user, MAX_PARALLELISM), 4, MAX_PARALLELISM)
        assert set(watched.read) == {handle.path for handle in record.snapshots[owner].handles}


@pytest.mark.parametrize(("partitions", "partitioner"), [(4, MURMUR2), (7, CRC32), (1, MURMUR2), (16, CRC32)])
def test_rows_are_written_for_a_job_with_partitions(tmp_path: Path, partitions: int, partitioner: str) -> None:
    rows = [{"key": user, "state": "total", "value": number} for number, user in enumerate(USERS)]
    given = OperatorRows({"total": tg.ValueState(int)}, rows, key=str, partitions=partitions, partitioner=partitioner)
    write_savepoint(tmp_path / "save", job="job", max_parallelism=16, operators={"totals": given})
    key_type = partitioned_key_type("str", KeyPartitions(partitions, partitioner))
    assert {one.key_type for one in list_states(tmp_path / "save")} == {key_type}
    savepoint = open_savepoint(str(tmp_path / "save"))
    assert savepoint.verify() == []
    found: dict[str, int] = {}
    for number, (backend, handles) in enumerate(
        restored(savepoint.manifest(), savepoint, Totals, 3, key_type=key_type)
    ):
        for user in backend.keys("total"):
            group = KeyPartitions(partitions, partitioner).group_of(user, 16)
            assert subtask_of(group, 3, 16) == number
            backend.set_current_key(user)
            found[user] = handles["total"].value()
    assert found == {user: number for number, user in enumerate(USERS)}


TO = {
    "more partitions": (TEXT, {"partitions": 8}, "str in 8 partitions by murmur2"),
    "another partitioner": (TEXT, {"partitions": 4, "partitioner": CRC32}, "str in 4 partitions by crc32"),
    "none any more": (TEXT, {}, "str"),
    "from none": ("", {"partitions": 4}, TEXT),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("before", "given", "after"), list(TO.values()), ids=list(TO))
def test_all_states_of_an_operator_are_taken_over_for_other_partitions(
    tmp_path: Path, backend: str, before: str, given: Mapping[str, Any], after: str
) -> None:
    job = Job(tmp_path / "flows", Totals, parallelism=3, backend=backend, key_type=before)
    fill(job)
    job.complete()
    write_savepoint(tmp_path / "save", base=job.folder, operators={"totals": OperatorRows({}, (), key=str, **given)})
    savepoint = open_savepoint(str(tmp_path / "save"))
    assert savepoint.verify() == []
    assert {one.key_type for one in list_states(tmp_path / "save") if one.operator == "totals"} == {after}
    assert rows_of(tmp_path / "save") == EXPECTED
    for parallelism in (1, 5):
        local = tmp_path / f"local-{parallelism}"
        check_restored(savepoint.manifest(), savepoint, parallelism, backend, local, after if " " in after else "")


def test_without_key_the_partitions_of_what_is_taken_over_hold_also_for_new_rows(tmp_path: Path) -> None:
    job = Job(tmp_path / "flows", Totals, key_type=TEXT)
    fill(job)
    job.complete()
    rows = [{"key": user, "state": "total", "value": -number} for number, user in enumerate(USERS)]
    given = OperatorRows({"total": tg.ValueState(int)}, rows)
    write_savepoint(tmp_path / "save", base=job.folder, operators={"totals": given})
    savepoint: SavepointReader = open_savepoint(str(tmp_path / "save"))
    found: dict[str, Any] = {}
    for one in found_by(savepoint.manifest(), savepoint, 3, "object", tmp_path, TEXT):
        found |= one
    assert found == {user: (-number, ["x", user], [(number, number * 2)]) for number, user in enumerate(USERS)}


def written(target: Path, given: OperatorRows, **options: Any) -> None:
    write_savepoint(target, operators={"totals": given}, **options)


def test_what_is_in_no_partition_or_of_another_class_is_refused(tmp_path: Path) -> None:
    total = {"total": tg.ValueState(int)}
    for wrong in (None, b"a", 1):
        rows = [{"key": key, "state": "total", "value": 1} for key in ("a", wrong)]
        with pytest.raises(InvalidError, match="str in 4 partitions by murmur2"):
            written(tmp_path / "save", OperatorRows(total, rows, key=str, partitions=4), job="job")
    job = Job(tmp_path / "flows", Totals)
    fill(job)
    job.at(None)["total"].update(1)
    job.complete()
    with pytest.raises(InvalidError, match="operator totals: state total has something for the key None"):
        written(tmp_path / "save", OperatorRows({}, (), key=str, partitions=4), base=job.folder)
    with pytest.raises(InvalidError, match="stored keys of type str in 4 partitions"):
        written(tmp_path / "save", OperatorRows({}, (), key=bytes, partitions=4), base=job.folder)
    assert not (tmp_path / "save").exists() or not list((tmp_path / "save").iterdir())


def test_what_says_no_partitions_is_refused(tmp_path: Path) -> None:
    total = {"total": tg.ValueState(int)}
    with pytest.raises(InvalidError, match="partitions=0"):
        OperatorRows(total, (), key=str, partitions=0)
    with pytest.raises(InvalidError, match="partitioner='fnv1a'"):
        OperatorRows(total, (), key=str, partitions=4, partitioner="fnv1a")
    with pytest.raises(InvalidError, match="declares no state"):
        OperatorRows({}, (), partitions=4)
    for key in (None, int, tuple[str, str]):
        with pytest.raises(InvalidError, match="cannot be in 4 partitions by murmur2"):
            written(tmp_path / "save", OperatorRows(total, (), key=key, partitions=4), job="job")
    given = OperatorRows(total, (), key=str, partitions=17)
    with pytest.raises(InvalidError, match=r"operator totals: 17 partitions by murmur2 .* max_parallelism 16"):
        written(tmp_path / "save", given, job="job", max_parallelism=16)


def test_differences_are_told_between_like_partitions_and_refused_between_others(tmp_path: Path) -> None:
    job = Job(tmp_path / "flows", Totals, key_type=TEXT)
    fill(job)
    manifests = [job.complete()]
    job.at("user-3")["total"].update(99)
    manifests.append(job.complete())
    before, after = (stored_checkpoint(job.store, manifest) for manifest in manifests)
    assert list(key_changes(before, after, tmp_path / "scratch")) == [KeyChange("totals", "total", "user-3", "changed")]
    for given in ({"partitions": 5}, {}):
        target = tmp_path / f"save-{len(given)}"
        written(target, OperatorRows({}, (), key=str, **given), base=job.folder)
        for one, other in ((after, open_stored(str(target))), (open_stored(str(target)), after)):
            with pytest.raises(InvalidError, match="operator 'totals' has keys of type"):
                list(key_changes(one, other, tmp_path / "scratch"))


def test_keys_are_written_on_a_command_line_and_in_tables_as_others(tmp_path: Path) -> None:
    job = Job(tmp_path / "flows", Totals, key_type=TEXT)
    fill(job, USERS[:3])
    job.complete()
    table = read_state(job.folder, "totals", state="total").arrow()
    assert {row["key"]: row["total"] for row in table.to_pylist()} == {"user-0": 0, "user-1": 1, "user-2": 2}
    layout = parse_layout(TEXT)
    assert key_from_text("user-1", layout) == "user-1"
    assert plain_key(stored_key("user-1", layout), layout) == "user-1"
    as_bytes = parse_layout("bytes in 4 partitions by crc32")
    assert plain_key(stored_key(key_from_text("dXNlcg==", as_bytes), as_bytes), as_bytes) == b"user"
    with pytest.raises(InvalidError, match="None is not a key of type bytes in 4 partitions by crc32"):
        stored_key(key_from_text("null", as_bytes), as_bytes)
    with pytest.raises(CorruptError, match="not of type str in 4 partitions by murmur2"):
        plain_key(b"n", layout)
