"""A link delivers exactly what was sent, in order, over a wire that loses, repeats and reorders."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import InternalError
from tidegate.ids import Attempt
from tidegate.runtime.link import Link

ATTEMPT = Attempt(1)


class Pair:
    """Two links, what is under way to each, and what each has delivered. Time is a number that only grows."""

    def __init__(self, window: int = 4) -> None:
        self.now = 0.0
        self.links = [Link(ATTEMPT, window=window), Link(ATTEMPT, window=window)]
        self.wires: list[list[bytes]] = [[], []]
        """Frames on their way to each side."""
        self.sent: list[list[bytes]] = [[], []]
        self.delivered: list[list[bytes]] = [[], []]

    def send(self, side: int) -> None:
        message = b"%d:%d" % (side, len(self.sent[side]))
        self.sent[side].append(message)
        self.wires[1 - side] += self.links[side].send(message, self.now)

    def arrive(self, side: int, frame: bytes) -> None:
        messages, frames = self.links[side].receive(frame, self.now)
        self.delivered[side] += messages
        self.wires[1 - side] += frames

    def wait(self, seconds: float) -> None:
        self.now += seconds
        for side in (0, 1):
            self.wires[1 - side] += self.links[side].due(self.now)

    def deliver_all(self) -> None:
        while any(self.wires):
            for side in (0, 1):
                frames, self.wires[side] = self.wires[side], []
                for frame in frames:
                    self.arrive(side, frame)

    def heal(self) -> None:
        """From now on the wire loses nothing."""
        for _ in range(1000):
            self.deliver_all()
            deadlines = [link.next_deadline for link in self.links]
            waiting = [deadline for deadline in deadlines if deadline is not None]
            if not waiting:
                return
            self.wait(max(0.0, min(waiting) - self.now))
        pytest.fail("the links never came to rest")


steps = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(0, 1), st.just(0)),
        st.tuples(st.sampled_from(["arrive", "lose", "repeat"]), st.integers(0, 1), st.integers(0, 50)),
        st.tuples(st.just("wait"), st.just(0), st.sampled_from([0, 1, 30])),
    ),
    max_size=120,
)


@given(steps, st.integers(1, 5))
def test_whatever_is_lost_repeated_and_reordered_each_message_is_delivered_once_and_in_order(
    script: list[tuple[str, int, int]], window: int
) -> None:
    pair = Pair(window)
    for action, side, number in script:
        wire = pair.wires[side]
        if action == "send":
            pair.send(side)
        elif action == "wait":
            pair.wait(number / 10)
        elif wire:
            place = number % len(wire)
            frame = wire[place] if action == "repeat" else wire.pop(place)
            if action != "lose":
                pair.arrive(side, frame)
        for receiver in (0, 1):
            delivered = pair.delivered[receiver]
            assert delivered == pair.sent[1 - receiver][: len(delivered)]
    pair.heal()
    assert pair.delivered[0] == pair.sent[1]
    assert pair.delivered[1] == pair.sent[0]
    assert all(link.all_acknowledged for link in pair.links)


def test_a_message_is_delivered_at_once_when_nothing_goes_wrong() -> None:
    pair = Pair()
    pair.send(0)
    pair.send(0)
    frames, pair.wires[1] = pair.wires[1], []
    for frame in frames:
        pair.arrive(1, frame)
    assert pair.delivered[1] == [b"0:0", b"0:1"]
    assert pair.wires == [[], []], "the acknowledgement waits for a message to ride on"


def test_an_acknowledgement_goes_alone_when_there_is_nothing_to_ride_on() -> None:
    pair = Pair()
    pair.send(0)
    pair.deliver_all()
    assert not pair.links[0].all_acknowledged
    assert pair.links[1].next_deadline == pytest.approx(0.02)
    pair.wait(0.02)
    assert len(pair.wires[0]) == 1
    pair.deliver_all()
    assert pair.links[0].all_acknowledged
    assert [link.next_deadline for link in pair.links] == [None, None]


def test_an_acknowledgement_rides_on_a_message() -> None:
    pair = Pair()
    pair.send(0)
    pair.deliver_all()
    pair.send(1)
    pair.deliver_all()
    assert pair.links[0].all_acknowledged
    assert pair.links[1].next_deadline == pytest.approx(0.2), "only its own message waits now"


def test_what_is_not_acknowledged_is_sent_again_ever_more_slowly_up_to_the_longest_time() -> None:
    link = Link(ATTEMPT, first_timeout=1.0, longest_timeout=5.0)
    first = link.send(b"a", 0.0)
    times = []
    for _ in range(5):
        deadline = link.next_deadline
        assert deadline is not None
        assert link.due(deadline - 0.01) == []
        assert link.due(deadline) == first
        times.append(deadline)
    assert times == [1.0, 3.0, 7.0, 12.0, 17.0]


def test_an_acknowledgement_brings_the_first_timeout_back() -> None:
    sender, receiver = Link(ATTEMPT, first_timeout=1.0), Link(ATTEMPT)
    (first,) = sender.send(b"a", 0.0)
    sender.send(b"b", 0.0)
    sender.due(1.0)
    sender.due(3.0)
    receiver.receive(first, 3.0)
    (acknowledgement,) = receiver.due(3.02)
    sender.receive(acknowledgement, 4.0)
    assert sender.next_deadline == 5.0
    assert len(sender.due(5.0)) == 1, "only what is missing goes again"


def test_a_frame_that_acknowledges_nothing_new_does_not_put_off_sending_again() -> None:
    sender, other = Link(ATTEMPT, first_timeout=1.0), Link(ATTEMPT)
    sender.send(b"a", 0.0)
    for moment in (0.3, 0.6, 0.9):
        (frame,) = other.send(b"b", moment)
        sender.receive(frame, moment)
        sender.due(moment + 0.05)
    assert sender.next_deadline == 1.0


def test_the_first_of_several_messages_decides_when_they_are_acknowledged() -> None:
    sender, receiver = Link(ATTEMPT), Link(ATTEMPT)
    for moment in (0.0, 0.01, 0.015):
        (frame,) = sender.send(b"a", moment)
        receiver.receive(frame, moment)
    assert receiver.next_deadline == pytest.approx(0.02)


def test_a_repeated_message_is_acknowledged_at_once() -> None:
    sender, receiver = Link(ATTEMPT), Link(ATTEMPT)
    (frame,) = sender.send(b"a", 0.0)
    assert receiver.receive(frame, 0.0) == ([b"a"], [])
    messages, frames = receiver.receive(frame, 0.0)
    assert messages == []
    assert len(frames) == 1
    sender.receive(frames[0], 0.0)
    assert sender.all_acknowledged


def test_the_window_bounds_what_is_under_way_and_lets_the_rest_go_when_acknowledged() -> None:
    sender, receiver = Link(ATTEMPT, window=2), Link(ATTEMPT, window=2)
    frames = [frame for message in (b"a", b"b", b"c", b"d") for frame in sender.send(message, 0.0)]
    assert len(frames) == 2
    assert sender.due(0.2) == frames
    for frame in frames:
        receiver.receive(frame, 0.2)
    (acknowledgement,) = receiver.due(0.3)
    _, more = sender.receive(acknowledgement, 0.3)
    assert [message for frame in more for message in receiver.receive(frame, 0.3)[0]] == [b"c", b"d"]


def test_what_comes_too_early_for_the_window_is_not_kept() -> None:
    sender, receiver = Link(ATTEMPT, window=10), Link(ATTEMPT, window=2)
    frames = [sender.send(b"%d" % number, 0.0)[0] for number in range(4)]
    for frame in reversed(frames):
        receiver.receive(frame, 0.0)
    (acknowledgement,) = receiver.due(1.0)
    sender.receive(acknowledgement, 1.0)
    again = [message for frame in sender.due(2.0) for message in receiver.receive(frame, 2.0)[0]]
    assert again == [b"2", b"3"], "0 and 1 were kept, 2 and 3 came too early and come again"


def test_frames_of_another_attempt_do_nothing() -> None:
    link = Link(Attempt(2))
    link.send(b"mine", 0.0)
    for attempt in (1, 3):
        (frame,) = Link(Attempt(attempt)).send(b"foreign", 0.0)
        assert link.receive(frame, 0.0) == ([], [])
    assert link.next_deadline == pytest.approx(0.2)


def test_bytes_that_are_no_frame_are_an_internal_error() -> None:
    for data in (b"", b"\xc1", b"\x95\x01", b"hello"):
        with pytest.raises(InternalError, match="no frame of a link"):
            Link(ATTEMPT).receive(data, 0.0)


def test_another_version_of_frames_is_an_internal_error_that_says_what_to_do() -> None:
    (frame,) = Link(ATTEMPT).send(b"a", 0.0)
    assert frame[1] == 1
    with pytest.raises(InternalError, match=r"version 2.*\n.*same version"):
        Link(ATTEMPT).receive(frame[:1] + b"\x02" + frame[2:], 0.0)


def test_an_acknowledgement_of_what_was_never_sent_is_an_internal_error() -> None:
    sender, receiver = Link(ATTEMPT), Link(ATTEMPT)
    for message in (b"a", b"b"):
        (frame,) = sender.send(message, 0.0)
        receiver.receive(frame, 0.0)
    (acknowledgement,) = receiver.due(1.0)
    held_back = Link(ATTEMPT, window=1)
    held_back.send(b"a", 0.0)
    held_back.send(b"b", 0.0)
    with pytest.raises(InternalError, match="message 2 was acknowledged, but only 1 were sent"):
        held_back.receive(acknowledgement, 1.0)
