"""Watermarks on their way through a gate and a chain: merged, behind what they brought about, before barriers."""

from collections.abc import Callable, Iterable

from tests.unit.runtime.test_chain import Plain, chain_of, drain, nothing, same
from tidegate.elements import MAX_WATERMARK, MIN_WATERMARK, Barrier, Batch, EndOfInput, Watermark
from tidegate.graph.physical import ChannelId
from tidegate.ids import CheckpointId, OperatorName, SubtaskIndex
from tidegate.runtime.chain import Chain
from tidegate.runtime.channels import LocalChannel
from tidegate.runtime.gate import AlignedBarrier, Ended, InputGate

NONE = CheckpointId(0)


def gate_of(*channels: LocalChannel, watermark: int = MIN_WATERMARK) -> InputGate:
    ids = [ChannelId(0, SubtaskIndex(index), SubtaskIndex(0)) for index in range(len(channels))]
    return InputGate(dict(zip(ids, channels, strict=True)), NONE, watermark=watermark)


def test_a_watermark_comes_out_when_all_channels_have_come_to_it() -> None:
    one, two = LocalChannel(10), LocalChannel(10)
    gate = gate_of(one, two)
    one.put(Watermark(50))
    assert gate.poll() is None
    two.put(Watermark(30))
    two.put(Watermark(90))
    assert [gate.poll(), gate.poll(), gate.poll()] == [Watermark(30), Watermark(50), None]


def test_what_comes_behind_a_barrier_waits_for_its_alignment() -> None:
    one, two = LocalChannel(10), LocalChannel(10)
    gate = gate_of(one, two)
    for element in (Barrier(CheckpointId(1)), Watermark(50)):
        one.put(element)
    two.put(Watermark(60))
    assert gate.poll() is None
    two.put(Barrier(CheckpointId(1)))
    assert [gate.poll(), gate.poll()] == [AlignedBarrier(CheckpointId(1)), Watermark(50)]


def test_a_channel_that_has_ended_holds_no_watermark_back() -> None:
    one, two = LocalChannel(10), LocalChannel(10)
    gate = gate_of(one, two)
    one.put(Watermark(50))
    two.put(EndOfInput())
    assert gate.poll() == Watermark(50)
    one.put(EndOfInput())
    assert isinstance(gate.poll(), Ended)


def test_a_drained_channel_is_read_on_later_and_so_holds_event_time_where_it_is() -> None:
    one, two = LocalChannel(10), LocalChannel(10)
    gate = gate_of(one, two)
    one.put(Watermark(50))
    two.put(Watermark(20))
    two.put(EndOfInput(is_drained=True))
    assert [gate.poll(), gate.poll()] == [Watermark(20), None]
    one.put(EndOfInput())
    assert gate.poll() == Ended(is_drained=True)


def test_a_restored_gate_begins_where_it_was() -> None:
    one = LocalChannel(10)
    gate = gate_of(one, watermark=40)
    one.put(Watermark(30))
    one.put(Watermark(41))
    assert gate.poll() == Watermark(41)


# ---- in a chain ------------------------------------------------------------------------------------------------------


class Hearing(Plain):
    """Says each watermark that it hears, in `parts` calls."""

    def __init__(self, process: Callable[[list[int]], Iterable[Batch]], parts: int = 1) -> None:
        super().__init__(process, [Batch([0])])
        self.heard: list[int] = []
        self._parts = parts

    def advance_watermark(self, watermark: int, must_stop: Callable[[], bool]) -> Iterable[Batch] | None:
        if self.heard.count(watermark) == self._parts:
            return None
        self.heard.append(watermark)
        return [Batch([watermark])]


def test_a_watermark_reaches_an_operator_behind_what_it_brought_about_in_those_before_it() -> None:
    first, plain, second = Hearing(same), Plain(same), Hearing(same, parts=2)
    chain = chain_of(("first", first), ("plain", plain), ("second", second))
    chain.advance(7)
    assert not chain.idle
    assert drain(chain) == [("second", [7]), ("second", [7]), ("second", [7])]
    assert (plain.seen, second.seen, second.heard) == ([[7]], [[7]], [7, 7])
    assert chain.idle


def test_at_the_end_event_time_ends_before_each_operator_says_its_last() -> None:
    chain = chain_of(("first", Hearing(same)), ("second", Hearing(same)))
    chain.end_of_input()
    assert drain(chain) == [
        ("second", [MAX_WATERMARK]),
        ("second", [0]),
        ("second", [MAX_WATERMARK]),
        ("second", [0]),
    ]


def test_an_operator_that_had_ended_hears_of_no_watermark() -> None:
    first = Hearing(same)
    chain = Chain([(OperatorName("first"), first)], ended={OperatorName("first")})
    chain.advance(7)
    assert chain.idle
    assert first.heard == []


def test_what_a_watermark_brings_about_can_be_interrupted_between_two_parts() -> None:
    silent = Hearing(nothing)
    chain = chain_of(("first", Hearing(same, parts=3)), ("silent", silent))
    chain.advance(7)
    assert chain.next_output(lambda: len(silent.seen) == 1) is None
    assert not chain.idle
    assert drain(chain) == [("silent", [7])]
    assert silent.seen == [[7], [7], [7]]
