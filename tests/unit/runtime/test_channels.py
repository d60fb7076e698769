"""Channels keep order, hold back a fast sender, and notice every lost, repeated or foreign frame."""

from collections import deque

import pytest

from tidegate.elements import Barrier, Batch, Element, EndOfInput
from tidegate.errors import InternalError, UnavailableError
from tidegate.graph.physical import ChannelId
from tidegate.ids import Attempt, CheckpointId, SubtaskIndex
from tidegate.runtime.channels import Exchange, LocalChannel, RemoteInput, RemoteOutput
from tidegate.runtime.frames import FrameKind, decode_frame, encode_credit, encode_element, encode_frame

CHANNEL = ChannelId(0, SubtaskIndex(0), SubtaskIndex(1))
OTHER = ChannelId(0, SubtaskIndex(0), SubtaskIndex(2))
ATTEMPT = Attempt(3)
BARRIER = Barrier(CheckpointId(1))


def payload_size(batch: Batch) -> int:
    return len(encode_element(batch)[1])


class Pair:
    """Two workers with one channel between them, and the frames that are under way."""

    def __init__(self, budget: int) -> None:
        self.there: deque[bytes] = deque()
        self.back: deque[bytes] = deque()
        self.sender = Exchange(ATTEMPT, budget)
        self.receiver = Exchange(ATTEMPT, budget)
        self.output: RemoteOutput = self.sender.output(CHANNEL, self.there.append)
        self.input: RemoteInput = self.receiver.input(CHANNEL, self.back.append)

    def deliver(self) -> None:
        while self.there:
            self.receiver.receive(self.there.popleft())

    def return_credit(self) -> None:
        while self.back:
            self.sender.receive(self.back.popleft())

    def take(self) -> list[Element]:
        return drain(self.input)


def drain(channel: RemoteInput | LocalChannel) -> list[Element]:
    elements = []
    while (element := channel.poll()) is not None:
        elements.append(element)
    return elements


def described(elements: list[Element]) -> list[object]:
    return [element.values if isinstance(element, Batch) else element for element in elements]


def test_a_local_channel_gives_what_was_put_in_order_and_as_it_was() -> None:
    channel = LocalChannel(10)
    elements: list[Element] = [Batch([1, 2]), BARRIER, Batch([3]), EndOfInput()]
    for element in elements:
        channel.put(element)
    assert all(got is put for got, put in zip(drain(channel), elements, strict=True))
    assert channel.poll() is None


def test_a_local_channel_has_credit_below_its_capacity_and_may_overshoot() -> None:
    channel = LocalChannel(4)
    channel.put(Batch([1, 2, 3]))
    assert channel.has_credit
    channel.put(Batch([4, 5, 6]))
    assert not channel.has_credit
    channel.put(BARRIER)
    channel.poll()
    assert channel.has_credit
    assert described(drain(channel)) == [[4, 5, 6], BARRIER]


def test_barriers_and_ends_cost_no_credit_in_a_local_channel() -> None:
    channel = LocalChannel(1)
    for checkpoint in range(10):
        channel.put(Barrier(CheckpointId(checkpoint)))
    channel.put(EndOfInput())
    assert channel.has_credit


def test_a_remote_channel_gives_what_was_put_in_order() -> None:
    pair = Pair(1_000_000)
    for element in (Batch(["a", "b"], ["k", "l"], [1, 2]), BARRIER, Batch([3]), EndOfInput(), Barrier(CheckpointId(2))):
        pair.output.put(element)
    pair.deliver()
    assert described(pair.take()) == [["a", "b"], BARRIER, [3], EndOfInput(), Barrier(CheckpointId(2))]


def test_a_remote_sender_runs_out_of_credit_until_the_task_has_taken_the_batches() -> None:
    batch = Batch(["x" * 100])
    pair = Pair(2 * payload_size(batch) + 1)
    pair.output.put(batch)
    pair.output.put(batch)
    assert pair.output.has_credit, "one byte is left"
    pair.output.put(batch)
    assert not pair.output.has_credit
    pair.deliver()
    pair.return_credit()
    assert not pair.output.has_credit, "arrived is not taken"
    pair.input.poll()
    pair.return_credit()
    assert pair.output.has_credit


def test_barriers_and_ends_pass_without_credit_behind_the_batches() -> None:
    batch = Batch(["x" * 100])
    pair = Pair(1)
    pair.output.put(batch)
    assert not pair.output.has_credit
    pair.output.put(BARRIER)
    pair.output.put(EndOfInput())
    pair.deliver()
    assert described(pair.take()) == [batch.values, BARRIER, EndOfInput()]
    pair.return_credit()
    assert pair.output.has_credit


