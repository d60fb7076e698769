"""Processes are known by pid and start time; only those are killed, and a zombie is as good as dead."""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator

import msgspec
import pytest

from tests.integration.programs import is_alive, wait_until
from tidegate.checkpoint.log import ProcessRecord
from tidegate.deploy.processes import (
    describe_exit,
    failure_of_exit,
    host_name,
    is_running,
    kill_recorded,
    process_record,
    without_interrupts,
)
from tidegate.errors import ErrorKind


@pytest.fixture
def sleeper() -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    yield process
    process.kill()
    process.wait()


def test_a_recorded_process_runs_until_it_is_killed(sleeper: "subprocess.Popen[bytes]") -> None:
    record = process_record(sleeper.pid)
    assert is_running(record)
    assert kill_recorded([record]) == []
    # Nobody has waited for it yet: it is a zombie.
    assert not is_running(record)
    assert sleeper.wait() == -signal.SIGKILL


def test_another_process_with_the_same_pid_is_left_alone(sleeper: "subprocess.Popen[bytes]") -> None:
    record = process_record(sleeper.pid)
    earlier = msgspec.structs.replace(record, start_time=record.start_time - 1)
    unknown = msgspec.structs.replace(record, start_time=0)
    assert kill_recorded([earlier, unknown]) == []
    assert is_running(record)


def test_a_stopped_process_is_killed_too(sleeper: "subprocess.Popen[bytes]") -> None:
    record = process_record(sleeper.pid)
    sleeper.send_signal(signal.SIGSTOP)
    assert kill_recorded([record]) == []
    assert not is_running(record)


def test_it_never_kills_itself() -> None:
    own = process_record(os.getpid())
    assert is_running(own)
    kill_recorded([own])
    assert is_running(own)


def test_a_pid_that_nobody_has_is_not_running() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert process_record(process.pid) == ProcessRecord(process.pid, 0)
    assert not is_running(ProcessRecord(process.pid, 1))


def test_the_name_of_a_host_changes_with_its_start() -> None:
    assert host_name() == host_name()
    assert "boot" in host_name()


@pytest.mark.parametrize(
    ("code", "text"),
    [(0, "exited with 0"), (3, "exited with 3"), (-9, "killed by SIGKILL"), (-60, "killed by signal 60")],
)
def test_an_exit_is_told_in_words(code: int, text: str) -> None:
    assert describe_exit(code) == text


def test_an_exit_of_user_code_is_a_failure_of_user_code() -> None:
    failure = failure_of_exit(SystemExit(0))
    assert failure.kind is ErrorKind.USER_CODE
    assert "exit code 0" in failure.message


def test_a_process_that_is_started_without_interrupts_has_none_before_it_asks_to_ignore_them() -> None:
    program = (
        "import sys, time\n"
        "from tidegate.deploy.processes import ignore_interrupts\n"
        "print('started', flush=True)\n"
        "sys.stdin.read()\n"
        "ignore_interrupts()\n"
        "print('unharmed', flush=True)\n"
    )
    with without_interrupts():
        process = subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
    process.send_signal(signal.SIGINT)
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=30)
    assert said == "unharmed\n"
    assert process.returncode == 0


def test_an_interrupt_of_ones_own_comes_later() -> None:
    with pytest.raises(KeyboardInterrupt):
        hold_an_interrupt()


def hold_an_interrupt() -> None:
    has_come = []
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with without_interrupts():
            # To this thread: to the process, any thread that some library began could take it at once.
            signal.pthread_kill(threading.get_ident(), signal.SIGINT)
            wait_until(lambda: signal.SIGINT in signal.sigpending(), "the signal")
            has_come.append(True)
    finally:
        signal.signal(signal.SIGINT, before)
        assert has_come == [True]


# ---- a child does not outlive its parent, in either of two ways ----------------------------------------------------


@pytest.mark.skipif(sys.platform != "linux", reason="parent-death signals are Linux's")
def test_the_kernel_kills_a_child_whose_parent_dies() -> None:
    child = (
        "import sys, time; from tidegate.deploy.processes import die_with_parent; die_with_parent(int(sys.argv[1])); "
        "print('asked', flush=True); time.sleep(60)"
    )
    parent = (
        f"import os, subprocess, sys\nchild = subprocess.Popen([sys.executable, '-c', {child!r}, str(os.getpid())])\n"
    )
    parent += "print(child.pid, flush=True)\nchild.wait()\n"
    process = subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    assert process.stdout.readline() == "asked\n"
    assert is_alive(pid)
    process.kill()
    process.communicate()
    wait_until(lambda: not is_alive(pid), f"the death of {pid}")


def test_a_child_whose_parent_is_dead_already_ends_at_once() -> None:
    child = "import os; from tidegate.deploy.processes import die_with_parent; die_with_parent(os.getppid() + 1)"
    assert subprocess.run([sys.executable, "-c", child], check=False).returncode == 1


def test_a_process_ends_when_the_other_side_of_its_socket_is_closed_whatever_it_is_doing() -> None:
    ours, theirs = socket.socketpair()
    child = (
        "import sys, time; from tidegate.deploy.worker_process import watch_parent; watch_parent(int(sys.argv[1]))\n"
    )
    child += "print('watching', flush=True)\nwhile True: pass\n"
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-c", child, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdout=subprocess.PIPE,
            text=True,
        )
    assert process.stdout is not None
    assert process.stdout.readline() == "watching\n"
    assert process.poll() is None
    ours.close()
    process.communicate(timeout=30)
    assert process.returncode == 1
