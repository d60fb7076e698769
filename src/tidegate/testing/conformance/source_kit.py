"""The ground under the source kit: what a connector gives it, and a reader that is driven and checked poll by poll.

Nothing here is a test; those are in `source`. The helpers never look at how a source works: they use its contract only.
"""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tidegate.checkpoint.protocol import SplitState
from tidegate.clock import SystemClock
from tidegate.ids import Attempt, JobName, OperatorName, SubtaskIndex
from tidegate.operators.contracts import Fetched, PausingReader, Source, SourceContext, SourceReader

Texts = dict[str, list[Any]]


class Reading:
    """A reader driven by the kit, and everything that it brought."""

    def __init__(self, kit: "SourceKit", source: Source, splits: Sequence[SplitState]) -> None:
        self._kit = kit
        self._source = source
        self._reader: SourceReader = source.open_reader(kit.context())
        self._expected_finish: set[str] = set()
        self._paused: set[str] = set()
        self.fetched: list[Fetched] = []
        self.longest_poll = 0.0
        self._splits: list[SplitState] = []
        self.add(splits)

    def add(self, splits: Sequence[SplitState]) -> None:
        self._reader.add_splits(splits)
        self._splits += splits
        self._expected_finish |= {split.id for split in splits}

    def poll(self, max_records: int) -> Fetched | None:
        """One poll, with what holds of each checked."""
        before = SystemClock().now().monotonic
        fetched = self._reader.poll(max_records)
        self.longest_poll = max(self.longest_poll, SystemClock().now().monotonic - before)
        if fetched is None:
            return None
        assert fetched.split in self._expected_finish, f"{fetched.split} is no split that the reader was given"
        assert fetched.split not in self.finished, f"{fetched.split} was finished and brought more"
        assert len(fetched.values) <= max_records, f"{len(fetched.values)} records instead of at most {max_records}"
        assert not fetched.values or fetched.split not in self._paused, f"{fetched.split} is paused: {fetched}"
        for column in (fetched.keys, fetched.timestamps):
            assert column is None or len(column) == len(fetched.values), f"columns of unequal length: {fetched}"
        self.fetched.append(fetched)
        return fetched

    def pause_all_but(self, splits: Collection[str]) -> None:
        """Of the splits that are not finished, read these alone from now on. Skips the test for a reader that cannot
        do that."""
        if not isinstance(self._reader, PausingReader):
            pytest.skip("this reader does not pause splits")
        unfinished = self._expected_finish.difference(self.finished)
        wanted = unfinished.difference(splits)
        to_pause, to_resume = wanted - self._paused, (self._paused - wanted) & unfinished
        self._reader.pause_or_resume_splits(sorted(to_pause), sorted(to_resume))
        self._paused = wanted

    def tell_of_a_completed_checkpoint(self) -> None:
        """One that holds everything that was read so far. Counts as a poll: it must not wait either."""
        now: dict[str, SplitState] = {split.id: split for split in self._splits}
        for fetched in self.fetched:
            now[fetched.split] = split_at(now[fetched.split], fetched.next_position)
        before = SystemClock().now().monotonic
        self._reader.notify_checkpoint_complete([now[id] for id in sorted(now)])
        self.longest_poll = max(self.longest_poll, SystemClock().now().monotonic - before)

    @property
    def finished(self) -> list[str]:
        return [fetched.split for fetched in self.fetched if fetched.finished]

    @property
    def texts(self) -> Texts:
        """What was read, by split."""
        found: Texts = defaultdict(list)
        for fetched in self.fetched:
            found[fetched.split] += self._kit.texts(self._source, fetched.values)
        return dict(found)

    @property
    def records(self) -> int:
        return sum(len(fetched.values) for fetched in self.fetched)

    def until(self, done: Callable[[], bool], max_records: int = 100) -> None:
        """Poll until `done`. Fails when that takes longer than the kit's patience."""
        clock = SystemClock()
        deadline = clock.now().monotonic + self._kit.patience
        while not done():
            if self.poll(max_records) is None:
                assert clock.now().monotonic < deadline, f"after {self._kit.patience} s there is only {self.texts}"
                self._kit.pause()

    def to_the_end(self, max_records: int = 100) -> "Reading":
        """Poll until every split is finished."""
        self.until(lambda: set(self.finished) == self._expected_finish, max_records)
        self.close()
        return self

    def some_idle_polls(self) -> None:
        """Give a reader that reads too much the time to do so."""
        clock = SystemClock()
        deadline = clock.now().monotonic + self._kit.idle_time
        while clock.now().monotonic < deadline:
            if self.poll(100) is None:
                self._kit.pause()

    def close(self) -> None:
        self._reader.close()


