"""Beginning with stored state: another type or form, states that nobody declares any more, and what is refused."""

from decimal import Decimal
from typing import Any

import msgspec
import pytest

from tests.unit.state.rocksdb.tools import GROUPS, OPERATOR, Attempts
from tidegate.checkpoint.protocol import OperatorSnapshot, StateInfo
from tidegate.errors import CorruptError, InternalError, InvalidError
from tidegate.ids import KeyGroup
from tidegate.serializers import pickled
from tidegate.serializers.pickles import PickleSerializer
from tidegate.state.descriptors import ListState, MapState, ReducingState, StateDescriptor, ValueState
from tidegate.state.key_groups import group_of_bytes
from tidegate.state.keys import encode_key
from tidegate.state.pieces import Column, write_piece
from tidegate.state.rocksdb import RocksMemory, check_installed, read_rows

TOTAL = ValueState(int, default=0, name="total")


class Sale(msgspec.Struct, frozen=True):
    item: str
    amount: int


class WiderSale(msgspec.Struct, frozen=True):
    item: str
    amount: int | None
    shop: str = "unknown"


class ShorterSale(msgspec.Struct, frozen=True):
    item: str


KINDS: list[Any] = [
    lambda declared: ValueState(declared, name="sales"),
    lambda declared: ListState(declared, name="sales"),
    lambda declared: MapState(str, declared, name="sales"),
    lambda declared: MapState(Decimal, declared, name="sales"),
    lambda declared: ReducingState[Any](declared, lambda one, other: other, name="sales"),
]


def write(handle: Any, kind: str, value: Any, key: Any) -> None:
    match kind:
        case "value":
            handle.update(value)
        case "map":
            handle.put(key, value)
        case _:
            handle.add(value)


def read(handle: Any, kind: str) -> Any:
    match kind:
        case "value":
            return handle.value()
        case "map":
            return handle.values()[0]
        case "list":
            return handle.get()[0]
    return handle.get()


def filled(attempts: Attempts, descriptor: StateDescriptor[Any], count: int = 30) -> OperatorSnapshot:
    backend = attempts.backend()
    handle = backend.register(descriptor)
    entry = Decimal("1.5") if descriptor.type_name.startswith("Decimal") else "x"
    for key in range(count):
        backend.set_current_key(key)
        write(handle, descriptor.kind, Sale("pen", key), entry)
    snapshot = attempts.take(backend)
    attempts.crash()
    return snapshot


# ---- evolution -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", KINDS, ids=lambda make: str(make(Sale)))
def test_values_are_rewritten_so_that_only_the_newest_type_is_stored(attempts: Attempts, make: Any) -> None:
    snapshot = filled(attempts, make(Sale))
    backend = attempts.restored([snapshot])
    handle = backend.register(make(WiderSale))
    for key in range(30):
        backend.set_current_key(key)
        assert read(handle, handle.descriptor.kind) == WiderSale("pen", key)
    after = attempts.take(backend)
    assert after.states == (make(WiderSale).info,)
    rows = list(read_rows(after, attempts.files, range(GROUPS), attempts.folder / "scratch"))
    assert len(rows) == 30
    assert all(b"unknown" in row.value for row in rows)


@pytest.mark.parametrize("make", KINDS, ids=lambda make: str(make(Sale)))
def test_a_field_that_was_removed_and_comes_again_is_not_filled_with_what_it_was(attempts: Attempts, make: Any) -> None:
    snapshot = filled(attempts, make(Sale))
    backend = attempts.restored([snapshot])
    backend.register(make(ShorterSale))
    snapshot = attempts.take(backend)
    attempts.crash()
    backend = attempts.restored([snapshot])

    class Sale2(msgspec.Struct, frozen=True):
        item: str
        amount: str = "none"

    handle = backend.register(make(Sale2))
    backend.set_current_key(7)
    assert read(handle, handle.descriptor.kind) == Sale2("pen", "none")


@pytest.mark.parametrize("make", KINDS, ids=lambda make: str(make(Sale)))
def test_a_type_that_does_not_fit_is_refused_with_both(attempts: Attempts, make: Any) -> None:
    class OtherSale(msgspec.Struct, frozen=True):
        item: int
        amount: int

    snapshot = filled(attempts, make(Sale))
    with pytest.raises(InvalidError, match=r"state sales was stored as .*Sale.*item: str.*OtherSale.*item: int"):
        attempts.restored([snapshot]).register(make(OtherSale))


