"""Garbage collection in worker processes, seen by the program that runs there."""

import gc
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.programs import TIDEGATE, run
from tidegate.deploy.garbage import THRESHOLDS
from tidegate.local import LocalLog

PROGRAM = """
import gc
import tidegate as tg
from tidegate.local import LocalSink, LocalSource

{before}

class Node:
    living = 0

    def __init__(self):
        self.me = self
        Node.living += 1

    def __del__(self):
        Node.living -= 1

def step(text):
    most = 0
    for _ in range(100_000):
        Node()
        most = max(most, Node.living)
    return f"{{most}} {{gc.get_threshold()}}"

def build(argv):
    job = tg.Job("littering")
    texts = job.source(LocalSource("log", "in", value=tg.String(), bounded=True), name="in")
    texts.map(step, name="step").sink(LocalSink("log", "out", value=tg.String(), partitions=1), name="out")
    return job
"""


def outcome(folder: Path, before: str = "") -> list[tuple[int, str]]:
    """For each of three records: how many of the objects that hold themselves lived at once, and the thresholds."""
    (folder / "littering.py").write_text(PROGRAM.format(before=before))
    with LocalLog(folder / "log") as log:
        log.create_topic("in", 1)
        log.append("in", 0, [b"1", b"2", b"3"])
    done = run([*TIDEGATE, "run", "littering.py", "--checkpoint-dir", "ck"], folder)
    assert done.returncode == 0, done.stderr
    with LocalLog(folder / "log") as log:
        lines = [(record.value or b"").decode() for record in log.read("out", 0)]
    return [(int(line.partition(" ")[0]), line.partition(" ")[2]) for line in lines]


def test_a_job_that_makes_cyclic_garbage_stays_bounded(tmp_path: Path) -> None:
    found = outcome(tmp_path)
    assert [thresholds for _, thresholds in found] == [str(THRESHOLDS)] * 3
    assert all(THRESHOLDS[0] / 2 < most < 2 * THRESHOLDS[0] for most, _ in found)


def test_a_program_that_says_when_to_collect_has_its_way(tmp_path: Path) -> None:
    found = outcome(tmp_path, before="gc.set_threshold(1_000, 5, 5)")
    assert [thresholds for _, thresholds in found] == ["(1000, 5, 5)"] * 3
    assert all(most < 2_000 for most, _ in found)


@pytest.mark.parametrize("begins", [True, False])
def test_nothing_is_collected_until_it_begins(begins: bool) -> None:
    program = f"""
import gc
from tidegate.deploy import garbage
garbage.put_off_collecting()
class Node:
    pass
def litter():
    for _ in range(50_000):
        node = Node()
        node.me = node
litter()
assert gc.get_count()[0] >= 50_000
if {begins}:
    garbage.begin_collecting()
    assert gc.get_freeze_count() >= 50_000
    litter()
    assert gc.get_count()[0] < 20_000
"""
    subprocess.run([sys.executable, "-c", program], check=True, env={"PYTHONPATH": ":".join(sys.path)})


def test_where_the_program_switched_it_off_it_stays_off() -> None:
    program = "import gc; from tidegate.deploy import garbage; gc.disable(); garbage.begin_collecting(); "
    checked = program + "assert not gc.isenabled()"
    subprocess.run([sys.executable, "-c", checked], check=True, env={"PYTHONPATH": ":".join(sys.path)})
    assert gc.isenabled()


@pytest.mark.parametrize("was_on", [True, False])
def test_importing_everything_leaves_the_collector_as_it_was(was_on: bool) -> None:
    program = f"""
import gc
gc.enable() if {was_on} else gc.disable()
before = gc.get_stats()[0]["collections"]
import tidegate
assert gc.isenabled() == {was_on}
assert gc.get_stats()[0]["collections"] <= before + 3, gc.get_stats()
"""
    subprocess.run([sys.executable, "-c", program], check=True, env={"PYTHONPATH": ":".join(sys.path)})
