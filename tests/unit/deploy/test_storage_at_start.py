"""A start waits for its storage, says so, and gives up after a minute; what waiting cannot mend ends it at once."""

from collections.abc import Callable

import pytest

from tidegate.clock import Now
from tidegate.deploy.storage_at_start import PATIENCE, open_when_it_answers
from tidegate.errors import InvalidError
from tidegate.metrics import JobStatus, Level
from tidegate.storage.memory import MemoryStorage
from tidegate.storage.port import Storage, StorageUnavailable


class Time:
    """Goes on where somebody sleeps."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> Now:
        return Now(self.seconds, self.seconds)

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


class Heard:
    def __init__(self) -> None:
        self.texts: list[str] = []

    def update(self, status: JobStatus) -> None:
        """Nobody watches."""

    def event(self, level: Level, text: str, **fields: object) -> None:
        self.texts.append(f"{level}: {text}")

    def close(self) -> None:
        """Nothing to release."""


def failing(times: int, storage: Storage) -> Callable[[], Storage]:
    left = [StorageUnavailable("cannot use /data: No space left on device")] * times

    def open_it() -> Storage:
        if left:
            raise left.pop()
        return storage

    return open_it


def test_a_storage_that_is_full_for_a_moment_is_waited_for_and_that_is_told() -> None:
    time, heard, storage = Time(), Heard(), MemoryStorage()
    assert open_when_it_answers(failing(5, storage), "/data", heard, time, time.sleep) is storage
    assert time.seconds == 5.0
    assert heard.texts == [
        "warning: waiting for 3 s for the storage of checkpoints, /data: cannot use /data: No space left on device"
    ]


def test_one_that_answers_at_once_costs_no_time_and_no_word() -> None:
    time, heard, storage = Time(), Heard(), MemoryStorage()
    assert open_when_it_answers(failing(0, storage), "/data", heard, time, time.sleep) is storage
    assert (time.seconds, heard.texts) == (0.0, [])


def test_after_a_minute_its_error_ends_the_start() -> None:
    time, heard = Time(), Heard()
    with pytest.raises(StorageUnavailable, match="No space left"):
        open_when_it_answers(failing(1000, MemoryStorage()), "/data", heard, time, time.sleep)
    assert time.seconds == PATIENCE


def test_what_waiting_cannot_mend_is_not_waited_for() -> None:
    def refused() -> Storage:
        raise InvalidError("no right to write in /data")

    time = Time()
    with pytest.raises(InvalidError):
        open_when_it_answers(refused, "/data", Heard(), time, time.sleep)
    assert time.seconds == 0.0
