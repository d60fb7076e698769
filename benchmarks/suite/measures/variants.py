"""A system of the suite, with marks or other settings: the same command with more in its environment."""

from collections.abc import Mapping
from pathlib import Path

from benchmarks.suite.contracts import Command, Guarantee, JobRun, System, Workload
from benchmarks.suite.measures import marks
from benchmarks.suite.measures.marks import Mark


class Variant:
    """`environment` goes to each command. With marks those of the last run can be read."""

    def __init__(self, inner: System, environment: Mapping[str, str] = {}, *, with_marks: bool = False) -> None:
        self._inner = inner
        self._environment = environment
        self._with_marks = with_marks
        self._folder: Path | None = None

    @property
    def name(self) -> str:
        return self._inner.name

    @property
    def title(self) -> str:
        return self._inner.title

    @property
    def workloads(self) -> frozenset[Workload]:
        return self._inner.workloads

    @property
    def guarantees(self) -> tuple[Guarantee, ...]:
        return self._inner.guarantees

    def prepare(self) -> None:
        self._inner.prepare()

    def settings(self) -> Mapping[str, str]:
        return {**self._inner.settings(), **self._environment}

    def command(self, run: JobRun) -> Command:
        command = self._inner.command(run)
        environment = {**command.environment, **self._environment}
        if self._with_marks:
            self._folder = run.folder / "marks"
            environment = marks.environment(self._folder, environment)
        return command._replace(environment=environment)

    def marks(self) -> list[Mark]:
        """Of the last run."""
        return [] if self._folder is None else marks.read(self._folder)
