"""What became of a transaction, judged by what its coordinator and its partitions say of it, and committing it.

`judge` and `problems` are pure. `commit` is the only way in which anything here commits, for a sink's own transaction
as for a dead producer's. It reads what happened and never concludes it from an error: a fenced EndTxn may stand for a
commit, for an abort and for a time-out.

Two facts carry the judgement. Every transaction has an epoch of its own, because each has a producer instance of its
own. And the coordinator keeps a transaction's start time when it completes: what has our producer id, our epoch (or the
next one, where EndTxn version 5 raises it) and our start time is our transaction and no later one.
"""

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec

from tidegate.checkpoint.protocol import AlreadyCommitted, Committable, Committed, Lost, Outcome, Retry, Unknown
from tidegate.clock import Clock, SystemClock
from tidegate.connectors.kafka.client import (
    EndAnswer,
    PartitionProducer,
    TopicPartition,
    TransactionAdmin,
    TransactionDescription,
    TransactionState,
    partition_of,
)
from tidegate.connectors.kafka.pauses import growing
from tidegate.errors import CorruptError, InvalidError, UnavailableError

LOGGER = logging.getLogger("tidegate.kafka")
SYSTEM_CLOCK = SystemClock()
CALENDAR_END = 253_402_300_800
"""The end of the year 9999, in seconds since 1970."""
COMMIT_ATTEMPTS = 25
MARKERS_MISSING_AFTER = 12
"""Attempts, about a second, after which the markers of a complete commit do not come any more."""
FIRST_PAUSE = 0.005
LONGEST_PAUSE = 0.1
"""Seconds between two attempts; all of them together take about two seconds, then the engine asks again."""


class Prepared(msgspec.Struct, frozen=True):
    """A prepared transaction: what a `Committable` of this sink says."""

    id: str
    producer_id: int
    epoch: int
    started_at: float
    """Seconds since 1970, by the coordinator's clock."""
    timeout: float
    """Seconds."""
    partitions: tuple[TopicPartition, ...]
    records: int
    """In all partitions together."""

    @property
    def expires_at(self) -> float:
        """The coordinator's clock may abort it from here on."""
        return self.started_at + self.timeout

    def committable(self) -> Committable:
        payload: dict[str, Any] = msgspec.structs.asdict(self)
        del payload["id"]
        payload["partitions"] = [str(partition) for partition in self.partitions]
        return Committable(self.id, payload)

    @classmethod
    def of(cls, committable: Committable) -> "Prepared":
        """Raises CorruptError for a committable that this sink did not make."""
        try:
            payload = msgspec.convert(committable.payload, _Payload)
            partitions = tuple(map(partition_of, payload.partitions))
        except (msgspec.ValidationError, CorruptError) as error:
            raise CorruptError(
                f"what the checkpoint says of the Kafka transaction {committable.id} cannot be read: {error}"
            ) from error
        return cls(
            committable.id,
            payload.producer_id,
            payload.epoch,
            payload.started_at,
            payload.timeout,
            partitions,
            payload.records,
        )


Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e11)]
"""Up to some thousand years."""
Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class _Payload(msgspec.Struct):
    producer_id: Count
    epoch: Annotated[int, msgspec.Meta(ge=0, le=2**15 - 1)]
    started_at: Seconds
    timeout: Seconds
    partitions: list[str]
    records: Count


# ---- judging -------------------------------------------------------------------------------------------------------


class StillOpen(msgspec.Struct, frozen=True):
    """The coordinator holds it open, prepared as it was."""


class Unsettled(msgspec.Struct, frozen=True):
    """The coordinator is between two states, or has decided and not told all partitions yet: ask again."""

    why: str


class Followed(msgspec.Struct, frozen=True):
    """A request of its own producer that came after its end, such as a repeated AddPartitionsToTxn, began another one
    under its epoch: it has ended, and how is not told any more."""

    why: str


Judgement = StillOpen | AlreadyCommitted | Lost | Unknown | Unsettled | Followed

_COMMITTED = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT})
"""PrepareCommit is the decision, written to the coordinator's log; readers see it when the markers have followed."""
_ABORTED = frozenset({TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT})
_PASSING = frozenset({TransactionState.PREPARE_EPOCH_FENCE, TransactionState.DEAD, TransactionState.UNKNOWN})


def judge(prepared: Prepared, found: TransactionDescription | None, wall: float) -> Judgement:
    """What `found`, the coordinator's description of the id, says of `prepared`. `wall` is the time now, for words."""
    if found is None:
        return Unknown(
            f"the coordinator does not know {prepared.id} any more: it forgets an id on which nothing happened for "
            "transactional.id.expiration.ms, or its log was lost"
        )
    if found.state in _PASSING:
        return Unsettled(f"the coordinator says {found.state.value} of {prepared.id}")
    same = found.producer_id == prepared.producer_id and found.started_at == prepared.started_at
    if same and found.state is TransactionState.ONGOING and found.epoch == prepared.epoch:
        return StillOpen()
    if same and found.state in _COMMITTED and found.epoch in (prepared.epoch, prepared.epoch + 1):
        if found.state is TransactionState.PREPARE_COMMIT:
            return Unsettled(f"the commit of {prepared.id} is decided, and its markers are being written")
        return AlreadyCommitted()
    if (found.producer_id, found.epoch) == (prepared.producer_id, prepared.epoch) and _is_later(prepared, found):
        return Followed(f"{what_became(prepared, found, wall)}; how the first one ended is not told any more")
    return Lost(what_became(prepared, found, wall))


