"""What one seed is about: which kinds of fault it has and how often, and which job runs under which settings.

Drawn once, before anything happens. Some kinds are switched off wholly and others are frequent, differently for each
seed: a mixture that is always the same would always hide the same bugs.
"""

from dataclasses import dataclass, field
from random import Random

import msgspec

from tidegate.checkpoint.coordinator import CoordinatorSettings
from tidegate.config.restart import ExponentialDelay, FixedDelay, RestartNone, RestartStrategy
from tidegate.runtime.control import RuntimeOptions
from tidegate.state.key_partitions import MURMUR2, KeyPartitions
from tidegate.testing.sim.clocks import ClockErrors
from tidegate.testing.sim.gate import FaultRates

KINDS = (
    "kill worker",
    "kill job manager",
    "pause worker",
    "presume worker dead",
    "second job manager",
    "stop",
    "want checkpoint",
    "storage out",
    "log service out",
    "cut data wire",
    "slow network",
)
"""What may be done to a running world, one at a time."""
HARD_KINDS = ("slow worker", "slow storage", "frozen machine", "set clock", "burst")
"""What may be done besides in a world with hardships."""


@dataclass(frozen=True)
class JobShape:
    """The program."""

    sources: int
    partitions: int
    records: int
    """Of all sources together."""
    keys: int
    sinks: int
    sink_parallelism: int | None
    has_map: bool
    output_partitions: int
    max_drift: str | None = field(default=None, repr=False)
    """Its sources are one group of aligned ones; None: they are not. Not drawn."""
    calls: int = field(default=0, repr=False)
    """How many calls an asynchronous operator behind the sources makes at once; 0: there is none. Not drawn."""
    is_co_partitioned: bool = field(default=False, repr=False)
    """The partitions of the input keep keys together, and the program says so. Not drawn."""

    @property
    def key_partitions(self) -> KeyPartitions | None:
        """Which partition each key is in; None where it may be in any."""
        return KeyPartitions(self.partitions, MURMUR2) if self.is_co_partitioned else None

    @property
    def input_topics(self) -> tuple[str, ...]:
        return tuple(f"in-{number}" for number in range(self.sources))

    @property
    def output_topics(self) -> tuple[str, ...]:
        return tuple(f"out-{number}" for number in range(self.sinks))


@dataclass
class Network:
    """Of control and data wires. Delays in seconds."""

    lost: float = 0.0
    doubled: float = 0.0
    control_delay: float = 0.005
    data_delay: float = 0.002

    def heal(self) -> None:
        self.lost = self.doubled = 0.0
        self.hasten()

    def hasten(self) -> None:
        self.control_delay, self.data_delay = 0.005, 0.002


@dataclass
class Hardship:
    """What makes a world harder than its swarm; by default nothing does. Drawn apart from it, so that a swarm stays
    what it was. `mishaps`: how many of `kinds`, beside those of the swarm."""

    kinds: tuple[str, ...] = ()
    mishaps: int = 0
    clocks: ClockErrors = field(default_factory=ClockErrors)
    lists_in_pages: bool = False
    """A listing of the storage takes time, and what changes meanwhile may be in it or not."""


@dataclass
class Swarm:
    """See the module. Chances from 0 to 1, times in seconds."""

    shape: JobShape
    parallelisms: tuple[int, ...]
    """One is chosen for each JobManager process."""
    max_parallelism: int
    checkpoints: CoordinatorSettings
    retained: int
    restart: RestartStrategy
    runtime: RuntimeOptions
    input_seconds: float
    """Input becomes readable in the course of this time."""
    source_slack: float
    sink_eagerness: float
    transaction_timeout: float
    step_delay: float
    """Between two steps of a worker, at most."""
    step_cost: float
    """Time that a look at the clock takes within a step: what makes a step end."""
    slow_work: float
    slow_work_seconds: float
    late_requests: float
    zombies: float
    """The chance that a worker outlives the end that was prepared for it."""
    spawn_failures: float
    storage: FaultRates
    log_service: FaultRates
    network: Network
    kinds: tuple[str, ...]
    mishaps: int
    """How many of these, in `safety_seconds`."""
    safety_seconds: float
    supervisor_delay: float
    sink_fullness: float
    savepoints: FaultRates = field(default_factory=FaultRates)
    """Of the storage, where savepoints are written and read."""
    hardship: Hardship = field(default_factory=Hardship)
    is_healed: bool = field(default=False)

    @property
    def may_lose(self) -> bool:
        """Whether transactions may time out before they are committed: then the job may stop with exit code 3."""
        return self.transaction_timeout < 100.0

    def heal(self) -> None:
        """Faults stop."""
        self.is_healed = True
        self.storage.heal()
        self.log_service.heal()
        self.savepoints.heal()
        self.network.heal()
        self.slow_work = self.late_requests = self.zombies = self.spawn_failures = 0.0
        self.source_slack = min(self.source_slack, 0.2)
        self.step_delay, self.step_cost = 0.0005, 0.00005


