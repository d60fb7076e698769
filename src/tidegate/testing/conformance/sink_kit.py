"""The ground under the sink kit: what a connector gives it, and how its tests begin, wait and look.

Nothing here is a test; those are in `sink`. The helpers never look at how a sink works: they use its contract and what
readers see.
"""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tidegate.checkpoint.protocol import (
    CommitPermit,
    Committable,
    CompletedInLog,
    Outcome,
    Retry,
)
from tidegate.clock import SystemClock
from tidegate.elements import Batch
from tidegate.errors import LostDataError, SinkFencedError, UnavailableError
from tidegate.ids import Attempt, CheckpointId, JobName, LogInstance, OperatorName, SubtaskIndex, TransactionalId
from tidegate.operators.contracts import Sink, SinkContext, TransactionalSink, TransactionRecovery

T = TypeVar("T")
Writer = TransactionalSink[Any]

NOT_CERTAIN = (SinkFencedError, LostDataError, UnavailableError)
"""What a producer may raise when a record is not certain to be there."""


def permit() -> CommitPermit:
    """The proof that a checkpoint completed, for the kit."""
    return CommitPermit(CompletedInLog(Attempt(1), CheckpointId(1)))


class SinkKit(ABC):
    """Hooks and helpers. Attributes may be overridden; `directory` is a fresh folder for each test.

    The kit object is pickled for `in_child`: what a derived class keeps in it must allow that.
    """

    directory: Path
    patience: float = 10.0
    """Seconds that the system may take until readers see a commit, or to answer other than 'retry'."""
    prefix: str = "app"
    """The transactional ids' prefix. On a system that several tests share it must be new for each."""
    has_timeout: bool = False
    """Whether its transactions time out by themselves."""
    unwritable: Any = None
    """A value that the sink's format cannot write; None leaves the test out."""

    @pytest.fixture(autouse=True)
    def _surrounded(self, tmp_path: Path) -> Iterator[None]:
        self.set_up(tmp_path)
        yield
        self.tear_down()

    def set_up(self, directory: Path) -> None:
        """Before each test; extend it to make a new, empty target."""
        self.directory = directory
        self._opened: list[Writer | TransactionRecovery] = []

    def tear_down(self) -> None:
        """After each test; closes what the test opened."""
        for opened in self._opened:
            opened.close()
        self._opened = []

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": []}

    # ---- what a connector gives the kit ----------------------------------------------------------------------------

    @abstractmethod
    def sink(self) -> Sink:
        """A sink for texts on this test's target. Texts that are equal up to their first '-' go to one partition."""

    @abstractmethod
    def read_committed(self) -> list[str]:
        """Every text that readers see now, those of one partition in their order."""

    def read_everything(self) -> list[str]:
        """Every text that was written, also by transactions that are open or were aborted."""
        pytest.skip("this system shows committed records only")

    def in_child(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call `function(*arguments)` in a new process, get its result, and kill that process with SIGKILL at once:
        it must not come to close anything. All of it can be pickled."""
        pytest.skip("this sink lives in one process")

    def time_out(self) -> None:
        """Let every transaction that is open now pass its timeout."""
        pytest.skip("this system has no timeouts, or too long ones")

    def pause(self) -> None:  # noqa: B027  an empty hook
        """Called while the kit waits for the system. By default it asks again at once; `time.sleep(0.01)` is kinder."""

    # ---- helpers ---------------------------------------------------------------------------------------------------

    def writer(self, subtask: int = 0, attempt: int = 1) -> Writer:
        """A new end of the sink, closed after the test."""
        writer = open_writer(self.sink(), subtask, attempt)
        self._opened.append(writer)
        return writer

    def recovery(self) -> TransactionRecovery:
        recovery = self.sink().open_recovery()
        self._opened.append(recovery)
        return recovery

    def id(
        self,
        slot: int = 0,
        *,
        subtask: int = 0,
        attempt: int = 1,
        instance: str = "log-one",
        sink: str = "out",
        prefix: str | None = None,
    ) -> TransactionalId:
        """A transactional id of this test's job."""
        return TransactionalId(
            self.prefix if prefix is None else prefix,
            LogInstance(instance),
            Attempt(attempt),
            OperatorName(sink),
            SubtaskIndex(subtask),
            slot,
        )

    def open_ids(self, prefix: str | None = None, sink: str = "out") -> list[TransactionalId]:
        return self.recovery().open_transactions(self.prefix if prefix is None else prefix, OperatorName(sink))

    def commit(self, side: Writer | TransactionRecovery, committable: Committable) -> Outcome:
        """Commit, again as long as the answer is 'retry'."""
        clock = SystemClock()
        deadline = clock.now().monotonic + self.patience
        while isinstance(outcome := side.commit(committable, permit()), Retry):
            assert clock.now().monotonic < deadline, f"after {self.patience} s still {outcome}"
            self.pause()
        return outcome

    def eventually(self, ask: Callable[[], object], expected: object) -> None:
        """Wait until `ask()` gives `expected`."""
        clock = SystemClock()
        deadline = clock.now().monotonic + self.patience
        while (answer := ask()) != expected:
            assert clock.now().monotonic < deadline, f"{answer} instead of {expected}"
            self.pause()

    def reads(self, *expected: str) -> None:
        """Readers see exactly `expected`: partitions in any order, each partition's records in theirs."""
        self.eventually(lambda: by_partition(self.read_committed()), by_partition(expected))

    def prepared(self, id: TransactionalId, *texts: str, writer: Writer | None = None) -> Committable:
        return prepare(self.writer() if writer is None else writer, id, texts)

    def fails(self, writer: Writer, txn: Any) -> None:
        """`txn` takes no more records, or cannot be prepared."""
        with pytest.raises(NOT_CERTAIN):
            _write_and_prepare(writer, txn)


def open_writer(sink: Sink, subtask: int = 0, attempt: int = 1) -> Writer:
    """One subtask's end of `sink`, as the engine opens it."""
    return sink.open_writer(
        SinkContext(JobName("kit"), OperatorName("out"), SubtaskIndex(subtask), max(4, subtask + 1), Attempt(attempt))
    )


_HELD: list[tuple[Writer, object]] = []
"""Of a child: what goes out of scope is let go, and would be no longer open when the process is killed."""


def prepare(writer: Writer, id: TransactionalId, texts: Sequence[str]) -> Committable:
    """Begin, write, prepare."""
    txn = writer.begin(id)
    writer.write(txn, Batch(list(texts)))
    committable = writer.prepare(txn)
    assert committable is not None, "records were written, so there is something to commit"
    return committable


def prepare_in_child(make: Callable[[], Sink], id: TransactionalId, texts: list[str]) -> Committable:
    """For `in_child`: prepare a transaction."""
    return prepare(open_writer(make()), id, texts)


def write_in_child(make: Callable[[], Sink], id: TransactionalId, texts: list[str]) -> None:
    """For `in_child`: write into a transaction, and hold it open until the process is killed."""
    writer = open_writer(make())
    txn = writer.begin(id)
    writer.write(txn, Batch(texts))
    _HELD.append((writer, txn))


def commit_in_child(make: Callable[[], Sink], committable: Committable) -> Outcome:
    """For `in_child`: commit what another process prepared."""
    while isinstance(outcome := make().open_recovery().commit(committable, permit()), Retry):
        pass
    return outcome


def by_partition(texts: Sequence[str]) -> dict[str, list[str]]:
    """Texts by what stands before their first '-', which decides the partition."""
    found: dict[str, list[str]] = defaultdict(list)
    for text in texts:
        found[text.partition("-")[0]].append(text)
    return dict(found)


def _write_and_prepare(writer: Writer, txn: Any) -> None:
    writer.write(txn, Batch(["a-never"]))
    writer.prepare(txn)
