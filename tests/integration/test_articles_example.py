"""The example of the articles: messages A to E in two partitions, a checkpoint at the offsets (2, 1), and a crash."""

import signal
from collections import Counter
from itertools import chain
from pathlib import Path

import pytest

from tests.integration import articles_program
from tests.integration.programs import wait_until
from tests.integration.running import Bench
from tidegate.ids import OperatorName
from tidegate.local import LocalLog

LETTERS = [[f"{letter}{partition}" for letter in "ABCDE"] for partition in (0, 1)]
BEFORE = [LETTERS[0][:2], LETTERS[1][:1]]
AFTER = [LETTERS[0][2:], LETTERS[1][1:]]


class Articles:
    """The job on a bench, and what its map task has seen."""

    def __init__(self, bench: Bench, folder: Path) -> None:
        self.bench = bench
        self.gate = folder / "gate"
        self._seen = folder / "seen"
        self.arguments = [str(self.bench.log), str(self.gate), str(self._seen)]
        with LocalLog(bench.log) as log:
            log.create_topic(articles_program.TOPIC, 2)
            for partition, letters in enumerate(LETTERS):
                log.append(articles_program.TOPIC, partition, [letter.encode() for letter in letters])

    def seen_by(self) -> dict[int, list[list[str]]]:
        """By process in the order of their beginning: the letters of each partition."""
        found: dict[int, list[list[str]]] = {}
        for line in self._seen.read_text().splitlines() if self._seen.exists() else ():
            process, letter = line.split()
            found.setdefault(int(process), [[], []])[int(letter[1])].append(letter)
        return found

    def offsets(self) -> list[int]:
        newest = self.bench.view("articles").newest if self.bench.checkpoints.exists() else None
        record = newest.operator(OperatorName("letters")) if newest else None
        return [split.position for split in record.splits] if record else []

    def output(self) -> list[str]:
        with LocalLog(self.bench.log, create=False) as log:
            return [(record.value or b"").decode() for record in log.read("out", 0)]


@pytest.fixture
def articles(bench: Bench, tmp_path: Path) -> Articles:
    return Articles(bench, tmp_path)


def test_after_a_crash_the_sources_read_on_from_the_offsets_of_the_checkpoint(articles: Articles) -> None:
    bench = articles.bench
    started = bench.start_program(articles_program.__file__, articles.arguments, job="articles")
    wait_until(lambda: articles.offsets() == [2, 1], "a checkpoint at the offsets (2, 1)")
    record = bench.view("articles").newest.operator(OperatorName("letters"))  # type: ignore[union-attr]
    assert record is not None
    assert [[split.id for split in own.snapshot.splits] for own in record.subtasks] == [["letters/0"], ["letters/1"]]
    wait_until(lambda: sorted(articles.output()) == sorted(chain(*BEFORE)), "the commit of what the checkpoint covers")
    started.send_to_all(signal.SIGKILL)
    started.wait()
    (first,) = articles.seen_by().values()
    assert first == BEFORE

    articles.gate.touch()
    again = bench.start_program(articles_program.__file__, articles.arguments, job="articles")
    assert again.wait() == 0, again.said
    _, second = articles.seen_by().values()
    assert second == AFTER, "the next records are not those at the offsets 2 and 1"
    assert Counter(articles.output()) == Counter(chain(*LETTERS))
    assert [[one for one in articles.output() if one[1] == str(partition)] for partition in (0, 1)] == LETTERS
    assert bench.open_transactions() == []
    bench.assert_nothing_is_left("articles")
