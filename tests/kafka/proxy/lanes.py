"""One connection of a client to a broker: two lanes of frames, and when each end of it is closed.

A lane keeps the order of what it carries, as TCP does: what is delayed or held delays all that follows it, and the end
of the stream comes last. So what a client sent before it died reaches the broker afterwards.
"""

import socket
import struct
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from tests.kafka.proxy.faults import Hold, Line
from tests.kafka.proxy.frames import NotKafkaError, Request, Splitter, correlation_id_of, request_of

RECEIVE_BYTES = 1 << 18
LANE_BYTES_MAX = 1 << 24
"""With more on its way a lane takes nothing in, and its sender feels it."""
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Parcel(NamedTuple):
    data: bytes
    """Empty: the end of the stream."""
    due: float
    hold: Hold | None = None


class Lane:
    """Frames on their way to `target`. All of it belongs to the proxy's thread."""

    def __init__(self, line: Line, target: socket.socket) -> None:
        self.target = target
        self.wants_write = False
        self.has_ended = False
        """The end of the stream has passed."""
        self.size = 0
        """Bytes on their way."""
        self.was_held = False
        self._line = line
        self._queue: deque[Parcel] = deque()
        self._sent = 0
        """Bytes of the first parcel."""
        self._is_mute = False
        self._is_closing = False
        self._due = 0.0

    @property
    def is_full(self) -> bool:
        return self.size >= LANE_BYTES_MAX

    @property
    def holds(self) -> bool:
        return any(parcel.hold and not parcel.hold.is_released for parcel in self._queue)

    def put(self, data: bytes, now: float, hold: Hold | None = None) -> None:
        if not self._is_mute and not self._is_closing:
            self._due = max(self._due, self._line.due(now))
            self._queue.append(Parcel(data, self._due, hold))
            self.size += len(data)
            self.was_held |= hold is not None

    def end(self, now: float) -> None:
        """Nothing more will come."""
        if not self._is_closing:
            self._is_closing = True
            self._due = max(self._due, self._line.due(now))
            self._queue.append(Parcel(b"", self._due))

    def mute(self) -> None:
        """Carry what is on its way, and then nothing more but the end."""
        self._is_mute = True

    def clear(self) -> None:
        """The target takes nothing more."""
        self.mute()
        self._queue = deque(parcel for parcel in self._queue if not parcel.data)
        self._sent = self.size = 0
        self.wants_write = False

    def flush(self, now: float) -> float | None:
        """Send what may pass, and return when to come again, if time alone brings that about. Raises OSError when the
        other side is gone."""
        self.wants_write = False
        while self._queue and not self._line.is_cut:
            parcel = self._queue[0]
            if parcel.hold is not None and not parcel.hold.is_released:
                return None
            if parcel.due > now:
                return parcel.due
            if not parcel.data:
                self.has_ended = True
                return None
            left = len(parcel.data) - self._sent
            allowed = self._line.allowed(now, left)
            if not allowed:
                return self._line.next_credit(now, left)
            if not self._send(parcel.data, allowed):
                return None
        return None

    def _send(self, data: bytes, allowed: int) -> bool:
        """Whether the target took something."""
        with memoryview(data) as view:
            try:
                count = self.target.send(view[self._sent : self._sent + allowed])
            except BlockingIOError:
                self.wants_write = True
                return False
        self._line.spend(count)
        self._sent += count
        self.size -= count
        if self._sent == len(data):
            self._queue.popleft()
            self._sent = 0
        return True


class Tally(NamedTuple):
    """What the proxy counts; called with the api's name."""

    saw: Callable[[str], None]
    answered: Callable[[str], None]
    lost: Callable[[str], None]


