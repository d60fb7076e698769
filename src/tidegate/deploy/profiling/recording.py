"""What was seen in one process, added up: seconds by place. Parts of several processes and attempts are merged here.

Its size is bounded by the program, not by how long it runs: what is new beyond `MOST_STACKS` counts for its operator
alone. Nothing here looks at a thread or reads a clock.
"""

from collections.abc import Iterable
from pathlib import Path
from types import CodeType

import msgspec

from tidegate.deploy.profiling.places import Stack
from tidegate.errors import InternalError

MOST_STACKS = 20_000
JOB_MANAGER = "JobManager"


class Place(msgspec.Struct, frozen=True, array_like=True):
    """A function, or, without a file, a label such as 'operator totals'."""

    name: str
    file: str = ""
    line: int = 0


class Seen(msgspec.Struct, array_like=True):
    """So long a thread was there: places as numbers, outermost first."""

    places: tuple[int, ...]
    seconds: float


class WorkerProfile(msgspec.Struct):
    """Of one worker. `waiting`: seconds in which its tasks had nothing to do."""

    name: str
    seen: list[Seen]
    waiting: float = 0.0


class Profile(msgspec.Struct):
    """What was seen, by worker; `places` are those that the numbers mean."""

    places: list[Place]
    workers: list[WorkerProfile]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Profile).decode


class Recording:
    """Adds up what a sampler sees."""

    def __init__(self) -> None:
        self._seconds: dict[Stack, float] = {}
        self._waiting: dict[int | None, float] = {}

    def add(self, stack: Stack, seconds: float) -> None:
        if stack not in self._seconds and len(self._seconds) >= MOST_STACKS:
            stack = stack._replace(functions=())
        self._seconds[stack] = self._seconds.get(stack, 0.0) + seconds

    def add_waiting(self, worker: int | None, seconds: float) -> None:
        self._waiting[worker] = self._waiting.get(worker, 0.0) + seconds

    def profile(self) -> Profile:
        """What it has until now."""
        places, numbers = list[Place](), dict[str | CodeType, int]()
        workers: dict[str, WorkerProfile] = {}

        def number_of(at: str | CodeType) -> int:
            number = numbers.get(at)
            if number is None:
                number = numbers[at] = len(places)
                places.append(_place_of(at))
            return number

        def of(worker: int | None) -> WorkerProfile:
            name = _name_of(worker)
            return workers.setdefault(name, WorkerProfile(name, []))

        # Copied at once: it goes on growing, in the midst of anything that takes longer.
        for stack, seconds in dict(self._seconds).items():
            at = (*map(number_of, stack.labels), *map(number_of, stack.functions))
            of(stack.worker).seen.append(Seen(at, seconds))
        for worker, seconds in dict(self._waiting).items():
            of(worker).waiting = seconds
        return Profile(places, list(workers.values()))


def merged(profiles: Iterable[Profile]) -> Profile:
    """One for all: of each worker what all its attempts did, in order of their names."""
    merger = _Merger()
    for profile in profiles:
        for worker in profile.workers:
            merger.wait(worker.name, worker.waiting)
            for seen in worker.seen:
                merger.add(worker.name, [profile.places[number] for number in seen.places], seen.seconds)
    return merger.profile()


class _Merger:
    def __init__(self) -> None:
        self._numbers: dict[Place, int] = {}
        self._seconds: dict[str, dict[tuple[int, ...], float]] = {}
        self._waiting: dict[str, float] = {}

    def add(self, worker: str, places: list[Place], seconds: float) -> None:
        numbers = tuple(self._numbers.setdefault(place, len(self._numbers)) for place in places)
        of_worker = self._seconds.setdefault(worker, {})
        of_worker[numbers] = of_worker.get(numbers, 0.0) + seconds

    def wait(self, worker: str, seconds: float) -> None:
        self._waiting[worker] = self._waiting.get(worker, 0.0) + seconds

    def profile(self) -> Profile:
        names = sorted({*self._seconds, *self._waiting}, key=lambda name: (name == JOB_MANAGER, len(name), name))
        return Profile(
            list(self._numbers),
            [
                WorkerProfile(
                    name,
                    [Seen(places, seconds) for places, seconds in self._seconds.get(name, {}).items()],
                    self._waiting.get(name, 0.0),
                )
                for name in names
            ],
        )


def _place_of(at: str | CodeType) -> Place:
    return Place(at) if isinstance(at, str) else Place(at.co_qualname, at.co_filename, at.co_firstlineno)


def _name_of(worker: int | None) -> str:
    return JOB_MANAGER if worker is None else f"worker {worker}"


# ---- parts ---------------------------------------------------------------------------------------------------------


def write_part(profile: Profile, path: Path) -> None:
    """Whole or not at all: whoever writes may be killed in the middle."""
    new = path.with_suffix(".new")
    new.write_bytes(_encode(profile))
    new.replace(path)


def read_parts(folder: Path) -> Profile:
    """All parts that were handed over there, merged."""
    found = []
    for path in sorted(folder.glob("*.part")):
        try:
            found.append(_decode(path.read_bytes()))
        except msgspec.MsgspecError as error:
            raise InternalError(f"{path} is no part of a profile: {error}") from error
    return merged(found)
