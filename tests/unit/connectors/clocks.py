"""A clock for tests of what depends on time."""

import time

from tidegate.clock import Now


class HandClock:
    """It stands until a test moves it. It begins at the real time: what another process makes has the real one."""

    def __init__(self) -> None:
        self.seconds = time.time()

    def now(self) -> Now:
        return Now(self.seconds, self.seconds)
