"""Every place at which a process can die, and every process that can die there: nothing is lost, doubled or left over.

The place is a named fail point. Where the process that stands there is not the one to die, it is stopped in its step,
the victim is killed, and it goes on.
"""

import signal
from collections.abc import Callable
from typing import Literal, NamedTuple

import pytest

from tests.integration.exactly_once import Written, answer_of, assert_exactly_once, differences
from tests.integration.programs import wait_until
from tests.integration.running import KILLED, Bench, Started, orders
from tests.integration.streams import Stream
from tests.integration.test_savepoint_crashes import COVERED as SAVEPOINTS
from tests.integration.totals_program import Total
from tidegate import failpoints

Victim = Literal["worker", "jobmanager", "everything"]
FEW, MANY = 100, 2000
"""Users: the state of few is inlined into the acknowledgement, that of many is stored as files."""


class Point(NamedTuple):
    """A fail point in the middle of the stream. `first` is a crash before it that leaves it something to do;
    `is_quick`: the owner's death there is not among the slow cases."""

    place: str
    owner: Literal["worker", "jobmanager"]
    users: int
    first: str = ""
    is_quick: bool = False

    @property
    def name(self) -> str:
        return ":".join(self.place.split("@")[0].split(":")[:2])


# For each checkpoint the JobManager triggers twice, a worker captures and uploads twice and sends four messages. So
# most of these stand in checkpoint 2 or 3, some between the two halves of a step.
POINTS = (
    Point("trigger:after:5@jobmanager", "jobmanager", FEW, is_quick=True),
    Point("trigger:after:6@jobmanager", "jobmanager", FEW),
    Point("capture:before:4@worker-1", "worker", MANY),
    Point("capture:after:5@worker-0", "worker", MANY, is_quick=True),
    Point("upload:before:5@worker-1", "worker", MANY),
    Point("upload:after:6@worker-0", "worker", MANY, is_quick=True),
    Point("acknowledge:before:9@worker-0", "worker", FEW, is_quick=True),
    Point("acknowledge:after:10@worker-1", "worker", MANY),
    Point("log-append:before:3@jobmanager", "jobmanager", MANY, is_quick=True),
    Point("log-append:after:3@jobmanager", "jobmanager", MANY, is_quick=True),
    Point("commit:before:2@worker-0", "worker", FEW),
    Point("commit:after:2@worker-1", "worker", FEW, is_quick=True),
    Point("recovery-commit:before@jobmanager", "jobmanager", MANY, "log-append:after:3@jobmanager"),
    Point("recovery-commit:after@jobmanager", "jobmanager", FEW, "commit:before:2@worker-0", is_quick=True),
    Point("recovery-abort:before@jobmanager", "jobmanager", FEW, "log-append:before:3@jobmanager", is_quick=True),
    Point("recovery-abort:after@jobmanager", "jobmanager", MANY, "acknowledge:before:10@worker-1"),
)
VICTIMS: tuple[Victim, ...] = ("worker", "jobmanager", "everything")


def kill_while_others_stand(bench: Bench, started: Started, victim: Victim) -> None:
    started.wait_until_stopped()
    if victim == "everything":
        started.send_to_all(signal.SIGKILL)
    elif victim == "jobmanager":
        started.kill(started.pid)
    else:
        started.kill(bench.takeover().workers[-1].pid)
        started.send_to_all(signal.SIGCONT)


def assert_there_was_something_to_do(bench: Bench, point: Point) -> None:
    """A recovery killed before it did its first step has that still to do."""
    undecided = set(bench.open_transactions())
    if point.name == "recovery-commit:before":
        assert undecided & bench.pending(), "nothing was left to be committed"
    if point.name == "recovery-abort:before":
        assert undecided - bench.pending(), "nothing was left to be aborted"


