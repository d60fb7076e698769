"""What every source must do, as tests: derive a class from `SourceConformance`, give it an input, and let pytest run
it.

    class TestMySource(SourceConformance):
        def create(self, splits): ...
        def append(self, split, values): ...
        def source(self, *, bounded, start="earliest"): ...

The kit writes texts and reads them back through the source's own format. What an input cannot do (aborted records,
deletion, null values) is left out by leaving out its method; a skipped test says which. The kit never looks at how a
source works: it asks for the promises of `tidegate.operators.contracts.Source` and nothing else.
"""

from functools import partial

import msgspec
import pytest

from tidegate.checkpoint.protocol import RecoverySpec
from tidegate.errors import LostDataError
from tidegate.operators.reaching import open_inspection
from tidegate.testing.conformance.source_kit import Reading, SourceKit, has_records, split_at

MOST_TURNS = 10_000
"""Of splits that are paused in turn, before what is missing is taken for lost."""


class SourceConformance(SourceKit):
    """The suite: each test is one promise. What to override is in `SourceKit`."""

    # ---- bounded reading -------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("max_records", [1, 2, 7, 1000])
    def test_every_record_is_read_once_and_in_order(self, max_records: int) -> None:
        self.create(3)
        expected = []
        for split in range(3):
            values: list[str | None] = [f"{split}-{number}" for number in range(20)]
            self.append(split, values)
            expected.append(values)
        reading = self.read_bounded(max_records)
        assert sorted(reading.texts.values(), key=str) == sorted(expected, key=str)
        assert len(reading.finished) == 3

    def test_a_restart_from_any_position_gives_exactly_the_rest(self) -> None:
        self.create(2)
        self.append(0, [f"a{number}" for number in range(12)])
        self.append(1, ["only"])
        self.restarted_at_every_position()

    def test_gaps_in_the_positions_neither_lose_nor_double(self) -> None:
        self.create(1)
        self.append_invisible(0, ["x"])
        self.append(0, ["a", "b"])
        self.append_invisible(0, ["x", "y", "z"])
        self.append(0, ["c"])
        assert list(self.read_bounded().texts.values()) == [["a", "b", "c"]]
        self.restarted_at_every_position()

    def test_splits_without_records_finish(self) -> None:
        self.create(3)
        self.append(1, ["a"])
        reading = self.read_bounded()
        assert len(reading.finished) == 3
        assert [texts for texts in reading.texts.values() if texts] == [["a"]]

    def test_an_input_without_records_finishes(self) -> None:
        self.create(2)
        reading = self.read_bounded()
        assert len(reading.finished) == 2
        assert reading.records == 0

    def test_a_split_restored_at_its_stop_finishes(self) -> None:
        self.create(1)
        self.append(0, ["a", "b"])
        source = self.source(bounded=True)
        (split,) = self.discovered(source)
        end = Reading(self, source, [split]).to_the_end().fetched[-1].next_position
        reading = Reading(self, source, [split_at(split, end)]).to_the_end()
        assert reading.records == 0

    def test_a_bounded_read_ends_though_its_last_positions_are_invisible(self) -> None:
        self.create(2)
        self.append(0, ["a"])
        self.append_invisible(0, ["x", "y"])
        self.append_invisible(1, ["x"])
        reading = self.read_bounded()
        assert [texts for texts in reading.texts.values() if texts] == [["a"]]
        self.restarted_at_every_position()

    def test_the_stop_is_pinned_when_the_split_is_discovered(self) -> None:
        if not self.grows:
            pytest.skip("this input does not grow")
        self.create(1)
        self.append(0, ["a", "b"])
        source = self.source(bounded=True)
        splits = self.discovered(source)
        assert all(split.stop is not None for split in splits)
        self.append(0, ["late"])
        assert list(Reading(self, source, splits).to_the_end().texts.values()) == [["a", "b"]]

    def test_a_bounded_read_stops_before_what_is_not_committed_yet(self) -> None:
        self.create(1)
        self.append(0, ["a"])
        complete = self.append_open(0, ["open"])
        self.append(0, ["behind"])
        source = self.source(bounded=True)
        splits = self.discovered(source)
        complete()
        assert list(Reading(self, source, splits).to_the_end().texts.values()) == [["a"]]

    def test_null_values_pass_also_as_the_last(self) -> None:
        if not self.nulls:
            pytest.skip("this input has no null values")
        self.create(1)
        self.append(0, [None, "a", None])
        assert list(self.read_bounded(max_records=1).texts.values()) == [[None, "a", None]]
        self.restarted_at_every_position()

    # ---- discovery -------------------------------------------------------------------------------------------------

    def test_discovery_gives_the_same_answer_in_the_same_situation(self) -> None:
        self.create(3)
        self.append(0, ["a"])
        source = self.source(bounded=True)
        first = source.discover(None)
        assert first == source.discover(None) == self.source(bounded=True).discover(None)
        assert len({split.id for split in first}) == 3

    def test_discovery_leaves_out_what_is_known(self) -> None:
        self.create(3)
        source = self.source(bounded=True)
        splits = self.discovered(source)
        assert self.discovered(source, frozenset({splits[1].id})) == [splits[0], splits[2]]
        assert self.discovered(source, frozenset(split.id for split in splits)) == []

    def test_bounded_splits_have_a_stop_and_unbounded_ones_have_none(self) -> None:
        self.create(2)
        bounded = self.source(bounded=True)
        assert bounded.bounded
        assert all(split.stop is not None for split in bounded.discover(None))
        self.require_unbounded()
        unbounded = self.source(bounded=False)
        assert not unbounded.bounded
        assert all(split.stop is None for split in unbounded.discover(None))

    def test_the_start_is_pinned_when_the_split_is_discovered(self) -> None:
        self.require_unbounded()
        self.create(2)
        self.append(0, ["old"])
        source = self.source(bounded=False, start="latest")
        splits = self.discovered(source)
        assert all(split.position >= 0 for split in splits), f"a start must be a position, not a sign for one: {splits}"
        self.append(0, ["new"])
        self.append(1, ["first"])
        reading = Reading(self, source, splits)
        reading.until(lambda: reading.records >= 2)
        reading.some_idle_polls()
        assert sorted(text for texts in reading.texts.values() for text in texts if text) == ["first", "new"]
        reading.close()

    def test_a_split_found_later_starts_at_its_beginning(self) -> None:
        self.require_unbounded()
        self.create(1)
        source = self.source(bounded=False, start="latest")
        known = frozenset(split.id for split in source.discover(None))
        self.add_split()
        self.append(1, ["written before it was found"])
        later = source.discover(known)
        assert len(later) == 1
        reading = Reading(self, source, later)
        reading.until(lambda: reading.records >= 1)
        assert list(reading.texts.values()) == [["written before it was found"]]
        reading.close()

    def test_a_split_found_by_a_job_that_knew_none_starts_at_its_beginning(self) -> None:
        self.require_unbounded()
        self.create(1)
        self.append(0, ["written before it was found"])
        assert self.source(bounded=False, start="latest").discover(frozenset()) == self.discovered(
            self.source(bounded=False, start="earliest")
        )

    # ---- polling ---------------------------------------------------------------------------------------------------

    def test_splits_take_turns(self) -> None:
        self.create(3)
        for split in range(3):
            self.append(split, [f"{split}-{number}" for number in range(300)])
        reading = self.read_bounded(max_records=10)
        order = [fetched.split for fetched in reading.fetched]
        first_end = next(number for number, fetched in enumerate(reading.fetched) if fetched.finished)
        assert len(set(order[:first_end])) == 3, f"one split was read to its end before others were begun: {order}"

    def test_splits_can_be_added_to_a_reader_at_work(self) -> None:
        self.create(2)
        self.append(0, ["a"])
        self.append(1, ["b"])
        source = self.source(bounded=True)
        first, second = self.discovered(source)
        reading = Reading(self, source, [first])
        reading.until(lambda: reading.records == 1)
        reading.add([second])
        reading.to_the_end()
        assert sorted(reading.texts.values(), key=str) == [["a"], ["b"]]

    def test_an_unbounded_read_waits_for_more_and_gets_it(self) -> None:
        self.require_unbounded()
        self.create(2)
        source = self.source(bounded=False)
        reading = Reading(self, source, self.discovered(source))
        for text in ("first", "second", "third"):
            reading.some_idle_polls()
            self.append(0, [text])
            expected = reading.records + 1
            reading.until(partial(has_records, reading, expected))
        reading.some_idle_polls()
        assert [texts for texts in reading.texts.values() if texts] == [["first", "second", "third"]]
        assert reading.finished == []
        reading.close()

    def test_what_is_not_committed_is_held_back_with_all_that_is_behind_it(self) -> None:
        self.require_unbounded()
        self.create(1)
        source = self.source(bounded=False)
        self.append(0, ["before"])
        complete = self.append_open(0, ["open"])
        self.append(0, ["behind"])
        reading = Reading(self, source, self.discovered(source))
        reading.until(lambda: reading.records >= 1)
        reading.some_idle_polls()
        assert list(reading.texts.values()) == [["before"]]
        complete()
        reading.until(lambda: reading.records >= 3)
        assert list(reading.texts.values()) == [["before", "open", "behind"]]
        reading.close()

    def test_a_poll_never_blocks_for_long(self) -> None:
        self.create(2)
        self.append(0, [f"{number}" for number in range(2000)])
        source = self.source(bounded=not self.unbounded)
        reading = Reading(self, source, self.discovered(source))
        reading.until(lambda: reading.records >= 2000, max_records=500)
        reading.some_idle_polls()
        reading.close()
        assert reading.longest_poll < self.longest_poll

    # ---- splits that wait for others -------------------------------------------------------------------------------

    def test_a_paused_split_brings_nothing_and_the_others_are_read_to_their_ends(self) -> None:
        self.create(3)
        for split in range(3):
            self.append(split, [f"{split}-{number}" for number in range(300)])
        source = self.source(bounded=True)
        splits = [split.id for split in self.discovered(source)]
        reading = Reading(self, source, self.discovered(source))
        reading.pause_all_but(splits[1:])
        reading.until(partial(has_records, reading, 50), max_records=10)
        reading.pause_all_but(splits[2:])
        reading.until(lambda: reading.finished == [splits[2]], max_records=10)
        reading.some_idle_polls()
        reading.pause_all_but(splits)
        reading.to_the_end()
        assert sorted(map(len, reading.texts.values())) == [300, 300, 300]
        assert all(texts == sorted(texts, key=_number) for texts in reading.texts.values())

    def test_pausing_splits_in_turn_neither_loses_nor_doubles(self) -> None:
        self.create(3)
        for split in range(3):
            self.append(split, [f"{split}-{number}" for number in range(50)])
        source = self.source(bounded=True)
        splits = [split.id for split in self.discovered(source)]
        reading = Reading(self, source, self.discovered(source))
        turn = 0
        while set(reading.finished) != set(splits):
            reading.pause_all_but([splits[turn % 3]] if turn % 7 else [])
            for _ in range(5):
                if reading.poll(7) is None:
                    self.pause()
            turn += 1
            assert turn < MOST_TURNS, f"after {turn} turns there is only {reading.texts}"
        reading.close()
        assert sorted(map(len, reading.texts.values())) == [50, 50, 50]
        assert all(texts == sorted(texts, key=_number) for texts in reading.texts.values())

    # ---- what the engine and people tell and ask besides -----------------------------------------------------------

    def test_being_told_of_completed_checkpoints_changes_nothing_that_is_read(self) -> None:
        self.create(2)
        for split in range(2):
            self.append(split, [f"{split}-{number}" for number in range(50)])
        source = self.source(bounded=True)
        reading = Reading(self, source, self.discovered(source))
        for expected in range(10, 101, 10):
            reading.until(partial(has_records, reading, expected), max_records=10)
            reading.tell_of_a_completed_checkpoint()
        reading.to_the_end()
        assert reading.longest_poll < self.longest_poll
        assert sorted(map(len, reading.texts.values())) == [50, 50]

    def test_tools_find_where_the_splits_end(self) -> None:
        self.create(2)
        source = self.source(bounded=True)
        if source.inspection_spec is None:
            pytest.skip("this source has nothing that tools could ask")
        self.append(0, ["a", "b", "c"])
        spec = msgspec.json.decode(msgspec.json.encode(source.inspection_spec), type=RecoverySpec)
        inspection = open_inspection(spec)
        splits = self.discovered(source)
        assert inspection.end_positions([split.id for split in splits]) == {split.id: split.stop for split in splits}
        inspection.close()

    def test_lost_positions_are_an_error_and_never_skipped(self) -> None:
        self.create(1)
        self.append(0, ["a", "b", "c", "d"])
        source = self.source(bounded=True)
        splits = self.discovered(source)
        self.lose(0)
        reading = Reading(self, source, splits)
        with pytest.raises(LostDataError) as lost:
            reading.to_the_end()
        assert lost.value.failure.message
        reading.close()


def _number(text: str) -> int:
    return int(text.partition("-")[2])
