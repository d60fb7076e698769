"""Ruff's bans: clocks, randomness, threads and processes are found in the engine and allowed where they belong."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def _banned(path: str, text: str) -> list[str]:
    """Messages of the ban for `text`, were it the file `path` of the project."""
    result = subprocess.run(
        [
            sys.executable,
            "-m",
            "ruff",
            "check",
            "--select",
            "TID251",
            "--no-cache",
            "--output-format",
            "json",
            "--stdin-filename",
            path,
            "-",
        ],
        cwd=ROOT,
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode in (0, 1), result.stderr
    return [finding["message"] for finding in json.loads(result.stdout)]


CLOCKS = "import time\nfrom time import monotonic\nimport datetime\ndatetime.datetime.now()\ndatetime.date.today()\n"
RANDOMNESS = (
    "import uuid\nimport secrets\nimport os\nos.urandom(8)\nimport random\nrandom.random()\nrandom.shuffle([])\n"
)
WORKERS = "import threading\nimport subprocess\nimport multiprocessing\nimport concurrent.futures\nimport asyncio\n"


@pytest.mark.parametrize(("text", "count"), [(CLOCKS, 4), (RANDOMNESS, 5), (WORKERS, 5)])
@pytest.mark.parametrize(
    "path",
    [
        "checkpoint/coordinator.py",
        "runtime/task.py",
        "scheduling/restart.py",
        "cli/main.py",
        "testing/sim/world.py",
        "worker.py",
    ],
)
def test_the_engine_may_not_have_them(path: str, text: str, count: int) -> None:
    assert len(_banned(f"src/tidegate/{path}", text)) == count


@pytest.mark.parametrize(
    "path",
    ["src/tidegate/clock.py", "src/tidegate/deploy/local.py", "src/tidegate/connectors/kafka/sink.py", "tests/x.py"],
)
def test_the_edges_may_have_them(path: str) -> None:
    assert _banned(path, CLOCKS + RANDOMNESS + WORKERS) == []


def test_a_seeded_generator_that_is_handed_in_is_allowed_everywhere() -> None:
    text = (
        "import random\ndef draw(source: random.Random) -> float:\n    return source.random()\ndraw(random.Random(7))\n"
    )
    assert _banned("src/tidegate/testing/sim/world.py", text) == []
