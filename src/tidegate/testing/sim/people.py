"""People who want something of a running job: savepoints, an end with one, a start from one.

What they do never loses or doubles anything by itself: a job is begun from a savepoint only where nothing was put out
after it, because it was stopped with it. So the output of the whole world must be as exact as without them.
"""

from dataclasses import dataclass

from tidegate.checkpoint.log import CleanStop
from tidegate.errors import ErrorKind
from tidegate.scheduling import protocol as p
from tidegate.testing.sim.checkers import LogChecker
from tidegate.testing.sim.ground import Ground
from tidegate.testing.sim.job_manager import Command, SimJobManager
from tidegate.testing.sim.savepoints import SavepointChecker


@dataclass(frozen=True)
class Wish:
    """What is asked for. `seconds`: when."""

    seconds: float
    stops: bool
    savepoint: bool
    drains: bool
    has_path: bool


class People:
    """The wishes of one seed, and the command line by which the job is started next."""

    def __init__(self, ground: Ground, log: LogChecker, savepoints: SavepointChecker) -> None:
        self._ground = ground
        self._log = log
        self._savepoints = savepoints
        self._random = ground.scheduler.random("people")
        self.begins_from_savepoints = self._random.random() < 0.7
        self.wishes = self._draw()
        self._command = Command()
        self._asked: dict[SimJobManager, list[str]] = {}
        """Requests that are not answered."""
        self._requests = 0
        self.answered = 0
        """Requests that had what they wanted."""

    def _draw(self) -> list[Wish]:
        random, until = self._random, self._ground.swarm.safety_seconds
        count = random.choice((0, 0, 1, 2, 4, 8))
        return [
            Wish(
                seconds=random.uniform(0.0, until),
                stops=random.random() < 0.4,
                savepoint=random.random() < 0.7,
                drains=random.random() < 0.3,
                has_path=random.random() < 0.5,
            )
            for _ in range(count)
        ]

    # -- asking --

    def ask(self, wish: Wish, manager: SimJobManager) -> None:
        """In the process of `manager`, some time soon."""
        self._requests += 1
        request = f"request-{self._requests}"
        path = f"sim:/elsewhere/{request}" if wish.has_path else None
        event: p.Event = p.SavepointWanted(request, path)
        if wish.stops:
            event = p.StopWithCheckpointWanted(request, wish.savepoint, path, wish.drains)
        manager.process.plan(0.0, f"is asked: {event}", lambda: self._deliver(manager, request, event))

    def _deliver(self, manager: SimJobManager, request: str, event: p.Event) -> None:
        if manager.is_done:
            return
        self._asked.setdefault(manager, []).append(request)
        manager.deliver(event)

    def replied(self, manager: SimJobManager, reply: p.Reply) -> None:
        """Each request is answered once; a savepoint that is there is whole."""
        self._ground.scheduler.note(f"{manager.process.name} replies {reply}")
        waiting = self._asked.get(manager, [])
        if reply.request not in waiting:
            self._violated(manager, f"answers {reply.request}, which is not open")
            return
        waiting.remove(reply.request)
        if reply.failure is None:
            self.answered += 1
            if reply.text:
                self._savepoints.check(reply.text)
        elif reply.failure.kind not in (ErrorKind.UNAVAILABLE, ErrorKind.INVALID) and self._log.owner == manager.nonce:
            self._violated(manager, f"could not do what was asked: {reply.failure.kind.value}: {reply.failure.message}")

    def left(self, manager: SimJobManager) -> None:
        """It has exited by itself."""
        if self._asked.get(manager):
            self._violated(manager, f"exits without an answer to {self._asked[manager]}")

    def _violated(self, manager: SimJobManager, what: str) -> None:
        self._ground.scheduler.violated(f"{manager.process.name} {what}")

    # -- starting --

    def begin_from(self, savepoint: str) -> None:
        """The command names this one, whatever may be in the log."""
        self._command = Command(savepoint)

    def command(self, running: int) -> Command:
        """For a start at which `running` other JobManagers are there. It changes where the job was stopped with a
        savepoint and nobody has gone on since."""
        found = self._newest_end()
        if self.begins_from_savepoints and found is not None and running == 0 and self._random.random() < 0.8:
            self._command = Command(found, is_claimed=self._random.random() < 0.4)
        return self._command

    def _newest_end(self) -> str | None:
        newest = self._log.entries[max(self._log.entries)] if self._log.entries else None
        if newest is None or not isinstance(newest.body, CleanStop):
            return None
        return self._savepoints.of_checkpoint(newest.instance, newest.body.checkpoint)
