"""What a sink's writer knows of a transaction between its beginning and its being prepared. Asks nobody anything."""

from tidegate.clock import Now
from tidegate.connectors.kafka.client import Producer, TransactionDescription
from tidegate.connectors.kafka.encoding import PartitionCounts
from tidegate.connectors.kafka.outcomes import utc
from tidegate.errors import TidegateError, UnavailableError


class KafkaTransaction:
    """One open transaction: its producer, and who that is to the coordinator."""

    def __init__(self, id: str, producer: Producer, own: TransactionDescription, counts: PartitionCounts) -> None:
        self.id = id
        self.producer = producer
        self.own = own
        self.counts = counts
        self.wrote_at: tuple[float, float] | None = None
        """When the first record was given to the producer: monotonic and wall seconds. The coordinator's time-out
        begins after it."""
        self.failure: Exception | None = None

    def raise_failure(self) -> None:
        if isinstance(self.failure, TidegateError):
            raise self.failure
        if self.failure is not None:
            raise UnavailableError(
                f"transaction {self.id} is incomplete, an earlier write failed: {self.failure}"
            ) from self.failure

    def outlived(self, now: Now) -> str:
        """That it is older than its timeout, in words; empty while it is not, and then it cannot have expired."""
        assert self.wrote_at is not None, "nothing was written"
        age, timeout = now.monotonic - self.wrote_at[0], self.own.timeout
        began = f"it began at {utc(self.wrote_at[1])} at the earliest, {age:.1f} s ago"
        return f"{began}, and its timeout is {timeout:g} s" if age >= timeout else ""
