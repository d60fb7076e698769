"""Many seeds in several processes at once. Worlds share nothing, so it does not matter where each of them is run."""

import gc
import logging
import multiprocessing
import signal
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager

from tidegate.testing.sim.world import Result, run_seed

_ENGINE = logging.getLogger("tidegate")
SEEDS_AT_ONCE = 5
"""How many a process is given at a time."""


@contextmanager
def results_of(seeds: range, jobs: int, medium: str | None = None) -> Iterator[Iterator[Result]]:
    """Of each seed, in the order in which they come. Leaving early ends the processes when they are done with what they
    have."""
    if jobs <= 1:
        with quiet_logs():
            yield _run(seeds, medium)
        return
    pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), _begin)
    try:
        yield _run_in(pool, seeds, medium)
    finally:
        pool.shutdown(cancel_futures=True)


def _run_in(pool: ProcessPoolExecutor, seeds: range, medium: str | None) -> Iterator[Result]:
    parts = [seeds[start : start + SEEDS_AT_ONCE] for start in range(0, len(seeds), SEEDS_AT_ONCE)]
    for part in as_completed([pool.submit(_run_some, some, medium) for some in parts]):
        yield from part.result()


def _run_some(seeds: range, medium: str | None) -> list[Result]:
    return list(_run(seeds, medium))


def _run(seeds: range, medium: str | None) -> Iterator[Result]:
    for number, seed in enumerate(seeds, start=1):
        yield run_seed(seed, medium=medium)
        if number % SEEDS_AT_ONCE == 0:
            # Worlds are full of cycles, and nothing is collected while one runs.
            gc.collect()


def _begin() -> None:
    """In each process. Ctrl-C reaches all of a terminal; the one that was interrupted ends the others."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _ENGINE.setLevel(logging.CRITICAL)


@contextmanager
def quiet_logs() -> Iterator[None]:
    """What the code under test logs is about its own world, of which nobody has heard."""
    before = _ENGINE.level
    _ENGINE.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        _ENGINE.setLevel(before)
