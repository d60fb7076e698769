"""What connectors log is told in the form of the job's own lines, once."""

import json
import logging

import pytest

from tidegate.deploy.logs import telling_logs, worker_tell
from tidegate.ids import WorkerIndex

LOGGER = logging.getLogger("tidegate.some.connector")


def test_warnings_and_errors_are_told_and_nothing_below(monkeypatch: pytest.MonkeyPatch) -> None:
    # As in a program that does not configure logging; pytest does.
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    told: list[tuple[str, str]] = []
    with telling_logs(lambda level, text: told.append((level, text))):
        LOGGER.info("not this")
        LOGGER.warning("%s is away", "a broker")
        LOGGER.error("this, too")
    LOGGER.warning("not after the end")
    assert told == [("warning", "a broker is away"), ("error", "this, too")]


def test_a_program_that_configures_logging_gets_its_way() -> None:
    told: list[str] = []
    handler = logging.NullHandler()
    logging.getLogger().addHandler(handler)
    try:
        with telling_logs(lambda level, text: told.append(text)):
            LOGGER.warning("shown by the program's handler")
    finally:
        logging.getLogger().removeHandler(handler)
    assert told == []


def test_a_worker_writes_lines_like_the_jobs(capsys: pytest.CaptureFixture[str]) -> None:
    worker_tell(WorkerIndex(1), "text")("warning", "a broker is away")
    time, _, rest = capsys.readouterr().err.partition(" ")
    assert time.endswith("Z")
    assert rest == "warning: worker 1: a broker is away\n"
    worker_tell(WorkerIndex(1), "json")("error", "gone")
    line = json.loads(capsys.readouterr().err)
    assert (line["level"], line["event"], line["worker"]) == ("error", "gone", 1)
