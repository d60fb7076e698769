"""The example of the articles: messages A to E in two partitions, a checkpoint at the offsets (2, 1), and a crash."""

import signal
from collections import Counter
from itertools import chain
from pathlib import Path

import pytest

from tests.integration import articles_program
from tests.integration.running import Bench, Started
from tidegate.ids import OperatorName

LETTERS = [[f"{letter}{partition}" for letter in "ABCDE"] for partition in (0, 1)]
BEFORE = [LETTERS[0][:2], LETTERS[1][:1]]
AFTER = [LETTERS[0][2:], LETTERS[1][1:]]


class Articles:
    """The job on a bench, and what its map task has seen."""

    def __init__(self, bench: Bench, folder: Path) -> None:
        self.bench = bench
        self.job = bench.medium.name("articles")
        self.topic = bench.medium.name("letters")
        self.gate = folder / "gate"
        self._seen = folder / "seen"
        self._out = bench.medium.name("letters-out")
        self.arguments = ["--letters", self.topic, "--out", self._out, "--job", self.job]
        self.arguments += ["--gate", str(self.gate), "--seen", str(self._seen), *bench.medium.arguments]
        bench.medium.create_topic(self.topic, 2)
        bench.medium.create_topic(self._out, 1)
        bench.medium.append(self.topic, [[letter.encode() for letter in letters] for letters in LETTERS])

    def seen_by(self) -> dict[int, list[list[str]]]:
        """By process in the order of their beginning: the letters of each partition."""
        found: dict[int, list[list[str]]] = {}
        for line in self._seen.read_text().splitlines() if self._seen.exists() else ():
            process, letter = line.split()
            found.setdefault(int(process), [[], []])[int(letter[1])].append(letter)
        return found

    def offsets(self) -> list[int]:
        newest = self.bench.view(self.job).newest if self.bench.checkpoints.exists() else None
        record = newest.operator(OperatorName("letters")) if newest else None
        return [split.position for split in record.splits] if record else []

    def output(self) -> list[str]:
        return [value.decode() for values in self.bench.medium.read(self._out) for value in values]

    def assert_nothing_is_left(self) -> None:
        assert self.bench.open_transactions(self.job) == []
        self.bench.assert_nothing_is_left(self.job)
        self.bench.medium.assert_readers_are_free(self._out)


class ArticlesExample:
    """The example on the medium of the `bench` that the subclass's module gives."""

    @pytest.fixture
    def articles(self, bench: Bench, tmp_path: Path) -> Articles:
        return Articles(bench, tmp_path)

    def mislead(self, articles: Articles, started: Started) -> None:
        """Change what is outside of the checkpoint and must not matter."""

    def test_after_a_crash_the_sources_read_on_from_the_offsets_of_the_checkpoint(self, articles: Articles) -> None:
        bench, job = articles.bench, articles.job
        started = bench.start_program(articles_program.__file__, articles.arguments, job=job)
        started.wait_until(lambda: articles.offsets() == [2, 1], "a checkpoint at the offsets (2, 1)")
        record = bench.view(job).newest.operator(OperatorName("letters"))  # type: ignore[union-attr]
        assert record is not None
        splits = [[split.id for split in own.snapshot.splits] for own in record.subtasks]
        assert splits == [[f"{articles.topic}/0"], [f"{articles.topic}/1"]]
        started.wait_until(
            lambda: sorted(articles.output()) == sorted(chain(*BEFORE)), "the commit of what the checkpoint covers"
        )
        self.mislead(articles, started)
        started.send_to_all(signal.SIGKILL)
        started.wait()
        (first,) = articles.seen_by().values()
        assert first == BEFORE

        articles.gate.touch()
        again = bench.start_program(articles_program.__file__, articles.arguments, job=job)
        assert again.wait() == 0, again.said
        _, second = articles.seen_by().values()
        assert second == AFTER, "the next records are not those at the offsets 2 and 1"
        assert Counter(articles.output()) == Counter(chain(*LETTERS))
        assert [[one for one in articles.output() if one[1] == str(partition)] for partition in (0, 1)] == LETTERS
        articles.assert_nothing_is_left()


class TestTheEmbeddedLog(ArticlesExample):
    """Without anything that could mislead."""
