"""Stored state is read as rows: of checkpoints and savepoints, plain without the program and typed with it."""

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

import tidegate as tg
from tests.unit.savepoints.checkpoints import Job, Watched
from tidegate.errors import CorruptError, InvalidError
from tidegate.ids import LogPosition, OperatorName
from tidegate.savepoints.exporting import export_savepoint
from tidegate.savepoints.places import StoredState, open_savepoint
from tidegate.savepoints.reading import StateRows, list_states, read_state
from tidegate.savepoints.rows import read_operator
from tidegate.state import runs
from tidegate.state.key_groups import key_group, subtask_of
from tidegate.storage.local import LocalStorage

MOMENT = dt.datetime(2024, 2, 29, 12, 30, tzinfo=dt.UTC)


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Order(msgspec.Struct, frozen=True):
    item: str
    price: Decimal
    at: dt.datetime
    colour: Colour = Colour.RED


class Place(NamedTuple):
    city: str
    zip: int


class Tree(msgspec.Struct, frozen=True, array_like=True):
    name: str
    children: tuple["Tree", ...] = ()


class Sparse(msgspec.Struct, frozen=True, omit_defaults=True):
    kept: int
    left_out: int = 7


class Shop(msgspec.Struct, frozen=True):
    country: str
    number: int | None


class Everything(tg.KeyedProcessFunction[Any, Any, Any]):
    count = tg.ValueState(int)
    maybe = tg.ValueState(int | None, name="maybe-none")
    order = tg.ValueState(Order)
    place = tg.ValueState(Place)
    tree = tg.ValueState(Tree)
    sparse = tg.ValueState(Sparse)
    orders = tg.ListState(Order)
    by_day = tg.MapState(dt.date, int)
    by_pair = tg.MapState(tuple[str, int], Place)
    model = tg.ValueState(tg.pickled(complex))
    models = tg.ListState(tg.pickled(complex))
    best = tg.ReducingState(int, max)


ORDER = Order("tea", Decimal("1.50"), MOMENT, Colour.BLUE)
PLAIN_ORDER = {"item": "tea", "price": Decimal("1.50"), "at": MOMENT, "colour": "blue"}


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return filled(Job(tmp_path / "flows", Everything))


def filled(made: Job) -> Job:
    handles = made.at("ann")
    handles["count"].update(3)
    handles["maybe"].update(None)
    handles["order"].update(ORDER)
    handles["place"].update(Place("Rome", 184))
    handles["tree"].update(Tree("a", (Tree("b"), Tree("c", (Tree("d"),)))))
    handles["sparse"].update(Sparse(1))
    handles["orders"].extend([ORDER, ORDER])
    handles["by_day"].put(dt.date(2024, 2, 29), 5)
    handles["by_pair"].put(("x", 1), Place("Oslo", 2))
    handles["model"].update(1 + 2j)
    handles["models"].add(3j)
    handles["best"].add(9)
    made.at("bob")["count"].update(4)
    return made


PLAIN = {
    "count": 3,
    "maybe-none": None,
    "order": PLAIN_ORDER,
    "place": {"city": "Rome", "zip": 184},
    "tree": {
        "name": "a",
        "children": (
            {"name": "b", "children": ()},
            {"name": "c", "children": ({"name": "d", "children": ()},)},
        ),
    },
    "sparse": {"kept": 1, "left_out": 7},
    "orders": [PLAIN_ORDER, PLAIN_ORDER],
    "by_day": {dt.date(2024, 2, 29): 5},
    "by_pair": {("x", 1): {"city": "Oslo", "zip": 2}},
    "best": 9,
}


def of(rows: StateRows, key: Any) -> dict[str, Any]:
    return {row["state"]: row["value"] for row in rows if row["key"] == key}


def save(job: Job, folder: Path) -> Path:
    export_savepoint(job.complete(), job.store, LocalStorage(folder), folder.parent / "scratch")
    return folder


@pytest.fixture(params=["checkpoint", "savepoint", "checkpoint of rocksdb", "savepoint of rocksdb"])
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    backend = "rocksdb" if "rocksdb" in request.param else "object"
    job = filled(Job(tmp_path / "flows", Everything, backend=backend))
    if request.param.startswith("savepoint"):
        return save(job, tmp_path / "save")
    job.complete()
    return job.folder


def test_values_are_plain_without_the_program(stored: Path) -> None:
    found = of(read_state(stored, "totals"), "ann")
    assert type(found.pop("model")) is bytes
    assert [type(part) for part in found.pop("models")] == [bytes]
    assert found == PLAIN
    assert of(read_state(stored, "totals"), "bob") == {"count": 4}


def test_values_are_the_programs_objects_with_its_class(stored: Path) -> None:
    found = of(read_state(stored, "totals", decode=Everything), "ann")
    assert found["order"] == ORDER
    assert found["orders"] == [ORDER, ORDER]
    assert found["by_pair"] == {("x", 1): Place("Oslo", 2)}
    assert (found["model"], found["models"]) == (1 + 2j, [3j])
    assert (found["count"], found["maybe-none"], found["best"]) == (3, None, 9)