def _is_later(prepared: Prepared, found: TransactionDescription) -> bool:
    return found.started_at is not None and found.started_at > prepared.started_at


def what_became(prepared: Prepared, found: TransactionDescription, wall: float) -> str:
    """The proof that `found` is not the pending transaction `prepared`, in words."""
    began = f"it began at {utc(prepared.started_at)} and its timeout was {prepared.timeout:g} s"
    if found.producer_id != prepared.producer_id:
        who = f"producer id {found.producer_id} has the transactional id now, it was {prepared.producer_id}"
        return f"{who} (state {found.state.value}); {began}"
    if is_expiry(prepared.epoch, found):
        return f"{_of_expiry(prepared, wall)} (state {found.state.value}): {began}"
    if found.epoch != prepared.epoch:
        who = f"the id was initialised again: its epoch is {found.epoch}, it was {prepared.epoch}"
        return f"{who} (state {found.state.value}); {began}"
    if found.state in _ABORTED:
        return f"it was aborted by a request with its own producer id and epoch (state {found.state.value}); {began}"
    started = "has not begun" if found.started_at is None else f"began at {utc(found.started_at)}"
    return f"another transaction of its producer id and epoch {started} (state {found.state.value}); {began}"


def is_expiry(epoch: int, found: TransactionDescription) -> bool:
    """Whether `found` is what a coordinator leaves behind when the timeout of the transaction of `epoch` has passed: it
    raises the epoch by one (3.9, 4.3) or two (4.0). InitProducerId does that, too, and goes on to `Empty`."""
    return found.state in _ABORTED and found.epoch in (epoch + 1, epoch + 2)


def _of_expiry(prepared: Prepared, wall: float) -> str:
    until = utc(prepared.expires_at)
    if wall < prepared.expires_at:
        return f"its coordinator aborted it for another producer, before its timeout passed at {until}"
    return f"its coordinator aborted it when its timeout had passed, which was at {until}"


def problems(prepared: Prepared, producers: Sequence[PartitionProducer]) -> str:
    """What is wrong with the transaction in its partitions; empty when it is open in all of them, with all records.

    The coordinator alone cannot say that: markers that were written past it (an administrator's tool does that) end a
    transaction in a partition, and a leader that was not in sync may have been elected."""
    ours = _ours(prepared, producers)
    ended = [
        partition
        for partition in prepared.partitions
        if partition not in ours or ours[partition].first_open_offset is None
    ]
    if ended:
        return f"it is not open any more in {_listed(ended)}, while its coordinator holds it open"
    records = sum(ours[partition].records for partition in prepared.partitions)
    if records != prepared.records:
        return f"{prepared.records} records were prepared and its partitions have {records}"
    return ""


def first_open_offsets(prepared: Prepared, producers: Sequence[PartitionProducer]) -> dict[TopicPartition, int]:
    """Where the transaction begins in each of its partitions."""
    rows = _ours(prepared, producers).values()
    return {one.partition: one.first_open_offset for one in rows if one.first_open_offset is not None}


def cut_off(sequences: Mapping[TopicPartition, int]) -> str:
    """What is wrong with a transaction whose batches at its first open offsets have these sequence numbers; empty when
    it is open from its first record on. Markers that were written while it was still written to leave only the rest of
    it open, and neither its coordinator nor the number of records shows that."""
    late = sorted((partition, sequence) for partition, sequence in sequences.items() if sequence)
    parts = [f"{sequence} records of it in {partition}" for partition, sequence in late]
    return f"{', '.join(parts)} were ended by markers that its coordinator did not write" if parts else ""


def _ours(prepared: Prepared, producers: Sequence[PartitionProducer]) -> dict[TopicPartition, PartitionProducer]:
    who = (prepared.producer_id, prepared.epoch)
    return {one.partition: one for one in producers if (one.producer_id, one.epoch) == who}


