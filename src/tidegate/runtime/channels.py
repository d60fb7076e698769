"""Channels: bounded, ordered queues of batches, barriers and ends of input from one task to another. A sender asks
`has_credit` before it takes in more work, then calls `put`; a receiver calls `poll`. `LocalChannel` is both ends within
one worker; `RemoteOutput` and `RemoteInput` are the two ends between workers, and an `Exchange` gives each arriving
frame to its end.

Nothing here waits, drops a batch, or lets a barrier overtake one: `put` always takes the element, because a task that
had credit when it began a batch must be able to finish it, and a barrier must not wait for credit.
"""

from collections import deque
from collections.abc import Callable
from typing import Protocol

from tidegate.elements import Batch, Element
from tidegate.errors import InternalError, UnavailableError
from tidegate.graph.physical import ChannelId
from tidegate.ids import Attempt
from tidegate.runtime.frames import (
    Frame,
    FrameKind,
    decode_credit,
    decode_element,
    decode_frame,
    encode_credit,
    encode_element,
    encode_frame,
)

GRANTS_PER_BUDGET = 4
"""Credit goes back in pieces of at least this part of the budget: fewer frames, and the sender never runs dry before
one."""


class OutputChannel(Protocol):
    """The end that a task writes."""

    @property
    def has_credit(self) -> bool:
        """Whether the receiver wants more. Without credit nothing new should be begun that ends in this channel."""
        ...

    def put(self, element: Element) -> None:
        """Append. With or without credit: batches begun with credit may overshoot, and control elements cost
        nothing."""
        ...


class InputChannel(Protocol):
    """The end that a task reads."""

    @property
    def has_records(self) -> bool:
        """Whether the next element is there and is a batch."""
        ...

    def poll(self) -> Element | None:
        """Take the next element; None when there is none now. What is taken makes room for the sender."""
        ...


class LocalChannel:
    """Both ends of a channel within one worker. Elements pass as they are, never copied."""

    def __init__(self, capacity: int) -> None:
        """`capacity` in records."""
        self._capacity = capacity
        self._elements: deque[Element] = deque()
        self._records = 0

    @property
    def has_credit(self) -> bool:
        return self._records < self._capacity

    def put(self, element: Element) -> None:
        if isinstance(element, Batch):
            self._records += len(element)
        self._elements.append(element)

    @property
    def has_records(self) -> bool:
        return bool(self._elements) and isinstance(self._elements[0], Batch)

    def poll(self) -> Element | None:
        if not self._elements:
            return None
        element = self._elements.popleft()
        if isinstance(element, Batch):
            self._records -= len(element)
        return element


class RemoteOutput:
    """The writing end of a channel to another worker.

    `budget` is in bytes of payload. `send` hands a frame to the wire, which keeps the order of one channel.
    """

    def __init__(self, channel: ChannelId, attempt: Attempt, budget: int, send: Callable[[bytes], None]) -> None:
        self._channel = channel
        self._attempt = attempt
        self._credit = budget
        self._send = send
        self._sent = 0
        self._arrivals = _Arrivals(channel, attempt)

    @property
    def has_credit(self) -> bool:
        return self._credit > 0

    def put(self, element: Element) -> None:
        """Raises UserCodeError when a record cannot be pickled."""
        kind, payload = encode_element(element)
        if kind is FrameKind.BATCH:
            self._credit -= len(payload)
        self._send(encode_frame(kind, self._attempt, self._channel, self._sent, payload))
        self._sent += 1

    def receive(self, frame: Frame) -> None:
        """Take the credit that came back. Raises UnavailableError when frames were lost or repeated."""
        if self._arrivals.accept(frame):
            self._credit += decode_credit(frame)


