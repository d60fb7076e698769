"""Backends, parallelisms, checkpoints and savepoints in every combination, each killed in the middle: the output is
what it is without any of that.

A job begins with one backend and parallelism, is killed in the middle of the stream while it stores a checkpoint or
writes a savepoint, and goes on with another parallelism, from a savepoint also with another backend.
"""

import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.integration.exactly_once import Answer
from tests.integration.running import KILLED, Bench, Started
from tests.integration.streams import Stream

WIDTHS = ((2, 3), (3, 1), (1, 4))
BACKENDS = ("memory", "fs", "rocksdb")
LASTING = ("fs", "rocksdb")
"""Backends whose checkpoints are still there when the JobManager is not."""
USERS = 700
STREAM = Stream(pause=0.0, count=6000)
SECONDS = 8.0
"""About as long it takes to read all of it, where a test has something to do in the middle."""
PLACES = ("capture:after:3@worker-0", "upload:after:4@worker-0", "log-append:after:3@jobmanager")


def options(backend: str, parallelism: int) -> tuple[str, ...]:
    return ("-p", str(parallelism), "--state-backend", backend)


def cases(found: Sequence[tuple[Any, ...]], is_quick: Callable[..., bool]) -> list[object]:
    return [pytest.param(*case, marks=() if is_quick(*case) else pytest.mark.slow) for case in found]


class StateMatrix:
    """The matrix on the medium of the `bench` that the subclass's module gives."""

    quick_kills: frozenset[tuple[str, int, str]] = frozenset()
    """Backend, parallelism before and place of the cases of which every run of the tests makes one."""
    quick_changes: frozenset[tuple[str, str, int]] = frozenset()
    """The same: backend before, backend after, parallelism before."""
    options: tuple[str, ...] = ()
    """Of the command."""
    widths: Sequence[tuple[int, int]] = WIDTHS
    places: Sequence[str] = PLACES
    begins_with: Sequence[str] = BACKENDS

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        if "place" in metafunc.fixturenames:
            kills = [
                (backend, *widths, place) for backend in LASTING for widths in self.widths for place in self.places
            ]
            is_quick = lambda backend, old, new, place: (backend, old, place) in self.quick_kills  # noqa: E731
            metafunc.parametrize(("backend", "old", "new", "place"), cases(kills, is_quick))
        elif "before" in metafunc.fixturenames:
            changes = [
                (before, after, *widths) for before in self.begins_with for after in LASTING for widths in self.widths
            ]
            is_quick = lambda before, after, old, new: (before, after, old) in self.quick_changes  # noqa: E731
            metafunc.parametrize(("before", "after", "old", "new"), cases(changes, is_quick))

    def start(
        self, bench: Bench, backend: str, width: int, *more: str, fail_point: str = "", seconds: float = SECONDS
    ) -> Started:
        arguments = ("--bounded", "--pause", str(seconds * width / STREAM.count))
        given = [*options(backend, width), *self.options, *more]
        return bench.start(*arguments, fail_point=fail_point, options=given)

    def finish(self, bench: Bench, answer: Answer, backend: str, width: int, *more: str) -> None:
        started = self.start(bench, backend, width, *more, seconds=0.5)
        bench.repeat_until_finished(started, "--bounded", options=[*options(backend, width), *self.options, *more])
        bench.assert_right(answer)

    def test_a_job_killed_in_a_checkpoint_goes_on_at_another_parallelism(
        self, bench: Bench, backend: str, old: int, new: int, place: str
    ) -> None:
        answer = STREAM.fill(bench, USERS)
        started = self.start(bench, backend, old, fail_point=f"{place}=stop")
        started.wait_for_fail_point()
        STREAM.assert_is_in_the_middle(bench)
        started.send_to_all(signal.SIGKILL)
        assert started.wait() == KILLED
        self.finish(bench, answer, backend, new)

    def test_a_savepoint_of_one_backend_goes_on_in_another_at_another_parallelism_whatever_is_killed(
        self, bench: Bench, tmp_path: Path, before: str, after: str, old: int, new: int
    ) -> None:
        answer = STREAM.fill(bench, USERS)
        if before == "memory":
            started = self.start(bench, before, old)
        else:
            # The first savepoint dies with its JobManager: the job goes on from its checkpoint.
            started = self.start(bench, before, old, fail_point="savepoint-export:after@jobmanager")
            started.wait_until(lambda: bench.read_up_to() > 0, "the first checkpoint")
            asked = bench.command("stop", bench.job, "--savepoint", "torn")
            assert asked.returncode == 1, asked
            assert "ended before it answered" in asked.stderr
            assert started.wait() == KILLED
            started = self.start(bench, before, old)
        started.wait_until(lambda: "running, attempt" in started.said and len(bench.output()) > 100, "some output")
        asked = bench.command("stop", bench.job, "--savepoint", "kept")
        assert asked.returncode == 0, asked.stderr + started.said
        assert started.wait() == 0, started.said
        assert 100 < len(bench.output()) < STREAM.count
        assert Path(asked.stdout.splitlines()[-1]) == tmp_path / "kept"
        moved = (tmp_path / "kept").rename(tmp_path / "moved")

        more = ("--from-savepoint", str(moved))
        for place in ("savepoint-import:before@jobmanager", "savepoint-import:after@jobmanager"):
            started = self.start(bench, after, new, *more, fail_point=place)
            started.wait_for_fail_point()
            assert started.wait() == KILLED
        self.finish(bench, answer, after, new, *more)
        assert bench.command("checkpoints", "verify", str(moved)).returncode == 0


class TestTheEmbeddedLog(StateMatrix):
    """Where transactions begin and commit in a millisecond."""

    quick_kills = frozenset({("fs", 2, PLACES[1]), ("rocksdb", 3, PLACES[1])})
    quick_changes = frozenset({("fs", "rocksdb", 2), ("rocksdb", "fs", 1), ("memory", "fs", 3)})
