"""How one process reaches the simulated cluster: requests through its gate, errors as the connector knows them."""

from collections.abc import Callable, Iterator
from itertools import accumulate, takewhile
from typing import TypeVar

from tidegate.connectors.kafka.errors import Subject, of_code
from tidegate.connectors.kafka.pauses import growing
from tidegate.errors import UnavailableError
from tidegate.testing.sim.broker.cluster import SimCluster
from tidegate.testing.sim.broker.codes import BrokerError, Code
from tidegate.testing.sim.gate import Gate

T = TypeVar("T")
FIRST_PAUSE, LONGEST_PAUSE = 0.005, 0.2
"""Seconds."""
PASSING = frozenset({Code.BROKER_NOT_AVAILABLE, Code.COORDINATOR_NOT_AVAILABLE, Code.CONCURRENT_TRANSACTIONS})
"""Codes after which every client asks again by itself."""
NOTHING_KNOWN = Subject()


class StrainedGate:
    """Requests that change something go through `strained` as long as `is_strained`, all others through `usual`."""

    def __init__(self, usual: Gate, strained: Gate, is_strained: Callable[[], bool]) -> None:
        self._usual = usual
        self._strained = strained
        self._is_strained = is_strained

    def call(
        self,
        what: str,
        effect: Callable[[], T],
        error: type[UnavailableError] = UnavailableError,
        *,
        can_land_later: bool = False,
    ) -> T:
        gate = self._strained if can_land_later and self._is_strained() else self._usual
        return gate.call(what, effect, error, can_land_later=can_land_later)

    def chance(self) -> float:
        return self._usual.chance()


class Line:
    """`pause` lets seconds go by, as far as the thread may wait. `patience`: seconds for which the same is asked again
    when no answer comes."""

    def __init__(self, cluster: SimCluster, gate: Gate, pause: Callable[[float], None], patience: float) -> None:
        self.cluster = cluster
        self.gate = gate
        self.pause = pause
        self.patience = patience

    def request(self, what: str, effect: Callable[[], T], *, can_land_later: bool = False) -> T:
        """Once. Raises BrokerError for what was answered, UnavailableError where nothing was."""
        return self.gate.call(what, effect, can_land_later=can_land_later)

    def ask(
        self, what: str, effect: Callable[[], T], *, can_land_later: bool = False, subject: Subject = NOTHING_KNOWN
    ) -> T:
        """Again and again, as long as patience lasts. Raises the connector's errors."""
        for pause in self.pauses(self.patience):
            try:
                return self._once(what, effect, can_land_later, subject)
            except UnavailableError:
                self.pause(pause)
        return self._once(what, effect, can_land_later, subject)

    def _once(self, what: str, effect: Callable[[], T], can_land_later: bool, subject: Subject) -> T:
        try:
            return self.request(what, effect, can_land_later=can_land_later)
        except BrokerError as error:
            raise of_code(error.code, what, str(error), subject) from None

    def pauses(self, patience: float) -> Iterator[float]:
        """Growing ones, `patience` seconds together at most."""
        lengths = growing(FIRST_PAUSE, LONGEST_PAUSE)
        return (length for length, _ in takewhile(lambda row: row[1] <= patience, _with_sums(lengths)))


def _with_sums(lengths: Iterator[float]) -> Iterator[tuple[float, float]]:
    """Each with the sum of all up to it."""
    return accumulate(((length, length) for length in lengths), lambda done, new: (new[0], done[1] + new[0]))
