"""Real processes for tests that kill them."""

import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, TypeVar

T = TypeVar("T")


def call_and_kill(function: Callable[..., T], *arguments: Any) -> T:
    """`function(*arguments)` in a new process, which is killed with SIGKILL once its result is here."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    child = context.Process(target=_serve, args=(theirs, function, arguments))
    child.start()
    theirs.close()
    try:
        result: T = ours.recv()
    finally:
        child.kill()
        child.join()
    assert child.exitcode == -9
    return result


def _serve(pipe: Connection, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    pipe.send(function(*arguments))
    pipe.recv()
