"""How a JobManager process is going to end: what it records, with which failure, and whether it may believe that. Pure
data; when it ends is the JobManager's business."""

from tidegate.checkpoint.log import Body
from tidegate.errors import EXIT_CODES, ErrorKind, Failure

CONFIRMED_BY_LOG = frozenset({kind for kind, code in EXIT_CODES.items() if code == 3} | {ErrorKind.SINK_FENCED})
"""What seems to be lost, damaged, or fenced at a sink may be the work of whoever has taken over meanwhile: the log
knows."""


class Ending:
    """Nothing yet."""

    def __init__(self) -> None:
        self.record: Body | None = None
        """Written when the workers are gone: a clean stop or the end of the job."""
        self.is_certain = True
        """Whether it may be recorded although leftovers could not be aborted: all that is due is committed."""
        self.failure: Failure | None = None
        """With what the process ends; None is success."""
        self._is_doubtful = False

    def fails(self, failure: Failure | None, *, is_doubtful: bool = False) -> None:
        """Nothing is recorded. is_doubtful: it may be the work of whoever has taken over, though its kind does not
        say so."""
        self.failure, self.record, self._is_doubtful = failure, None, is_doubtful

    def records(self, record: Body, *, is_certain: bool = True) -> None:
        self.record, self.is_certain = record, is_certain

    @property
    def must_be_confirmed(self) -> bool:
        """Whether the log is to be read before the failure is told."""
        return self.failure is not None and (self._is_doubtful or self.failure.kind in CONFIRMED_BY_LOG)
