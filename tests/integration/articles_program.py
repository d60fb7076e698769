"""The articles' job: two source subtasks, one map task that writes down what it sees, and a sink.

The source reads up to given offsets and no further as long as a file is missing: so a checkpoint can be taken while
the offsets are exactly these. It gives out one record at a time, as slowly as the reader of the test needs.
"""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tidegate as tg
from tidegate.checkpoint.protocol import SplitState
from tidegate.operators.contracts import Fetched, Sink, Source, SourceContext, SourceReader

HELD_AT = (2, 1)
"""By partition: the first offset that is not read before the file is there."""


class HeldReader:
    """A reader that knows where to wait. See `SourceReader`."""

    def __init__(self, source: "HeldSource", context: SourceContext) -> None:
        self._source = source
        self._context = context
        self._readers: dict[str, SourceReader] = {}
        self._positions: dict[str, int] = {}

    def add_splits(self, splits: Sequence[SplitState]) -> None:
        for split in splits:
            self._positions[split.id] = split.position
            self._readers[split.id] = self._source.inner.open_reader(self._context)
            self._readers[split.id].add_splits([split])

    def poll(self, max_records: int) -> Fetched | None:
        for split, position in self._positions.items():
            if position >= HELD_AT[int(split.rpartition("/")[2])] and not self._source.gate.exists():
                continue
            fetched = self._readers[split].poll(1)
            if fetched is not None:
                self._positions[split] = fetched.next_position
                return fetched
        return None

    def notify_checkpoint_complete(self, splits: Sequence[SplitState]) -> None:
        for split in splits:
            if split.id in self._readers:
                self._readers[split.id].notify_checkpoint_complete([split])

    def close(self) -> None:
        for reader in self._readers.values():
            reader.close()


class HeldSource:
    """The source `inner`, but its readers wait for the file `gate`."""

    def __init__(self, inner: Source, gate: Path) -> None:
        self.inner = inner
        self.gate = gate

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def open_reader(self, context: SourceContext) -> SourceReader:
        return HeldReader(self, context)


def build(argv: list[str]) -> tg.Job:
    """The job that the arguments describe."""
    parser = argparse.ArgumentParser()
    medium = parser.add_mutually_exclusive_group(required=True)
    medium.add_argument("--log", help="the folder of an embedded log")
    medium.add_argument("--bootstrap", help="host and port of a Kafka broker")
    parser.add_argument("--client", choices=("librdkafka", "batches"), help="who moves Kafka's records")
    parser.add_argument("--letters", required=True, help="topic")
    parser.add_argument("--out", required=True, help="topic")
    parser.add_argument("--job", required=True)
    parser.add_argument("--gate", required=True, type=Path, help="the file to wait for")
    parser.add_argument("--seen", required=True, type=Path, help="the file to write into")
    arguments = parser.parse_args(argv)

    def look(letter: str) -> str:
        with arguments.seen.open("a") as file:
            file.write(f"{os.getpid()} {letter}\n")
        return letter

    source, sink = on_kafka(arguments) if arguments.bootstrap else on_the_embedded_log(arguments)
    job = tg.Job(arguments.job)
    letters = job.source(HeldSource(source, arguments.gate), name="letters")
    letters.map(look, name="map", parallelism=1).sink(sink, name="out", parallelism=1)
    return job


def on_the_embedded_log(arguments: argparse.Namespace) -> tuple[Source, Sink]:
    from tidegate.local import LocalSink, LocalSource

    source = LocalSource(arguments.log, arguments.letters, value=tg.String(), bounded=True)
    return source, LocalSink(arguments.log, arguments.out, value=tg.String())


def on_kafka(arguments: argparse.Namespace) -> tuple[Source, Sink]:
    from tidegate.kafka import KafkaSink, KafkaSource

    source = KafkaSource(
        arguments.bootstrap, arguments.letters, value=tg.String(), bounded=True, client=arguments.client
    )
    return source, KafkaSink(arguments.bootstrap, arguments.out, value=tg.String(), client=arguments.client)
