"""Times to live in whole jobs: what has expired is gone from results and from checkpoints, exactly by event time over
kills and at every parallelism, and by the machine's clock without anybody asking for it.

Where time is that of the records, they come in its order out of one partition: then the answer is known to the record.
"""

import hashlib
import inspect
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

import tidegate as tg
from tests.integration import ttl_program
from tests.integration.stepping import BACKENDS, INPUT, OUTPUT, SteppedJob, kill_all
from tests.integration.ttl_program import ADD, JOB, LOOK, OPERATOR, STATES, Order, Seen, job_of, mark
from tests.unit.docs import markdown, readme
from tidegate.ids import OperatorName
from tidegate.local import LocalSink, LocalSource
from tidegate.operators.time_to_live import LEAST_KEYS, RECORDS_A_KEY

START = 1_700_000_000_000
AFTER = 10_000
"""Milliseconds; `TTL` as text."""
TTL = "10s"
USERS = 60
WIDTHS = (2, 3, 1)
UPDATES = ["write", "read-and-write"]


# ---- what must come out --------------------------------------------------------------------------------------------


class Timed(NamedTuple):
    """An order and when it is."""

    at: int
    order: Order


class Remembered:
    """What is alive of one user, told without any of the engine. after: None: all of it, for ever."""

    def __init__(self) -> None:
        self.single: dict[str, tuple[int, int]] = {}
        """Time and value of total, highest and count."""
        self.recent: list[tuple[int, int]] = []
        self.marks: dict[str, tuple[int, int]] = {}

    def look(self, now: int, after: int | None, renews: bool) -> tuple[int, list[int], dict[str, int], Any, Any]:
        def alive(pair: tuple[int, int]) -> bool:
            return after is None or now - pair[0] < after

        def renewed(pair: tuple[int, int]) -> tuple[int, int]:
            return (now, pair[1]) if renews else pair

        self.single = {name: renewed(pair) for name, pair in self.single.items() if alive(pair)}
        self.recent = [renewed(pair) for pair in self.recent if alive(pair)]
        self.marks = {name: renewed(pair) for name, pair in self.marks.items() if alive(pair)}
        value = {name: pair[1] for name, pair in self.single.items()}
        marks = {name: number for name, (_, number) in self.marks.items()}
        numbers = [number for _, number in self.recent]
        return value.get("total", 0), numbers, marks, value.get("highest"), value.get("count")

    def add(self, now: int, number: int) -> None:
        value = {name: pair[1] for name, pair in self.single.items()}
        self.single = {
            "total": (now, value.get("total", 0) + number),
            "highest": (now, max(value.get("highest", number), number)),
            "count": (now, value.get("count", 0) + 1),
        }
        self.recent.append((now, number))
        self.marks[mark(number)] = (now, number)


def answer(timed: Sequence[Timed], after: int | None, renews: bool) -> dict[str, list[Seen]]:
    """By user, what each order must show."""
    users: dict[str, Remembered] = defaultdict(Remembered)
    found: dict[str, list[Seen]] = defaultdict(list)
    for at, order in timed:
        user = users[order.user]
        found[order.user].append(Seen(order.user, order.number, *user.look(at, after, renews)))
        if order.what == ADD:
            user.add(at, order.number)
    return dict(found)


def differences(wanted: dict[str, list[Seen]], output: Sequence[Seen]) -> list[str]:
    """Of each user the first place at which the output is not what is wanted; [] when it is all of it."""
    found: dict[str, list[Seen]] = defaultdict(list)
    for one in output:
        found[one.user].append(one)
    problems = []
    for user in sorted({*wanted, *found}):
        right, there = wanted.get(user, []), found[user]
        if right != there:
            place = next((i for i, pair in enumerate(zip(right, there, strict=False)) if pair[0] != pair[1]), None)
            at = min(len(right), len(there)) if place is None else place
            problems.append(f"{user}, record {at}: {there[at : at + 1]}, not {right[at : at + 1]}")
    return problems


# ---- the job -------------------------------------------------------------------------------------------------------


