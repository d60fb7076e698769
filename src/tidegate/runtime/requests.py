"""The requests of one asynchronous operator: which records wait for a call, which are being called, which are answered,
and what may go on when. Pure: records, answers and the time go in, calls to begin or to cancel come out.

A request is a record on its way through the operator. Its calls may be several, because one may fail and be tried
again; of the record itself there is one outcome. What goes on keeps the order of what came: in an ordered queue record
for record, otherwise in any order between two watermarks, never across one. Nothing here knows threads, loops or tasks.
"""

import heapq
from collections import OrderedDict, deque
from collections.abc import Sequence

import msgspec

from tidegate.elements import MIN_WATERMARK, Batch, EndOfInput, Watermark
from tidegate.errors import InternalError, UserCodeError
from tidegate.operators.asynchronous import Answer, CallPolicy, Waiting

_MOST_STALE = 64
"""Deadlines of answered calls that are kept, beside as many as there are calls."""


class StartCall(msgspec.Struct, frozen=True):
    """Call the function on `record`; the answer bears the number `call`."""

    call: int
    record: object


class CancelCall(msgspec.Struct, frozen=True):
    """The answer of this call is of no interest any more."""

    call: int


class GiveUp(msgspec.Struct, frozen=True):
    """This record has failed for good. Its answer goes on in its turn, should that be awaited."""

    answer: Answer


Command = StartCall | CancelCall | GiveUp


class _Request:
    """One record. `tries`: calls that were begun. `segment`: what it is part of."""

    __slots__ = ("answer", "record", "segment", "timestamp", "tries", "watermark")

    def __init__(self, waiting: Waiting, segment: "_Segment") -> None:
        self.record, self.timestamp, self.watermark = waiting
        self.segment = segment
        self.tries = 0
        self.answer: Answer | None = None


class _Segment:
    """The requests between two watermarks, and what follows them: None for the newest, which still grows."""

    __slots__ = ("answered", "closing", "requests")

    def __init__(self) -> None:
        # Not a plain dict, which walks over all that has left to find its first.
        self.requests: OrderedDict[_Request, None] = OrderedDict()
        """Those that have not left, in the order in which they came."""
        self.answered: deque[_Request] = deque()
        """Of these, those that may go on at once, in the order of their answers; of an ordered queue none."""
        self.closing: Watermark | EndOfInput | None = None


