"""Real workers that are killed while requests are in flight: each record comes out once."""

import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.integration.programs import TIDEGATE, run
from tidegate.local import LocalLog

PROGRAM = Path(__file__).parent / "asking_program.py"
RECORDS = 300


class AskingJob:
    """The program with its input, in a folder of its own; runs to its end."""

    def __init__(self, folder: Path, deaths: Sequence[int], *arguments: str) -> None:
        self.folder = folder
        shutil.copy(PROGRAM, folder / "asking.py")
        (folder / "deaths").mkdir()
        for record in deaths:
            (folder / "deaths" / str(record)).touch()
        with LocalLog(folder / "log") as log:
            log.create_topic("in", 4)
            log.create_topic("out", 2)
            for partition in range(4):
                log.append("in", partition, [b"%d" % number for number in range(partition, RECORDS, 4)])
        options = ["--checkpoint-dir", "checkpoints", "--checkpoint-interval", "50ms", "--parallelism", "2"]
        options += ["--restart", "fixed-delay:20:20ms", "--set", f"state.local_dir={folder / 'local'}"]
        ended = run([*TIDEGATE, "run", "asking.py", *options, "--", *arguments], folder)
        assert ended.returncode == 0, ended.stderr
        assert not any((folder / "deaths").iterdir())

    @property
    def called(self) -> list[str]:
        """The record of each call that began."""
        return (self.folder / "called").read_text().split()

    @property
    def output(self) -> list[list[int]]:
        """By partition."""
        with LocalLog(self.folder / "log") as log:
            parts = [[(record.value or b"").decode().split() for record in log.read("out", part)] for part in range(2)]
        assert all(word == "asked" for part in parts for _, word in part)
        return [[int(number) for number, _ in part] for part in parts]


def differences(output: list[list[int]]) -> list[int]:
    """Records that did not come out once."""
    counts = Counter(number for part in output for number in part)
    return [number for number in sorted({*range(RECORDS), *counts}) if counts[number] != 1 or number >= RECORDS]


def test_a_worker_that_is_killed_with_requests_in_flight_loses_and_doubles_nothing(tmp_path: Path) -> None:
    job = AskingJob(tmp_path, [150])
    assert differences(job.output) == []
    assert len(job.called) > RECORDS


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [("threads",), ("unordered",), ("threads", "unordered"), ()])
def test_so_it_is_with_every_kind_of_calls_and_many_deaths(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    assert differences(AskingJob(tmp_path, [20, 90, 160, 161, 240], *arguments).output) == []


@pytest.mark.parametrize("wrong", [[*range(1, RECORDS)], [*range(RECORDS), 7], [*range(1, RECORDS), RECORDS]])
def test_the_check_sees_what_is_lost_doubled_and_changed(wrong: list[int]) -> None:
    assert differences([[*range(RECORDS)], []]) == []
    assert differences([wrong[:9], wrong[9:]]) != []
