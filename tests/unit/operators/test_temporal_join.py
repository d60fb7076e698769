"""The temporal join gives what a short model gives that forgets nothing, and keeps only what is still needed."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings

import tidegate as tg
from tests.unit.operators.join_steps import (
    LATE,
    LEFT,
    RIGHT,
    SPOILED,
    Step,
    changed,
    compare,
    is_refuted,
    node_of,
    steps,
)
from tests.unit.operators.rescaling import Given, Subtasks
from tidegate.elements import MIN_WATERMARK
from tidegate.errors import InvalidError, UserCodeError
from tidegate.state.keys import encode_key


def is_deleted(version: int) -> bool:
    return version % 3 == 0


class Model:
    """All versions that ever came, and the left rows that wait for the watermark."""

    def __init__(self, how: str, within: int | None, deletes: bool) -> None:
        self._how = how
        self._within = within
        self._deletes = deletes
        self._versions: dict[str, dict[int, int]] = {}
        self._waiting: list[tuple[int, bytes, str, int]] = []
        """Timestamp, order of the key, key, value."""
        self.watermark = MIN_WATERMARK

    def row(self, input: int, key: str, timestamp: int, value: int) -> list[Given]:
        is_late = timestamp <= self.watermark
        if is_late and (input == LEFT or self._is_useless(key, timestamp)):
            return [("late", timestamp, value)]
        if input == LEFT:
            self._waiting.append((timestamp, encode_key(key), key, value))
        else:
            self._versions.setdefault(key, {})[timestamp] = value
        return []

    def _is_useless(self, key: str, timestamp: int) -> bool:
        """Whether a late version cannot hold for anything, or cannot be told from one that cannot."""
        newest = self._newest(key, self.watermark)
        if self._within is not None:
            return timestamp + self._within <= self.watermark or (newest is not None and timestamp < newest)
        if self._deletes and (newest is None or is_deleted(self._versions[key][newest])):
            return True
        return newest is not None and timestamp < newest

    def _newest(self, key: str, until: int) -> int | None:
        return max((stamp for stamp in self._versions.get(key, {}) if stamp <= until), default=None)

    def _version(self, key: str, timestamp: int) -> int | None:
        newest = self._newest(key, timestamp)
        if newest is None or (self._within is not None and timestamp - newest > self._within):
            return None
        version = self._versions[key][newest]
        return None if self._deletes and is_deleted(version) else version

    def advance(self, watermark: int) -> list[Given]:
        self.watermark = watermark
        due = sorted((row for row in self._waiting if row[0] <= watermark), key=lambda row: row[:2])
        self._waiting = [row for row in self._waiting if row[0] > watermark]
        pairs = [(stamp, value, self._version(key, stamp)) for stamp, _, key, value in due]
        return [
            (None, stamp, (value, version))
            for stamp, value, version in pairs
            if version is not None or self._how == "left"
        ]

    def kept(self) -> dict[str, int]:
        name = ".versions" if self._within is None else f".versions-within-{self._within}"
        counts = {".left": len(self._waiting), name: sum(map(self._needed, self._versions))}
        return {state: count for state, count in counts.items() if count}

    def _needed(self, key: str) -> int:
        """How many versions of the key some row that is to come may need."""
        newest = self._newest(key, self.watermark)
        if newest is None:
            is_needed = False
        elif self._within is not None:
            is_needed = newest + self._within > self.watermark
        else:
            is_needed = not (self._deletes and is_deleted(self._versions[key][newest]))
        return is_needed + sum(stamp > self.watermark for stamp in self._versions[key])


def joined(how: str, within: int | None = None, deletes: bool = False, late: bool = True) -> Any:
    def join(left: tg.KeyedStream[str, int], right: tg.KeyedStream[str, int]) -> tg.Stream[Any]:
        arguments: dict[str, Any] = {"how": how, "within": None if within is None else f"{within}ms"}
        return left.temporal_join(
            right,
            lambda row, version: (row, version),
            name="join",
            types=(int, int),
            deleted=is_deleted if deletes else None,
            late=LATE if late else None,
            **arguments,
        )

    return node_of(join)


KINDS = [("inner", None, False), ("left", None, True), ("left", 6, False), ("inner", 6, True)]


@pytest.mark.parametrize(("how", "within", "deletes"), KINDS)
@given(steps=steps)
@settings(max_examples=60, deadline=None)
def test_each_row_is_joined_with_the_version_that_held_at_its_time(
    how: str, within: int | None, deletes: bool, steps: list[Step]
) -> None:
    compare(joined(how, within, deletes), Model(how, within, deletes), steps)


@pytest.mark.slow
@pytest.mark.parametrize(("how", "within", "deletes"), KINDS)
@given(steps=steps)
@settings(max_examples=1000, deadline=None)
def test_each_row_of_many_streams_is_joined_with_the_version_that_held_at_its_time(
    how: str, within: int | None, deletes: bool, steps: list[Step]
) -> None:
    compare(joined(how, within, deletes), Model(how, within, deletes), steps)


def _sees_only_older_versions(operator: Any) -> None:
    version_at = operator._version_at
    operator._version_at = lambda timestamp: version_at(timestamp - 1)


def _keeps_versions(operator: Any) -> None:
    operator._remove_versions = lambda timestamp: None


def _takes_every_version(operator: Any) -> None:
    operator._is_of_no_use = lambda timestamp: False


def _takes_no_late_version(operator: Any) -> None:
    operator._is_of_no_use = lambda timestamp: True


def _keeps_what_was_ended(operator: Any) -> None:
    operator._holds_on = lambda newest, timestamp: True


WRONG = [*SPOILED.values(), _sees_only_older_versions, _keeps_versions, _takes_every_version, _takes_no_late_version]


@pytest.mark.parametrize("change", [*WRONG, _keeps_what_was_ended])
def test_a_temporal_join_that_does_something_else_is_found(change: Callable[[Any], None]) -> None:
    how, within, deletes = "left", None, True
    assert is_refuted(changed(joined(how, within, deletes), change), lambda: Model(how, within, deletes))


def test_of_versions_of_one_time_the_later_holds_however_they_come() -> None:
    subtasks = Subtasks(joined("inner"))
    subtasks.batch([("a", 5, 1), ("a", 5, 2)], RIGHT)
    subtasks.move(2)
    subtasks.batch([("a", 5, 3), ("a", 4, 4)], RIGHT)
    subtasks.batch([("a", 5, 0), ("a", 6, 9)], LEFT)
    assert subtasks.watermark(6) == [(None, 5, (0, 3)), (None, 6, (9, 3))]


def test_a_version_that_comes_late_holds_for_what_is_not_decided_yet() -> None:
    subtasks = Subtasks(joined("left"))
    subtasks.batch([("a", 5, 0), ("a", 12, 1)], LEFT)
    assert subtasks.watermark(10) == [(None, 5, (0, None))]
    assert subtasks.batch([("a", 4, 7)], RIGHT) == []
    assert subtasks.batch([("a", 3, 8)], RIGHT) == [("late", 3, 8)]
    assert subtasks.watermark(12) == [(None, 12, (1, 7))]


def test_W07_a_row_that_was_late_before_a_checkpoint_is_late_after_it() -> None:
    subtasks = Subtasks(joined("left", late=False))
    subtasks.batch([("a", 3, 7)], RIGHT)
    subtasks.watermark(10)
    assert subtasks.batch([("a", 10, 0)], LEFT) == []
    subtasks.move(3)
    assert subtasks.batch([("a", 10, 1), ("a", 11, 2)], LEFT) == []
    assert subtasks.watermark(20) == [(None, 11, (2, 7))]
    assert subtasks.skipped == 2


@pytest.mark.parametrize(("within", "left"), [(None, {".versions": 2}), (5, {})])
def test_W09_state_does_not_grow_and_only_the_newest_version_without_a_limit_outlives_the_input(
    within: int | None, left: dict[str, int]
) -> None:
    subtasks = Subtasks(joined("inner", within))
    counts = []
    for timestamp in range(40):
        subtasks.batch([("a", timestamp, timestamp), ("b", timestamp, timestamp)], RIGHT)
        subtasks.batch([("a", timestamp, timestamp), ("c", timestamp, timestamp)], LEFT)
        subtasks.watermark(timestamp - 3)
        counts.append(subtasks.left())
    assert len(set(counts[10:])) == 1
    subtasks.end()
    assert subtasks.left_of() == left


def test_what_a_function_raises_names_the_pair() -> None:
    def refused(row: int, version: int) -> None:
        raise ValueError("no such price")

    node = node_of(lambda left, right: left.temporal_join(right, refused, name="join", types=(int, int)))
    subtasks = Subtasks(node)
    subtasks.batch([("a", 1, 41)], RIGHT)
    subtasks.batch([("a", 2, 42)], LEFT)
    with pytest.raises(UserCodeError, match="ValueError on 42 joined with 41: no such price"):
        subtasks.watermark(2)


def test_what_deleted_raises_names_the_version() -> None:
    def join(left: tg.KeyedStream[str, int], right: tg.KeyedStream[str, int]) -> tg.Stream[Any]:
        return left.temporal_join(right, max, name="join", types=(int, int), deleted=lambda version: version.gone)  # type: ignore[attr-defined]

    subtasks = Subtasks(node_of(join))
    subtasks.batch([("a", 1, 41)], RIGHT)
    with pytest.raises(UserCodeError, match="AttributeError when asking whether 41 is deleted"):
        subtasks.watermark(2)


def test_rows_without_timestamps_are_refused() -> None:
    with pytest.raises(InvalidError, match="records without timestamps came to join it"):
        Subtasks(joined("inner")).batch([("a", None, 1)], LEFT)
