"""How much input a test gives to the totals job, and the starts of the job that a supervisor makes until it is read."""

from dataclasses import dataclass

from tests.integration.exactly_once import Answer, answer_of
from tests.integration.running import Bench, Started, orders


@dataclass(frozen=True)
class Stream:
    """Long enough that the job is in the middle of it when a fail point acts: several checkpoints long."""

    pause: float
    """Seconds that each order takes."""
    options: tuple[str, ...] = ()
    """Of the command."""
    count: int = 8000
    """Orders."""
    waits: bool = False
    """Whether orders take their time only until `finish`. Then a test cannot be overtaken by the end of its input."""

    def fill(self, bench: Bench, users: int) -> Answer:
        """What is right in the end."""
        found = orders(0, self.count, users)
        bench.append(found)
        return answer_of(found)

    def _arguments(self, bench: Bench) -> tuple[str, ...]:
        hurry = ("--hurry", str(bench.hurry)) if self.waits else ()
        return ("--bounded", "--pause", str(self.pause), *hurry)

    def start(self, bench: Bench, fail_points: str = "") -> Started:
        return bench.start(*self._arguments(bench), fail_point=fail_points, options=self.options)

    def start_until(self, bench: Bench, fail_points: str, index: int = 0) -> Started:
        """Start the command, again where a fail point has killed it, until fail point `index` has acted, in the middle
        of the stream."""
        started = self.start(bench, fail_points)
        for before in range(index):
            started.wait_for_fail_point(before)
            if "@jobmanager" in fail_points.split(",")[before]:
                started.process.wait(60)
                started = self.start(bench, fail_points)
        started.wait_for_fail_point(index)
        self.assert_is_in_the_middle(bench)
        return started

    def assert_is_in_the_middle(self, bench: Bench) -> None:
        read = bench.read_up_to()
        assert 0 < read < self.count, f"not in the middle of the stream: {read} of {self.count} orders are read"

    def finish(self, bench: Bench, started: Started) -> None:
        bench.hurry.touch()
        bench.repeat_until_finished(started, *self._arguments(bench), options=self.options)