def test_grants_wait_until_a_quarter_of_the_budget_was_taken() -> None:
    batch = Batch(["x" * 100])
    pair = Pair(16 * payload_size(batch))
    for _ in range(16):
        pair.output.put(batch)
    assert not pair.output.has_credit
    pair.deliver()
    frames_after = []
    for _ in range(16):
        pair.input.poll()
        frames_after.append(len(pair.back))
    assert frames_after == [0] * 3 + [1] * 4 + [2] * 4 + [3] * 4 + [4]


@pytest.mark.parametrize("budget", [1, 50, 137, 1000])
def test_no_credit_is_ever_lost_or_made_up(budget: int) -> None:
    pair = Pair(budget)
    sent = 0
    for size in range(1, 200):
        if pair.output.has_credit:
            pair.output.put(Batch(["x" * size]))
            pair.output.put(BARRIER)
            sent += 1
        pair.deliver()
        if size % 3 == 0:
            pair.take()
            pair.return_credit()
    pair.deliver()
    pair.take()
    pair.return_credit()
    assert pair.output.has_credit
    assert sent >= 60, "the channel kept running"
    room = 0
    while pair.output.has_credit:
        pair.output.put(Batch(["x"]))
        room += payload_size(Batch(["x"]))
    assert budget * 3 // 4 <= room < budget + payload_size(Batch(["x"])), "within what grants may still hold back"


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_gap_ends_the_attempt(lost: int) -> None:
    pair = Pair(1000)
    for value in range(4):
        pair.output.put(Batch([value]))
    del pair.there[lost]
    with pytest.raises(UnavailableError, match="frames lost between workers"):
        pair.deliver()


@pytest.mark.parametrize("repeated", [0, 1, 2])
def test_a_repeat_ends_the_attempt(repeated: int) -> None:
    pair = Pair(1000)
    for value in range(3):
        pair.output.put(Batch([value]))
    pair.there.insert(repeated, pair.there[repeated])
    with pytest.raises(UnavailableError, match="frames lost between workers"):
        pair.deliver()


def test_a_barrier_that_overtook_a_batch_ends_the_attempt() -> None:
    pair = Pair(1000)
    pair.output.put(Batch([1]))
    pair.output.put(BARRIER)
    pair.there.rotate(1)
    with pytest.raises(UnavailableError, match="frame 1 came where 0 was due"):
        pair.deliver()


@pytest.mark.parametrize("sequences", [[1], [0, 0], [0, 2]])
def test_lost_or_repeated_credit_ends_the_attempt(sequences: list[int]) -> None:
    pair = Pair(1000)
    frames = [encode_frame(FrameKind.CREDIT, ATTEMPT, CHANNEL, number, encode_credit(1)) for number in sequences]
    for frame in frames[:-1]:
        pair.sender.receive(frame)
    with pytest.raises(UnavailableError, match="frames lost between workers"):
        pair.sender.receive(frames[-1])


@pytest.mark.parametrize("kind", list(FrameKind))
def test_frames_of_an_earlier_attempt_are_dropped_whatever_their_sequence_and_channel(kind: FrameKind) -> None:
    pair = Pair(1000)
    for channel in (CHANNEL, OTHER):
        for sequence in (0, 5, 5):
            zombie = encode_frame(kind, Attempt(2), channel, sequence, encode_credit(100))
            pair.receiver.receive(zombie)
            pair.sender.receive(zombie)
    assert pair.input.poll() is None
    pair.output.put(Batch([1]))
    pair.deliver()
    assert described(pair.take()) == [[1]]


def test_the_ends_themselves_drop_an_earlier_attempt() -> None:
    pair = Pair(1)
    pair.output.put(Batch([1]))
    pair.output.receive(decode_frame(encode_frame(FrameKind.CREDIT, Attempt(2), CHANNEL, 0, encode_credit(100))))
    assert not pair.output.has_credit
    pair.input.receive(decode_frame(encode_frame(FrameKind.END, Attempt(2), CHANNEL, 0, b"")))
    assert pair.input.poll() is None


def test_a_frame_of_a_later_attempt_says_that_this_one_is_over() -> None:
    pair = Pair(1000)
    with pytest.raises(UnavailableError, match="attempt 4 reached attempt 3"):
        pair.receiver.receive(encode_frame(FrameKind.END, Attempt(4), CHANNEL, 0, b""))


def test_a_frame_of_a_channel_that_does_not_end_here_is_an_internal_error() -> None:
    pair = Pair(1000)
    with pytest.raises(InternalError, match="does not end here"):
        pair.receiver.receive(encode_frame(FrameKind.END, ATTEMPT, OTHER, 0, b""))
    with pytest.raises(InternalError, match="does not end here"):
        pair.receiver.receive(encode_frame(FrameKind.CREDIT, ATTEMPT, CHANNEL, 0, encode_credit(1)))
    with pytest.raises(InternalError, match="was given to"):
        pair.input.receive(decode_frame(encode_frame(FrameKind.END, ATTEMPT, OTHER, 0, b"")))
