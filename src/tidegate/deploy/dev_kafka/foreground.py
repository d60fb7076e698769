"""A Kafka that runs until somebody stops it, and the preparations without which none can be started.

What is said goes to a function: where it is shown is the command line's affair.
"""

import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType

from tidegate.deploy.dev_kafka.cluster import DevKafka
from tidegate.deploy.dev_kafka.jars import ensure_jars, jars_folder
from tidegate.deploy.dev_kafka.tools import find_java, install_missing

Say = Callable[[str], None]
_PAUSE = 0.2


def serve(folder: Path | None, ports: list[int], version: str, topics: Mapping[str, int], say: Say) -> None:
    """Run a Kafka of a node for each of `ports`, with `topics` (name to partitions), until Ctrl-C or SIGTERM; its data
    is kept in `folder`, or nowhere without one.

    Raises what `DevKafka.start` and `create_topics` raise, and UnavailableError when a node ends by itself.
    """
    with ExitStack() as stack:
        if folder is None:
            temporary = tempfile.TemporaryDirectory(prefix="tidegate-kafka-", ignore_cleanup_errors=True)
            data = Path(stack.enter_context(temporary))
        else:
            data = folder
        stack.enter_context(_terminated_as_interrupted())
        kafka = DevKafka(data, len(ports), version, ports=ports)
        _fetch(version, say)
        stack.enter_context(kafka)
        for name in kafka.create_topics(topics):
            say(f"made topic {name}:{topics[name]}")
        kept = "its data is removed when it stops" if folder is None else f"its data is in {kafka.folder}"
        _wait(kafka, lambda: say(f"Kafka {version} is at {kafka.bootstrap}; {kept}. Ctrl-C stops it."))


def _wait(kafka: DevKafka, say_ready: Callable[[], None]) -> None:
    """Return when it is to be stopped, also if that is said as soon as it is ready."""
    try:
        say_ready()
        while True:
            kafka.check_alive()
            time.sleep(_PAUSE)
    except KeyboardInterrupt:
        return


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """SIGTERM does what Ctrl-C does."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def prepare(version: str, say: Say) -> None:
    """Make sure that Kafka `version` can be started: fetch the jars, and first install Java and Maven where they are
    missing and this process may. Raises InvalidError or UnavailableError, with what to do, where that fails."""
    install_missing(maven=not jars_folder(version).is_dir(), say=say)
    _fetch(version, say)


def _fetch(version: str, say: Say) -> None:
    find_java()
    if not jars_folder(version).is_dir():
        say(f"fetching Kafka {version} with Maven, about 60 MB, once")
    ensure_jars(version)
