"""How long to wait between two tries at something that will come by itself."""

from collections.abc import Iterator


def growing(first: float, longest: float) -> Iterator[float]:
    """Seconds, without an end: each twice the one before, up to `longest`."""
    pause = first
    while True:
        yield pause
        pause = min(2 * pause, longest)
