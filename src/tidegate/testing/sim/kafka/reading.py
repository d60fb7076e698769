"""`Consumer` and the questions about topics over the simulated cluster, as the source's reader and discovery need them.

Like librdkafka's, the consumer fetches by itself: what does not get through is tried again at the next call and raises
nothing. It reads exactly from where it is told.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from tidegate.connectors.kafka.client import At, Chunk, Columns, Isolation, Topic, TopicPartition
from tidegate.errors import LostDataError, UnavailableError
from tidegate.testing.sim.broker.codes import BrokerError, Code
from tidegate.testing.sim.broker.partition import Record
from tidegate.testing.sim.kafka.line import Line


class ReadingHabits:
    """`slack`: the chance that nothing has come yet though there is something. `ready`: the offset before which a
    partition may be read by now; None for all. `longest_answer`: seconds for a question about topics."""

    def __init__(
        self, slack: float = 0.0, ready: Callable[[TopicPartition], int] | None = None, longest_answer: float = 0.02
    ) -> None:
        self.slack = slack
        self.ready = ready
        self.longest_answer = longest_answer


class SimConsumer:
    def __init__(self, line: Line, group: str, columns: Columns, isolation: Isolation, habits: ReadingHabits) -> None:
        self.line = line
        self.group = group
        self._columns = columns
        self._isolation = isolation
        self._habits = habits
        self._positions: dict[TopicPartition, int] = {}

    def add(self, positions: Mapping[TopicPartition, int]) -> None:
        self._positions.update(positions)

    def remove(self, partition: TopicPartition) -> None:
        del self._positions[partition]

    def fetch(self, max_records: int) -> list[Chunk]:
        """From one partition after another; they take turns."""
        found: list[Chunk] = []
        for partition in list(self._positions):
            if max_records <= 0:
                break
            chunk = self._fetch(partition, max_records)
            if chunk is not None:
                found.append(chunk)
                max_records -= len(chunk.values)
                self._positions[partition] = self._positions.pop(partition)
        return found

    def _fetch(self, partition: TopicPartition, most: int) -> Chunk | None:
        position, gate = self._positions[partition], self.line.gate
        until = None if self._habits.ready is None else self._habits.ready(partition)
        if gate.chance() < self._habits.slack or (until is not None and position >= until):
            return None
        most = 1 + int(gate.chance() * most) if self._habits.slack else most
        what = f"reads {partition} from {position}"
        cluster = self.line.cluster
        try:
            rows, end = self.line.request(
                what, lambda: cluster.fetch(partition, position, most, self._isolation, until)
            )
        except UnavailableError:
            return None
        except BrokerError as error:
            if error.code is Code.OFFSET_OUT_OF_RANGE:
                raise LostDataError(f"{partition}: offset {position} is gone: {error}") from None
            return None
        if end == position:
            return None
        self._positions[partition] = end
        return self._chunk(partition, rows, end)

    def _chunk(self, partition: TopicPartition, rows: Sequence[tuple[int, Record]], end: int) -> Chunk:
        columns, records = self._columns, [record for _, record in rows]
        return Chunk(
            partition=partition,
            values=[record.value for record in records],
            next_offset=end,
            keys=[record.key for record in records] if columns.keys else None,
            timestamps=[record.timestamp for record in records] if columns.timestamps else None,
            headers=[list(record.headers) for record in records] if columns.headers else None,
            offsets=[offset for offset, _ in rows] if columns.offsets else None,
        )

    def commit_group_offsets(self, positions: Mapping[TopicPartition, int]) -> None:
        what = f"commits offsets of {self.group}"
        try:
            self.line.request(
                what, lambda: self.line.cluster.commit_offsets(self.group, dict(positions)), can_land_later=True
            )
        except (UnavailableError, BrokerError):
            # For lag tools only: the next ones come soon.
            return

    def close(self) -> None:
        self._positions.clear()


class SimQuestions:
    """Of discovery."""

    def __init__(self, line: Line, bootstrap: str) -> None:
        self._line = line
        self._bootstrap = bootstrap

    @property
    def bootstrap(self) -> str:
        return self._bootstrap

    def names(self) -> list[str]:
        return self._line.ask("lists topics", self._line.cluster.names)

    def topics(self, names: Collection[str]) -> dict[str, Topic]:
        return self._line.ask(f"describes topics {' '.join(names)}", lambda: described(self._line, names))

    def offsets(self, partitions: Iterable[TopicPartition], at: At, isolation: Isolation) -> dict[TopicPartition, int]:
        asked = list(partitions)
        what = f"asks for the {at} offsets of {' '.join(map(str, asked))}"
        return self._line.ask(what, lambda: self._offsets(asked, at, isolation))

    def _offsets(self, partitions: Sequence[TopicPartition], at: At, isolation: Isolation) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}
        for partition in partitions:
            try:
                found[partition] = self._line.cluster.offset(partition, at, isolation)
            except BrokerError as error:
                if error.code is not Code.UNKNOWN_TOPIC_OR_PARTITION:
                    raise
        return found


class SimQuestion:
    """Of topic identity: the answer comes at `ready_at` by `now`, in seconds, and is what holds then."""

    def __init__(self, line: Line, names: Sequence[str], now: Callable[[], float], ready_at: float) -> None:
        self._line = line
        self._names = names
        self._now = now
        self._ready_at = ready_at

    def answer(self) -> dict[str, Topic] | None:
        if self._now() < self._ready_at:
            return None
        try:
            return self._line.request(
                f"asks which topics {' '.join(self._names)} are", lambda: described(self._line, self._names)
            )
        except BrokerError as error:
            raise UnavailableError(f"asking for topics: {error}") from None


def described(line: Line, names: Iterable[str]) -> dict[str, Topic]:
    """Those that exist."""
    found = {name: line.cluster.described(name) for name in names}
    return {name: topic for name, topic in found.items() if topic is not None}
