"""What a seed decides: which kinds of faults a run has and how often, what strikes when, and how each start is made.

Everything here is a pure function of the seed, the number of nodes and the kinds that were asked for; how long the
job takes has no influence on it. Where a fault finds nobody to strike, the run goes on with the next.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum


class Kind(Enum):
    """What can go wrong, or be asked of the job."""

    KILL_WORKER = "kill-worker"
    KILL_JOB_MANAGER = "kill-jobmanager"
    KILL_GROUP = "kill-group"
    FAIL_POINT = "fail-point"
    """Drawn for a start: a process kills or stops itself at a named place."""
    STOP_WORKER = "stop-worker"
    """SIGSTOP, and SIGCONT after a while."""
    STOP_JOB_MANAGER = "stop-jobmanager"
    """A zombie: the supervisor starts a second one before it goes on."""
    KILL_BROKER = "kill-broker"
    STOP_BROKER = "stop-broker"
    ROLL_BROKERS = "roll-brokers"
    CUT_NETWORK = "cut-network"
    DELAY_NETWORK = "delay-network"
    RESET_NETWORK = "reset-network"
    LOSE_REPLIES = "lose-replies"
    HOLD_REQUESTS = "hold-requests"
    """Held past the death of who sent them, and let on later."""
    FILL_DISK = "fill-disk"
    SLOW_DISK = "slow-disk"
    """Drawn for a start."""
    RESCALE = "rescale"
    SAVEPOINT = "savepoint"
    MOVE = "move"
    """Savepoint, stop, and start from it, perhaps with another state backend."""
    INTERRUPT = "interrupt"
    """Ctrl-C, and the same command again."""
    CALM = "calm"


WEIGHTS: dict[Kind, int] = {
    Kind.KILL_WORKER: 14,
    Kind.KILL_JOB_MANAGER: 10,
    Kind.KILL_GROUP: 8,
    Kind.STOP_WORKER: 3,
    Kind.STOP_JOB_MANAGER: 4,
    Kind.KILL_BROKER: 2,
    Kind.STOP_BROKER: 2,
    Kind.ROLL_BROKERS: 1,
    Kind.CUT_NETWORK: 2,
    Kind.DELAY_NETWORK: 2,
    Kind.RESET_NETWORK: 2,
    Kind.LOSE_REPLIES: 3,
    Kind.HOLD_REQUESTS: 3,
    Kind.FILL_DISK: 2,
    Kind.RESCALE: 2,
    Kind.SAVEPOINT: 2,
    Kind.MOVE: 2,
    Kind.INTERRUPT: 2,
    Kind.CALM: 1,
}
"""Of those that strike by themselves."""
KILLS = (Kind.KILL_WORKER, Kind.KILL_JOB_MANAGER, Kind.KILL_GROUP)
OF_A_START = (Kind.FAIL_POINT, Kind.SLOW_DISK)
KILL_SHARE = 0.55
"""Of all strikes, at least, while any kind of kill is on."""
WAITS = (1.5, 6.0)
"""Seconds between two strikes at most: often before the job has begun to run, often many checkpoints later."""
OUTPUT_SHARE = 0.6
"""Of the strikes, those that let the job come to output first, on however slow a machine."""
WORKER_POINTS = ("capture", "upload", "acknowledge", "commit")
JOB_MANAGER_POINTS = ("log-append", "recovery-commit", "recovery-abort", "savepoint-export", "savepoint-import")
DISK_POINTS = ("upload:before", "log-append:before")
BOUNDS = ((10, "16KiB"), (60, "128KiB"))
"""Of a checkpoint in time and of a channel in bytes. What is in a full channel must pass on a busy machine before the
barrier behind it does; a time-out that is shorter than that lets no checkpoint complete."""
BACKENDS = ("fs", "rocksdb")
APIS = ("Produce", "EndTxn", "AddPartitionsToTxn", "InitProducerId", "Fetch", "FindCoordinator", "Metadata")
"""Whose replies are lost."""
HELD = ("Produce", "EndTxn", "AddPartitionsToTxn", "InitProducerId")


@dataclass(frozen=True)
class Plan:
    """What one run is like."""

    seed: int
    nodes: int
    users: int
    interval: int
    """Milliseconds between two checkpoints."""
    timeout: int
    """Seconds of a checkpoint."""
    channel: str
    """Bytes of a channel, as they are written on a command line."""
    backend: str
    parallelism: int
    fills_local_dir: bool
    """Local files are on the disk that fills up, too."""
    weights: dict[Kind, int] = field(hash=False)
    fail_point_chance: float
    slow_chance: float


@dataclass(frozen=True)
class Strike:
    """One fault. The meaning of what was drawn is the kind's."""

    number: int
    after: float
    """Seconds since the one before, or since the first output after it."""
    waits_for_output: bool
    kind: Kind
    choice: float
    """From 0 to 1: who is struck, of those who are there."""
    seconds: float
    """How long it lasts."""
    second_start: float
    """From 0 to 1, a share of `seconds`: when a second one is started beside what is stopped."""
    delay: float
    """Seconds: of the network."""
    api: str
    held: str
    backend: str
    parallelism: int

    def pick(self, found: Sequence[int]) -> int:
        return found[int(self.choice * len(found))]


