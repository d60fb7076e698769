"""What a JobManager is given at its start: settings and identity, resolved to numbers."""

import msgspec

from tidegate.checkpoint.coordinator import CoordinatorSettings
from tidegate.checkpoint.log import ProcessRecord
from tidegate.config.restart import RestartStrategy
from tidegate.ids import CheckpointId, LogInstance
from tidegate.runtime.control import RuntimeOptions


class JobSettings(msgspec.Struct, frozen=True):
    """`storage`: folder or URL. Durations in seconds."""

    parallelism: int
    max_parallelism: int
    checkpoints: CoordinatorSettings
    retained: int
    restart: RestartStrategy
    runtime: RuntimeOptions
    storage: str
    fresh: str | None = None
    """Begin without state, once for each value; None: go on."""
    from_checkpoint: CheckpointId | None = None
    """Go back to this checkpoint, once for each value."""
    from_savepoint: str | None = None
    """Begin from this savepoint, once for each value; folder or URL."""
    claim_savepoint: bool = False
    """The savepoint becomes the job's: removed when it is not needed any more."""
    allow_non_restored_state: bool = False
    """State that the program has no operator or declaration for is dropped."""
    keep_on_stop: bool = True
    """Whether completed checkpoints stay when somebody stops the running job. They stay whenever it fails, is stopped
    while it waits to restart, or finishes."""
    stop_patience: float = 180.0
    """For how long a checkpoint to stop with is tried until the job goes on instead."""
    accept_lost: bool = False
    needed_timeout: float | None = None
    """For how long a sink's transaction may have to stay open until it is committed; None asks no sink."""
    drain_timeout: float = 30.0
    """How long a clean stop waits for commits that are under way."""
    stop_grace: float = 5.0
    """How long workers have to exit by themselves after they were asked to."""


class JobManagerIdentity(msgspec.Struct, frozen=True):
    """Who this process is. Random values are drawn by whoever starts it."""

    nonce: str
    """Marks this process's entries in the log."""
    new_instance: LogInstance
    """The log's instance, if this process creates it."""
    host: str
    process: ProcessRecord