class RemoteInput:
    """The reading end of a channel from another worker. Payloads wait as bytes, within the sender's `budget`, and
    become objects when the task takes them; that gives the credit back, so that blocking the channel holds back the
    sender."""

    def __init__(self, channel: ChannelId, attempt: Attempt, budget: int, send: Callable[[bytes], None]) -> None:
        self._channel = channel
        self._attempt = attempt
        self._budget = budget
        self._send = send
        self._frames: deque[Frame] = deque()
        self._taken = 0
        """Bytes taken for which no credit went back yet."""
        self._grants = 0
        self._arrivals = _Arrivals(channel, attempt)

    def receive(self, frame: Frame) -> None:
        """Queue what came. Raises UnavailableError when frames were lost or repeated."""
        if self._arrivals.accept(frame):
            self._frames.append(frame)

    @property
    def has_records(self) -> bool:
        return bool(self._frames) and self._frames[0].kind is FrameKind.BATCH

    def poll(self) -> Element | None:
        """Raises InternalError for a frame that nobody can have sent, UserCodeError for a record that cannot be
        unpickled."""
        if not self._frames:
            return None
        frame = self._frames.popleft()
        if frame.kind is FrameKind.BATCH:
            self._give_back(len(frame.payload))
        return decode_element(frame)

    def _give_back(self, size: int) -> None:
        self._taken += size
        if self._taken * GRANTS_PER_BUDGET < self._budget:
            return
        payload = encode_credit(self._taken)
        self._send(encode_frame(FrameKind.CREDIT, self._attempt, self._channel, self._grants, payload))
        self._grants += 1
        self._taken = 0


class Exchange:
    """The ends of all channels between this worker and others, in one attempt."""

    def __init__(self, attempt: Attempt, budget: int) -> None:
        """`budget` is each channel's credit in bytes; the same in all workers."""
        self._attempt = attempt
        self._budget = budget
        self._outputs: dict[ChannelId, RemoteOutput] = {}
        self._inputs: dict[ChannelId, RemoteInput] = {}

    def output(self, channel: ChannelId, send: Callable[[bytes], None]) -> RemoteOutput:
        """Make the writing end of `channel`; `send` reaches the worker that reads it."""
        end = self._outputs[channel] = RemoteOutput(channel, self._attempt, self._budget, send)
        return end

    def input(self, channel: ChannelId, send: Callable[[bytes], None]) -> RemoteInput:
        """Make the reading end of `channel`; `send` reaches the worker that writes it."""
        end = self._inputs[channel] = RemoteInput(channel, self._attempt, self._budget, send)
        return end

    def receive(self, data: bytes) -> None:
        """Give a frame to its end. One of an earlier attempt is dropped: its sender was presumed dead and is not
        wanted.

        Raises UnavailableError when frames were lost or a later attempt has begun: this attempt is over. Raises
        InternalError when this is no frame, or one of a channel that this worker does not have.
        """
        frame = decode_frame(data)
        if frame.attempt < self._attempt:
            return
        ends = self._outputs if frame.kind is FrameKind.CREDIT else self._inputs
        end = ends.get(frame.channel)
        if end is None:
            raise InternalError(f"a {frame.kind.name.lower()} frame came for {frame.channel}, which does not end here")
        end.receive(frame)


class _Arrivals:
    """Whether the frames of one channel and direction arrive each once and in order.

    The wire reconnects silently and then drops what was in flight. A batch that is missing, or is there twice, must end
    the attempt before a checkpoint makes it permanent.
    """

    def __init__(self, channel: ChannelId, attempt: Attempt) -> None:
        self._channel = channel
        self._attempt = attempt
        self._next = 0

    def accept(self, frame: Frame) -> bool:
        """True for the next frame, False for one of an earlier attempt; raises for everything else."""
        if frame.channel != self._channel:
            raise InternalError(f"a frame of {frame.channel} was given to {self._channel}")
        if frame.attempt < self._attempt:
            return False
        if frame.attempt > self._attempt:
            raise UnavailableError(
                f"a frame of attempt {frame.attempt} reached attempt {self._attempt}, which is therefore over",
                where=str(self._channel),
            )
        if frame.sequence != self._next:
            raise UnavailableError(
                f"frames lost between workers: frame {frame.sequence} came where {self._next} was due",
                remedy="The job restarts from its last checkpoint. If this repeats, look for what cuts connections.",
                where=str(self._channel),
            )
        self._next += 1
        return True
