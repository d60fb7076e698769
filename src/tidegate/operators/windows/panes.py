"""Windows whose bounds depend on time alone, and that give their result when they are complete: accumulators by key and
pane, put together when the time has passed a window.

A record is added to one pane, however many windows that is part of. What a window emits is made when it is complete,
and once more for each record that comes late but within the allowed lateness. Then its panes are removed: the state
holds windows that may still get records, and nothing else.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import compress, repeat
from operator import length_hint
from typing import Any

from tidegate.elements import MAX_WATERMARK, Batch
from tidegate.event_time.windows import GlobalWindows, TimeWindow, WindowAssigner, keeps_apart
from tidegate.operators.context import OutputBuffer
from tidegate.operators.keyed import cursor_over
from tidegate.operators.timers import Due
from tidegate.operators.user_code import describe, raise_user_error
from tidegate.operators.windows.base import BaseWindowOperator
from tidegate.operators.windows.index import WindowIndex
from tidegate.operators.windows.processing import OnProcessingTime
from tidegate.operators.windows.spec import Add, WindowSpec
from tidegate.state.backend import KeyCursor
from tidegate.state.handles import FoldingHandle

MANY_PANES = 1024
"""Of a window of which so many are possible, those that are there are looked for and not asked for one by one."""
_AT_A_TIME = 64
"""Windows, and panes, of which it is remembered how they are made of each other."""
_AT_ONCE = 64
"""Keys whose windows give their results before somebody is asked whether to stop."""
_ABSENT: Any = object()
Begin = Callable[[Any], Any]
"""Makes a new accumulator of a key, the current one, and sees to it that its windows will be complete."""


class WindowOperator(BaseWindowOperator):
    """See the module."""

    def __init__(self, assigner: WindowAssigner, spec: WindowSpec) -> None:
        super().__init__(spec)
        self._assigner = assigner
        self._goes_with_its_result = keeps_apart(assigner) and not spec.lateness
        """A window, which is its only pane."""
        self._can_close_at_once = self._goes_with_its_result and spec.emit_many is not None
        self._has_many_panes = getattr(assigner, "panes_a_window", 1) > MANY_PANES
        self._windows_of, self._windows_ending = assigner.windows_of, assigner.windows_ending
        self._all_panes_of = assigner.panes_of
        if not self._has_many_panes:
            # All keys have the same few windows at a time.
            self._windows_of = lru_cache(_AT_A_TIME)(assigner.windows_of)
            self._windows_ending = lru_cache(_AT_A_TIME)(assigner.windows_ending)
            self._all_panes_of = lru_cache(_AT_A_TIME)(assigner.panes_of)

    def _register(self) -> None:
        super()._register()
        self._waiting = self._index = WindowIndex(self._backend.set_current_key)
        self._folding = self._accumulators if isinstance(self._accumulators, FoldingHandle) else None

    def _load(self) -> None:
        """What is not complete waits as if it had come now. What is, and takes no records any more, is only there when
        the program had another lateness."""
        # Checkpoints of earlier versions have them. What they say is said by the accumulators, too.
        self._timers.clear()
        for key in dict.fromkeys(key for state in self._spec.states for key in self._backend.keys(state.name)):
            self._backend.set_current_key(key)
            reached = self._reached_of(key)
            for pane in filter(self._is_cut, self._accumulators.keys()):
                times = self._times(self._windows_of(pane), reached)
                for time in times:
                    self._index.waiting_at(time)[key] = None
                if not times:
                    self._accumulators.remove(pane)

    def _is_cut(self, pane: TimeWindow) -> bool:
        """Whether this pane is one. The rules of a time zone may have changed since it was stored."""
        return self._assigner.pane_of(pane.start) == pane

    def _process(self, batch: Batch, keys: list[Any], stamps: Sequence[Any]) -> Iterator[Batch]:
        """A record whose windows are all open emits nothing: those of a pane are added in one loop."""
        add, first = self._spec.adds[batch.input], self._assigner.pane_of(min(stamps))
        if self._windows_of(first)[0].max_timestamp <= self._watermark:
            is_open = self._are_open(stamps)
            late = [not one for one in is_open]
            yield from self._process_late(*_part(batch, keys, stamps, late))
            batch, keys, stamps = _part(batch, keys, stamps, is_open)
        if stamps and first == self._assigner.pane_of(max(stamps)):
            self._add_all(add, first, keys, batch.values)
        else:
            for pane, (of_keys, values) in self._by_pane(keys, stamps, batch.values).items():
                self._add_all(add, pane, of_keys, values)

    def _are_open(self, stamps: Sequence[int]) -> list[bool]:
        """Whether all windows of each are certainly open: it is not before the pane that the watermark is about to
        reach."""
        if self._watermark >= MAX_WATERMARK:
            return [False] * len(stamps)
        start = self._assigner.pane_of(self._watermark + 1).start
        return [stamp >= start for stamp in stamps]

    def _by_pane(
        self, keys: list[Any], stamps: Sequence[Any], values: list[Any]
    ) -> dict[TimeWindow, tuple[list[Any], list[Any]]]:
        """Keys and values. A record is often in the same pane as the one before it."""
        by_pane: dict[TimeWindow, tuple[list[Any], list[Any]]] = {}
        of_keys, of_values, start, end = list[Any](), list[Any](), 0, 0
        for key, stamp, value in zip(keys, stamps, values, strict=True):
            if not start <= stamp < end:
                start, end = pane = self._assigner.pane_of(stamp)
                of_keys, of_values = by_pane.setdefault(pane, ([], []))
            of_keys.append(key)
            of_values.append(value)
        return by_pane

    def _add_all(self, add: Add, pane: TimeWindow, keys: list[Any], values: list[Any]) -> None:
        """Records of one pane, none of whose windows is complete."""
        cursor, begin = cursor_over(keys, self._operator), self._beginning(self._windows_of(pane))
        records = iter(values)
        try:
            if self._folding is not None and self._spec.by_value is not None:
                of, add_value = self._spec.by_value
                self._folding.fold(pane, keys, map(of, records), add_value, begin, None)
            elif self._folding is not None:
                self._folding.fold(pane, keys, records, add, begin)
            else:
                self._fold(cursor, pane, zip(keys, records, strict=True), add, begin)
        except Exception as error:
            failed = values[len(values) - length_hint(records) - 1]
            raise_user_error(error, self._operator, f"on record {describe(failed)}")

    def _fold(
        self, cursor: KeyCursor, pane: TimeWindow, records: Iterable[tuple[Any, Any]], add: Add, begin: Begin
    ) -> None:
        """The state is asked once for each key, and written once: writing may look through a whole accumulator."""
        accumulators = dict[Any, Any]()
        for key, value in records:
            accumulator = accumulators.get(key, _ABSENT)
            if accumulator is _ABSENT:
                cursor.key = key
                accumulator = self._accumulators.get(pane)
                if accumulator is None:
                    accumulator = begin(key)
            accumulators[key] = add(accumulator, value)
        for cursor.key, accumulator in accumulators.items():
            self._accumulators.put(pane, accumulator)

    def _times(self, windows: Sequence[TimeWindow], reached: int) -> list[int]:
        """At which windows are complete, if they are not when time has `reached` that, and at which they are not needed
        any more."""
        lateness = self._spec.lateness
        ends = [window.max_timestamp for window in windows if window.max_timestamp + lateness > reached]
        times = [end for end in ends if end > reached]
        return times + [end + lateness for end in ends] if lateness else times

    def _beginning(self, windows: Sequence[TimeWindow]) -> Begin:
        """Makes new accumulators of a pane that these windows have."""
        waiting = [self._index.waiting_at(time) for time in self._times(windows, self._watermark)]
        return partial(self._begun, waiting)

    def _begun(self, waiting: list[dict[Any, None]], key: Any) -> Any:
        """A new accumulator of the current key, whose windows wait like those of others."""
        for keys in waiting:
            keys[key] = None
        return self._spec.create()

    def _process_late(self, batch: Batch, keys: list[Any], stamps: Sequence[Any]) -> Iterator[Batch]:
        """Records of one key and pane are added together: the state is asked once for all of them. Each of them gives
        a result of each of its windows that is complete."""
        groups: dict[tuple[Any, TimeWindow], list[int]] = {}
        for position, (key, pane) in enumerate(zip(keys, map(self._assigner.pane_of, stamps), strict=True)):
            groups.setdefault((key, pane), []).append(position)
        add, too_late = self._spec.adds[batch.input], list[int]()
        waiting, gone = self._buffer(), self._watermark - self._spec.lateness
        for (key, pane), positions in groups.items():
            windows = self._windows_of(pane)
            if windows[-1].max_timestamp <= gone:
                too_late += positions
            else:
                yield from self._add(add, waiting, key, pane, windows, [batch.values[i] for i in positions])
        yield from waiting.take()
        if too_late:
            yield from self._set_aside(batch, sorted(too_late))

    def _add(
        self,
        add: Add,
        waiting: OutputBuffer,
        key: Any,
        pane: TimeWindow,
        windows: Sequence[TimeWindow],
        values: list[Any],
    ) -> Iterator[Batch]:
        self._backend.set_current_key(key)
        accumulator = self._accumulators.get(pane)
        if accumulator is None:
            accumulator = self._beginning(windows)(key)
        complete = [w for w in windows if w.max_timestamp <= self._watermark and not self._is_too_late(w)]
        for value in values:
            accumulator = self._added(add, accumulator, value)
            if complete:
                self._accumulators.put(pane, accumulator)
                for window in complete:
                    yield from self._emit(waiting, key, window, self._whole(window), window.max_timestamp)
        self._accumulators.put(pane, accumulator)

    def _whole(self, window: TimeWindow) -> Any:
        """The accumulator of a window of the current key; None when it has no records."""
        panes = self._panes_of(window)
        if len(panes) == 1 and panes[0] == window:
            return self._accumulators.get(window)
        found = [accumulator for pane in panes if (accumulator := self._accumulators.get(pane)) is not None]
        if not found:
            return None
        whole = self._spec.create()
        for accumulator in found:
            whole = self._merged(whole, accumulator)
        return whole

    def _panes_of(self, window: TimeWindow) -> Sequence[TimeWindow]:
        """In order, of the current key at least those that have records."""
        if not self._has_many_panes:
            return self._all_panes_of(window)
        there = sorted(self._accumulators.keys())
        return [pane for pane in there if window.start <= pane.start and pane.end <= window.end]

    def _closed(self, must_stop: Callable[[], bool]) -> Iterator[Batch]:
        return self._closed_at_once(must_stop) if self._can_close_at_once else super()._closed(must_stop)

    def _closed_at_once(self, must_stop: Callable[[], bool]) -> Iterator[Batch]:
        """One record of each window that is its only pane, and goes with its result."""
        values, left, stamps = list[Any](), self._operator.batch_size, self._buffer().stamps
        is_first = True
        while left and self._index.is_due(self._watermark) and (is_first or not must_stop()):
            is_first = False
            time, keys = self._index.take(min(left, _AT_ONCE))
            left -= len(keys)
            (window,) = self._windows_ending(time)
            self._add_results(values, window, keys, self._taken(window, keys))
            if stamps is not None:
                stamps.extend(repeat(time, len(keys)))
        if values:
            yield Batch(values, None, stamps)

    def _taken(self, pane: TimeWindow, keys: list[Any]) -> list[Any]:
        """The accumulators of these keys, which are gone."""
        if self._folding is not None:
            return self._folding.take(pane, keys)
        taken = []
        for key in keys:
            self._backend.set_current_key(key)
            taken.append(self._accumulators.get(pane))
            self._accumulators.remove(pane)
        return taken

    def _add_results(self, values: list[Any], window: TimeWindow, keys: list[Any], accumulators: list[Any]) -> None:
        """What was made before an error is in `values`: that says of which key it is."""
        assert self._spec.emit_many is not None
        before = len(values)
        error: Exception = StopIteration()  # which ends what it is raised in, silently
        try:
            values.extend(self._spec.emit_many(keys, window, accumulators))
        except Exception as raised:
            error = raised
        made = len(values) - before
        if made < len(keys):
            self._refuse_results(error, None, keys[made], window)

    def _close(self, due: Iterable[Due]) -> Iterator[tuple[Any, TimeWindow, Any]]:
        return self._close_single_panes(due) if self._goes_with_its_result else self._close_panes(due)

    def _close_single_panes(self, due: Iterable[Due]) -> Iterator[tuple[Any, TimeWindow, Any]]:
        for timestamp, key, _ in due:
            (window,) = self._windows_ending(timestamp)
            yield key, window, self._accumulators.get(window)
            self._removed(key, window)
            self._accumulators.remove(window)

    def _close_panes(self, due: Iterable[Due]) -> Iterator[tuple[Any, TimeWindow, Any]]:
        lateness = self._spec.lateness
        for timestamp, key, _ in due:
            if lateness:
                for window in self._windows_ending(timestamp - lateness):
                    self._remove(key, window)
            for window in self._windows_ending(timestamp):
                if (whole := self._whole(window)) is not None:
                    yield key, window, whole
                if not lateness:
                    self._remove(key, window)

    def _remove(self, key: Any, window: TimeWindow) -> None:
        # The timer may be that of a later window, which is just complete: this one had no records, then.
        if self._function is not None and any(
            self._accumulators.get(pane) is not None for pane in self._panes_of(window)
        ):
            self._removed(key, window)
        for pane in self._panes_of(window):
            if self._windows_of(pane)[-1] == window:
                self._accumulators.remove(pane)


def _part(
    batch: Batch, keys: list[Any], stamps: Sequence[Any], mask: list[bool]
) -> tuple[Batch, list[Any], Sequence[Any]]:
    """The records where `mask` is true, with what belongs to them."""
    of_keys, of_stamps = list(compress(keys, mask)), list(compress(stamps, mask))
    return Batch(list(compress(batch.values, mask)), of_keys, of_stamps, None, batch.input), of_keys, of_stamps


class ProcessingTimeWindowOperator(OnProcessingTime, WindowOperator):
    """By the time at which records arrive. A window has an accumulator of its own until it is complete."""


class TimerWindowOperator(WindowOperator):
    """With timers in the state: of windows that have panes in common, where a barrier may come between any two keys of
    a window. A pane is there when some of its windows are complete, and only timers can say which of them have had
    their results."""

    def _register(self) -> None:
        super()._register()
        self._waiting = self._timers

    def _load(self) -> None:
        self._timers.load()

    def _beginning(self, windows: Sequence[TimeWindow]) -> Begin:
        return partial(self._registered, self._times(windows, self._watermark))

    def _registered(self, times: list[int], key: Any) -> Any:
        for time in times:
            self._timers.register(time, key)
        return self._spec.create()


class OverlappingProcessingTimeWindowOperator(OnProcessingTime, TimerWindowOperator):
    """By the time at which records arrive, for windows that have panes in common."""


class GlobalWindowOperator(WindowOperator):
    """One window a key, complete when event time ends. Records need no timestamps, and results have none: there is no
    time that could be theirs."""

    def __init__(self, assigner: GlobalWindows, spec: WindowSpec) -> None:
        # One window that is its own pane.
        super().__init__(assigner, spec)  # type: ignore[arg-type]

    def _is_cut(self, pane: Any) -> bool:
        return True

    def _stamps_of(self, batch: Batch) -> Sequence[Any]:
        return [0] * len(batch)

    def _buffer(self, timed: bool = False) -> OutputBuffer:
        return super()._buffer(timed=False)
