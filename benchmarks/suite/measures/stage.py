"""What the measures stand on: a broker, a folder, the load generator and the reader as processes, and a line that says
how far it is.

Nothing that is started here outlives its `with`.
"""

import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Self

import msgspec

from benchmarks.suite.measure import Measuring, say_on_terminal
from benchmarks.suite.measures.load import LATE_SHARE, Sent
from benchmarks.suite.measures.quantiles import NoMeasure
from benchmarks.suite.topics import Topics
from tidegate.deploy.dev_kafka import DevKafka

PARTITIONS = 4
END_PATIENCE = 30.0


class Stage(NamedTuple):
    bootstrap: str
    folder: Path
    measuring: Measuring
    topics: Topics
    say: Callable[[str], None]

    def new_folder(self, name: str) -> Path:
        """Empty."""
        return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.folder))

    def new_topics(self, name: str, partitions: int = PARTITIONS) -> tuple[str, str]:
        """An input and an output, empty."""
        names = (f"bench-{name}-input", f"bench-{name}-output")
        for topic in names:
            self.topics.create_output(topic, partitions)
        return names


@contextmanager
def stage(say: Callable[[str], None] = say_on_terminal) -> Iterator[Stage]:
    """With a Kafka of its own."""
    say("starting Kafka")
    with (
        tempfile.TemporaryDirectory(prefix="tidegate-bench-", ignore_cleanup_errors=True) as folder,
        DevKafka(Path(folder) / "kafka") as kafka,
    ):
        runs = Path(folder) / "runs"
        runs.mkdir()
        measuring = Measuring(kafka.bootstrap, runs, kafka.pid(), say)
        yield Stage(kafka.bootstrap, runs, measuring, Topics(kafka.bootstrap), say)


class Helper:
    """A process that says one line when it begins and perhaps one when it ends, which it does with SIGTERM. For
    `with`."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.said = self._process.stdout.readline().strip()
        """The first line."""
        if not self.said:
            raise NoMeasure(f"{self._command[2]} has ended with {self._process.wait()}")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def end(self) -> str:
        """Let it end; its last line. Raises NoMeasure when it does not end well."""
        self._process.terminate()
        said, _ = self._process.communicate(timeout=END_PATIENCE)
        if self._process.returncode:
            raise NoMeasure(f"{self._command[2]} has ended with {self._process.returncode}")
        return said.strip()


def sent(generator: Helper, late_share: float = LATE_SHARE) -> Sent:
    """Let the load generator end. Raises NoMeasure when it fell behind."""
    done = msgspec.json.decode(generator.end(), type=Sent)
    done.check(late_share)
    return done


def until(deadline: float) -> None:
    """Sleep until this moment of the monotonic clock; not at all when it is over."""
    time.sleep(max(0.0, deadline - time.monotonic()))