def stream(first: int, count: int, begin: int) -> list[Timed]:
    """Orders of `USERS` users from time `begin` on, each 200 ms later than the last: one of a user comes again after
    short, long, and exactly `AFTER` milliseconds."""
    made = []
    for number in range(first, first + count):
        user = number % 10 if number % 3 else (number * 7) % USERS
        what = ADD if (number // 3) % 2 else LOOK
        made.append(Timed(begin + 200 * (number - first), Order(f"u{user}", number, what)))
    return made


class Living(SteppedJob):
    """The job with its log and its checkpoints."""

    def __init__(self, folder: Path, backend: str) -> None:
        super().__init__(folder, JOB, backend)
        self.timed: list[Timed] = []

    def feed(self, timed: Sequence[Timed]) -> None:
        self.timed += timed
        self.append([one.order for one in timed], [one.at for one in timed])

    def job(self, ttl: tg.Ttl | None) -> tg.Job:
        return job_of(str(self.log), ttl)

    def assert_right(self, after: int | None, renews: bool) -> None:
        problems = differences(answer(self.timed, after, renews), self.output(Seen))
        assert not problems, f"{len(problems)} problems:\n" + "\n".join(problems[:10])

    def stored_keys(self) -> dict[str, int]:
        """In the newest checkpoint: of how many of the first users each state holds something."""
        found = dict.fromkeys(STATES, 0)
        for row in tg.read_state(self.checkpoints / self.name, OPERATOR):
            found[row["state"]] += row["key"].startswith("u")
        return found

    def stored_bytes(self) -> int:
        """Of the state in the newest checkpoint."""
        newest = self.newest
        record = newest.operator(OperatorName(OPERATOR)) if newest is not None else None
        assert record is not None
        return sum(handle.size for snapshot in record.snapshots for handle in snapshot.handles)


@pytest.mark.parametrize("update", UPDATES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_by_event_time_what_is_alive_is_exact_at_every_parallelism(tmp_path: Path, backend: str, update: Any) -> None:
    living = Living(tmp_path, backend)
    ttl = tg.Ttl(TTL, update=update, clock="event")
    for step, parallelism in enumerate(WIDTHS):
        living.feed(stream(400 * step, 400, START + step * 83_000))
        living.run(living.job(ttl), parallelism)
        living.assert_right(AFTER, update != "write")
    shown = living.output(Seen)
    assert any(one.total for one in shown), "everything had expired"
    assert any(not one.total and one.number > 800 for one in shown), "nothing had expired"


@pytest.mark.slow
@pytest.mark.parametrize("update", UPDATES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_by_event_time_what_is_alive_is_exact_whatever_was_killed(tmp_path: Path, backend: str, update: str) -> None:
    living = Living(tmp_path, backend)
    arguments = ["--log", str(living.log), "--after", TTL, "--update", update]
    for step, parallelism in enumerate((*WIDTHS, 4)):
        before = living.count
        living.feed(stream(600 * step, 600, START + step * 123_000))
        with living.start(ttl_program.__file__, parallelism, [*arguments, "--pause", "0.001"]) as running:
            running.wait_for(lambda now=before: living.covered > now + 50, "a checkpoint in the middle")
            if step < len(WIDTHS):
                kill_all(running)
                continue
            running.wait_for(lambda: len(living.output(Seen)) >= living.count, "all output")
            running.interrupt()
            assert running.ends() == 0, running.said
    living.assert_right(AFTER, update != "write")


# ---- cleaning ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clock", ["wall", "event"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_what_has_expired_leaves_the_checkpoints_though_nobody_asks_for_its_key(
    tmp_path: Path, backend: str, clock: Any
) -> None:
    living = Living(tmp_path, backend)
    ttl = tg.Ttl("300ms", clock=clock)
    users = 1000
    names = [f"u{number}-{hashlib.sha256(str(number).encode()).hexdigest()}" for number in range(users)]
    living.feed([Timed(START, Order(name, number)) for number, name in enumerate(names)])
    living.run(living.job(tg.Ttl("1h", clock=clock)), 2)
    assert set(living.stored_keys().values()) == {users}
    largest = living.stored_bytes()
    wait_for_clock(0.3)

    def is_clean() -> bool:
        """Others come, as they do in a stream, and what is stored is looked at."""
        others = [Order(f"other-{number % 40}", living.count + number) for number in range(160)]
        living.feed([Timed(START + 1000 + living.count, other) for other in others])
        return living.stored_bytes() < largest / 2 and not any(living.stored_keys().values())

    living.run(living.job(ttl), 2, is_over=is_clean)
    assert not any(living.stored_keys().values())


def wait_for_clock(seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        time.sleep(0.01)


# ---- switching on and off ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
def test_switched_on_over_what_there_is_values_live_from_when_they_are_met_and_switched_off_for_ever(
    tmp_path: Path, backend: str
) -> None:
    living = Living(tmp_path, backend)
    users = [f"u{number}" for number in range(30)]

    def feed(at: int, what: str, of: Sequence[str] = users) -> None:
        living.feed([Timed(at, Order(user, living.count + place, what)) for place, user in enumerate(of)])

    feed(START, ADD)
    feed(START + 1, ADD)
    living.run(living.job(None), 2)
    living.assert_right(None, renews=False)
    # All are met at one moment, which is from then on the moment of what was stored.
    on = START + 10**9
    feed(on, LOOK)
    feed(on + AFTER - 1, ADD, users[:10])
    feed(on + AFTER, LOOK)
    living.run(living.job(tg.Ttl(TTL, clock="event")), 3)
    shown = living.output(Seen)
    assert [one.count for one in shown if one.number in range(60, 90)] == [2] * 30
    last = {one.user: one for one in shown if one.number >= 100}
    assert {user for user, one in last.items() if one.total} == set(users[:10])
    assert {one.count for user, one in last.items() if user in users[:10]} == {3}
    assert {len(one.recent) for one in last.values()} == {0, 1}, "elements of a list live each for itself"
    feed(on + 10**9, LOOK)
    living.run(living.job(None), 1)
    off = {one.user: one for one in living.output(Seen) if one.number >= 130}
    assert {user: content(one) for user, one in off.items()} == {user: content(one) for user, one in last.items()}
    assert set(living.stored_keys().values()) == {10}


def content(seen: Seen) -> tuple[Any, ...]:
    return seen.total, seen.recent, seen.marks, seen.highest, seen.count


@pytest.mark.parametrize("backend", BACKENDS)
def test_another_time_to_live_counts_at_once_and_what_has_expired_may_be_shown_once(
    tmp_path: Path, backend: str
) -> None:
    living = Living(tmp_path, backend)
    living.feed([Timed(START, Order("u1", 1)), Timed(START, Order("u2", 2))])
    living.run(living.job(tg.Ttl("1h", clock="event")), 1)
    living.feed([Timed(START + AFTER, Order("u1", 3, LOOK)), Timed(START + AFTER, Order("u1", 4, LOOK))])
    living.run(living.job(tg.Ttl(TTL, clock="event", expired="visible")), 1)
    living.feed([Timed(START + AFTER - 1, Order("u2", 5, LOOK)), Timed(START + AFTER, Order("u2", 6, LOOK))])
    living.run(living.job(tg.Ttl("1h", clock="event")), 1)
    shown = {one.number: content(one) for one in living.output(Seen)}
    nothing = content(Seen("", 0, 0, [], {}, None, None))
    assert (shown[3], shown[4]) == ((1, [1], {"m1": 1}, 1, 1), nothing)
    assert (shown[5], shown[6]) == (nothing, nothing), "it was cleared away beside the other"


class Gathering(tg.KeyedProcessFunction[str, Order, Seen]):
    """Changes what it keeps in place."""

    gathered = tg.ValueState(list[int], default_factory=list, ttl=tg.Ttl(TTL, clock="event"))

    def process_element(self, value: Order, ctx: tg.KeyedContext[str]) -> Iterator[Seen]:
        gathered = self.gathered.value()
        yield Seen(ctx.key, value.number, 0, list(gathered), {}, None, None)
        gathered.append(value.number)


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_object_that_is_changed_in_place_is_stored_and_lives_no_longer(tmp_path: Path, backend: str) -> None:
    living = Living(tmp_path, backend)
    for number, at in enumerate([0, 4000, 9999, 10_000]):
        living.feed([Timed(START + at, Order("u1", number))])
        job = tg.Job(JOB)
        orders = job.source(LocalSource(living.log, INPUT, value=tg.Json(Order)), name="orders")
        seen = orders.key_by(lambda order: order.user, key_type=str).process(Gathering(), name=OPERATOR)
        seen.sink(LocalSink(living.log, OUTPUT, value=tg.Json(Seen)), name="out")
        living.run(job, WIDTHS[number % 3])
    assert {one.number: one.recent for one in living.output(Seen)} == {0: [], 1: [0], 2: [0, 1], 3: []}


# ---- the document --------------------------------------------------------------------------------------------------

GUIDE = (Path(__file__).parents[2] / "docs" / "state-ttl.md").read_text(encoding="utf-8")


def test_the_example_of_the_document_runs_and_prints_what_stands_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name, text in readme.files(GUIDE).items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    (command,) = readme.commands(GUIDE)
    (printed,) = (block.text for block in markdown.blocks(GUIDE) if block.language == "text")
    assert readme.run(command, tmp_path) == printed


def test_the_document_names_the_arguments_their_defaults_and_the_pace_of_clearing_away() -> None:
    arguments = inspect.signature(tg.Ttl).parameters
    rows = {row[0]: row[1].strip('"') for row in markdown.rows(GUIDE, "argument")}
    defaults = {name: "" if one.default is one.empty else one.default for name, one in arguments.items()}
    assert rows == defaults
    assert f"at one for {RECORDS_A_KEY} records, and at least {LEAST_KEYS}" in GUIDE


# ---- the check itself ----------------------------------------------------------------------------------------------

RIGHT = [seen for of_user in answer(stream(0, 300, START), AFTER, renews=False).values() for seen in of_user]


@pytest.mark.parametrize(
    "change",
    [
        lambda output: output[1:],
        lambda output: [*output, output[-1]],
        lambda output: [msgspec.structs.replace(output[0], total=1), *output[1:]],
        lambda output: [*output[:-1], msgspec.structs.replace(output[-1], recent=[1])],
    ],
)
def test_the_check_fails_when_a_record_is_removed_doubled_or_changed(
    change: Callable[[list[Seen]], list[Seen]],
) -> None:
    wanted = answer(stream(0, 300, START), AFTER, renews=False)
    assert differences(wanted, RIGHT) == []
    assert len(differences(wanted, change(RIGHT))) == 1


@pytest.mark.parametrize(("after", "renews"), [(AFTER + 1, False), (AFTER // 2, False), (None, False), (AFTER, True)])
def test_the_check_tells_another_time_to_live_from_the_right_one(after: int | None, renews: bool) -> None:
    wanted = answer(stream(0, 300, START), after, renews)
    assert differences(wanted, RIGHT)
