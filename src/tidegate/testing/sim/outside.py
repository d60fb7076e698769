"""What a job reads and writes in a simulated world, as checkers and scripts see it: topics, what became of
transactions, and news of both.

Checkers know this and nothing of the medium behind it. A medium must never tell here what it does not let its readers
see: it is their eyes.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from tidegate.checkpoint.protocol import Committable
from tidegate.clock import Clock
from tidegate.operators.contracts import Sink, Source
from tidegate.testing.sim.scheduler import Process

TIMED_OUT = "it was open for longer than its timeout"
"""The reason of every transaction that was aborted because of that."""


class OutsideTransaction(Protocol):
    """One use of a transactional id. `producer_id` and `epoch` tell it from every other one; `start` in simulated
    seconds, None while nothing was written; `reason`: why it was aborted; `values`: what was written."""

    @property
    def id(self) -> str: ...
    @property
    def producer_id(self) -> int: ...
    @property
    def epoch(self) -> int: ...
    @property
    def start(self) -> float | None: ...
    @property
    def reason(self) -> str: ...
    @property
    def is_open(self) -> bool: ...
    @property
    def is_prepared(self) -> bool: ...
    @property
    def values(self) -> Sequence[Any]: ...


class Outside(Protocol):
    """One medium."""

    on_begin: list[Callable[[str], None]]
    """Told the transactional id whenever a use of it begins, whoever caused that."""
    on_reuse: list[Callable[[str], None]]
    """Told an id under which a transaction begins with the epoch of one that has ended: nobody can tell the two apart,
    and whoever ended the first one did not stop its producer."""
    on_commit: list[Callable[[OutsideTransaction], None]]
    """Told of each transaction when its commit is decided."""
    on_visible: list[Callable[[], None]]
    """Told whenever readers may see more than before."""

    @property
    def has_timed_out(self) -> bool:
        """Whether any transaction passed its timeout."""
        ...

    def create_topic(self, topic: str, partitions: int) -> None: ...

    def append(self, topic: str, partition: int, values: Iterable[Any]) -> None:
        """Outside of any transaction."""
        ...

    def count_before(self, topic: str, partition: int, position: int) -> int:
        """How many records of the input readers have behind them who stand at `position`."""
        ...

    def visible(self, topic: str) -> list[list[Any]]:
        """What readers of committed records see now, by partition."""
        ...

    def committed(self, topic: str) -> list[list[Any]]:
        """Every committed value by partition, also behind open transactions."""
        ...

    def ongoing(self) -> Sequence[OutsideTransaction]:
        """Those that hold readers back, or will."""
        ...

    def find(self, committable: Committable) -> OutsideTransaction | None:
        """The transaction that it stands for; None when nothing is known of it."""
        ...

    def mishaps(self) -> Mapping[str, Callable[[], None]]:
        """What may happen to the medium that a job survives, by name."""
        ...


class Medium(Outside, Protocol):
    """The same with a way in."""

    def connectors(
        self, process: Process, clock: Clock, ready: Callable[[], int]
    ) -> tuple[Callable[[str], Source], Callable[[str], Sink]]:
        """What makes the source and the sink of a topic in `process`. `ready`: how many records of each input partition
        have come by now."""
        ...
