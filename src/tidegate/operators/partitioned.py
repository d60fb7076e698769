"""Keys that the input's partitions keep together (`key_by(partitions=)`): what a source says of its splits, who reads
them, and the check that each record came from the partition of its key.

The check is what such a job's results rest on: where the producers' partitioner is another one, or the selector gives
another key than the record has, no record may get past it.
"""

from collections.abc import Callable, Iterable
from typing import Any, Protocol, runtime_checkable

from tidegate.errors import InvalidError
from tidegate.ids import SubtaskIndex
from tidegate.operators.user_code import describe
from tidegate.state.key_groups import subtask_of
from tidegate.state.key_partitions import PARTITIONERS, KeyPartitions

_REMEMBERED = 100_000
"""Keys that a subtask has found right and knows again; each of a new one costs a computation."""


@runtime_checkable
class PartitionedSource(Protocol):
    """A source, each of whose splits is a partition of a topic: where keys are declared to be partitioned by the input,
    its splits are assigned by it. Besides `Source`."""

    def partition_of(self, split: str) -> tuple[str, int]:
        """The topic of the split with this id, and the number by which the producers' partitioner knows the partition.
        A look finds all partitions that a topic has then. Calls nobody."""
        ...


class SplitPlaces:
    """Where the splits of a source belong that is read by partition."""

    def __init__(self, source: PartitionedSource, partitions: KeyPartitions, max_parallelism: int) -> None:
        self._source = source
        self._partitions = partitions
        self._max_parallelism = max_parallelism

    def partition(self, split: str) -> int:
        return self._source.partition_of(split)[1]

    def subtask(self, split: str, parallelism: int) -> SubtaskIndex:
        """Which of so many subtasks reads a split: the one that has the state of its keys."""
        return partition_subtask(self._partitions, self.partition(split), parallelism, self._max_parallelism)

    def check(self, splits: Iterable[str]) -> None:
        """`splits`: all that there are. Raises InvalidError unless each topic has exactly the partitions declared."""
        topics: dict[str, list[int]] = {}
        for topic, number in map(self._source.partition_of, splits):
            topics.setdefault(topic, []).append(number)
        for topic, numbers in topics.items():
            if sorted(numbers) != list(range(self._partitions.count)):
                raise self._other_partitions(topic, max(numbers) + 1)

    def _other_partitions(self, topic: str, count: int) -> InvalidError:
        declared = self._partitions.count
        if count > declared:
            return InvalidError(
                f"topic {topic} has {count} partitions, and keys are declared to be in {self._partitions}: with more "
                "of them, producers write most keys to other partitions",
                remedy=f"If it has always had {count}, say partitions={count}. If it has grown, keys are not together "
                "any more: go on with parallelism 1, take a savepoint, and write it anew for keys without partitions.",
            )
        return InvalidError(
            f"topic {topic} has {count} partitions, and keys are declared to be in {self._partitions}",
            remedy=f"Say partitions={count}.",
        )


class PartitionCheck:
    """Of one subtask of a `key_by`. `reading`: the partition from which the records come that are being looked at; None
    where they may come from several, and only the subtask can be checked."""

    def __init__(
        self,
        partitions: KeyPartitions,
        subtask: SubtaskIndex,
        parallelism: int,
        max_parallelism: int,
        reading: Callable[[], int] | None = None,
    ) -> None:
        self._partitions = partitions
        self._reading = reading
        self._own = [
            partition
            for partition in range(partitions.count)
            if partition_subtask(partitions, partition, parallelism, max_parallelism) == subtask
        ]
        """Partitions that the subtask reads."""
        self._right: dict[int | None, set[Any]] = {}
        """Keys that were found to be right, by the partition that was read."""
        self._remembered = 0

    def check(self, keys: list[Any]) -> None:
        """Raises InvalidError unless each of these is in its partition; also for a key without one, which is None."""
        partition = None if self._reading is None else self._reading()
        if partition is not None and self._partitions.are_in(partition, keys):
            return
        right = self._right.get(partition)
        if right is None or not right.issuperset(keys):
            self._learn(partition, keys)

    def _learn(self, partition: int | None, keys: list[Any]) -> None:
        if self._remembered > _REMEMBERED:
            self._right = {}
            self._remembered = 0
        right = self._right.setdefault(partition, set())
        new = dict.fromkeys(key for key in keys if key not in right)
        for key, found in zip(new, map(self._partitions.of, new), strict=True):
            if found != partition if partition is not None else found not in self._own:
                raise self._wrong(key, found, partition)
        right.update(new)
        self._remembered += len(new)

    def _wrong(self, key: Any, found: int, read: int | None) -> InvalidError:
        others = " or ".join(repr(name) for name in PARTITIONERS if name != self._partitions.partitioner)
        own = f"one of partitions {', '.join(map(str, self._own))}" if self._own else "nowhere: this subtask reads none"
        came = own if read is None else f"partition {read}"
        return InvalidError(
            f"key {describe(key)} came from {came}, and of {self._partitions} it belongs to partition {found}",
            remedy=f"If the producers use another partitioner, say so (partitioner={others}). The selector must give "
            "the key that the record has in the topic. Otherwise leave partitions= out; a job with state goes on with "
            "parallelism 1, and a savepoint of it can be written anew for keys without partitions.",
        )


def partition_subtask(
    partitions: KeyPartitions, partition: int, parallelism: int, max_parallelism: int
) -> SubtaskIndex:
    """Which subtask reads a partition, and has the state of its keys."""
    return subtask_of(partitions.group_of_partition(partition, max_parallelism), parallelism, max_parallelism)
