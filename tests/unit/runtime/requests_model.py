"""What a queue of requests must do, written for clarity: all rows in one list that is searched each time."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from tidegate.elements import MIN_WATERMARK, Batch, EndOfInput, Watermark
from tidegate.operators.asynchronous import Answer, CallPolicy, CallTimeout, RetryPolicy
from tidegate.runtime.requests import CancelCall, Command, GiveUp, RequestQueue, StartCall

RETRIES = RetryPolicy(attempts=3, delay=1.0, backoff=2.0, on=(ConnectionError,))


@dataclass
class Row:
    """A record, or (without `name`) a watermark or the end, in the order in which they came."""

    name: int | None = None
    mark: Watermark | EndOfInput | None = None
    is_called: bool = False
    tries: int = 0
    running: int | None = None
    """The number of its call."""
    deadline: float | None = None
    again_at: float | None = None
    answered: int | None = None
    """The how manyth answer of all."""
    answer: Answer | None = None


@dataclass
class Model:
    """All rows in one list, searched each time."""

    policy: CallPolicy
    rows: list[Row] = field(default_factory=list)
    abandoned: set[int] = field(default_factory=set)
    calls: int = 0
    answers: int = 0
    given_up: list[Answer] = field(default_factory=list)
    said: Watermark = field(default_factory=lambda: Watermark(MIN_WATERMARK))
    is_stuck: bool = False

    def put(self, names: Sequence[int]) -> None:
        self.rows += [Row(name) for name in names]

    def put_watermark(self, watermark: Watermark) -> None:
        watermark = Watermark(max(watermark.timestamp, self.said.timestamp), watermark.is_idle)
        if watermark != self.said:
            self.said = watermark
            if self.rows and isinstance(self.rows[-1].mark, Watermark):
                self.rows.pop()
            self.rows.append(Row(mark=watermark))

    @property
    def records(self) -> list[Row]:
        return [row for row in self.rows if row.name is not None]

    @property
    def has_room(self) -> bool:
        return len(self.records) < self.policy.capacity

    def commands(self, now: float) -> list[Command]:
        late = [row for row in self.records if row.deadline is not None and row.deadline <= now]
        found: list[Command] = []
        for row in sorted(late, key=lambda row: row.running or 0):
            assert row.running is not None
            self.abandoned.add(row.running)
            found.append(CancelCall(row.running))
            self._failed(row, CallTimeout("late"), now)
        self.is_stuck = len(self.abandoned) >= self.policy.concurrency
        found += [GiveUp(answer) for answer in self.given_up]
        self.given_up = []
        while (row := self._next(now)) is not None:  # type: ignore[assignment]
            row.is_called, row.again_at, row.running, row.tries = True, None, self.calls, row.tries + 1
            row.deadline = None if self.policy.timeout is None else now + self.policy.timeout
            found.append(StartCall(self.calls, row.name))
            self.calls += 1
        return found

    def _next(self, now: float) -> Row | None:
        running = [row for row in self.records if row.running is not None]
        if len(running) + len(self.abandoned) >= self.policy.concurrency:
            return None
        again = [row for row in self.records if row.again_at is not None and row.again_at <= now]
        if again:
            return min(again, key=lambda row: (row.again_at, row.tries, row.name))
        if sum(row.is_called for row in self.records) >= self.policy.capacity:
            return None
        return next((row for row in self.records if not row.is_called), None)

    def answered(self, call: int, error: Exception | None, now: float) -> None:
        if call in self.abandoned:
            self.abandoned.discard(call)
            return
        row = next(row for row in self.records if row.running == call)
        if error is not None:
            self._failed(row, error, now)
        else:
            self._settle(row, Answer(row.name, call))

    def _failed(self, row: Row, error: Exception, now: float) -> None:
        retries = self.policy.retries
        if retries is not None and row.tries < retries.attempts and not isinstance(error, ValueError):
            row.again_at = now + retries.delay * retries.backoff ** (row.tries - 1)
            row.running = row.deadline = None
            return
        answer = Answer(row.name, None, error, row.tries)
        self.given_up.append(answer)
        self._settle(row, answer)

    def _settle(self, row: Row, answer: Answer) -> None:
        row.running = row.deadline = None
        row.answer, row.answered = answer, self.answers
        self.answers += 1

    def take(self) -> Answer | Watermark | EndOfInput | None:
        """One at a time."""
        if not self.rows:
            return None
        if self.rows[0].mark is not None:
            return self.rows.pop(0).mark
        end = next((position for position, row in enumerate(self.rows) if row.mark is not None), len(self.rows))
        segment = self.rows[: 1 if self.policy.ordered else end]
        ready = [row for row in segment if row.answered is not None]
        if not ready:
            return None
        row = min(ready, key=lambda row: row.answered or 0)
        self.rows.remove(row)
        return row.answer


Action = tuple[Any, ...]
ACTIONS = st.one_of(
    st.tuples(st.just("put"), st.integers(1, 4)),
    st.tuples(st.just("watermark"), st.integers(0, 30), st.booleans()),
    st.tuples(st.just("answer"), st.integers(0, 9), st.sampled_from(["well", "badly", "hopelessly"])),
    st.tuples(st.just("answer"), st.integers(0, 9), st.just("well")),
    st.tuples(st.just("wait"), st.sampled_from([0.25, 1.0, 3.0])),
    st.tuples(st.just("take"), st.integers(1, 3)),
)
ERRORS: dict[str, Callable[[], Exception | None]] = {
    "well": lambda: None,
    "badly": ConnectionError,
    "hopelessly": ValueError,
}


def compare(policy: CallPolicy, actions: Sequence[Action], kind: type[RequestQueue] = RequestQueue) -> None:
    """Both do the same; at the end everything is answered and has gone on."""
    queue, model, now, names = kind(policy), Model(policy), 0.0, 0
    running: list[int] = []
    for action in [*actions, ("end",), *[("answer", 0, "well"), ("wait", 10.0), ("take", 5)] * (3 * len(actions) + 9)]:
        match action:
            case ("put", count):
                if queue.has_room:
                    queue.put(Batch(list(range(names, names + count))))
                    model.put(range(names, names + count))
                    names += count
            case ("watermark", timestamp, is_idle):
                queue.put_watermark(Watermark(timestamp, is_idle))
                model.put_watermark(Watermark(timestamp, is_idle))
            case ("end",):
                queue.put_end(EndOfInput())
                model.rows.append(Row(mark=EndOfInput()))
            case ("answer", which, how):
                if running:
                    call = running.pop(which % len(running))
                    queue.answered(call, call, ERRORS[how](), now)
                    model.answered(call, ERRORS[how](), now)
            case ("wait", seconds):
                now += seconds
            case ("take", most):
                taken = queue.take(most)
                for one in taken.values if isinstance(taken, Batch) else [taken]:
                    assert said(one) == said(model.take())
        wanted = model.commands(now)
        if model.is_stuck:
            return
        commands = queue.commands(now)
        assert [said(command) for command in commands] == [said(command) for command in wanted]
        running += [command.call for command in commands if isinstance(command, StartCall)]
        assert queue.has_room == model.has_room
        assert [waiting.record for waiting in queue.waiting] == [row.name for row in model.records]
    assert model.rows == []


def said(element: object) -> object:
    """What can be compared: errors are equal when their kinds are."""
    if isinstance(element, Answer):
        return element.record, element.result, type(element.error), element.tries
    return ("gives up", said(element.answer)) if isinstance(element, GiveUp) else element
