"""What a hard world has besides crashes: storage that is torn, slow, or listed in pages; clocks that are wrong;
machines that sleep and wake up as one."""

from collections.abc import Callable
from functools import partial
from random import Random

import pytest

from tests.sim.test_scenarios import calm_world, others_finish_the_job, started, to_the_end, until
from tidegate.storage.port import StorageUnavailable
from tidegate.testing.sim.chaos import SLOW_PACE, Chaos
from tidegate.testing.sim.clocks import ClockErrors, ProcessClock
from tidegate.testing.sim.executor import SimExecutor
from tidegate.testing.sim.gate import FaultRates, FaultyGate
from tidegate.testing.sim.scheduler import Process, Scheduler
from tidegate.testing.sim.storage import Blobs, SimStorage
from tidegate.testing.sim.swarm import HARD_KINDS, draw_hardship, draw_swarm
from tidegate.testing.sim.world import World, run_seed

SLOW = FaultRates(pause=1.0, longest_pause=1.0)
NEVER = 1e9


class Machine:
    """A process that works at a storage, and everything around it."""

    def __init__(self, rates: FaultRates) -> None:
        self.scheduler = Scheduler(1)
        self.blobs = Blobs(lambda: self.scheduler.seconds)
        self.process = Process(self.scheduler, "p")
        self.storage = SimStorage(self.blobs, FaultyGate(self.process, "storage", rates))
        swarm = draw_swarm(Random(1))
        swarm.heal()
        self.executor = SimExecutor(self.process, swarm, lambda: None)
        self.answers: list[object] = []

    def works(self, work: Callable[[], object]) -> None:
        self.executor.submit("lane", work, lambda result, error: self.answers.append(error or result))

    def until(self, reached: Callable[[], bool]) -> None:
        assert self.scheduler.run(reached, NEVER, 10_000), "it never came to that"

    def to_the_end(self) -> None:
        self.scheduler.run(lambda: False, NEVER, 10_000)


def what_is_left(write: Callable[[SimStorage], None]) -> set[bytes | None]:
    """Under 'a', when the process that writes there dies at different moments."""
    found: set[bytes | None] = set()
    for moment in range(30):
        machine = Machine(SLOW)
        machine.works(partial(write, machine.storage))
        machine.scheduler.plan(0.1 * moment, "the end", partial(machine.process.kill, "the test wants it"))
        machine.to_the_end()
        found.add(machine.blobs.memory.read("a") if machine.blobs.memory.exists("a") else None)
    return found


def test_a_write_whose_process_dies_in_the_middle_is_torn() -> None:
    assert what_is_left(lambda storage: storage.write("a", b"0123456789")) == {None, b"01234", b"0123456789"}


def test_what_is_put_only_if_absent_is_whole_or_not_there_whenever_its_process_dies() -> None:
    assert what_is_left(lambda storage: storage.put_if_absent("a", b"0123456789")) == {None, b"0123456789"}


def test_a_write_without_an_answer_may_be_torn_and_is_whole_when_it_is_repeated() -> None:
    rates = FaultRates(answer_lost=1.0)
    machine = Machine(rates)
    with pytest.raises(StorageUnavailable):
        machine.storage.write("a", b"0123456789")
    assert machine.blobs.memory.read("a") == b"01234"
    rates.heal()
    machine.storage.write("a", b"0123456789")
    assert machine.blobs.memory.read("a") == b"0123456789"


def listed_while_it_changes(seconds: float) -> list[str]:
    machine = Machine(SLOW)
    machine.blobs.lists_in_pages = True
    for path in ("a", "b", "c", "d"):
        machine.blobs.put_if_absent(path, b"")
    paths: list[str] = []
    machine.works(lambda: paths.extend(machine.storage.list("")))

    def changes() -> None:
        machine.blobs.delete("d")
        machine.blobs.put_if_absent("e", b"")
        machine.blobs.put_if_absent("aa", b"")

    machine.scheduler.plan(seconds, "it changes", changes)
    machine.to_the_end()
    return paths


def test_a_listing_in_pages_shows_what_was_there_all_the_time_and_perhaps_what_was_not() -> None:
    seen = {tuple(listed_while_it_changes(0.05 * moment)) for moment in range(60)}
    assert seen == {("a", "aa", "b", "c", "e"), ("a", "b", "c", "e"), ("a", "b", "c", "d")}