def test_one_state_is_decoded_as_it_is_said(stored: Path) -> None:
    rows = read_state(
        stored, "totals", decode={"model": tg.ValueState(tg.pickled(complex), name="model"), "count": len}
    )
    assert of(rows, "ann")["model"] == 1 + 2j
    assert of(rows, "ann")["count"] == 1


def test_a_declaration_of_a_state_that_there_is_not_is_refused(stored: Path) -> None:
    with pytest.raises(
        InvalidError, match=r"decode= names state 'modle', which .* totals does not have\nIt has: best, "
    ):
        read_state(stored, "totals", decode={"modle": bytes})


def test_a_type_that_does_not_fit_what_is_stored_is_refused(stored: Path) -> None:
    with pytest.raises(InvalidError, match="state count was stored as value of int"):
        read_state(stored, "totals", decode={"count": tg.ValueState(str, name="count")})


def test_rows_can_be_read_again(stored: Path) -> None:
    rows = read_state(stored, "totals", state="count")
    assert [list(rows), list(rows)] == [list(rows)] * 2
    assert {row["key"]: row["value"] for row in rows} == {"ann": 3, "bob": 4}


def test_one_key_is_read_alone(stored: Path) -> None:
    assert [row["value"] for row in read_state(stored, "totals", key="bob")] == [4]
    assert list(read_state(stored, "totals", key="nobody")) == []


def test_a_key_of_another_type_is_refused(stored: Path) -> None:
    with pytest.raises(InvalidError, match=r"7 is not a key of type str"):
        read_state(stored, "totals", key=7)


def test_an_unknown_operator_or_state_is_answered_with_those_that_there_are(stored: Path) -> None:
    with pytest.raises(InvalidError, match=r"has no operator 'total'\nWith state there are: totals."):
        read_state(stored, "total")
    with pytest.raises(InvalidError, match=r"has no state of operator 'orders'\nWith state there are: totals."):
        read_state(stored, "orders")
    with pytest.raises(InvalidError, match=r"has no state 'counts' .*\nIt has: count, maybe-none, order, "):
        read_state(stored, "totals", state="counts")


def test_states_are_listed_with_their_types(stored: Path) -> None:
    listed = {listing.state: listing for listing in list_states(stored)}
    assert len(listed) == 12
    assert listed["count"] == ("totals", "count", "value", "int", "msgpack/1", "str")
    assert (listed["models"].kind, listed["models"].serializer) == ("list", "list[pickle/1]")


# ---- which checkpoint, and where -------------------------------------------------------------------------------------


def test_of_a_job_the_newest_checkpoint_is_read_or_the_one_that_is_named(job: Job) -> None:
    job.complete()
    job.at("ann")["count"].update(30)
    job.complete()
    assert of(read_state(job.folder, "totals"), "ann")["count"] == 30
    assert of(read_state(job.folder, "totals", checkpoint=1), "ann")["count"] == 3
    with pytest.raises(InvalidError, match=r"no completed checkpoint 5\nCompleted and still stored: 1, 2"):
        read_state(job.folder, "totals", checkpoint=5)


def test_a_folder_with_one_job_means_the_job(job: Job) -> None:
    job.complete()
    assert of(read_state(job.folder.parent, "totals"), "bob") == {"count": 4}
    Job(job.folder.parent, Everything, name="other").complete()
    with pytest.raises(InvalidError, match=r"flows holds 2 jobs\nName one of: .*/flows/orders-job, .*/flows/other"):
        read_state(job.folder.parent, "totals")


def test_a_folder_with_neither_says_so(tmp_path: Path) -> None:
    with pytest.raises(InvalidError, match="holds neither a savepoint nor the checkpoints of a job"):
        read_state(tmp_path, "totals")


def test_a_savepoint_has_one_checkpoint(job: Job, tmp_path: Path) -> None:
    save(job, tmp_path / "save")
    assert of(read_state(tmp_path / "save", "totals", checkpoint=1), "bob") == {"count": 4}
    with pytest.raises(InvalidError, match=r"holds one checkpoint, 1, and not 2"):
        read_state(tmp_path / "save", "totals", checkpoint=2)


def test_an_unreadable_newest_entry_is_never_passed_over_in_silence(job: Job) -> None:
    job.complete()
    (job.folder / "log" / f"{3:020d}.json").write_bytes(b"torn")
    with pytest.raises(CorruptError, match="log position 3, which may be the newest checkpoint"):
        read_state(job.folder, "totals")
    assert of(read_state(job.folder, "totals", checkpoint=1), "bob") == {"count": 4}


def test_a_damaged_file_is_named_when_it_is_read(stored: Path) -> None:
    victim = next(path for path in stored.rglob("*") if path.is_file() and path.name.startswith("totals."))
    victim.write_bytes(victim.read_bytes()[:-1])
    with pytest.raises(CorruptError, match=victim.name):
        list(read_state(stored, "totals"))


# ---- keys of every kind ----------------------------------------------------------------------------------------------

