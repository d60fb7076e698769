"""What a session has measured, as lines of JSON: each says by itself what ran, where, how, and what came of it, so that
files can be joined and tables made again without measuring.
"""

import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path

import msgspec

from benchmarks.suite.contracts import Guarantee, Workload
from benchmarks.suite.measure import Measured
from benchmarks.suite.places import ROOT, without_places
from tidegate.deploy.dev_kafka import DEFAULT_VERSION
from tidegate.errors import CorruptError, InvalidError

FOLDER = ROOT / "benchmarks" / "results"


class Machine(msgspec.Struct, frozen=True):
    processor: str
    cores: int
    memory: int
    """Bytes."""
    system: str
    versions: dict[str, str]


class Session(msgspec.Struct, frozen=True):
    """What all runs of one command have in common."""

    began: str
    """Date and time, with its zone."""
    command: str
    commit: str
    """Of this project, `-dirty` where files were changed."""
    machine: Machine


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One run. Without `measured` it failed."""

    session: Session
    round: int
    """From 1."""
    system: str
    title: str
    settings: dict[str, str]
    workload: Workload
    slots: int
    guarantee: Guarantee
    checkpoint_seconds: float
    users: int
    value_bytes: int
    partitions: int
    rate: float | None = None
    """Records of the input a second."""
    rate_per_cpu: float | None = None
    """Records of the input a CPU second."""
    measured: Measured | None = None
    error: str = ""


def append(path: Path, result: Result) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(msgspec.json.encode(result) + b"\n")


def read(paths: Iterable[Path]) -> list[Result]:
    """Raises InvalidError for a file that is not there, CorruptError for one that has something else."""
    results = []
    for path in paths:
        try:
            results += msgspec.json.Decoder(Result).decode_lines(path.read_bytes())
        except FileNotFoundError:
            raise InvalidError(f"{path} is not there", remedy="Name a file of results.") from None
        except msgspec.MsgspecError as error:
            raise CorruptError(f"{path} has no results: {error}", remedy="Name a file of results.") from error
    return results


def newest() -> Path:
    """The file of the last session. Raises InvalidError when there is none."""
    files = sorted(FOLDER.glob("*.jsonl"), key=lambda path: path.stat().st_mtime)
    if not files:
        raise InvalidError(f"{FOLDER} has no results yet", remedy="Measure first.")
    return files[-1]


# ---- where ---------------------------------------------------------------------------------------------------------


def this_session(began: str, arguments: Sequence[str]) -> Session:
    command = " ".join(["python -m benchmarks.suite", *arguments])
    return Session(began=began, command=without_places(command), commit=_commit(), machine=_this_machine())


def _this_machine() -> Machine:
    return Machine(
        processor=_line_of("/proc/cpuinfo", "model name") or platform.processor(),
        cores=len(os.sched_getaffinity(0)),
        memory=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        system=f"{platform.system()} {platform.release()}",
        versions={
            "Python": sys.version.split()[0],
            "Kafka": DEFAULT_VERSION,
            "confluent-kafka": version("confluent-kafka"),
        },
    )


def _line_of(path: str, name: str) -> str:
    lines = Path(path).read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "")


def _commit() -> str:
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    return said.stdout.strip() or "unknown"
