"""The life of a job in one JobManager process: every phase and every legal move, as data. The diagram in the documents is made
from this table.
"""

from enum import Enum


class Phase(Enum):
    """What the JobManager waits for."""

    READING_LOG = "reading the log"
    CREATING_LOG = "creating the log"
    DISCARDING = "discarding newer checkpoints"
    SPAWNING = "starting workers"
    TAKING_OVER = "taking over"
    ENDING_OLD = "ending workers of the last attempt"
    RECOVERING = "recovering transactions"
    DEPLOYING = "deploying"
    RUNNING = "running"
    FAILING = "ending a failed attempt"
    WAITING = "waiting to restart"
    DRAINING = "finishing commits"
    CLOSING = "ending workers"
    SETTLING = "aborting what is left open"
    RECORDING_END = "recording the end"
    DONE = "done"


_ALIVE = frozenset({Phase.FAILING, Phase.CLOSING, Phase.DONE})
"""Where any phase can go that has, or may have, workers: a failure, a stop, being fenced."""

MOVES: dict[Phase, frozenset[Phase]] = {
    Phase.READING_LOG: frozenset({Phase.CREATING_LOG, Phase.DISCARDING, Phase.SPAWNING, Phase.DONE}),
    Phase.CREATING_LOG: frozenset({Phase.SPAWNING, Phase.DONE}),
    Phase.DISCARDING: frozenset({Phase.SPAWNING, Phase.DONE}),
    Phase.SPAWNING: _ALIVE | {Phase.TAKING_OVER},
    Phase.TAKING_OVER: _ALIVE | {Phase.ENDING_OLD, Phase.RECOVERING},
    Phase.ENDING_OLD: _ALIVE | {Phase.RECOVERING},
    Phase.RECOVERING: _ALIVE | {Phase.DEPLOYING},
    Phase.DEPLOYING: _ALIVE | {Phase.RUNNING},
    Phase.RUNNING: _ALIVE | {Phase.DRAINING},
    Phase.DRAINING: _ALIVE,
    Phase.FAILING: frozenset({Phase.WAITING, Phase.DONE}),
    Phase.WAITING: frozenset({Phase.SPAWNING, Phase.DONE}),
    Phase.CLOSING: frozenset({Phase.SETTLING, Phase.DONE}),
    Phase.SETTLING: frozenset({Phase.RECORDING_END, Phase.DONE}),
    Phase.RECORDING_END: frozenset({Phase.DONE}),
    Phase.DONE: frozenset(),
}
"""From each phase, where it may go next."""
