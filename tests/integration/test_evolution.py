"""State whose type changes between two versions of a program, in whole jobs: what goes on reads every stored value as
the documents say, whatever was killed; what cannot is refused before anything is touched.

What an order must have seen is computed here from the orders before it, by what `Version.reads` says of each step.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

import tidegate as tg
from tests.integration import evolving_program
from tests.integration.evolving_program import (
    ACCEPTED,
    EVOLUTIONS,
    JOB,
    OPERATOR,
    OTHER_KEYS,
    REFUSED,
    Order,
    Plain,
    Seen,
    Text,
    Version,
    WithDefault,
    job_of,
    map_key,
    plain,
)
from tests.integration.programs import run
from tests.integration.stepping import BACKENDS, INPUT, OUTPUT, SteppedJob, kill_all
from tests.integration.user_programs import Running, assert_refused
from tidegate.errors import InvalidError
from tidegate.ids import OperatorName
from tidegate.local import LocalSink, LocalSource

WIDTHS = (2, 3, 1)
"""The parallelism of each step."""
USERS = 40


# ---- what must come out --------------------------------------------------------------------------------------------


class Event(NamedTuple):
    """An order that was seen by a step."""

    step: int
    number: int


def seen_state(versions: Sequence[Version], step: int, before: Sequence[Event]) -> Any:
    """What `kept` holds for `step` behind these events, as JSON."""
    kind = versions[step].declare().kind
    make = versions[step].make
    reads: list[Callable[[int], Any]] = [*versions[step].reads, lambda number: plain(make(number))]
    values = [(number, reads[of](number)) for of, number in before]
    if not values:
        return None
    match kind:
        case "value":
            return values[-1][1]
        case "list":
            return [value for _, value in values]
        case "map":
            return {map_key(number): value for number, value in values}
        case "reducing":
            return sum(value for _, value in values)
    raise AssertionError(kind)


def seen_beside(versions: Sequence[Version], step: int, before: Sequence[Event]) -> int | None:
    """How many events there were since `beside` was last declared anew."""
    if not versions[step].has_beside:
        return None
    without = [of for of in range(step) if not versions[of].has_beside]
    return sum(event.step > max(without, default=-1) for event in before)


def differences(versions: Sequence[Version], fed: Sequence[Sequence[Order]], output: Sequence[Seen]) -> list[str]:
    """Every way in which the output is not that of the orders, of which `fed[step]` came when that step began or later;
    [] when it is. Which of two steps saw an order, the output may say."""
    begun = {order: step for step, orders in enumerate(fed) for order in orders}
    by_user: dict[str, list[Seen]] = defaultdict(list)
    for one in output:
        by_user[one.user].append(one)
    problems = [f"{user} is nobody" for user in by_user.keys() - {order.user for order in begun}]
    for user in sorted({order.user for order in begun}):
        wanted = [order.number for order in begun if order.user == user]
        found = [one.number for one in by_user[user]]
        if found != wanted:
            problems.append(f"{user}: orders {found}, not {wanted}")
            continue
        history: list[Event] = []
        for one in by_user[user]:
            if one.step < max([begun[Order(user, one.number)], *(event.step for event in history)]):
                problems.append(f"{user}: order {one.number} was seen by step {one.step}")
                break
            right = (seen_state(versions, one.step, history), seen_beside(versions, one.step, history))
            if (one.kept, one.beside) != right:
                problems.append(f"{user}: order {one.number} saw {(one.kept, one.beside)}, not {right}")
            history.append(Event(one.step, one.number))
    return problems


# ---- the job -------------------------------------------------------------------------------------------------------


class Evolving(SteppedJob):
    """One evolution with its log and its checkpoints."""

    def __init__(self, folder: Path, evolution: str, backend: str) -> None:
        super().__init__(folder, JOB, backend)
        self.evolution = evolution
        self.versions = EVOLUTIONS[evolution]
        self.fed: list[list[Order]] = [[] for _ in self.versions]

    def feed(self, step: int, count: int, users: int = USERS) -> None:
        orders = [Order(str(number % users), number) for number in range(self.count, self.count + count)]
        self.append(orders)
        self.fed[step] += orders

    def run_step(self, step: int, *, allow: bool = False) -> None:
        self.run(job_of(str(self.log), self.evolution, step), WIDTHS[step], allow=allow)

    def command_of_step(self, step: int) -> list[str]:
        return self.command(evolving_program.__file__, WIDTHS[step], self._arguments(step))

    def start_step(self, step: int) -> Running:
        """As processes, and slowly."""
        arguments = [*self._arguments(step), "--pause", "0.001"]
        return self.start(evolving_program.__file__, WIDTHS[step], arguments, "--allow-non-restored-state")

    def _arguments(self, step: int) -> list[str]:
        return ["--log", str(self.log), "--evolution", self.evolution, "--step", str(step)]

    def assert_right(self) -> None:
        problems = differences(self.versions, self.fed, self.output(Seen))
        assert not problems, f"{len(problems)} problems:\n" + "\n".join(problems[:20])


def begun(folder: Path, evolution: str, backend: str) -> Evolving:
    """The first version has run and was stopped."""
    made = Evolving(folder, evolution, backend)
    made.feed(0, 150)
    made.run_step(0)
    made.assert_right()
    return made


# ---- what goes on --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("evolution", ACCEPTED)
def test_B07_the_next_versions_read_what_the_first_ones_stored(tmp_path: Path, evolution: str, backend: str) -> None:
    evolving = begun(tmp_path, evolution, backend)
    last = len(evolving.versions) - 1
    for step in range(1, last + 1):
        # Some users come only to the first version and to the last.
        evolving.feed(step, 150, USERS + 5 if step == last else USERS // 2)
        evolving.run_step(step, allow=True)
        evolving.assert_right()


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("evolution", ACCEPTED)
def test_the_next_version_goes_on_where_the_one_before_was_killed(tmp_path: Path, evolution: str, backend: str) -> None:
    evolving = Evolving(tmp_path, evolution, backend)
    last = len(evolving.versions) - 1
    for step in range(last + 1):
        before = evolving.count
        evolving.feed(step, 400)
        with evolving.start_step(step) as running:
            running.wait_for(lambda now=before: evolving.covered > now + 50, "a checkpoint in the middle")
            if step < last:
                kill_all(running)
                continue
            running.wait_for(lambda: len(evolving.output(Seen)) >= evolving.count, "all output")
            running.interrupt()
            assert running.ends() == 0, running.said
    evolving.assert_right()


# ---- what is refused -----------------------------------------------------------------------------------------------

MESSAGES: dict[str, list[str]] = {
    "a field is added without a default": ["state kept", "value.b of type str was added without a default"],
    "a type changes": ["state kept", "value of int", "value of str"],
    "the type of a field changes": ["state kept", "value.a was int and is str"],
    "a type becomes narrower": ["state kept", "value of float", "value of int"],
    "a value becomes a list": ["state 'kept' of operator 'keep' is a value state", "a list state in the program"],
    "a list becomes a value": ["state 'kept' of operator 'keep' is a list state", "a value state in the program"],
    OTHER_KEYS: ["operator 'keep'", "has keys of type str in checkpoint", "of type int in the program"],
    "the type of a map's keys changes": ["state kept", "keys can never change: it was str and is int"],
    "what was pickled is not": ["state kept", "pickle", "msgpack"],
    "what was not is pickled": ["state kept", "pickle", "msgpack"],
    "a serializer gets a lower version": ["state kept", "money/2", "money/1"],
    "a state is not declared any more": ["state 'beside' of operator 'keep'", "does not declare"],
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("evolution", REFUSED)
def test_B07_a_version_that_does_not_fit_is_refused_before_anything_is_touched(
    tmp_path: Path, evolution: str, backend: str
) -> None:
    evolving = begun(tmp_path, evolution, backend)
    evolving.feed(0, 20)
    before = evolving.stored_files(), evolving.output(Seen)
    with pytest.raises(InvalidError) as refused:
        evolving.run_step(1)
    said = refused.value.failure.render()
    assert refused.value.exit_code == 2
    missing = [part for part in MESSAGES[evolution] if part not in said]
    assert not missing, said
    assert refused.value.failure.remedy
    assert (evolving.stored_files(), evolving.output(Seen)) == before
    # The version that wrote it goes on as if nothing had been.
    evolving.run_step(0)
    evolving.assert_right()


def test_a_version_that_does_not_fit_ends_the_command_with_2_and_goes_on_when_mended(tmp_path: Path) -> None:
    evolving = begun(tmp_path, "a field is added without a default", "fs")
    evolving.feed(0, 20)
    before = evolving.stored_files()
    done = run(evolving.command_of_step(1), tmp_path)
    assert_refused(done, 2, "value.b of type str was added without a default", "Plain", "Give the field b a default.")
    assert evolving.stored_files() == before
    mended = Evolving(tmp_path, "a field is added with a default", "fs")
    mended.fed, mended.count = [evolving.fed[0], []], evolving.count
    mended.feed(1, 30)
    mended.run_step(1)
    mended.fed = [mended.fed[0][:150], mended.fed[0][150:] + mended.fed[1]]
    mended.assert_right()


# ---- what is stored ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
def test_B07_after_the_first_checkpoint_only_the_newest_form_is_stored(tmp_path: Path, backend: str) -> None:
    evolving = begun(tmp_path, "a field is removed, and comes back with another type", backend)
    evolving.feed(1, 10)
    evolving.run_step(1)
    newest = evolving.newest
    assert newest is not None
    record = newest.operator(OperatorName(OPERATOR))
    assert record is not None
    types = {state.value_type for snapshot in record.snapshots for state in snapshot.states}
    assert len(types) == 1
    assert "b: str" in types.pop()
    rows = list(tg.read_state(evolving.checkpoints / JOB, OPERATOR))
    assert len(rows) == USERS
    assert all(row["value"].keys() == {"b"} for row in rows), "what was removed is still stored"


# ---- state without keys --------------------------------------------------------------------------------------------


def holding(log: Path, step: int, declared: Any, redistribution: Any) -> tg.Job:
    """A job that shows what its list without keys holds, and adds one more."""

    class Hold(tg.ProcessFunction[Order, Seen]):
        held = tg.OperatorListState(declared, redistribution=redistribution)

        def process_element(self, value: Order, ctx: tg.Context) -> Iterator[Seen]:
            yield Seen(value.user, value.number, step, plain(list(self.held.get())), None)
            self.held.add(declared(value.number))

    job = tg.Job(JOB)
    held = job.source(LocalSource(log, INPUT, value=tg.Json(Order)), name="orders").process(Hold(), name="hold")
    held.sink(LocalSink(log, OUTPUT, value=tg.Json(Seen)), name="out")
    return job


@pytest.mark.parametrize("redistribution", ["split", "union"])
def test_lists_without_keys_change_by_the_same_rules(tmp_path: Path, redistribution: Any) -> None:
    job = SteppedJob(tmp_path, JOB, "fs")
    for step, declared in enumerate((Plain, WithDefault, WithDefault)):
        job.append([Order("u", step)])
        job.run(holding(job.log, step, declared, redistribution), 1)
    one, other = {"a": 0, "b": "none"}, {"a": 1, "b": "none"}
    assert [seen.kept for seen in job.output(Seen)] == [[], [one], [one, other]]
    before = job.stored_files()
    with pytest.raises(InvalidError, match=r"state held .* value.a was int and is str"):
        job.run(holding(job.log, 3, Text, redistribution), 1)
    assert job.stored_files() == before


# ---- the check itself ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> Evolving:
    made = begun(tmp_path_factory.mktemp("right"), "a field is added with a default", "fs")
    made.feed(1, 60)
    made.run_step(1)
    return made


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda output: output[1:], "orders"),
        (lambda output: [*output, output[0]], "orders"),
        (lambda output: [*output[:-1], msgspec.structs.replace(output[-1], kept={"a": 0, "b": "none"})], "saw"),
        (lambda output: [*output[:-1], msgspec.structs.replace(output[-1], step=0)], "was seen by step 0"),
        (lambda output: [*output, Seen("x", 1, 1, None, None)], "x is nobody"),
    ],
)
def test_the_check_fails_when_a_record_is_removed_doubled_or_changed(
    right: Evolving, change: Callable[[list[Seen]], list[Seen]], said: str
) -> None:
    right.assert_right()
    problems = differences(right.versions, right.fed, change(right.output(Seen)))
    assert problems
    assert said in problems[0]
