"""Every source of the package keeps the promises of a source, and the kit finds one that does not."""

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tidegate.checkpoint.protocol import SplitState
from tidegate.connectors.collections import CollectionSource
from tidegate.connectors.local.records import Row
from tidegate.files import CsvSource, JsonLinesSource
from tidegate.formats import String
from tidegate.local import LocalLog, LocalSource
from tidegate.operators.contracts import Fetched, Source, SourceContext, SourceReader
from tidegate.testing.conformance.source import SourceConformance


class TestLocalSource(SourceConformance):
    def create(self, splits: int) -> None:
        self.log = LocalLog(self.directory)
        self.log.create_topic("input", splits)

    def append(self, split: int, values: Sequence[str | None]) -> None:
        self.log.append("input", split, String().encode(list(values)))

    def append_invisible(self, split: int, values: Sequence[str | None]) -> None:
        self.append_open(split, values)
        self.log.abort_transaction("kit")

    def append_open(self, split: int, values: Sequence[str | None]) -> Callable[[], object]:
        transaction = self.log.begin_transaction("kit")
        number = self.log.partition_numbers("input")[split]
        self.log.write_transaction(
            transaction, [Row(number, 0, None, value) for value in String().encode(list(values))]
        )
        prepared = self.log.prepare_transaction(transaction)
        assert prepared is not None
        assert prepared.start is not None
        id, epoch, start = prepared.id, prepared.epoch, prepared.start
        return lambda: self.log.commit_transaction(id, epoch, start)

    def add_split(self) -> None:
        self.log.create_topic("input", self.log.partitions("input") + 1)

    def lose(self, split: int) -> None:
        self.log.delete_records("input", split, 2)

    def source(self, *, bounded: bool, start: str = "earliest") -> Source:
        return LocalSource(self.directory, "input", value=String(), bounded=bounded, start=start)

    def pause(self) -> None:
        time.sleep(0.005)


class TestCollectionSource(SourceConformance):
    unbounded = False
    grows = False

    def create(self, splits: int) -> None:
        self.values: list[list[str | None]] = [[] for _ in range(splits)]

    def append(self, split: int, values: Sequence[str | None]) -> None:
        self.values[split] += values

    def source(self, *, bounded: bool, start: str = "earliest") -> Source:
        return CollectionSource.of_splits(self.values)


class FileConformance(SourceConformance):
    unbounded = False

    def path(self, split: int) -> Path:
        return self.directory / f"{split}.txt"

    def append_lines(self, split: int, lines: list[str]) -> None:
        with self.path(split).open("a", encoding="utf-8", newline="") as file:
            file.writelines(lines)

    def lose(self, split: int) -> None:
        path = self.path(split)
        path.write_bytes(path.read_bytes()[:-3])


class TestJsonLinesSource(FileConformance):
    def create(self, splits: int) -> None:
        for split in range(splits):
            self.path(split).touch()

    def append(self, split: int, values: Sequence[str | None]) -> None:
        self.append_lines(split, [json.dumps(value) + "\n" for value in values])

    def append_invisible(self, split: int, values: Sequence[str | None]) -> None:
        self.append_lines(split, ["\n" for _ in values])

    def source(self, *, bounded: bool, start: str = "earliest") -> Source:
        return JsonLinesSource(self.directory / "*.txt", str | None)


class TestCsvSource(FileConformance):
    """With values whose line ends and quotes would break a reader that splits at line ends."""

    def create(self, splits: int) -> None:
        for split in range(splits):
            self.append_lines(split, ['"the ""value""\r\nof a row",other\r\n'])

    def append(self, split: int, values: Sequence[str | None]) -> None:
        rows = ["NULL,1\r\n" if value is None else f'"{value}\n"",\r\n",2\r\n' for value in values]
        self.append_lines(split, rows)

    def append_invisible(self, split: int, values: Sequence[str | None]) -> None:
        self.append_lines(split, ["\r\n" for _ in values])

    def source(self, *, bounded: bool, start: str = "earliest") -> Source:
        return CsvSource(self.directory / "*.txt", null_values=["NULL"])

    def texts(self, source: Source, values: list[Any]) -> list[Any]:
        texts = [row['the "value"\r\nof a row'] for row in super().texts(source, values)]
        return [None if text is None else text.removesuffix('\n",\r\n') for text in texts]