class RequestQueue:
    """See the module. Times are monotonic seconds.

    At most `policy.capacity` requests are admitted at once, those that are answered and wait for their turn included;
    at most `policy.concurrency` calls run, those that nobody waits for any more included. What else came waits its
    turn; whoever gives records stops while there is no room.
    """

    def __init__(self, policy: CallPolicy, watermark: int = MIN_WATERMARK) -> None:
        """`watermark`: how far those behind it have come before a restore."""
        self._policy = policy
        self._segments: deque[_Segment] = deque([_Segment()])
        self._size = 0
        self._admitted = 0
        self._waiting: deque[_Request] = deque()
        """Not called yet, in order."""
        self._paused: list[tuple[float, int, _Request]] = []
        """A heap of those that are to be tried again, by when, and of equal ones by the number of their last call."""
        self._running: dict[int, _Request] = {}
        """By the number of the call."""
        self._deadlines: deque[tuple[float, int]] = deque()
        """When calls time out, in order; of some the answer has come."""
        self._abandoned: set[int] = set()
        """Calls that were cancelled and still run."""
        self._all_abandoned_since: float | None = None
        """Since when no call could be begun because of those."""
        self._next_call = 0
        self._given_up: list[GiveUp] = []
        """Of which nobody was told yet."""
        self._said = Watermark(watermark)
        """The last watermark that came."""

    # -- what comes --

    @property
    def has_room(self) -> bool:
        return self._size < self._policy.capacity

    @property
    def reached(self) -> int:
        """The highest watermark that came."""
        return self._said.timestamp

    def restore(self, waiting: Sequence[Waiting], reached: int) -> None:
        """What an earlier attempt left, before anything else: by ascending watermark, none above `reached`. Each record
        stands again behind the watermark that it came behind."""
        for one in waiting:
            self.put_watermark(Watermark(one.watermark))
            self._add(one)
        self.put_watermark(Watermark(reached))

    def put(self, batch: Batch) -> None:
        stamps: Sequence[int | None] = batch.timestamps or [None] * len(batch)
        reached = self.reached
        for record, stamp in zip(batch.values, stamps, strict=True):
            self._add(Waiting(record, stamp, reached))

    def put_watermark(self, watermark: Watermark) -> None:
        """One that says nothing new is dropped; one behind what came earlier does not go back."""
        said = Watermark(max(watermark.timestamp, self._said.timestamp), watermark.is_idle)
        if said != self._said:
            self._said = said
            self._close(said)

    def put_end(self, end: EndOfInput) -> None:
        self._close(end)

    def _add(self, waiting: Waiting) -> None:
        request = _Request(waiting, self._segments[-1])
        request.segment.requests[request] = None
        self._waiting.append(request)
        self._size += 1

    def _close(self, element: Watermark | EndOfInput) -> None:
        newest = self._segments[-1]
        before = self._segments[-2] if len(self._segments) > 1 and not newest.requests else None
        if before is not None and isinstance(before.closing, Watermark) and isinstance(element, Watermark):
            # Nothing lies between the two: the newer one says all. So there are no more of them than requests.
            before.closing = element
            return
        newest.closing = element
        self._segments.append(_Segment())

    # -- calls --

    def commands(self, now: float) -> list[Command]:
        """What is to be done at `now`. Raises UserCodeError when calls that timed out have taken every place for as
        long as a call may take."""
        cancelled = self._time_out(now)
        self._check_stuck(now)
        given_up, self._given_up = self._given_up, []
        return [*cancelled, *given_up, *self._begin(now)]

    def answered(self, call: int, result: object, error: Exception | None, now: float) -> None:
        """Call `call` has ended with this."""
        if call in self._abandoned:
            self._abandoned.discard(call)
            return
        request = self._running.pop(call, None)
        if request is None:
            raise InternalError(f"an answer came for call {call}, which does not run")
        if error is None:
            self._settle(request, Answer(request.record, result))
        else:
            self._failed(call, request, error, now)

    @property
    def wake_at(self) -> float | None:
        """When there will be a command although nothing comes."""
        while self._deadlines and self._deadlines[0][1] not in self._running:
            self._deadlines.popleft()
        moments = [self._deadlines[0][0]] if self._deadlines else []
        if self._paused and self._may_begin:
            moments.append(self._paused[0][0])
        if self._all_abandoned_since is not None:
            moments.append(self._all_abandoned_since + (self._policy.timeout or 0.0))
        return min(moments, default=None)

    @property
    def _may_begin(self) -> bool:
        return len(self._running) + len(self._abandoned) < self._policy.concurrency

    def _begin(self, now: float) -> list[Command]:
        begun: list[Command] = []
        while self._may_begin and (request := self._next(now)) is not None:
            call = self._next_call
            self._next_call += 1
            request.tries += 1
            self._running[call] = request
            if self._policy.timeout is not None:
                self._deadlines.append((now + self._policy.timeout, call))
                self._forget_deadlines()
            begun.append(StartCall(call, request.record))
        return begun

    def _forget_deadlines(self) -> None:
        """Those of answered calls, when they are many: behind one call that is slow, others come and go."""
        if len(self._deadlines) > 2 * len(self._running) + _MOST_STALE:
            self._deadlines = deque(entry for entry in self._deadlines if entry[1] in self._running)

    def _next(self, now: float) -> _Request | None:
        """The one to be called next: those that failed came earlier than all that were not called yet."""
        if self._paused and self._paused[0][0] <= now:
            return heapq.heappop(self._paused)[2]
        if self._waiting and self._admitted < self._policy.capacity:
            self._admitted += 1
            return self._waiting.popleft()
        return None

    def _time_out(self, now: float) -> list[Command]:
        cancelled: list[Command] = []
        while self._deadlines and self._deadlines[0][0] <= now:
            _, call = self._deadlines.popleft()
            request = self._running.pop(call, None)
            if request is not None:
                self._abandoned.add(call)
                cancelled.append(CancelCall(call))
                self._failed(call, request, self._policy.too_slow(), now)
        return cancelled

    def _check_stuck(self, now: float) -> None:
        if len(self._abandoned) < self._policy.concurrency or not (self._waiting or self._paused):
            self._all_abandoned_since = None
            return
        since = self._all_abandoned_since = now if self._all_abandoned_since is None else self._all_abandoned_since
        if self._policy.timeout is not None and now >= since + self._policy.timeout:
            raise UserCodeError(
                f"calls that timed out are still running, as many as there may be at once: {len(self._abandoned)}",
                remedy="Give what the function waits for a timeout of its own: a thread cannot be stopped.",
            )

    def _failed(self, call: int, request: _Request, error: Exception, now: float) -> None:
        retries = self._policy.retries
        if retries is not None and retries.covers(error, request.tries):
            heapq.heappush(self._paused, (now + retries.pause(request.tries), call, request))
            return
        answer = Answer(request.record, None, error, request.tries)
        self._settle(request, answer)
        self._given_up.append(GiveUp(answer))

    def _settle(self, request: _Request, answer: Answer) -> None:
        request.answer = answer
        if not self._policy.ordered:
            request.segment.answered.append(request)

    # -- what goes on --

    def take(self, most: int) -> Batch | Watermark | EndOfInput | None:
        """What may go on next: at most `most` answers as a batch with the timestamps of their records, or what stands
        behind them. None when the next thing is not answered yet."""
        segment = self._segments[0]
        taken = self._take_answers(segment, most)
        if taken:
            return _batch(taken)
        if segment.requests or segment.closing is None:
            return None
        self._segments.popleft()
        return segment.closing

    def _take_answers(self, segment: _Segment, most: int) -> list[_Request]:
        taken: list[_Request] = []
        while len(taken) < most and (request := self._first_answered(segment)) is not None:
            if taken and (request.timestamp is None) != (taken[0].timestamp is None):
                break
            taken.append(request)
            del segment.requests[request]
            if not self._policy.ordered:
                segment.answered.popleft()
        self._size -= len(taken)
        self._admitted -= len(taken)
        return taken

    def _first_answered(self, segment: _Segment) -> _Request | None:
        if not self._policy.ordered:
            return segment.answered[0] if segment.answered else None
        first = next(iter(segment.requests), None)
        return first if first is not None and first.answer is not None else None

    # -- checkpoints --

    @property
    def waiting(self) -> list[Waiting]:
        """All records that have not gone on, answered or not, in the order in which they came."""
        return [
            Waiting(request.record, request.timestamp, request.watermark)
            for segment in self._segments
            for request in segment.requests
        ]


def _batch(taken: list[_Request]) -> Batch:
    stamps = [request.timestamp for request in taken if request.timestamp is not None]
    return Batch([request.answer for request in taken], None, stamps or None)
