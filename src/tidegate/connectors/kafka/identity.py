"""Whether the topics that a reader reads are those that were discovered: one that was deleted and created again under
its name has other records at the same offsets, and Kafka's protocol goes on reading there as if nothing had happened.

It asks without waiting: readers call it between two batches.
"""

from collections.abc import Callable, Mapping, Sequence

from tidegate.checkpoint.protocol import SplitState
from tidegate.clock import Clock
from tidegate.connectors.kafka.client import Question, Topic, partition_of
from tidegate.connectors.kafka.discovery import TOPIC_ID, Selection, refuse_foreign
from tidegate.errors import InvalidError, LostDataError, UnavailableError

CHECKED_EVERY = 10.0
"""Seconds between two looks at the topics that are being read."""
UNKNOWN_WITHIN = 5.0
"""Seconds for which a topic that was discovered may be unknown to the broker that is asked: they learn one by one."""
ASK_AGAIN_AFTER = 0.2
"""Seconds."""


class TopicIdentity:
    """Holds splits back until their topics are verified, and verifies them again from time to time. `ask` asks about
    topics by name."""

    def __init__(
        self, ask: Callable[[Sequence[str]], Question], bootstrap: str, selection: Selection, clock: Clock
    ) -> None:
        self._put = ask
        self._bootstrap = bootstrap
        self._selection = selection
        self._clock = clock
        self._question: Question | None = None
        self._new: list[SplitState] = []
        self._verified: dict[str, SplitState] = {}
        self._ask_at = float("inf")
        self._unknown_until = float("inf")

    def add(self, splits: Sequence[SplitState]) -> None:
        """These are to be read."""
        self._new += splits
        now = self._clock.now().monotonic
        self._ask_at, self._unknown_until = now, now + UNKNOWN_WITHIN

    def remove(self, split: str) -> None:
        """It is finished: what becomes of its topic does not matter any more."""
        del self._verified[split]
        if not self._verified and not self._new:
            self._ask_at = float("inf")

    @property
    def is_settled(self) -> bool:
        """Whether no answer is waited for."""
        return self._question is None and not self._new

    def verified(self) -> list[SplitState]:
        """The splits that may be read from now on, each once.

        Raises LostDataError for a topic that is another one now, or gone; InvalidError for one that the source does not
        read any more; UnavailableError when nobody answers about a split that waits.
        """
        now = self._clock.now().monotonic
        if self._question is None:
            if now < self._ask_at:
                return []
            self._question = self._ask()
        topics = self._answer(self._question)
        if topics is None:
            return []
        self._question = None
        self._ask_at = now + CHECKED_EVERY
        for split in self._verified.values():
            self._compare(split, topics)
        return self._admit(topics, now)

    def _ask(self) -> Question:
        refuse_foreign(self._selection, [partition_of(split.id) for split in self._new])
        names = sorted({partition_of(split.id).topic for split in (*self._new, *self._verified.values())})
        return self._put(names)

    def _answer(self, question: Question) -> Mapping[str, Topic] | None:
        try:
            return question.answer()
        except UnavailableError:
            if self._new:
                raise
            return {}

    def _admit(self, topics: Mapping[str, Topic], now: float) -> list[SplitState]:
        admitted: list[SplitState] = []
        waiting: list[SplitState] = []
        for split in self._new:
            self._compare(split, topics)
            (admitted if _is_there(split, topics) else waiting).append(split)
        if waiting and now >= self._unknown_until:
            raise LostDataError(
                f"{waiting[0].id} at {self._bootstrap} was discovered and is not there any more",
                remedy="Bring the topic back; or, to go on without what was not read, start afresh (--fresh).",
            )
        if waiting:
            self._ask_at = now + ASK_AGAIN_AFTER
        self._new = waiting
        self._verified.update((split.id, split) for split in admitted)
        return admitted

    def _compare(self, split: SplitState, topics: Mapping[str, Topic]) -> None:
        topic = topics.get(partition_of(split.id).topic)
        known = split.attributes.get(TOPIC_ID)
        if known is None:
            raise InvalidError(
                f"the position of {split.id} in the checkpoint is not one in a Kafka topic",
                remedy="A source that read another system before needs another name=; or start afresh (--fresh).",
            )
        if topic is None or topic.id == known:
            return
        raise LostDataError(
            f"topic {topic.name!r} at {self._bootstrap} was deleted and created anew since it was "
            f"discovered: its id was {known} and is {topic.id}; reading on in {split.id} would mix the two",
            remedy="Read what is there now from the start with --fresh.",
        )


def _is_there(split: SplitState, topics: Mapping[str, Topic]) -> bool:
    name, number = partition_of(split.id)
    return name in topics and number in topics[name].partitions