class TestCollectionSourceInOneSequence:
    def test_values_are_dealt_to_the_splits_in_turn(self) -> None:
        source = CollectionSource(["a", "b", "c"], splits=2)
        assert [(split.id, split.stop) for split in source.discover(None)] == [("0", 2), ("1", 1)]


class Wrong(TestCollectionSource):
    """The kit on a source whose answers are bent by `bend`. `Test` classes alone are collected."""

    bend: Callable[[Fetched], Fetched]

    def source(self, *, bounded: bool, start: str = "earliest") -> Source:
        return BentSource(self.values, type(self).bend)


class BentSource(CollectionSource):
    def __init__(self, values: list[list[str | None]], bend: Callable[[Fetched], Fetched]) -> None:
        super().__init__((), 1)
        self._splits = tuple(map(tuple, values))
        self._bend = bend

    def open_reader(self, context: SourceContext) -> SourceReader:
        return BentReader(super().open_reader(context), self._bend)


class BentReader:
    def __init__(self, reader: SourceReader, bend: Callable[[Fetched], Fetched]) -> None:
        self._reader = reader
        self._bend = bend

    def add_splits(self, splits: Sequence[SplitState]) -> None:
        self._reader.add_splits(splits)

    def poll(self, max_records: int) -> Fetched | None:
        fetched = self._reader.poll(max_records)
        return None if fetched is None else self._bend(fetched)

    def notify_checkpoint_complete(self, splits: Sequence[SplitState]) -> None:
        self._reader.notify_checkpoint_complete(splits)

    def close(self) -> None:
        self._reader.close()


def _replaced(**changes: Callable[[Fetched], Any]) -> Callable[[Fetched], Fetched]:
    return lambda fetched: msgspec.structs.replace(
        fetched, **{name: change(fetched) for name, change in changes.items()}
    )


WRONG: dict[str, Callable[[Fetched], Fetched]] = {
    "off by one backwards": _replaced(next_position=lambda fetched: max(0, fetched.next_position - 1)),
    "off by one forwards": _replaced(next_position=lambda fetched: fetched.next_position + (not fetched.finished)),
    "a record removed": _replaced(values=lambda fetched: [one for one in fetched.values if one != "a5"]),
    "a record doubled": _replaced(values=lambda fetched: fetched.values * (2 if "a5" in fetched.values else 1)),
    "a record changed": _replaced(values=lambda fetched: ["?" if one == "a5" else one for one in fetched.values]),
}


@pytest.mark.parametrize("name", WRONG)
def test_the_kit_finds_a_source_that_is_wrong(name: str, tmp_path: Path) -> None:
    class Kit(Wrong):
        bend = staticmethod(WRONG[name])

    kit = Kit()
    kit.set_up(tmp_path)
    with pytest.raises(AssertionError):
        _positions_and_records(kit)


def test_the_kit_is_content_with_the_same_source_unbent(tmp_path: Path) -> None:
    class Kit(Wrong):
        bend = staticmethod(lambda fetched: fetched)

    kit = Kit()
    kit.set_up(tmp_path)
    _positions_and_records(kit)


def _positions_and_records(kit: SourceConformance) -> None:
    kit.test_a_restart_from_any_position_gives_exactly_the_rest()
    kit.create(1)
    kit.append(0, [f"a{number}" for number in range(12)])
    assert list(kit.read_bounded().texts.values()) == [[f"a{number}" for number in range(12)]]
