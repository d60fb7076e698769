"""What connectors log with the standard library, as lines like the job's own.

Without a handler Python prints warnings bare, without a time and in no form for machines. A program that configures
logging itself gets its way: then nothing is told here.
"""

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime

import msgspec

from tidegate.ids import WorkerIndex
from tidegate.metrics import Level

Tell = Callable[[Level, str], None]
LOGGER_NAME = "tidegate"
JSON = "json"


class _Handler(logging.Handler):
    def __init__(self, tell: Tell) -> None:
        super().__init__(logging.WARNING)
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        if not logging.getLogger().handlers:
            self._tell("error" if record.levelno >= logging.ERROR else "warning", record.getMessage())


@contextmanager
def telling_logs(tell: Tell) -> Iterator[None]:
    """Within, warnings and errors that Tidegate's modules log are told."""
    handler = _Handler(tell)
    logger = logging.getLogger(LOGGER_NAME)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def worker_tell(worker: WorkerIndex, log_format: str) -> Tell:
    """Writes to the worker's standard error, which is the job's."""

    def tell(level: Level, text: str) -> None:
        time = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        line = f"{time} {level}: worker {worker}: {text}"
        if log_format == JSON:
            line = msgspec.json.encode({"time": time, "level": level, "event": text, "worker": worker}).decode()
        # None, or an error, where nobody reads it.
        if sys.stderr is not None:
            with suppress(OSError, ValueError):
                sys.stderr.write(f"{line}\n")
                sys.stderr.flush()

    return tell
