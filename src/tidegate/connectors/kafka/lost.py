"""What to say when the offset at which reading has to go on is not there. It decides nothing."""

from tidegate.connectors.kafka.client import TopicPartition
from tidegate.errors import LostDataError


def lost_offsets(partition: TopicPartition, bootstrap: str, offset: int, low: int, end: int) -> LostDataError:
    """What to say when reading cannot go on at `offset`, in a partition that goes from `low` to `end`."""
    if offset > end:
        return LostDataError(
            f"{partition} at {bootstrap} ends at offset {end}, and reading had reached {offset}: the log has become "
            "shorter, or the topic was deleted and created anew",
            remedy="Bring the topic back, or start afresh on what is there now (--fresh).",
        )
    return LostDataError(
        f"{partition} at {bootstrap}: offsets {offset} to {low - 1} are gone before they were read; the partition now "
        f"begins at {low}",
        remedy="Raise the topic's retention. To go on without them, set on_lost_offsets='earliest' on the KafkaSource; "
        "or start afresh (--fresh).",
    )
