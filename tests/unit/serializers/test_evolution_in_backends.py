"""A program whose types changed goes on from what it stored, alike under each backend, or is refused."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.unit.scheduling.manifests import manifest
from tests.unit.scheduling.programs import TOTALS, graph, job_settings
from tests.unit.serializers.money import Money, MoneySerializer
from tidegate.api.validation import declarations
from tidegate.checkpoint.protocol import StateInfo
from tidegate.errors import InvalidError
from tidegate.graph.logical import LogicalGraph
from tidegate.ids import SubtaskIndex
from tidegate.scheduling.restore import check_restorable
from tidegate.serializers import serialized
from tidegate.state.backend import KeyedStateBackend
from tidegate.state.descriptors import ListState, MapState, StateDescriptor, ValueState
from tidegate.state.object_backend import ObjectStateBackend
from tidegate.state.rocksdb.backend import RocksStateBackend
from tidegate.state.rocksdb.memory import RocksMemory
from tidegate.testing.conformance.state_kit import OPERATOR, StateBackendKit


def row(*fields: Any, **config: Any) -> Any:
    return msgspec.defstruct("Row", list(fields), **config)


class FirstMoney(MoneySerializer):
    version = 1

    def encode(self, value: Money) -> bytes:
        return str(value.amount).encode("ascii")


OLD = row(("user", str), ("total", int))
ADDED = row(("user", str), ("total", int), ("note", str, "none"))
REMOVED = row(("user", str))
WIDENED = row(("user", str), ("total", float))
RENAMED = row(("user", str), ("sum", int, msgspec.field(name="total")))
CHANGED = row(("user", str), ("total", str))
MISSING = row(("user", str), ("total", int), ("note", str))
BACK = row(("user", str), ("total", str, "back"))

MATRIX: list[tuple[Any, Any]] = [
    (ADDED, ADDED("a", 1, "none")),
    (REMOVED, REMOVED("a")),
    (WIDENED, WIDENED("a", 1.0)),
    (RENAMED, RENAMED("a", 1)),
]
REFUSED: list[tuple[Any, str]] = [
    (CHANGED, "value.total was int and is str"),
    (MISSING, "value.note of type str was added without a default"),
]


def states(declared: Any) -> list[StateDescriptor[Any]]:
    """A state of each kind whose values are of the declared type."""
    return [
        ValueState(declared, name="one"),
        ListState(declared, name="several"),
        MapState(str, declared, name="by_name"),
    ]


def program(descriptors: list[StateDescriptor[Any]]) -> LogicalGraph:
    """One whose operator declares these states."""
    base = graph(states=())
    declared = declarations({descriptor.name: descriptor for descriptor in descriptors})
    nodes = (dataclasses.replace(node, states=declared) if node.name == TOTALS else node for node in base.nodes)
    return LogicalGraph(base.job, tuple(nodes))


class EvolutionKit(StateBackendKit):
    """The matrix, for one backend."""

    def carried(self, value: Any, *versions: Any) -> list[Any]:
        """What the states hold under the last of the versions, each of which restored what the one before stored."""
        backend, found = self.one(), list[Any]()
        for version, declared in enumerate(versions):
            handles = [backend.register(descriptor) for descriptor in states(declared)]
            backend.set_current_key("k")
            if version == 0:
                one, several, by_name = handles
                one.update(value)
                several.extend([value, value])
                by_name.put("x", value)
            found = [handles[0].value(), *handles[1].get(), *handles[2].items()]
            backend = self.restored(self.take(backend))
        return found

    @pytest.mark.parametrize(("new", "expected"), MATRIX)
    def test_a_value_comes_back_under_the_changed_type_also_after_one_more_restore(
        self, new: Any, expected: Any
    ) -> None:
        wanted = [expected, expected, expected, ("x", expected)]
        assert self.carried(OLD("a", 1), OLD, new) == wanted
        assert self.carried(OLD("a", 1), OLD, new, new) == wanted

    def test_a_field_that_was_removed_does_not_lie_in_wait_for_one_of_its_name(self) -> None:
        back = BACK("a", "back")
        assert self.carried(OLD("a", 1), OLD, REMOVED, BACK) == [back, back, back, ("x", back)]

    def test_what_a_serializer_of_the_programs_own_wrote_in_its_first_version_is_read_and_rewritten(self) -> None:
        first, second = (serialized(Money, own) for own in (FirstMoney(), MoneySerializer()))
        euros = Money(5, "EUR")
        assert self.carried(euros, first, second, second) == [euros, euros, euros, ("x", euros)]

    @pytest.mark.parametrize(("new", "why"), REFUSED)
    @pytest.mark.parametrize("index", range(3))
    def test_a_type_that_does_not_fit_is_refused_when_its_state_is_registered(
        self, new: Any, why: str, index: int
    ) -> None:
        backend = self.one()
        handles = [backend.register(descriptor) for descriptor in states(OLD)]
        backend.set_current_key("k")
        handles[0].update(OLD("a", 1))
        after = self.restored(self.take(backend))
        with pytest.raises(InvalidError, match=f"{why}$|{why}\n"):
            after.register(states(new)[index])


class TestObjects(EvolutionKit):
    def backend(self, subtask: SubtaskIndex, parallelism: int, max_parallelism: int) -> KeyedStateBackend:
        return ObjectStateBackend(OPERATOR, subtask, parallelism, max_parallelism)


class TestRocks(EvolutionKit):
    @pytest.fixture(autouse=True)
    def _folders(self, tmp_path: Path) -> Iterator[None]:
        self.folder = tmp_path
        self.memory = RocksMemory(RocksMemory.LIMIT_MIN)
        self.made: list[RocksStateBackend] = []
        yield
        for backend in self.made:
            backend.close()

    def backend(self, subtask: SubtaskIndex, parallelism: int, max_parallelism: int) -> KeyedStateBackend:
        folder = self.folder / str(len(self.made))
        self.made.append(RocksStateBackend(OPERATOR, subtask, parallelism, max_parallelism, folder, self.memory))
        return self.made[-1]


# ---- in the JobManager -----------------------------------------------------------------------------------------------


def stored(declared: Any) -> tuple[StateInfo, ...]:
    return tuple(descriptor.info for descriptor in states(declared))


@pytest.mark.parametrize("new", [new for new, _ in MATRIX])
def test_a_program_that_fits_may_start(new: Any) -> None:
    assert check_restorable(manifest(1, states=stored(OLD)), program(states(new)), job_settings()) == ()


@pytest.mark.parametrize(("new", "why"), REFUSED)
def test_a_program_that_does_not_fit_is_refused_before_anything_is_deployed(new: Any, why: str) -> None:
    with pytest.raises(InvalidError) as caught:
        check_restorable(manifest(7, states=stored(OLD)), program(states(new)), job_settings())
    failure = caught.value.failure
    assert failure.message.startswith("state one was stored as value of Row{user: str, total: int} (msgpack/1) and ")
    assert failure.message.endswith(why)
    assert failure.where == "operator totals in checkpoint 7"
    assert failure.exit_code == 2


def test_a_program_with_an_older_serializer_is_refused_before_anything_is_deployed() -> None:
    first, second = (serialized(Money, own) for own in (FirstMoney(), MoneySerializer()))
    check_restorable(manifest(1, states=stored(first)), program(states(second)), job_settings())
    with pytest.raises(InvalidError, match="version 2 of the serializer money, and the program has 1"):
        check_restorable(manifest(1, states=stored(second)), program(states(first)), job_settings())


def test_two_programs_that_write_their_values_differently_are_not_the_same() -> None:
    first, second = (
        program([ValueState(serialized(Money, own), name="one")]) for own in (FirstMoney(), MoneySerializer())
    )
    assert first.fingerprint().lines[1].endswith("as money/1")
    assert first.fingerprint().digest != second.fingerprint().digest