def test_a_slow_storage_answers_late_and_is_quick_when_faults_stop() -> None:
    rates = FaultRates(is_slow=True)
    machine = Machine(rates)
    machine.works(lambda: machine.storage.put_if_absent("a", b""))
    machine.until(lambda: bool(machine.answers))
    assert machine.scheduler.seconds > 0.1
    rates.heal()
    before = machine.scheduler.seconds
    machine.works(lambda: machine.storage.put_if_absent("b", b""))
    machine.until(lambda: len(machine.answers) == 2)
    assert machine.scheduler.seconds - before < 0.1


def test_everything_takes_longer_in_a_slow_process() -> None:
    def seconds(pace: float) -> float:
        machine = Machine(FaultRates())
        machine.process.pace = pace
        machine.works(lambda: None)
        machine.until(lambda: bool(machine.answers))
        return machine.scheduler.seconds

    assert seconds(SLOW_PACE) == pytest.approx(SLOW_PACE * seconds(1.0))


# ---- clocks --------------------------------------------------------------------------------------------------------


def test_clocks_of_processes_differ_and_their_monotonic_part_never_goes_back() -> None:
    scheduler = Scheduler(1)
    errors = ClockErrors(offset=3600.0, drift=0.2)
    clocks = [errors.clock(scheduler, scheduler.random(f"p{number}/clock")) for number in range(5)]
    before = [clock.now() for clock in clocks]
    assert len({now.wall for now in before}) == len({now.monotonic for now in before}) == 5
    for clock in clocks:
        clock.set_wall(-100.0)
    scheduler.seconds = 10.0
    for clock, earlier in zip(clocks, before, strict=True):
        assert 8.0 <= clock.now().monotonic - earlier.monotonic <= 12.0
        assert clock.now().wall < earlier.wall


def test_whoever_sleeps_until_a_time_of_its_clock_wakes_up_when_it_has_come() -> None:
    scheduler = Scheduler(1)
    for number in range(50):
        clock = ClockErrors(offset=1.0, drift=0.2).clock(scheduler, scheduler.random(f"p{number}/clock"))
        deadline = clock.now().monotonic + 1.7
        at = clock.seconds_at(deadline)
        assert deadline <= clock.at(at).monotonic < deadline + 1e-6


def test_a_clock_without_errors_is_the_schedulers() -> None:
    scheduler = Scheduler(1)
    clock = ClockErrors().clock(scheduler, Random(1))
    scheduler.seconds = 12.5
    assert clock.now() == scheduler.now()
    assert clock.seconds_at(20.0) == 20.0
    assert isinstance(clock, ProcessClock)


# ---- worlds --------------------------------------------------------------------------------------------------------


def freeze(world: World) -> None:
    """With all the workers that its JobManager has."""
    Chaos(world.ground, world.supervisor)._freeze_machine()


def test_a_machine_that_wakes_up_when_others_have_finished_the_job_changes_nothing() -> None:
    world = calm_world()
    sleeper = started(world)
    until(world, lambda: len(world.log.completed) > 0)
    freeze(world)
    workers = sleeper.cluster.workers
    assert workers
    assert all(process.is_paused for process in (sleeper.process, *(worker.process for worker in workers)))
    others_finish_the_job(world)
    for process in (sleeper.process, *(worker.process for worker in workers)):
        assert process.is_alive, "out of everybody's reach"
        process.resume()
    to_the_end(world)
    world._come_to_rest()
    assert world.scheduler.violation is None
    assert sleeper.exit_code == 4


@pytest.mark.parametrize("kind", HARD_KINDS)
def test_each_kind_of_hardship_is_drawn_by_some_seeds_and_by_others_not(kind: str) -> None:
    drawn = [draw_hardship(Random(number)) for number in range(40)]
    assert 5 < sum(kind in hardship.kinds for hardship in drawn) < 35


def test_a_hard_world_gives_the_same_trace_again() -> None:
    seed = next(n for n in range(100) if len(World(n).swarm.hardship.kinds) > 3 and World(n).swarm.hardship.mishaps > 3)
    lines: list[str] = []
    again: list[str] = []
    assert run_seed(seed, lines.append) == run_seed(seed, again.append)
    assert lines == again
    assert any("mishap: " in line for line in lines)