def test_rewriting_many_keys_goes_on_in_batches(attempts: Attempts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.state.rocksdb.migration._BATCH_BYTES", 100)
    snapshot = filled(attempts, KINDS[0](Sale), 500)
    backend = attempts.restored([snapshot])
    handle = backend.register(KINDS[0](WiderSale))
    for key in range(500):
        backend.set_current_key(key)
        assert handle.value() == WiderSale("pen", key)


@pytest.mark.parametrize(("old", "new"), [("pickle/1", ListState), ("pickle/1", MapState)])
def test_a_list_or_map_that_was_one_pickle_is_taken_apart(attempts: Attempts, old: str, new: Any) -> None:
    descriptor = new(pickled(Sale), name="sales") if new is ListState else new(str, pickled(Sale), name="sales")
    whole: Any = [Sale("pen", 1), Sale("cup", 2)] if new is ListState else [("a", Sale("pen", 1)), ("b", Sale("c", 2))]
    key = encode_key("k")
    group = group_of_bytes(key, GROUPS)
    column = Column(0, [key], [PickleSerializer(list).encode(whole)])
    piece = write_piece(range(GROUPS), GROUPS, "str", ("sales",), {KeyGroup(group): [column]})
    info = StateInfo("sales", descriptor.kind, descriptor.type_name, old)
    handle = attempts.files.write("1-full", piece, range(GROUPS))
    snapshot = OperatorSnapshot(OPERATOR, key_type="str", states=(info,), handles=(handle,))
    backend = attempts.restored([snapshot])
    state = backend.register(descriptor)
    backend.set_current_key("k")
    assert (state.get() if new is ListState else state.items()) == whole
    assert attempts.take(backend).states[0].serializer == descriptor.stored.id


# ---- states that come and go ---------------------------------------------------------------------------------------


def test_a_state_that_nobody_declares_any_more_goes_with_the_next_restore(attempts: Attempts) -> None:
    backend = attempts.backend()
    total, other = backend.register(TOTAL), backend.register(ValueState(str, name="other"))
    for key in range(20):
        backend.set_current_key(key)
        total.update(key)
        other.update("gone")
    snapshot = attempts.take(backend)
    for _ in range(2):
        attempts.crash()
        backend = attempts.restored([snapshot])
        assert backend.unclaimed in (("total", "other"), ("total",))
        total = backend.register(TOTAL)
        snapshot = attempts.take(backend)
        rows = list(read_rows(snapshot, attempts.files, range(GROUPS), attempts.folder / "scratch"))
        assert [row.state for row in rows] == ["total"] * 20
    again = backend.register(ValueState(str, name="other"))
    backend.set_current_key(3)
    assert (total.value(), again.value()) == (3, None)


def test_a_new_state_has_rows_of_its_own_beside_one_that_was_not_claimed(attempts: Attempts) -> None:
    backend = attempts.backend()
    backend.register(ValueState(int, name="first"))
    old = backend.register(ValueState(int, name="second"))
    backend.set_current_key("k")
    old.update(1)
    snapshot = attempts.take(backend)
    attempts.crash()
    backend = attempts.restored([snapshot])
    new = backend.register(ValueState(int, name="third"))
    backend.set_current_key("k")
    assert new.value() is None
    new.update(3)
    kept = backend.register(ValueState(int, name="second"))
    assert kept.value() == 1


# ---- refusals ------------------------------------------------------------------------------------------------------


def test_a_restore_after_a_register_is_our_bug(attempts: Attempts) -> None:
    backend = attempts.backend()
    backend.register(TOTAL)
    with pytest.raises(InternalError, match="totals"):
        backend.restore([OperatorSnapshot(OPERATOR)], attempts.files)


def test_two_snapshots_of_the_same_groups_are_corrupt(attempts: Attempts) -> None:
    snapshot = filled(attempts, KINDS[0](Sale))
    with pytest.raises(CorruptError, match="key group 0"):
        attempts.restored([snapshot, snapshot])


def test_a_form_that_nobody_knows_is_corrupt(attempts: Attempts) -> None:
    snapshot = filled(attempts, KINDS[0](Sale))
    strange = tuple(msgspec.structs.replace(handle, form="parquet") for handle in snapshot.handles)
    with pytest.raises(CorruptError, match="parquet"):
        attempts.restored([msgspec.structs.replace(snapshot, handles=strange)])


def test_a_name_that_leads_out_of_the_folder_is_corrupt(attempts: Attempts) -> None:
    snapshot = filled(attempts, KINDS[0](Sale))
    strange = tuple(msgspec.structs.replace(handle, name=f"../{handle.name}") for handle in snapshot.handles)
    with pytest.raises(CorruptError, match=r"\.\./"):
        attempts.restored([msgspec.structs.replace(snapshot, handles=strange)])


def test_groups_that_the_database_does_not_hold_are_corrupt(attempts: Attempts) -> None:
    backend = attempts.backend(0, 2)
    total = backend.register(TOTAL)
    backend.set_current_key(next(key for key in range(99) if group_of_bytes(encode_key(key), GROUPS) < GROUPS // 2))
    total.update(1)
    snapshot = attempts.take(backend)
    attempts.crash()
    widened = tuple(msgspec.structs.replace(handle, last_group=GROUPS - 1) for handle in snapshot.handles)
    with pytest.raises(CorruptError, match="groups 0 to 7"):
        attempts.restored([msgspec.structs.replace(snapshot, handles=widened)])


def test_a_state_that_the_database_does_not_have_is_corrupt(attempts: Attempts) -> None:
    snapshot = filled(attempts, KINDS[0](Sale))
    more = (*snapshot.states, StateInfo("more", "value", "int", "msgpack/1"))
    with pytest.raises(CorruptError, match="more"):
        attempts.restored([msgspec.structs.replace(snapshot, states=more)])


def test_a_newer_format_of_rows_is_refused(attempts: Attempts, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = filled(attempts, KINDS[0](Sale))
    monkeypatch.setattr("tidegate.state.rocksdb.rows.FORMAT", 0)
    with pytest.raises(CorruptError, match="format 1"):
        attempts.restored([snapshot])


def test_without_rocksdict_the_error_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    check_installed()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InvalidError, match=r"pip install 'tidegate\[rocksdb\]'"):
        check_installed()


def test_a_memory_limit_that_is_too_small_is_refused() -> None:
    with pytest.raises(InvalidError, match="8388608"):
        RocksMemory(1024)
