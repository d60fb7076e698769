"""The life of a job in one JobManager process: every phase and every legal move, as data. `docs/job-life.md` is made
from this table.
"""

from enum import Enum


class Phase(Enum):
    """What the JobManager waits for."""

    READING_LOG = "reading the log"
    READING_SAVEPOINT = "reading the savepoint"
    CREATING_LOG = "creating the log"
    DISCARDING = "discarding newer checkpoints"
    SPAWNING = "starting workers"
    TAKING_OVER = "taking over"
    ENDING_OLD = "ending workers of the last attempt"
    RECOVERING = "recovering transactions"
    IMPORTING = "importing the savepoint"
    DEPLOYING = "deploying"
    RUNNING = "running"
    FAILING = "ending a failed attempt"
    WAITING = "waiting to restart"
    DRAINING = "finishing commits"
    CLOSING = "ending workers"
    SETTLING = "aborting what is left open"
    RECORDING_END = "recording the end"
    EXPORTING = "finishing savepoints"
    DONE = "done"


WITH_WORKERS = frozenset(
    {
        Phase.SPAWNING,
        Phase.TAKING_OVER,
        Phase.ENDING_OLD,
        Phase.RECOVERING,
        Phase.IMPORTING,
        Phase.DEPLOYING,
        Phase.RUNNING,
        Phase.DRAINING,
    }
)
"""Where the attempt has, or may have, workers that nobody has ended yet."""

_OVER = frozenset({Phase.FAILING, Phase.CLOSING})
"""Where any of these goes by a failure; by a stop, by being fenced, or by a failure after which nothing follows."""

MOVES: dict[Phase, frozenset[Phase]] = {
    Phase.READING_LOG: frozenset(
        {Phase.READING_SAVEPOINT, Phase.CREATING_LOG, Phase.DISCARDING, Phase.SPAWNING, Phase.DONE}
    ),
    Phase.READING_SAVEPOINT: frozenset({Phase.CREATING_LOG, Phase.SPAWNING, Phase.DONE}),
    Phase.CREATING_LOG: frozenset({Phase.SPAWNING, Phase.DONE}),
    Phase.DISCARDING: frozenset({Phase.SPAWNING, Phase.DONE}),
    Phase.SPAWNING: _OVER | {Phase.TAKING_OVER},
    Phase.TAKING_OVER: _OVER | {Phase.ENDING_OLD, Phase.RECOVERING},
    Phase.ENDING_OLD: _OVER | {Phase.RECOVERING},
    Phase.RECOVERING: _OVER | {Phase.IMPORTING, Phase.DEPLOYING},
    Phase.IMPORTING: _OVER | {Phase.DEPLOYING},
    Phase.DEPLOYING: _OVER | {Phase.RUNNING},
    Phase.RUNNING: _OVER | {Phase.DRAINING},
    Phase.DRAINING: frozenset({Phase.CLOSING}),
    Phase.FAILING: frozenset({Phase.WAITING, Phase.CLOSING}),
    Phase.WAITING: frozenset({Phase.SPAWNING, Phase.SETTLING, Phase.DONE}),
    Phase.CLOSING: frozenset({Phase.SETTLING, Phase.DONE}),
    Phase.SETTLING: frozenset({Phase.RECORDING_END, Phase.DONE}),
    Phase.RECORDING_END: frozenset({Phase.EXPORTING, Phase.DONE}),
    Phase.EXPORTING: frozenset({Phase.DONE}),
    Phase.DONE: frozenset(),
}
"""From each phase, where it may go next."""
