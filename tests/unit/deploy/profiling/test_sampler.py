"""A sampler adds up what it sees; here it is given frames and moments, and no thread runs."""

import inspect
import subprocess
import sys
import textwrap
from pathlib import Path
from types import FrameType

import pytest

from tidegate.deploy.profiling import recording
from tidegate.deploy.profiling.places import Stack
from tidegate.deploy.profiling.recording import (
    Place,
    Profile,
    Recording,
    Seen,
    WorkerProfile,
    merged,
    read_parts,
    write_part,
)
from tidegate.deploy.profiling.sampler import Sampler

OTHER = 2


def frame_here() -> FrameType:
    frame = inspect.currentframe()
    assert frame is not None
    return frame


class InProcessLoop:
    """Called as the engine's loop is."""

    def _wait(self) -> FrameType:
        return frame_here()


def seconds(profile: Profile, label: str) -> float:
    return sum(
        seen.seconds
        for worker in profile.workers
        for seen in worker.seen
        if any(profile.places[number].name == label for number in seen.places)
    )


def test_the_time_between_two_looks_counts_for_what_the_second_sees() -> None:
    given: list[Recording] = []
    sampler = Sampler(0, given.append)
    sampler.look(frame_here(), {}, 100.0)
    sampler.look(frame_here(), {}, 100.01)
    sampler.look(InProcessLoop()._wait(), {}, 100.04)
    sampler.look(frame_here(), {OTHER: frame_here()}, 100.09)
    sampler._hand_over(sampler._recording)
    profile = given[0].profile()
    assert [worker.name for worker in profile.workers] == ["worker 0"]
    assert seconds(profile, "engine: other") == pytest.approx(0.06)
    assert seconds(profile, "thread without a name") == pytest.approx(0.05)
    assert profile.workers[0].waiting == pytest.approx(0.03)


def test_a_recording_stops_growing_and_goes_on_counting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "MOST_STACKS", 2)
    found, code = Recording(), frame_here().f_code
    for depth in range(1, 5):
        found.add(Stack(0, ("task a", "operator a"), (code,) * depth), 1.0)
    profile = found.profile()
    assert len(profile.workers[0].seen) == 3
    assert seconds(profile, "operator a") == 4.0


def part(worker: str, label: str, taken: float, waiting: float = 0.0) -> Profile:
    places = [Place("other"), Place(label), Place("function", "app.py", 3)]
    return Profile(places, [WorkerProfile(worker, [Seen((1, 2), taken)], waiting)])


def test_parts_of_attempts_are_merged_by_worker_and_place(tmp_path: Path) -> None:
    write_part(part("worker 10", "operator a", 1.0, 0.5), tmp_path / "worker-1-10.part")
    write_part(part("worker 10", "operator a", 2.0, 0.25), tmp_path / "worker-2-10.part")
    write_part(part("worker 2", "operator b", 4.0), tmp_path / "worker-1-2.part")
    (tmp_path / "worker-3-0.new").write_bytes(b"killed in the mid")
    found = read_parts(tmp_path)
    assert [(worker.name, worker.waiting) for worker in found.workers] == [("worker 2", 0.0), ("worker 10", 0.75)]
    assert (seconds(found, "operator a"), seconds(found, "operator b")) == (3.0, 4.0)
    assert merged([found, found]).workers[1].waiting == 1.5


# ---- with its signal: in a process of its own, for time-outs of tests use the same one ------------------------------


def run(program: str, folder: Path) -> str:
    """What it prints in the end."""
    head = """
import os, signal, threading
from pathlib import Path
from tidegate.deploy.profiling.run import sampling
from tidegate.deploy.profiling.sampler import Sampler
"""
    command = [sys.executable, "-c", head + textwrap.dedent(program)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_a_real_sampler_hands_over_what_this_thread_did_and_leaves_the_process_as_it_was(tmp_path: Path) -> None:
    said = run(
        """
        def compute():
            return sum(range(200_000))

        with sampling(Path("."), "here", 0):
            while not list(Path(".").glob("*.part")):
                compute()
                os.stat(".")
        left = signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL), threading.active_count()
        print(left == (signal.SIG_DFL, (0.0, 0.0), 1))
        """,
        tmp_path,
    )
    assert said == "True\n"
    found = read_parts(tmp_path)
    # From a thread beside, nearly all looks would fall on the calls that let the interpreter's lock go.
    assert seconds(found, "compute") > 0.5 * seconds(found, "engine: other") > 0.1


def test_a_signal_that_the_program_uses_itself_is_left_to_it(tmp_path: Path) -> None:
    said = run(
        """
        def own(number, frame): ...

        signal.signal(signal.SIGALRM, own)
        try:
            with sampling(Path("."), "here", 0):
                pass
        except Exception as error:
            print(type(error).__name__, error)
        print(signal.getsignal(signal.SIGALRM) is own)
        """,
        tmp_path,
    )
    assert "InvalidError the profiler needs SIGALRM" in said
    assert said.endswith("True\n")


def test_a_sampler_that_fails_ends_and_says_so_and_the_program_goes_on(tmp_path: Path) -> None:
    said = run(
        """
        def fail(frame, others, now):
            failed.append(now)
            raise ValueError("no such frame")

        failed = []
        sampler = Sampler(0, lambda _: None)
        sampler.look = fail
        sampler.start()
        while not failed or signal.getitimer(signal.ITIMER_REAL) != (0.0, 0.0):
            os.getpid()
        sampler.stop()
        print(len(failed))
        """,
        tmp_path,
    )
    assert said.startswith("1\n")
    assert "the profiler failed" in said
