"""The simulated log service and storage keep the promises that their real counterparts keep, by the same kits."""

from collections.abc import Callable, Sequence
from pathlib import Path

from tidegate.operators.contracts import Sink, Source
from tidegate.testing.conformance.sink import TransactionalSinkConformance
from tidegate.testing.conformance.source import SourceConformance
from tidegate.testing.sim.connectors import SimSink, SimSource
from tidegate.testing.sim.gate import OpenGate
from tidegate.testing.sim.log_service import LogService, Partition


class TestSimSink(TransactionalSinkConformance):
    """Its service lives in one process, so what needs another process is left out."""

    def set_up(self, directory: Path) -> None:
        super().set_up(directory)
        self.seconds = 0.0
        self.service = LogService("kit", lambda: self.seconds)
        self.service.create_topic("output", 3)

    def sink(self) -> Sink:
        return SimSink(self.service, "output", OpenGate(), lambda text: str(text).partition("-")[0])

    def read_committed(self) -> list[str]:
        return [text for part in self.service.visible("output") for text in part]

    def read_everything(self) -> list[str]:
        return [record.value for part in self.service.topics["output"] for record in part.records]

    def time_out(self) -> None:
        self.seconds += 61.0


class TestSimSource(SourceConformance):
    def create(self, splits: int) -> None:
        self.service = LogService("kit", lambda: 0.0)
        self.service.create_topic("input", splits)

    def append(self, split: int, values: Sequence[str | None]) -> None:
        self.service.append("input", split, values)

    def append_invisible(self, split: int, values: Sequence[str | None]) -> None:
        self.append_open(split, values)
        self.service.abort("kit", "the kit wants it")

    def append_open(self, split: int, values: Sequence[str | None]) -> Callable[[], object]:
        transaction = self.service.begin("kit", 60.0)
        self.service.write(transaction, [("input", split, value) for value in values])
        return lambda: self.service.commit("kit", transaction.epoch)

    def add_split(self) -> None:
        self.service.topics["input"].append(Partition())

    def lose(self, split: int) -> None:
        self.service.delete_records("input", split, 2)

    def source(self, *, bounded: bool, start: str = "earliest") -> Source:
        return SimSource(self.service, "input", OpenGate(), bounded=bounded, start=start)