class CrashMatrix:
    """The matrix on the medium of the `bench` that the subclass's module gives."""

    stream: Stream

    def is_quick(self, point: Point, victim: Victim) -> bool:
        """Whether the case is among those for every run of the tests."""
        return point.is_quick and victim == point.owner

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        if "point" in metafunc.fixturenames:
            metafunc.parametrize(("point", "victim"), self.cases())

    def cases(self) -> list[object]:
        """Each victim at each point. A representative part is quick enough for every run of the tests."""
        return [
            pytest.param(
                *(point, victim),
                id=f"{victim} at {point.place}",
                marks=() if self.is_quick(point, victim) else pytest.mark.slow,
            )
            for point in POINTS
            for victim in VICTIMS
        ]

    def test_a_crash_loses_and_doubles_nothing(self, bench: Bench, point: Point, victim: Victim) -> None:
        answer = self.stream.fill(bench, point.users)
        is_own = victim == point.owner
        fail_points = [text for text in (point.first, point.place if is_own else f"{point.place}=stop") if text]
        started = self.stream.start_until(bench, ",".join(fail_points), len(fail_points) - 1)
        assert_there_was_something_to_do(bench, point)
        if not is_own:
            kill_while_others_stand(bench, started, victim)
        self.stream.finish(bench, started)
        bench.assert_right(answer)
        assert bench.view().attempt == 1 + len(fail_points), "there was another failure than the one that was made"
        newest = bench.view().newest
        assert newest is not None
        assert any(handle.path is not None for handle in newest.handles) == (point.users == MANY)

    @pytest.mark.parametrize(
        "victim", ["everything", *(pytest.param(v, marks=pytest.mark.slow) for v in ("worker", "jobmanager"))]
    )
    def test_a_crash_between_the_commits_of_two_sink_subtasks_loses_and_doubles_nothing(
        self, bench: Bench, victim: Victim
    ) -> None:
        answer = self.stream.fill(bench, FEW)
        started = self.stream.start_until(bench, "commit:before:3@worker-1=stop")

        def uncommitted() -> int:
            return len(bench.pending() & set(bench.open_transactions()))

        wait_until(lambda: uncommitted() == 1, "the commit of the other subtask")
        assert len(bench.pending()) == 2
        kill_while_others_stand(bench, started, victim)
        self.stream.finish(bench, started)
        bench.assert_right(answer)
        assert bench.view().attempt == 2

    @pytest.mark.slow
    def test_a_job_that_dies_at_each_step_of_each_recovery_ends_right(self, bench: Bench) -> None:
        answer = self.stream.fill(bench, MANY)
        places = (
            "log-append:after:3",
            "recovery-commit:before",
            "recovery-commit:after",
            "recovery-commit:after:2",
            "trigger:after",
            "log-append:before:2",
            "recovery-abort:before",
            "recovery-abort:after",
        )
        for place in places:
            started = self.stream.start(bench, f"{place}@jobmanager")
            started.wait_for_fail_point()
            assert started.wait() == KILLED
        self.stream.assert_is_in_the_middle(bench)
        self.stream.finish(bench, self.stream.start(bench))
        bench.assert_right(answer)
        assert bench.view().attempt == 1 + len(places)


class TestTheEmbeddedLog(CrashMatrix):
    """Where transactions begin and commit in a millisecond."""

    stream = Stream(pause=0.0001)


def test_every_fail_point_is_in_the_matrix() -> None:
    assert {point.name for point in POINTS} | SAVEPOINTS == set(failpoints.NAMES)


# ---- the checker ---------------------------------------------------------------------------------------------------

RIGHT = answer_of(orders(0, 12, 3)).totals


def written() -> list[Written]:
    """The right output: user 0 and 2 in one partition, user 1 in the other."""
    return [Written(int(user[1:]) % 2, total) for user, totals in RIGHT.items() for total in totals]


def exchanged(output: list[Written], one: int, other: int) -> list[Written]:
    output[one], output[other] = output[other], output[one]
    return output


def changed(output: list[Written], place: int, total: Total) -> list[Written]:
    output[place] = Written(output[place].partition, total)
    return output


def test_right_output_has_no_differences_in_whatever_order_the_users_come() -> None:
    assert differences(RIGHT, written()) == []
    assert differences(RIGHT, sorted(written(), key=lambda one: one.total.orders)) == []


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        pytest.param(lambda o: o[1:], "missing 1 times", id="first removed"),
        pytest.param(lambda o: o[:-1], "missing 1 times", id="last removed"),
        pytest.param(lambda o: [], "missing 1 times", id="all removed"),
        pytest.param(lambda o: [*o, o[5]], "1 times too many", id="doubled"),
        pytest.param(lambda o: changed(o, 4, Total("u1", 1, 2, 0)), "1 times too many", id="total changed"),
        pytest.param(lambda o: changed(o, 4, Total("u9", 1, 1, 0)), "1 times too many", id="user changed"),
        pytest.param(lambda o: exchanged(o, 0, 1), "u0 is out of order", id="reordered within a user"),
        pytest.param(lambda o: [Written(1, o[0].total), *o[1:]], "u0 is in partitions", id="in another partition"),
    ],
)
def test_damaged_output_is_noticed(damage: Callable[[list[Written]], list[Written]], said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        assert_exactly_once(RIGHT, damage(written()))


def test_the_answer_is_the_running_total_of_each_user() -> None:
    totals, held = answer_of(orders(0, 9, 2))
    assert [(t.orders, t.total, t.ages) for t in totals["u0"]] == [
        (1, 0, 0),
        (2, 2, 1),
        (3, 6, 3),
        (4, 12, 3),
        (5, 20, 3),
    ]
    assert held["u1"] == (4, 16, [(3, 2), (5, 1), (7, 0)])