@dataclass(frozen=True)
class StartDraw:
    """How one start is made."""

    fail_points: tuple[str, ...]
    resumes_after: float
    """Seconds after which what has stopped itself is let on."""
    has_successor: bool
    """A JobManager that has stopped itself gets one before it is let on."""
    pause: float
    """Seconds from the end of the start before."""


def plan_of(seed: int, nodes: int, kinds: Sequence[Kind]) -> Plan:
    """A swarm: some of `kinds` are off, others come often. At least one kind of kill stays, if it was asked for."""
    chance = random.Random(f"{seed}:plan")
    weights: dict[Kind, int] = {}
    for kind in Kind:
        factor = chance.choice((0, 1, 1, 2, 5))
        if kind in kinds and kind in WEIGHTS and factor:
            weights[kind] = WEIGHTS[kind] * factor
    timeout, channel = chance.choice(BOUNDS)
    kills = [kind for kind in KILLS if kind in kinds]
    spared = chance.randrange(len(KILLS))
    if kills and not any(kind in weights for kind in kills):
        weights[kills[spared % len(kills)]] = 1
    _keep_killing(weights)
    return Plan(
        seed=seed,
        nodes=nodes,
        users=chance.choice((60, 600, 4000)),
        interval=chance.randrange(200, 501, 50),
        timeout=timeout,
        channel=channel,
        backend=chance.choice(BACKENDS),
        parallelism=chance.choice((2, 2, 3)),
        fills_local_dir=chance.random() < 0.5,
        weights=weights,
        fail_point_chance=chance.choice((0.0, 0.25, 0.5)) if Kind.FAIL_POINT in kinds else 0.0,
        slow_chance=chance.choice((0.0, 0.2, 0.4)) if Kind.SLOW_DISK in kinds else 0.0,
    )


def _keep_killing(weights: dict[Kind, int]) -> None:
    kills = [kind for kind in KILLS if kind in weights]
    others = sum(weight for kind, weight in weights.items() if kind not in KILLS)
    total = sum(weights[kind] for kind in kills)
    needed = others * KILL_SHARE / (1 - KILL_SHARE)
    if kills and total < needed:
        for kind in kills:
            weights[kind] = max(1, round(weights[kind] * needed / total))


def strikes(plan: Plan) -> Iterator[Strike]:
    """Without end; none at all where no kind strikes by itself."""
    chance = random.Random(f"{plan.seed}:strikes")
    kinds = list(plan.weights)
    number = 0
    while kinds:
        number += 1
        yield Strike(
            number=number,
            after=chance.uniform(0.05, chance.choice(WAITS)),
            waits_for_output=chance.random() < OUTPUT_SHARE,
            kind=chance.choices(kinds, [plan.weights[kind] for kind in kinds])[0],
            choice=chance.random(),
            seconds=chance.choice((0.5, 2.0, 6.0)) * chance.uniform(0.5, 1.5),
            second_start=chance.random(),
            delay=chance.choice((0.005, 0.02, 0.1)),
            api=chance.choice(APIS),
            held=chance.choice(HELD),
            backend=chance.choice(BACKENDS),
            parallelism=chance.choice((1, 2, 3)),
        )


def start_draw(plan: Plan, number: int) -> StartDraw:
    """Of the start with this number, whenever it comes."""
    chance = random.Random(f"{plan.seed}:start:{number}")
    points = [_fail_point(chance)] if chance.random() < plan.fail_point_chance else []
    if chance.random() < plan.slow_chance:
        milliseconds = chance.choice((50, 300, 1500))
        points += [f"{name}:*=delay-{milliseconds}" for name in DISK_POINTS]
    return StartDraw(
        fail_points=tuple(points),
        resumes_after=chance.uniform(0.2, 6.0),
        has_successor=chance.random() < 0.5,
        pause=chance.choice((0.0, 0.1, 0.5)),
    )


def _fail_point(chance: random.Random) -> str:
    process, places = chance.choice((("worker", WORKER_POINTS), ("jobmanager", JOB_MANAGER_POINTS)))
    place = chance.choice(places)
    times = chance.randint(1, 3 if place.startswith(("recovery", "savepoint")) else 20)
    moment = chance.choice(("before", "after"))
    action = chance.choice(("kill", "kill", "stop"))
    return f"{place}:{moment}:{times}@{process}={action}"
