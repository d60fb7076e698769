"""Tidegate as a user runs it: one of the three examples with `tidegate run`, bounded, with a worker for each slot."""

import compileall
import os
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import tidegate
from benchmarks.suite.contracts import Command, Guarantee, JobRun, Workload
from tidegate.deploy.demo_answer import EXAMPLES

_HOOK = Path(__file__).parent / "hook"
_PROGRAMS = {
    Workload.FORWARD: "forward.py",
    Workload.TOTALS: "running_totals.py",
    Workload.WINDOWS: "window_totals.py",
}
_DELIVERY = {Guarantee.EXACTLY_ONCE: "", Guarantee.AT_LEAST_ONCE: "at-least-once"}


EXCHANGE = "exchange"
"""Of the system that does not say how its input is partitioned: records go to the worker of their key."""


class Tidegate(NamedTuple):
    """client: of Kafka; empty for the one that users get. exchanges: see `EXCHANGE`. profile: where worker 0 writes
    one, which is slow."""

    name: str
    client: str = ""
    exchanges: bool = False
    profile: Path | None = None

    @property
    def title(self) -> str:
        client = f", client={self.client!r}" if self.client else ""
        exchange = " with an exchange by key" if self.exchanges else ""
        return f"Tidegate {version('tidegate')}{exchange}{client}"

    @property
    def workloads(self) -> frozenset[Workload]:
        return frozenset(Workload)

    @property
    def guarantees(self) -> tuple[Guarantee, ...]:
        return (Guarantee.EXACTLY_ONCE, Guarantee.AT_LEAST_ONCE)

    def prepare(self) -> None:
        """The virtual environment that runs this has all it needs."""

    def settings(self) -> Mapping[str, str]:
        from tidegate.connectors.kafka import connection
        from tidegate.native import native

        return {
            "Python": sys.version.split()[0],
            "client": self.client or connection.DEFAULT_CLIENT,
            "confluent-kafka": version("confluent-kafka"),
            "codec": "aiokafka " + version("aiokafka") if native is None else "compiled",
            "keys": "exchanged" if self.exchanges else "co-partitioned",
        }

    def command(self, run: JobRun) -> Command:
        options = ["--parallelism", str(run.slots), "--checkpoint-interval", f"{run.checkpoint_seconds:g}s"]
        options += ["--checkpoint-dir", str(run.folder / "checkpoints")]
        program = ["--bootstrap", run.bootstrap, "--input", run.source, "--output", run.sink, "--bounded"]
        if run.workload is not Workload.FORWARD and run.partitions is not None and not self.exchanges:
            program += ["--partitions", str(run.partitions)]
        path = str(EXAMPLES / _PROGRAMS[run.workload])
        arguments = [sys.executable, "-c", "from tidegate.cli.main import main; main()", "run", path]
        return Command([*arguments, *options, "--", *program], self._environment(run.guarantee), ends=True)

    def _environment(self, guarantee: Guarantee) -> dict[str, str]:
        profile = "" if self.profile is None else str(self.profile.absolute())
        chosen = {"BENCH_CLIENT": self.client, "BENCH_DELIVERY": _DELIVERY[guarantee], "BENCH_PROFILE": profile}
        if not any(chosen.values()):
            return {}
        return {**chosen, "PYTHONPATH": os.pathsep.join(filter(None, (str(_HOOK), os.environ.get("PYTHONPATH"))))}


def system(name: str) -> Tidegate:
    """`tidegate`, or with the name of a client behind it, or with `exchange`. Its modules are compiled, as they are
    where pip has installed it: a Python that is told to keep no bytecode would compile them in each process of each
    run."""
    for folder in (Path(tidegate.__file__).parent, EXAMPLES):
        compileall.compile_dir(folder, quiet=1)
    kind = name.removeprefix("tidegate").removeprefix("-")
    return Tidegate(name, exchanges=True) if kind == EXCHANGE else Tidegate(name, kind)