KEYS: list[tuple[Any, Any]] = [
    ("ä\u0000", "ä\u0000"),
    (-(2**200), -(2**200)),
    (True, True),
    (b"\xff", b"\xff"),
    (MOMENT, MOMENT),
    (dt.date(1, 1, 1), dt.date(1, 1, 1)),
    (Decimal("1.50"), Decimal("1.5")),
    (("a", None, (1,)), ("a", None, (1,))),
    (Shop("it", None), {"country": "it", "number": None}),
    (Place("Rome", 1), {"city": "Rome", "zip": 1}),
    (Colour.BLUE, "blue"),
    (None, None),
]


class Counted(tg.KeyedProcessFunction[Any, Any, Any]):
    count = tg.ValueState(int)


@pytest.mark.parametrize(("key", "plain"), KEYS, ids=lambda key: type(key).__name__)
def test_a_key_of_any_type_is_read_plain_and_as_the_program_has_it(tmp_path: Path, key: Any, plain: Any) -> None:
    job = Job(tmp_path / "flows", Counted)
    job.at(key)["count"].update(1)
    job.complete()
    assert [row["key"] for row in read_state(job.folder, "totals")] == [plain]
    assert [row["key"] for row in read_state(job.folder, "totals", decode=Counted)] == [key]
    for asked in (key, plain):
        assert [row["value"] for row in read_state(job.folder, "totals", key=asked)] == [1]


# ---- state without keys, large state ---------------------------------------------------------------------------------


def test_state_without_keys_comes_subtask_by_subtask(job: Job) -> None:
    job.complete(lists=[[1, 2], []])
    rows = list(read_state(job.folder, "totals", state="seen"))
    assert rows == [
        {"state": "seen", "key": None, "value": [1, 2], "subtask": 0},
        {"state": "seen", "key": None, "value": [], "subtask": 1},
    ]
    assert [listing.kind for listing in list_states(job.folder) if listing.state == "seen"] == ["list-split"]


def test_files_are_read_only_when_their_rows_are_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "PIECE_BYTES", 10)
    job = Job(tmp_path / "flows", Counted)
    for number in range(400):
        job.at(number)["count"].update(number)
    manifest = job.complete()
    export_savepoint(manifest, job.store, LocalStorage(tmp_path / "save"), tmp_path / "scratch")
    reader = open_savepoint(str(tmp_path / "save"))
    watched = Watched(reader)
    rows: Iterator[Any] = iter(StateRows(StoredState(reader.manifest(), watched, "it"), "totals"))
    first = next(rows)
    assert len(watched.read) < len(reader.manifest().files) / 4
    assert {row["key"] for row in (first, *rows)} == set(range(400))
    assert sorted(watched.read) == sorted(reader.manifest().files), "each file once"


def test_rows_ascend_by_group_in_whatever_order_the_subtasks_are(tmp_path: Path) -> None:
    job = Job(tmp_path / "flows", Counted, parallelism=3)
    for number in range(60):
        job.at(number)["count"].update(number)
    operator = job.complete().operator(OperatorName("totals"))
    assert operator is not None
    for subtasks in (operator.subtasks, operator.subtasks[::-1], operator.subtasks[1:] + operator.subtasks[:1]):
        record = msgspec.structs.replace(operator, subtasks=subtasks)
        groups = [row.group for row in read_operator(record, job.store, range(16), tmp_path / "scratch")]
        assert (len(groups), groups) == (60, sorted(groups))


@pytest.mark.parametrize("backend", ["object", "rocksdb"])
def test_for_one_key_only_the_files_of_its_subtask_are_read(tmp_path: Path, backend: str) -> None:
    job = Job(tmp_path / "flows", Counted, parallelism=4, backend=backend)
    for number in range(200):
        job.at(number)["count"].update(number)
    manifest = job.complete()
    operator = manifest.operator(OperatorName("totals"))
    assert operator is not None
    owners = set()
    for key in range(12):
        watched = Watched(job.store)
        rows = StateRows(StoredState(manifest, watched, "it"), "totals", key=key)
        assert [row["value"] for row in rows] == [key]
        owner = subtask_of(key_group(key, 16), 4, 16)
        owners.add(owner)
        assert set(watched.read) == {handle.path for handle in operator.snapshots[owner].handles}
    assert owners == {0, 1, 2, 3}


def test_a_checkpoint_that_the_job_removes_meanwhile_is_no_damage(job: Job) -> None:
    manifest = job.complete()
    rows = read_state(job.folder, "totals")
    job.store.delete_files(manifest.files)
    with pytest.raises(CorruptError, match="missing"):
        list(rows)
    job.store.prune([LogPosition(2)])
    with pytest.raises(InvalidError, match=r"checkpoint 1 in .* was removed while it was read: the job has newer ones"):
        list(rows)


def test_reading_changes_nothing(job: Job) -> None:
    job.complete()
    before = {path: path.read_bytes() for path in job.folder.rglob("*") if path.is_file()}
    list(read_state(job.folder, "totals"))
    assert {path: path.read_bytes() for path in job.folder.rglob("*") if path.is_file()} == before
