"""The totals job on a store that fails at random, and the check that what is stored is what the log's entries name."""

import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, cast

import tidegate as tg
from tests.integration import totals_program
from tests.integration.exactly_once import Answer, Written, answer_of, assert_exactly_once
from tests.integration.running import orders
from tests.integration.stepping import INPUT, OUTPUT, SteppedJob
from tests.integration.totals_program import Order, Total
from tidegate.checkpoint.log import Completed, Entry, view_log
from tidegate.checkpoint.manifest import Manifest, files_of
from tidegate.checkpoint.store import CheckpointStore
from tidegate.errors import UnavailableError
from tidegate.ids import JobName
from tidegate.storage.port import StorageUnavailable
from tidegate.storage.resolve import open_storage

JOB = "totals"
USERS = 1200
STARTS_MAX = 100


# ---- what must be stored -------------------------------------------------------------------------------------------


def kept(store: CheckpointStore) -> list[Manifest]:
    """Of all completed checkpoints that the log has, oldest first."""
    bodies = [entry.body for entry in store.read_log() if isinstance(entry, Entry)]
    return [body.manifest for body in bodies if isinstance(body, Completed)]


def problems_of(store: CheckpointStore) -> list[str]:
    """How what is stored is not exactly what the log's entries need; [] when it is."""
    manifests = kept(store)
    log = f"{store.job}/log/"
    stored = {path for path in store.storage.list(f"{store.job}/") if not path.startswith(log)}
    named = {f"{store.job}/{path}" for path in files_of(manifests)}
    problems = [f"left over: {path}" for path in sorted(stored - named)]
    problems += [f"missing: {path}" for path in sorted(named - stored)]
    damaged = [problem for manifest in manifests for problem in store.verify_manifest(manifest)]
    return problems + [f"damaged: {problem.where}: {problem.why}" for problem in damaged]


# ---- the job -------------------------------------------------------------------------------------------------------


class Totals(SteppedJob):
    """The totals job in this process, fed while it runs."""

    def __init__(self, folder: Path, backend: str, retained: int = 3, url: str = "", keep_on_stop: bool = True) -> None:
        super().__init__(folder, JOB, backend)
        self.url = url or str(self.checkpoints)
        self.fed: list[Order] = []
        self.calm: Callable[[], AbstractContextManager[None]] = nullcontext
        """While it lasts, whoever looks at what is stored gets an answer."""
        self._more = {"checkpoints.retained": str(retained), "restart": "fixed-delay:1000:1ms"}
        self._more["checkpoints.keep_on_stop"] = str(keep_on_stop).lower()

    def settings(self, parallelism: int) -> list[tuple[str, str, str]]:
        given = {name: value for name, value, _ in super().settings(parallelism)}
        given |= self._more | {"checkpoints.dir": self.url}
        return [(name, value, "test") for name, value in given.items()]

    @property
    def store(self) -> CheckpointStore:
        return CheckpointStore(open_storage(self.url), JobName(JOB))

    @property
    def newest(self) -> Manifest | None:
        with self.calm():
            return view_log(self.store.read_log()).newest

    def feed(self, count: int) -> None:
        more = orders(len(self.fed), count, USERS)
        self.fed += more
        self.append(more)

    def run_totals(self, parallelism: int, checkpoints: int = 0, fed: int = 150, **beginning: Any) -> None:
        """Until so many more have completed, with `fed` orders before each, and all of it is covered. beginning: as
        `run`."""
        left = checkpoints

        def is_over() -> bool:
            nonlocal left
            left -= 1
            if left > 0:
                self.feed(fed)
            return left <= 0 and self.is_covered()

        arguments = ["--log", str(self.log), "--orders", INPUT, "--out", OUTPUT, "--job", JOB]
        self.run(totals_program.build(arguments), parallelism, is_over=is_over, **beginning)

    def run_as_supervised(self, parallelism: int, checkpoints: int) -> None:
        """The same, started again whenever it ends because something did not answer."""
        before = self.newest.checkpoint if self.newest else 0
        for _ in range(STARTS_MAX):
            completed = (self.newest.checkpoint if self.newest else 0) - before
            with suppress(UnavailableError):
                self.run_totals(parallelism, max(1, checkpoints - completed))
                return
        raise AssertionError(f"not at its end after {STARTS_MAX} starts")

    def answer(self) -> Answer:
        return answer_of(self.fed)

    def held(self) -> dict[str, tuple[int, int, list[tuple[int, int]]]]:
        """The state in the newest checkpoint, by user, as `Answer.held`."""
        found: dict[str, dict[str, Any]] = {}
        for row in tg.read_state(f"{self.url}/{JOB}", "totals"):
            found.setdefault(cast(str, row["key"]), {})[row["state"]] = row["value"]
        return {
            user: (states["orders"], states["total"], [(mark["number"], mark["age"]) for mark in states["marks"]])
            for user, states in found.items()
        }

    def assert_right(self) -> None:
        """After a stop: output, state and what is stored."""
        totals = self.output(Total)
        # A user's records are in one partition, and those of a partition follow each other.
        assert_exactly_once(self.answer().totals, [Written(0, total) for total in totals])
        assert self.held() == self.answer().held
        assert problems_of(self.store) == []

    def copied(self, folder: Path) -> "Totals":
        """With its own log and its own checkpoints."""
        made = Totals(folder, self.backend)
        for name in ("log", "checkpoints"):
            shutil.rmtree(folder / name, ignore_errors=True)
            shutil.copytree(self.folder / name, folder / name)
        made.fed, made.count = list(self.fed), self.count
        return made


# ---- a storage that fails at random --------------------------------------------------------------------------------


class Weather:
    """Makes the storage in this process fail at random, before or after it did what it was asked to."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.share = 0.1
        """Of what is asked for."""
        self.is_bad = False
        self.failures = 0

    @contextmanager
    def calm(self) -> Iterator[None]:
        """While it lasts, nothing fails."""
        was_bad, self.is_bad = self.is_bad, False
        yield
        self.is_bad = was_bad

    def over(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def failing(*arguments: Any) -> Any:
            fate = self.chance.random() if self.is_bad else 1.0
            if fate < self.share / 2:
                self._fail()
            result = method(*arguments)
            if fate < self.share:
                self._fail()
            return result

        return failing

    def _fail(self) -> None:
        self.failures += 1
        raise StorageUnavailable("the storage does not answer")
