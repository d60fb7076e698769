"""Calls of asynchronous operators that end when a test says so."""

from collections.abc import Callable
from functools import partial
from typing import Any

from tidegate.runtime.ports import Answered


class HandCalls:
    """Of all groups of a bench. A call runs, on the thread of the test, at the moment when it is answered."""

    def __init__(self) -> None:
        self.groups: list[HandGroup] = []

    def group(self, name: str, threads: int | None, answered: Answered) -> "HandGroup":
        made = HandGroup(name, threads, answered)
        self.groups.append(made)
        return made

    @property
    def records(self) -> list[Any]:
        """Of all calls that are under way, in the order in which they began."""
        return [record for group in self.groups for record in group.records]

    def answer(self, *records: Any) -> None:
        """The calls of these have ended."""
        for record in records:
            group = next(group for group in self.groups if record in group.records)
            group.answer(record)

    def answer_all(self) -> bool:
        """False when there was none."""
        records = self.records
        self.answer(*records)
        return bool(records)

    def open(self) -> None:
        """What is to be opened before the first call has been."""
        for group in self.groups:
            for call in [call for call in group.calls if call < 0]:
                group.end(call)


class HandGroup:
    """See `runtime.ports.CallGroup`."""

    def __init__(self, name: str, threads: int | None, answered: Answered) -> None:
        self.name = name
        self.threads = threads
        self._answered = answered
        self.calls: dict[int, Callable[[], Any]] = {}
        self.cancelled: list[int] = []
        self.is_closed = False
        self.farewells = 0

    @property
    def records(self) -> list[Any]:
        return [
            function.args[0] for call, function in self.calls.items() if call >= 0 and isinstance(function, partial)
        ]

    def start(self, call: int, function: Callable[[], Any]) -> None:
        assert call not in self.calls
        self.calls[call] = function

    def cancel(self, call: int) -> None:
        assert call in self.calls
        self.cancelled.append(call)

    def close(self, farewell: Callable[[], Any] | None) -> None:
        self.is_closed = True
        self.calls = {}
        if farewell is not None:
            self.farewells += 1
            awaited(farewell())

    def answer(self, record: Any) -> None:
        self.end(next(call for call, function in self.calls.items() if call >= 0 and _record(function) == record))

    def end(self, call: int) -> None:
        function = self.calls.pop(call)
        try:
            result = function()
            result = awaited(result) if hasattr(result, "send") else result
        except BaseException as error:
            self._answered(call, None, error)
        else:
            self._answered(call, result, None)


def _record(function: Callable[[], Any]) -> Any:
    assert isinstance(function, partial)
    return function.args[0]


def awaited(coroutine: Any) -> Any:
    """The result of one that waits for nothing."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("the coroutine waits for something")