def utc(seconds: float) -> str:
    """'2026-11-29 17:49:58.234 UTC'; the number where no calendar has the moment."""
    if not 0 <= seconds < CALENDAR_END:
        return f"{seconds:g} s after 1970"
    return datetime.fromtimestamp(math.floor(seconds * 1000) / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + " UTC"


def _listed(partitions: Sequence[TopicPartition]) -> str:
    shown = ", ".join(map(str, partitions[:5]))
    return shown if len(partitions) <= 5 else f"{shown} and {len(partitions) - 5} more partitions"


# ---- committing and aborting ---------------------------------------------------------------------------------------
#
# A broker that is killed between a decision and its markers, and that does not know the topic yet when it reads the
# decision again, takes the partitions for deleted and forgets the markers (seen with 4.3.1). Its transaction is then
# complete for the coordinator and open for ever in the partitions. So both look there, too.


def commit(
    admin: TransactionAdmin,
    committable: Committable,
    clock: Clock = SYSTEM_CLOCK,
    pause: Callable[[float], None] = time.sleep,
) -> Outcome:
    """Commit it, or say what became of it. Blocks, for some seconds at most; then, and when nobody answers, Retry."""
    try:
        return _commit(admin, Prepared.of(committable), clock, pause)
    except UnavailableError as error:
        return Retry(error.failure.message)


def _commit(admin: TransactionAdmin, prepared: Prepared, clock: Clock, pause: Callable[[float], None]) -> Outcome:
    """Done only when the partitions know it, too: then readers see it, and no death of a coordinator undoes that.

    Where another transaction of its producer followed it, only who found it open and was told that it is committed
    knows how it ended: nobody aborts with its own producer id and epoch."""
    why = ""
    is_asked = is_told = False
    pauses = growing(FIRST_PAUSE, LONGEST_PAUSE)
    for attempt in range(COMMIT_ATTEMPTS):
        judgement = stand(admin, prepared, clock)
        match judgement:
            case Lost() | Unknown():
                return judgement
            case Followed() if not is_told:
                return Unknown(judgement.why)
            case AlreadyCommitted() | Followed():
                hanging = _hanging(admin, prepared)
                if not hanging:
                    return Committed() if is_asked else AlreadyCommitted()
                why = (
                    f"{prepared.id} is committed, and markers are missing in {_listed([r.partition for r in hanging])}"
                )
                if attempt >= MARKERS_MISSING_AFTER and (refused := _write_markers(admin, prepared, hanging)):
                    return refused
            case Unsettled():
                why = judgement.why
            case StillOpen():
                is_asked = True
                why = _end(admin, prepared)
                if not why:
                    is_told = True
                    continue
        pause(next(pauses))
    return Retry(why)


def _hanging(admin: TransactionAdmin, prepared: Prepared) -> list[PartitionProducer]:
    """The partitions in which the committed transaction is still open."""
    ours = _ours(prepared, admin.producers(prepared.partitions)).values()
    return [row for row in ours if row.first_open_offset is not None]


def _write_markers(admin: TransactionAdmin, prepared: Prepared, hanging: Sequence[PartitionProducer]) -> Unknown | None:
    where = _listed([row.partition for row in hanging])
    LOGGER.warning("%s is committed, but its coordinator wrote no markers into %s: writing them", prepared.id, where)
    try:
        admin.write_markers(hanging, commit=True)
    except InvalidError as error:
        return Unknown(
            f"its coordinator says that it is committed, but lost the markers for {where}, and readers see nothing of "
            f"it nor of what follows. They could not be written: {error.failure.message}. Start again with that right"
        )
    return None


def stand(admin: TransactionAdmin, prepared: Prepared, clock: Clock) -> Judgement:
    """Where the transaction stands: as `judge` says, and only StillOpen if its partitions agree.

    They are asked after the coordinator. If they disagree, it is asked once more: a commit that went on in between ends
    the transaction there, too, but the coordinator decides before any marker is written."""
    judgement = judge(prepared, admin.describe(prepared.id), clock.now().wall)
    if not isinstance(judgement, StillOpen):
        return judgement
    wrong = problems(prepared, admin.producers(prepared.partitions))
    if not wrong:
        return judgement
    again = judge(prepared, admin.describe(prepared.id), clock.now().wall)
    return Lost(wrong) if isinstance(again, StillOpen) else again


def _end(admin: TransactionAdmin, prepared: Prepared) -> str:
    """Ask for the commit: empty when it is done, else why nobody knows yet."""
    try:
        answer = admin.commit(prepared.id, prepared.producer_id, prepared.epoch)
    except UnavailableError as error:
        return error.failure.message
    match answer:
        case EndAnswer.DONE:
            return ""
        case EndAnswer.CONCURRENT:
            return f"the markers of the last end of {prepared.id} are still being written"
        case EndAnswer.REFUSED:
            return f"the coordinator refused to commit {prepared.id}, which it describes as open"


def abort(admin: TransactionAdmin, id: str, pause: Callable[[float], None] = time.sleep) -> None:
    """Abort what is open under the id and fence its producer. Raises UnavailableError while partitions do not know it
    yet, and InvalidError when they have to be told and this user may not do that."""
    before = admin.describe(id)
    admin.fence(id)
    if before is None or not before.partitions:
        return
    pauses = growing(FIRST_PAUSE, LONGEST_PAUSE)
    for attempt in range(COMMIT_ATTEMPTS):
        hanging = [
            row
            for row in admin.producers(before.partitions)
            if row.producer_id == before.producer_id and row.first_open_offset is not None
        ]
        if not hanging:
            return
        if attempt >= MARKERS_MISSING_AFTER:
            LOGGER.warning("%s is aborted, but its coordinator wrote no markers: writing them", id)
            admin.write_markers(hanging, commit=False)
        pause(next(pauses))
    raise UnavailableError(f"{id} is aborted, and still open in {_listed(before.partitions)}")
