"""What the README says of Kafka works as it stands there: the job is killed at its most and at its least important
process, started again by the same command, and every user's totals go on by one.
"""

import os
import signal
import subprocess
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from tests.integration.programs import wait_until
from tests.kafka.brokers import Broker
from tests.unit.docs import markdown, readme
from tidegate.checkpoint.log import view_log
from tidegate.checkpoint.store import CheckpointStore
from tidegate.ids import JobName
from tidegate.storage.resolve import open_storage

pytestmark = pytest.mark.slow
FIRST_JOB = markdown.section(readme.README, "A first job")
COMMANDS = {(words[0], words[1]): words for words in readme.commands(FIRST_JOB)}
PACE = ("range(3000)", "range(600)")
"""Some seconds of orders are enough."""


def topics_of(command: list[str]) -> dict[str, int]:
    named = [command[place + 1].split(":") for place, word in enumerate(command) if word == "--topic"]
    return {name: int(partitions) for name, partitions in named}


def write_files(folder: Path, changes: Mapping[str, str]) -> None:
    programs = readme.files(FIRST_JOB)
    for old, new in changes.items():
        assert any(old in text for text in programs.values()), f"nothing to change: {old}"
        programs = {name: text.replace(old, new) for name, text in programs.items()}
    for name, text in programs.items():
        (folder / name).write_text(text, encoding="utf-8")


@contextmanager
def started(command: list[str], folder: Path) -> Iterator["subprocess.Popen[str]"]:
    """It is killed in the end, if it still runs."""
    with (folder / f"{command[1]}.said").open("a") as said, (folder / f"{command[1]}.errors").open("a") as errors:
        process = subprocess.Popen(readme.executable(command), cwd=folder, stdout=said, stderr=errors, text=True)
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def worker_pids(job: str) -> list[int]:
    folder = Path(os.environ["XDG_STATE_HOME"]) / "tidegate"
    takeover = view_log(CheckpointStore(open_storage(str(folder)), JobName(job)).read_log()).takeover
    return [worker.pid for worker in takeover.workers] if takeover else []


def totals_shown(folder: Path) -> dict[str, list[int]]:
    totals: dict[str, list[int]] = defaultdict(list)
    path = folder / "show.py.said"
    for line in path.read_text().splitlines() if path.exists() else ():
        row = msgspec.json.decode(line, type=dict[str, str | int])
        totals[str(row["user"])].append(int(row["total"]))
    return totals


def test_the_first_job_goes_on_when_its_processes_are_killed(kafka: Broker, tmp_path: Path) -> None:
    for topic, partitions in topics_of(COMMANDS["tidegate", "dev-kafka"]).items():
        kafka.create_topic(topic, partitions)
    write_files(tmp_path, {"localhost:9092": kafka.bootstrap, PACE[0]: PACE[1]})

    def shown() -> int:
        return sum(map(len, totals_shown(tmp_path).values()))

    job = COMMANDS["tidegate", "run"]
    with started(COMMANDS["python", "orders.py"], tmp_path) as orders, started(COMMANDS["python", "show.py"], tmp_path):
        with started(job, tmp_path) as manager:
            wait_until(lambda: shown() > 50, "the first totals")
            os.kill(worker_pids("running-totals")[1], signal.SIGKILL)
            before = shown()
            wait_until(lambda: shown() > before + 50, "totals after the death of a worker")
            manager.kill()
        with started(job, tmp_path) as manager:
            assert orders.wait() == 0
            wait_until(lambda: shown() >= 600, "all totals")
            manager.send_signal(signal.SIGINT)
            assert manager.wait() == 0
        assert totals_shown(tmp_path) == {user: list(range(1, 201)) for user in ("ada", "bob", "cyd")}
