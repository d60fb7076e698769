"""What is known of each partition that is read, and of each broker that leads some: `Fetcher` decides on it."""

from typing import NamedTuple

from tidegate.connectors.kafka.batches.requests import NO_EPOCH

NOBODY = -1
"""As the id of a leader."""
FIRST_PAUSE, LONGEST_PAUSE = 0.02, 1.0
"""Seconds between two tries at what failed; each pause is twice the one before."""

FIRST_WAIT = 0.05
"""Seconds. What is asked for next has to wait behind it, such as a partition that has just been added."""


class Reading:
    """One partition that is read."""

    def __init__(self, offset: int) -> None:
        self.offset = offset
        """To be asked for next."""
        self.last_epoch = NO_EPOCH
        self.leader = NOBODY
        self.leader_epoch = NO_EPOCH
        self.replica = NOBODY
        """A broker that its leader has named as nearer, and that is asked instead."""
        self.replica_until = 0.0
        self.leader_until = 0.0
        """Until then only the leader is asked, and names nobody: a replica could not answer."""
        self.asked: int | None = None
        """The broker that is asked for records."""
        self.buffered = 0
        """Bytes that were handed over and not taken."""
        self.is_stuck = False
        """It needs another answer first, or cannot go on at all."""
        self.not_before = 0.0
        self.pause = FIRST_PAUSE
        self.unknown_since: float | None = None

    @property
    def node(self) -> int:
        """The broker to ask for records."""
        return self.leader if self.replica == NOBODY else self.replica

    def follow(self, replica: int, until: float) -> None:
        self.replica, self.replica_until = replica, until

    def stay(self, until: float) -> None:
        self.replica, self.leader_until = NOBODY, until

    def back_off(self, now: float) -> None:
        self.not_before = now + self.pause
        self.pause = min(2 * self.pause, LONGEST_PAUSE)

    def succeeded(self) -> None:
        self.pause = FIRST_PAUSE


class Node:
    """One broker that is asked for records."""

    def __init__(self) -> None:
        self.is_asked = False
        self.not_before = 0.0
        self._wait = self._waited = FIRST_WAIT

    def ask(self) -> float:
        """Seconds for which it may wait for records: the longer, the longer it has had none."""
        self.is_asked = True
        self._waited = self._wait
        return self._wait

    def answered(self, brought: bool, longest: float) -> None:
        self.is_asked = False
        if brought:
            self.hurry()
        elif self._wait == self._waited:
            self._wait = min(2 * self._wait, max(longest, FIRST_WAIT))

    def hurry(self) -> None:
        """Something has come, or will soon be asked for."""
        self._wait = FIRST_WAIT


class Limits(NamedTuple):
    """Bytes that are held ahead: of each partition, and in all."""

    partition: int
    total: int
    wait: float
    """Seconds that a broker may wait for records."""