def draw_swarm(random: Random) -> Swarm:
    tolerable = random.choice((0, 1, 2, 3))
    interval = random.choice((0.05, 0.1, 0.2, 0.5))
    widths = random.choice(((1,), (2,), (3,), (2, 3), (1, 2), (1, 2, 3)))
    kinds = tuple(kind for kind in KINDS if random.random() < 0.45)
    return Swarm(
        shape=_draw_shape(random),
        parallelisms=widths,
        max_parallelism=random.choice((4, 8, 16)),
        checkpoints=CoordinatorSettings(
            interval=interval,
            timeout=random.choice((0.6, 0.8, 1.0, 3.0)),
            min_pause=random.choice((0.0, 0.0, 0.1)),
            tolerable_failures=tolerable,
        ),
        retained=random.choice((1, 1, 2, 3)),
        restart=random.choice(
            (RestartNone(), FixedDelay(1000, 0.05), FixedDelay(2, 0.1), ExponentialDelay(0.05, 0.5, reset_after=2.0))
        ),
        runtime=RuntimeOptions(
            batch_size=random.choice((1, 2, 5, 20)),
            linger=random.choice((0.0, 0.005, 0.03)),
            step_target=random.choice((0.0005, 0.002, 0.01)),
            channel_bytes=random.choice((100, 1000, 100_000)),
            channel_records=random.choice((1, 5, 100)),
            inline_limit=random.choice((0, 0, 150, 8192)),
            state_in_job_manager=random.random() < 0.1,
            pool_limit=4 + 2 * tolerable,
        ),
        input_seconds=random.choice((0.0, 2.0, 5.0, 9.0)),
        source_slack=random.choice((0.0, 0.3, 0.7)),
        sink_eagerness=random.choice((0.0, 0.3, 0.9)),
        transaction_timeout=random.choice((10_000.0,) * 9 + (3.0,)),
        step_delay=random.choice((0.001, 0.005, 0.02)),
        step_cost=random.choice((0.0002, 0.001)),
        slow_work=random.choice((0.0, 0.0, 0.05, 0.3)),
        slow_work_seconds=random.choice((0.1, 0.5, 2.0)),
        late_requests=random.choice((0.0, 0.5, 1.0)),
        zombies=random.choice((0.0, 0.0, 0.5)),
        spawn_failures=random.choice((0.0, 0.0, 0.1)),
        storage=_draw_rates(random),
        log_service=_draw_rates(random),
        network=_draw_network(random),
        kinds=kinds,
        mishaps=random.randrange(0, 16) if kinds else 0,
        safety_seconds=random.choice((4.0, 8.0, 12.0)),
        supervisor_delay=random.choice((0.05, 0.5, 2.0)),
        sink_fullness=random.choice((0.0, 0.0, 0.3)),
    )


def leave_time_for_single_records(swarm: Swarm) -> None:
    """A checkpoint that may never fail and has to carry every record to Kafka alone needs more than the shortest time:
    no job could finish under such settings."""
    settings = swarm.checkpoints
    swarm.checkpoints = msgspec.structs.replace(settings, timeout=max(3.0, settings.timeout))


def _draw_shape(random: Random) -> JobShape:
    return JobShape(
        sources=random.choice((1, 1, 2)),
        partitions=random.choice((1, 2, 3)),
        records=random.randrange(40, 121),
        keys=random.choice((1, 3, 6, 12)),
        sinks=random.choice((1, 1, 2)),
        sink_parallelism=random.choice((None, None, None, 1, 2)),
        has_map=random.random() < 0.3,
        output_partitions=random.choice((1, 2, 3)),
    )


def _draw_rates(random: Random) -> FaultRates:
    often = random.choice((0.01, 0.03, 0.08))
    return FaultRates(
        refused=often if random.random() < 0.4 else 0.0,
        answer_lost=often if random.random() < 0.4 else 0.0,
        lands_later=often if random.random() < 0.4 else 0.0,
        pause=random.choice((0.0, 0.2, 0.5)),
        longest_pause=random.choice((0.01, 0.1, 1.0)),
        latest_landing=random.choice((0.2, 2.0)),
    )


def draw_savepoint_rates(random: Random) -> FaultRates:
    """Writing a savepoint may take long: the job goes on meanwhile, and throws away what it does not need."""
    rates = _draw_rates(random)
    rates.pause = random.choice((0.1, 0.5, 0.9))
    rates.longest_pause = random.choice((0.01, 0.5, 1.0))
    return rates


def draw_hardship(random: Random) -> Hardship:
    """Many worlds have none."""
    if random.random() < 0.4:
        return Hardship()
    kinds = tuple(kind for kind in HARD_KINDS if random.random() < 0.5)
    return Hardship(
        kinds=kinds,
        mishaps=random.randrange(0, 8) if kinds else 0,
        clocks=ClockErrors(random.choice((0.0, 0.3, 5.0, 3600.0)), random.choice((0.0, 0.01, 0.2))),
        lists_in_pages=random.random() < 0.5,
    )


def _draw_network(random: Random) -> Network:
    return Network(
        lost=random.choice((0.0, 0.0, 0.1, 0.3)),
        doubled=random.choice((0.0, 0.0, 0.1, 0.3)),
        control_delay=random.choice((0.002, 0.01, 0.05)),
        data_delay=random.choice((0.001, 0.005, 0.02)),
    )
