"""What a worker or a JobManager needs from the outside: somebody to run blocking work. Implemented for real
in `deploy/`, inline for one-process runs, and simulated in `testing/sim`."""

from collections.abc import Callable
from typing import Any, Protocol


class Executor(Protocol):
    """Runs blocking work away from the stepping thread."""

    def submit(self, lane: str, work: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        """Run `work`; later call `done(result, None)` or `done(None, error)` on the stepping thread, between two steps.

        Work of one lane runs in order, one after another; lanes run side by side. `done` may never come: the process
        died.
        """
        ...


class CallGroup(Protocol):
    """The calls of one asynchronous operator of one subtask. A call has a number that is used once.

    All methods are called on the stepping thread.
    """

    def start(self, call: int, function: Callable[[], Any]) -> None:
        """Begin `function()`: on the event loop it returns what is awaited there, on a thread its result. Never waits;
        the answer may come already before this returns."""
        ...

    def cancel(self, call: int) -> None:
        """Nobody is interested in it any more. Its answer still comes, once nothing of it runs any more; what runs on a
        thread cannot be ended."""
        ...

    def close(self, farewell: Callable[[], Any] | None) -> None:
        """Cancel all calls, forget their answers, then run `farewell` where calls run and wait for it, for a short
        while. Raises what it raises."""
        ...


Answered = Callable[[int, Any, BaseException | None], None]
"""Gets the number of a call with its result, or with the error that it ended with."""


class AsyncCalls(Protocol):
    """Runs calls of user code that wait for something outside: many at a time, away from the stepping thread."""

    def group(self, name: str, threads: int | None, answered: Answered) -> CallGroup:
        """For calls of the task called `name`, on the event loop, or on as many `threads`.

        `answered` is called on the stepping thread, between two steps or within `start`, once for each call; never
        after `close`. It may never come: the process died.
        """
        ...
