"""A link: exactly-once, ordered delivery of control messages over a wire that may lose, repeat and reorder frames. One
`Link` stands on each side of a JobManager and worker pair, for one attempt. Whatever it returns as frames goes to the
wire at once; `next_deadline` says when `due` wants to be called.

A message is sent again until it is acknowledged. Each frame acknowledges everything received in order so far; a frame
without a message does so when there is nothing to say. A link never gives up: whether the other side lives is decided
elsewhere.
"""

import msgspec

from tidegate.errors import InternalError
from tidegate.ids import Attempt

VERSION = 1


class _LinkFrame(msgspec.Struct, frozen=True, array_like=True):
    version: int
    attempt: Attempt
    sequence: int
    """Of the message, from 1; 0 for an acknowledgement alone."""
    acknowledged: int
    """The sender of this frame has received all messages up to this one."""
    message: bytes


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_LinkFrame).decode


class Link:
    """One side. Times are in seconds.

    window: how many messages may be under way unacknowledged; further ones wait. The other side keeps at most so many
    that came too early. first_timeout, longest_timeout: after this long without an acknowledgement everything under way
    is sent again; the time doubles up to the longest. acknowledge_delay: how long an acknowledgement waits for a
    message to ride on.
    """

    def __init__(
        self,
        attempt: Attempt,
        *,
        window: int = 256,
        first_timeout: float = 0.2,
        longest_timeout: float = 5.0,
        acknowledge_delay: float = 0.02,
    ) -> None:
        self._attempt = attempt
        self._window = window
        self._first_timeout = self._timeout = first_timeout
        self._longest_timeout = longest_timeout
        self._acknowledge_delay = acknowledge_delay
        self._outbox: dict[int, bytes] = {}
        """Messages by sequence that are not acknowledged, sent or not."""
        self._numbered = 0
        self._sent = 0
        self._acknowledged = 0
        self._resend_at: float | None = None
        self._received = 0
        """All messages up to this one were delivered."""
        self._early: dict[int, bytes] = {}
        """Messages that came before an earlier one."""
        self._acknowledge_at: float | None = None

    @property
    def all_acknowledged(self) -> bool:
        """Whether the other side has received everything that was sent."""
        return not self._outbox

    @property
    def next_deadline(self) -> float | None:
        """When to call `due`; None: not before something else has happened."""
        return min((at for at in (self._resend_at, self._acknowledge_at) if at is not None), default=None)

    def send(self, message: bytes, now: float) -> list[bytes]:
        """Frames to send, so that `message` will be delivered after all earlier ones."""
        self._numbered += 1
        self._outbox[self._numbered] = message
        return self._transmit(now)

    def receive(self, data: bytes, now: float) -> tuple[list[bytes], list[bytes]]:
        """Messages that are now delivered, in order, and frames to send. A frame of another attempt is dropped.

        Raises InternalError when these bytes are no frame of a link.
        """
        frame = _decode_frame(data)
        if frame.attempt != self._attempt:
            return [], []
        self._take_acknowledgement(frame.acknowledged, now)
        if frame.sequence == 0:
            return [], self._transmit(now)
        is_repeat = frame.sequence <= self._received or frame.sequence in self._early
        if not is_repeat and frame.sequence <= self._received + self._window:
            self._early[frame.sequence] = frame.message
        messages = self._deliver()
        if self._acknowledge_at is None:
            self._acknowledge_at = now + self._acknowledge_delay
        frames = self._transmit(now)
        if is_repeat and not frames:
            # It was sent again because the acknowledgement was lost or late.
            frames = [self._frame(0)]
        return messages, frames

    def due(self, now: float) -> list[bytes]:
        """Frames whose time has come: everything unacknowledged again, or an acknowledgement alone."""
        if self._resend_at is not None and now >= self._resend_at:
            self._timeout = min(2 * self._timeout, self._longest_timeout)
            self._resend_at = now + self._timeout
            return [self._frame(sequence) for sequence in range(self._acknowledged + 1, self._sent + 1)]
        if self._acknowledge_at is not None and now >= self._acknowledge_at:
            return [self._frame(0)]
        return []

    def _transmit(self, now: float) -> list[bytes]:
        """Frames of the messages that the window lets go now."""
        first, last = self._sent + 1, min(self._numbered, self._acknowledged + self._window)
        if last < first:
            return []
        self._sent = last
        if self._resend_at is None:
            self._resend_at = now + self._timeout
        return [self._frame(sequence) for sequence in range(first, last + 1)]

    def _frame(self, sequence: int) -> bytes:
        self._acknowledge_at = None
        return _encode(_LinkFrame(VERSION, self._attempt, sequence, self._received, self._outbox.get(sequence, b"")))

    def _take_acknowledgement(self, acknowledged: int, now: float) -> None:
        if acknowledged > self._sent:
            raise InternalError(f"message {acknowledged} was acknowledged, but only {self._sent} were sent")
        if acknowledged <= self._acknowledged:
            return
        for sequence in range(self._acknowledged + 1, acknowledged + 1):
            del self._outbox[sequence]
        self._acknowledged = acknowledged
        self._timeout = self._first_timeout
        self._resend_at = now + self._timeout if self._sent > acknowledged else None

    def _deliver(self) -> list[bytes]:
        messages = []
        while self._received + 1 in self._early:
            self._received += 1
            messages.append(self._early.pop(self._received))
        return messages


def _decode_frame(data: bytes) -> _LinkFrame:
    try:
        frame = _decode(data)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InternalError(
            f"{len(data)} bytes that are no frame of a link came over a control wire: {error}"
        ) from error
    if frame.version != VERSION:
        raise InternalError(
            f"a frame of a link has format version {frame.version}, this process knows {VERSION}",
            remedy="Run JobManager and workers with the same version of Tidegate.",
        )
    return frame