class SourceKit(ABC):
    """Hooks and helpers. Attributes may be overridden; `directory` is a fresh folder for each test."""

    directory: Path
    patience: float = 10.0
    """Seconds that a reader may take to bring what is there."""
    idle_time: float = 0.05
    """Seconds for which the kit polls where it expects that nothing comes."""
    longest_poll: float = 0.5
    """Seconds that one poll may take: it holds back every barrier of the process."""
    nulls: bool = True
    """Whether records without a value exist."""
    unbounded: bool = True
    """Whether the source can read on for ever and knows the start 'latest'."""
    grows: bool = True
    """Whether records can be added behind a source's back after it was made."""

    @pytest.fixture(autouse=True)
    def _surrounded(self, tmp_path: Path) -> Iterator[None]:
        self.set_up(tmp_path)
        yield
        self.tear_down()

    def set_up(self, directory: Path) -> None:
        """Before each test; extend it for what a test needs."""
        self.directory = directory

    def tear_down(self) -> None:  # noqa: B027  an empty hook
        """After each test."""

    # ---- what a connector gives the kit ----------------------------------------------------------------------------

    @abstractmethod
    def create(self, splits: int) -> None:
        """Make a new, empty input with so many splits."""

    @abstractmethod
    def append(self, split: int, values: Sequence[str | None]) -> None:
        """Add visible records to a split."""

    @abstractmethod
    def source(self, *, bounded: bool, start: str = "earliest") -> Source:
        """A source on the input, from its 'earliest' or 'latest' record."""

    def append_invisible(self, split: int, values: Sequence[str | None]) -> None:
        """Add records that take up positions and that no reader sees, such as those of an aborted transaction."""
        pytest.skip("this input has no invisible records")

    def append_open(self, split: int, values: Sequence[str | None]) -> Callable[[], object]:
        """Add records that are invisible until the function that is returned is called."""
        pytest.skip("this input has no open transactions")

    def add_split(self) -> None:
        """Give the input one more split, empty, after those that it has."""
        pytest.skip("this input's splits are fixed")

    def lose(self, split: int) -> None:
        """Destroy records of the split, so that it cannot be read from its beginning to its end any more."""
        pytest.skip("this input loses nothing")

    def pause(self) -> None:  # noqa: B027  an empty hook
        """Called after a poll that brought nothing. By default the kit polls again at once; `time.sleep(0.01)` is
        kinder."""

    def texts(self, source: Source, values: list[Any]) -> list[Any]:
        """What a reader of `source` brought, as the texts that were appended."""
        return values if source.deserializer is None else source.deserializer.decode(values)

    def context(self) -> SourceContext:
        return SourceContext(JobName("kit"), OperatorName("source"), SubtaskIndex(0), 1, Attempt(1))

    # ---- helpers ---------------------------------------------------------------------------------------------------

    def discovered(self, source: Source, known: frozenset[str] | None = None) -> list[SplitState]:
        return sorted(source.discover(known), key=lambda split: split.id)

    def read_bounded(self, max_records: int = 100) -> Reading:
        source = self.source(bounded=True)
        return Reading(self, source, self.discovered(source)).to_the_end(max_records)

    def restarted_at_every_position(self) -> None:
        """Read one by one; from each position on, a new reader must give exactly what the first one gave after it."""
        source = self.source(bounded=True)
        for split in self.discovered(source):
            whole = Reading(self, source, [split]).to_the_end(max_records=1)
            at = [split.position, *(fetched.next_position for fetched in whole.fetched)]
            assert at == sorted(at), f"positions go back: {at}"
            values = [self.texts(source, fetched.values) for fetched in whole.fetched]
            for number, position in enumerate(at):
                rest = [text for texts in values[number:] for text in texts]
                again = Reading(self, source, [split_at(split, position)]).to_the_end()
                assert again.texts[split.id] == rest, f"from position {position} of {at}"
                assert again.fetched[-1].next_position == at[-1]

    def require_unbounded(self) -> None:
        """Skip the test for a source that cannot read on for ever."""
        if not self.unbounded:
            pytest.skip("this source is always bounded")


def has_records(reading: Reading, count: int) -> bool:
    """Whether `count` records have been read."""
    return reading.records >= count


def split_at(split: SplitState, position: int) -> SplitState:
    """`split`, to be read from `position` on."""
    return SplitState(id=split.id, position=position, stop=split.stop, attributes=split.attributes)