class Connection:
    """A client's socket and the broker's, and what is between them. Both sockets do not block."""

    def __init__(self, client: socket.socket, broker: socket.socket, lines: tuple[Line, Line], tally: Tally) -> None:
        self.client = client
        self.broker = broker
        self._request_line, self._reply_line = lines
        self.requests = Lane(self._request_line, broker)
        self.replies = Lane(self._reply_line, client)
        self.is_client_open = self.is_broker_open = True
        self.wakes_at: float | None = None
        """When the proxy's thread comes again by itself."""
        self._tally = tally
        self._from_client = Splitter.of_requests()
        self._from_broker = Splitter.of_replies()
        self._unanswered: deque[Request] = deque()

    @property
    def is_over(self) -> bool:
        return not self.is_client_open and not self.is_broker_open

    # ---- what comes in ---------------------------------------------------------------------------------------------

    def read_client(self, now: float) -> None:
        try:
            data = self.client.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._client_is_gone(now)
            return
        try:
            frames = self._from_client.feed(data)
        except NotKafkaError:
            self.reset(now)
            return
        for frame in frames:
            self._request(frame, now)

    def _request(self, frame: bytes, now: float) -> None:
        request = request_of(frame)
        self._tally.saw(request.api)
        loss = self._request_line.loss_of(request.api)
        if loss is None:
            hold = self._request_line.hold_of(request.api)
            if hold is not None:
                hold.frames += 1
            self._unanswered.append(request)
            self.requests.put(frame, now, hold)
            return
        self._tally.lost(request.api)
        self.requests.mute()
        if loss.resets:
            self.reset(now)

    def read_broker(self, now: float) -> None:
        try:
            data = self.broker.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._broker_is_gone(now)
            return
        for frame in self._from_broker.feed(data):
            self._reply(frame, now)

    def _reply(self, frame: bytes, now: float) -> None:
        api = self._api_of(correlation_id_of(frame))
        self._tally.answered(api)
        loss = self._reply_line.loss_of(api)
        if loss is None:
            self.replies.put(frame, now)
            return
        self._tally.lost(api)
        self.replies.mute()
        if loss.resets:
            self.reset(now)

    def _api_of(self, correlation_id: int) -> str:
        """What kind of request it was. Brokers answer in order, and some requests not at all."""
        while self._unanswered:
            request = self._unanswered.popleft()
            if request.correlation_id == correlation_id:
                return request.api
        raise AssertionError(f"the broker answered request {correlation_id}, which nobody made")

    # ---- what goes out ---------------------------------------------------------------------------------------------

    def flush(self, now: float) -> float | None:
        """Send what may pass in both directions, and return when to come again, if time alone brings that about."""
        again = [self._flush_requests(now), self._flush_replies(now)]
        return min((when for when in again if when is not None), default=None)

    def _flush_requests(self, now: float) -> float | None:
        if not self.is_broker_open:
            return None
        try:
            again = self.requests.flush(now)
        except OSError:
            self._broker_is_gone(now)
            return None
        # What was held is answered before its connection ends, so that nobody can take it for lost on the way.
        if self.requests.has_ended and not (self.requests.was_held and self._unanswered):
            self._close_broker()
        return again

    def _flush_replies(self, now: float) -> float | None:
        if not self.is_client_open:
            return None
        try:
            again = self.replies.flush(now)
        except OSError:
            self._client_is_gone(now)
            return None
        if self.replies.has_ended:
            self._close_client()
        return again

    # ---- ends ------------------------------------------------------------------------------------------------------

    def _client_is_gone(self, now: float) -> None:
        """The broker is told so behind all that is on its way."""
        self._close_client()
        self.requests.end(now)

    def _broker_is_gone(self, now: float) -> None:
        self._close_broker()
        self.replies.end(now)

    def reset(self, now: float) -> None:
        """The client sees it broken at once, and so does the broker, unless there is something held for it."""
        if self.is_client_open:
            _reset_on_close(self.client)
        self._client_is_gone(now)
        if not self.requests.holds:
            if self.is_broker_open:
                _reset_on_close(self.broker)
            self._close_broker()

    def close(self) -> None:
        self._close_client()
        self._close_broker()

    def _close_client(self) -> None:
        self.is_client_open = False
        self.client.close()
        self.replies.clear()

    def _close_broker(self) -> None:
        self.is_broker_open = False
        self.broker.close()
        self.requests.clear()


def _reset_on_close(end: socket.socket) -> None:
    with suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
