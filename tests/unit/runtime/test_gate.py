"""Every order in which batches, barriers and ends can come through two or three channels gives a consistent cut.

Scripts say what comes through one channel: a letter is a batch, a digit a barrier, a point the end of input. All orders
of arrival are tried, not a sample. `check` and `expected_checkpoints` look at scripts and results alone, not at the
gate.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import product
from typing import NamedTuple

import pytest

from tidegate.elements import Barrier, Batch, Element, EndOfInput
from tidegate.errors import InternalError
from tidegate.graph.physical import ChannelId
from tidegate.ids import CheckpointId, SubtaskIndex
from tidegate.runtime.channels import LocalChannel
from tidegate.runtime.gate import AlignedBarrier, Ended, InputGate

NONE = CheckpointId(0)


class Taken(NamedTuple):
    """The gate gave a batch."""

    channel: int
    letter: str


class Aligned(NamedTuple):
    checkpoint: int


class Abandon(NamedTuple):
    """The JobManager abandoned a checkpoint at this point."""

    checkpoint: int


END = "ended"
Trace = list[Taken | Aligned | Abandon | str]
Step = int | Abandon | str
"""The next element of channel i arrives; a checkpoint is abandoned; the task polls once."""
POLL = "poll"


def letters(script: str) -> str:
    return "".join(sign for sign in script if sign.isalpha())


def check(scripts: Sequence[str], trace: Trace, last: int = 0) -> None:
    """Each channel's batches come once and in order, and before each aligned barrier exactly those that lie before
    it."""
    taken = ["" for _ in scripts]
    closed, ended = last, False
    for entry in trace:
        match entry:
            case Taken(channel, letter):
                taken[channel] += letter
                assert letters(scripts[channel]).startswith(taken[channel]), (scripts, trace)
                assert not ended, (scripts, trace)
            case Aligned(checkpoint):
                assert checkpoint > closed, (scripts, trace)
                closed = checkpoint
                before = [letters(script.partition(str(checkpoint))[0]) for script in scripts]
                assert taken == before, (scripts, trace)
            case Abandon(checkpoint):
                closed = max(closed, checkpoint)
            case _:
                assert not ended, (scripts, trace)
                ended = True
                assert taken == [letters(script) for script in scripts], (scripts, trace)


def check_complete(scripts: Sequence[str], trace: Trace) -> None:
    """Nothing was left in the channels."""
    taken = [
        "".join(entry.letter for entry in trace if isinstance(entry, Taken) and entry.channel == channel)
        for channel in range(len(scripts))
    ]
    assert taken == [letters(script) for script in scripts], (scripts, trace)
    assert (END in trace) == all("." in script for script in scripts), (scripts, trace)


def is_right(scripts: Sequence[str], trace: Trace) -> bool:
    try:
        check(scripts, trace)
        check_complete(scripts, trace)
    except AssertionError:
        return False
    return True


def expected_checkpoints(scripts: Sequence[str], last: int = 0) -> list[int]:
    """What aligns when nothing is abandoned: the barriers that come through every channel."""
    return [number for number in range(last + 1, 10) if all(str(number) in script for script in scripts)]


def aligned(trace: Trace) -> list[int]:
    return [entry.checkpoint for entry in trace if isinstance(entry, Aligned)]


class Run:
    """A gate over channels into which the scripts come, step by step."""

    def __init__(self, scripts: Sequence[str], last: int = 0) -> None:
        self.channels = [LocalChannel(1000) for _ in scripts]
        ids = [ChannelId(0, SubtaskIndex(i), SubtaskIndex(0)) for i in range(len(scripts))]
        self.gate = InputGate(dict(zip(ids, self.channels, strict=True)), CheckpointId(last))
        self.coming = [deque(script) for script in scripts]
        self.trace: Trace = []

    def arrive(self, channel: int) -> None:
        self.channels[channel].put(self._element(channel, self.coming[channel].popleft()))

    def abandon(self, checkpoint: int) -> None:
        self.gate.abandon(CheckpointId(checkpoint))
        self.trace.append(Abandon(checkpoint))

    def poll(self) -> bool:
        match self.gate.poll():
            case None:
                return False
            case Batch(values=[Taken() as taken]):
                self.trace.append(taken)
            case AlignedBarrier(checkpoint):
                self.trace.append(Aligned(checkpoint))
            case Ended():
                self.trace.append(END)
            case other:
                pytest.fail(f"the gate gave {other}")
        return True

    def poll_all(self) -> None:
        while self.poll():
            pass

    def step(self, step: Step) -> None:
        if isinstance(step, int):
            self.arrive(step)
        elif isinstance(step, Abandon):
            self.abandon(step.checkpoint)
        else:
            self.poll()

    def _element(self, channel: int, sign: str) -> Element:
        if sign == ".":
            return EndOfInput()
        return Barrier(CheckpointId(int(sign))) if sign.isdigit() else Batch([Taken(channel, sign)])


def run(scripts: Sequence[str], steps: Sequence[Step], *, eager: bool, last: int = 0) -> Trace:
    """Take the steps, polling after each (eager) or only where they say, and then until nothing comes."""
    running = Run(scripts, last)
    for step in steps:
        running.step(step)
        if eager:
            running.poll_all()
    running.poll_all()
    return running.trace


def orders(counts: Sequence[int], polls: int = 0) -> Iterator[tuple[int | str, ...]]:
    """All orders of so many arrivals per channel, and so many polls."""
    if not any(counts) and not polls:
        yield ()
    for channel, count in enumerate(counts):
        if count:
            less = [*counts[:channel], count - 1, *counts[channel + 1 :]]
            yield from ((channel, *rest) for rest in orders(less, polls))
    if polls:
        yield from ((POLL, *rest) for rest in orders(counts, polls - 1))


def arrivals(scripts: Sequence[str]) -> Iterator[tuple[int | str, ...]]:
    return orders([len(script) for script in scripts])


def same_end(scripts: Sequence[str]) -> bool:
    """Whether no channel is left waiting for a last barrier that another one lacks."""
    last = [max((int(sign) for sign in script if sign.isdigit()), default=0) for script in scripts]
    return len(set(last)) == 1


TWO = ["a1b2.", "a12b.", "1a2.", "a2b.", "a1b.", "a.12", "a1.2", ".12", "ab."]


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("eager", [True, False])
def test_two_channels_in_every_order_of_arrival(eager: bool, last: int) -> None:
    for scripts in product(TWO, repeat=2):
        expected = expected_checkpoints(scripts, last)
        for order in arrivals(scripts):
            trace = run(scripts, order, eager=eager, last=last)
            check(scripts, trace, last)
            assert aligned(trace) == expected, (scripts, order, trace)
            if same_end(scripts):
                check_complete(scripts, trace)


def test_two_channels_with_polls_between_arrivals_in_every_order() -> None:
    for scripts in product(["1a2", "a1.", "12.", "a2."], repeat=2):
        for order in orders([len(script) for script in scripts], polls=3):
            trace = run(scripts, order, eager=False)
            check(scripts, trace)
            assert aligned(trace) == expected_checkpoints(scripts), (scripts, order, trace)


@pytest.mark.parametrize("eager", [True, False])
def test_three_channels_in_every_order_of_arrival(eager: bool) -> None:
    for scripts in product(["1a2", "a1.", "a2."], repeat=3):
        for order in arrivals(scripts):
            trace = run(scripts, order, eager=eager)
            check(scripts, trace)
            assert aligned(trace) == expected_checkpoints(scripts), (scripts, order, trace)


@pytest.mark.parametrize("eager", [True, False])
@pytest.mark.parametrize("abandoned", [1, 2, 3])
def test_C02_two_channels_with_an_abandoned_checkpoint_at_every_place(abandoned: int, eager: bool) -> None:
    for scripts in product(["1a2.", "a1.2", "a2.", "12a.", "1a."], repeat=2):
        expected = expected_checkpoints(scripts)
        for order in arrivals(scripts):
            for place in range(len(order) + 1):
                trace = run(scripts, [*order[:place], Abandon(abandoned), *order[place:]], eager=eager)
                check(scripts, trace)
                got = aligned(trace)
                assert [n for n in expected if n > abandoned] == [n for n in got if n > abandoned], (scripts, trace)
                assert set(got) <= set(expected)
                if same_end(scripts) or abandoned >= 2:
                    check_complete(scripts, trace)


@pytest.mark.parametrize("scripts", [("a1b2c.", "d1e2f.")])
def test_the_check_fails_when_an_entry_is_removed_doubled_moved_or_changed(scripts: tuple[str, str]) -> None:
    trace = run(scripts, [0] * 6 + [1] * 6, eager=True)
    assert is_right(scripts, trace)
    wrong: list[Trace] = []
    for place, entry in enumerate(trace):
        wrong.append([*trace[:place], entry, *trace[place:]])
        if isinstance(entry, Taken):
            wrong += [
                trace[:place] + trace[place + 1 :],
                [*trace[:place], Taken(entry.channel, "x"), *trace[place + 1 :]],
            ]
        if place and Aligned in (type(entry), type(trace[place - 1])):
            wrong.append([*trace[: place - 1], entry, trace[place - 1], *trace[place + 1 :]])
    assert len(wrong) > 20
    for bad in wrong:
        assert not is_right(scripts, bad), bad
    assert not is_right(scripts, trace[:-1]), "the end is missing"


def test_C01_a_fast_channel_is_blocked_at_its_barrier_while_the_slow_one_is_read() -> None:
    running = Run(["1ab", "cd1"])
    for channel in (0, 0, 0, 1, 1):
        running.arrive(channel)
    running.poll_all()
    assert running.trace == [Taken(1, "c"), Taken(1, "d")]
    running.arrive(1)
    running.poll_all()
    assert running.trace[2:] == [Aligned(1), Taken(0, "a"), Taken(0, "b")]


def test_C02_a_newer_barrier_abandons_the_older_alignment_and_blocks_its_own_channel() -> None:
    assert run(["1a2b", "2c"], [0, 0, 1, 1], eager=True) == [Taken(0, "a")]
    assert run(["1a2b", "2c"], [0, 0, 1, 1, 0, 0], eager=True) == [
        Taken(0, "a"),
        Aligned(2),
        Taken(1, "c"),
        Taken(0, "b"),
    ]


def test_an_abandoned_alignment_lets_the_blocked_channel_go_on_and_ignores_its_late_barrier() -> None:
    trace = run(["1ab", "c1d"], [0, 0, 0, 1, Abandon(1), 1, 1], eager=True)
    assert trace == [Taken(1, "c"), Abandon(1), Taken(0, "a"), Taken(0, "b"), Taken(1, "d")]


def test_abandoning_an_older_checkpoint_leaves_the_alignment_alone() -> None:
    assert run(["2a", "b2"], [0, 0, Abandon(1), 1, 1], eager=True)[-2:] == [Aligned(2), Taken(0, "a")]


def test_C02_what_was_abandoned_or_is_of_the_past_stays_so() -> None:
    steps = [Abandon(3), Abandon(1), 0, 0, 0, 1, 1, 1]
    assert aligned(run(["235", "235"], steps, eager=True)) == [5]
    assert aligned(run(["235", "235"], steps[1:], eager=True, last=3)) == [5]


def test_an_ended_input_still_takes_part_in_checkpoints() -> None:
    assert run([".1", "a1b."], [0, 1, 1, 1, 1], eager=True) == [Taken(1, "a")]
    assert run([".1", "a1b."], [0, 1, 1, 1, 1, 0], eager=True)[1:] == [Aligned(1), Taken(1, "b"), END]


def test_the_end_of_all_inputs_is_told_before_a_checkpoint_that_comes_after_it() -> None:
    assert run([".1", ".1"], [0, 0, 1, 1], eager=True) == [END, Aligned(1)]


def test_channels_take_turns() -> None:
    trace = run(["aaaa", "bb", "cccc"], [0] * 4 + [1] * 2 + [2] * 4, eager=False)
    assert "".join(entry.letter for entry in trace if isinstance(entry, Taken)) == "abcabcacac"


def test_a_batch_or_another_end_after_the_end_of_input_is_an_internal_error() -> None:
    for script in (".a", ".."):
        with pytest.raises(InternalError, match=r"ChannelId\(edge=0, source=0, target=0\) after its end of input"):
            run([script, "b"], [0, 0], eager=True)


def test_a_gate_without_channels_is_an_internal_error() -> None:
    with pytest.raises(InternalError):
        InputGate({}, NONE)


# ---- several inputs of one operator ----------------------------------------------------------------------------------


def test_a_batch_says_through_which_input_it_came_and_what_is_shared_stays_as_it_was() -> None:
    channels = {ChannelId(edge, SubtaskIndex(0), SubtaskIndex(0)): LocalChannel(10) for edge in range(3)}
    gate = InputGate(channels, NONE, [0, 1, 1])
    shared = Batch([1], ["k"], [5])
    for channel in channels.values():
        channel.put(shared)
    came = [gate.poll() for _ in channels]
    assert [batch.input for batch in came if isinstance(batch, Batch)] == [0, 1, 1]
    assert came[0] is shared, "nothing is made for the first input"
    assert shared.input == 0
    for batch in came:
        assert isinstance(batch, Batch)
        assert (batch.values, batch.keys, batch.timestamps) == ([1], ["k"], [5])
        assert batch.slice(0, 1).input == batch.input


def test_barriers_are_aligned_and_ends_awaited_over_all_inputs() -> None:
    channels = [LocalChannel(10), LocalChannel(10)]
    ids = [ChannelId(edge, SubtaskIndex(0), SubtaskIndex(0)) for edge in range(2)]
    gate = InputGate(dict(zip(ids, channels, strict=True)), NONE, [0, 1])
    channels[1].put(Barrier(CheckpointId(1)))
    channels[1].put(Batch(["behind"]))
    channels[0].put(Batch(["before"]))
    first = gate.poll()
    assert isinstance(first, Batch)
    assert first.values == ["before"]
    assert gate.poll() is None
    channels[0].put(Barrier(CheckpointId(1)))
    assert gate.poll() == AlignedBarrier(CheckpointId(1))
    behind = gate.poll()
    assert isinstance(behind, Batch)
    assert (behind.values, behind.input) == (["behind"], 1)
    channels[1].put(EndOfInput())
    assert gate.poll() is None
    channels[0].put(EndOfInput())
    assert gate.poll() == Ended()
