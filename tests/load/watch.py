"""Takes the figures of a running job by checkpoint, on any medium, until so many checkpoints have completed."""

from collections.abc import Callable
from pathlib import Path

from tests.integration.running import Bench, Started
from tests.load.held import Course, files_under
from tidegate.checkpoint.log import Entry

ALLOWED = {"threads": 1, "files": 3, "sockets": 1, "clients": 2, "entries": 2, "stored": 6, "local": 12}
"""A figure may be taken between an opening and a closing, or just before what is old is removed."""
SAMPLES = 240


class Watch:
    """`memory`: KiB by which a process may grow. `local`: the workers' own folder. `count_ids`: how many transactional
    ids of the job there are."""

    def __init__(self, bench: Bench, started: Started, memory: int, local: Path, count_ids: Callable[[], int]) -> None:
        self._bench = bench
        self._started = started
        self._local = local
        self._count_ids = count_ids
        self._pids = {"jobmanager": started.pid}
        self._pids |= {f"worker-{index}": worker.pid for index, worker in enumerate(bench.takeover().workers)}
        self.course = Course({**ALLOWED, "rss": memory})

    def until(self, checkpoints: int, warm_up: int = 0) -> int:
        """The last checkpoint that was looked at; none is before `warm_up` have completed."""
        reached, step = 0, max(1, (checkpoints - warm_up) // SAMPLES)
        while reached < checkpoints:
            reached = self._wait_for(reached + step)
            if reached > warm_up:
                self._take(reached)
        return reached

    def _wait_for(self, number: int) -> int:
        """The newest completed checkpoint, as soon as it has this number or a higher one."""

        def newest() -> int:
            manifest = self._bench.view().newest
            return 0 if manifest is None else manifest.checkpoint

        self._started.wait_until(lambda: newest() >= number, f"checkpoint {number}")
        return newest()

    def _take(self, checkpoint: int) -> None:
        for name, pid in self._pids.items():
            self.course.take_process(checkpoint, name, pid)
        self.course.take(
            checkpoint,
            {
                "transactional ids": self._count_ids(),
                "log entries": sum(isinstance(entry, Entry) for entry in self._bench.view().entries),
                "checkpoint folder stored": files_under(self._bench.checkpoints),
                "local_dir local": files_under(self._local),
            },
        )
