"""Writing into the embedded log in two phases: the sink that shows the contract at its simplest.

A prepared transaction is rows in the log and survives its producer. Nothing here may abort but `begin`, for its own
id, and `LocalRecovery.abort`: not closing, not an error, not the end of the process.
"""

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec

from tidegate.checkpoint.protocol import CommitPermit, Committable, Outcome, RecoverySpec
from tidegate.clock import Clock
from tidegate.connectors.local import partitioner
from tidegate.connectors.local.log import DEFAULT_TIMEOUT, SYSTEM_CLOCK, LocalLog, Transaction
from tidegate.connectors.local.records import Row
from tidegate.connectors.local.transactions import TransactionDescription, TransactionState
from tidegate.elements import Batch
from tidegate.errors import CorruptError, InternalError, InvalidError, LostDataError, TidegateError, UnavailableError
from tidegate.formats import Bytes, Serializer
from tidegate.ids import OperatorName, TransactionalId, is_name
from tidegate.operators.contracts import SinkContext, TransactionalSink, TransactionInfo, TransactionRecovery, owned_ids

CHUNK = 2000
"""Rows written while other processes wait: some ten milliseconds."""


class LocalSink:
    """Writes to `topic` in `directory`.

    value: the format of the values; without it they must be bytes. key: gives a record's key (bytes, str, or None for
    none). partition: gives the partition from a record and the number of partitions; by default the key's hash, and
    for records without a key one partition a batch, in turn. timestamp: gives milliseconds since 1970; by default the
    record's own, else now. partitions: make the topic with so many if it is missing. transaction_prefix: by default
    the job's name. timeout: seconds after its first record at which a transaction that nobody committed is aborted.
    """

    def __init__(
        self,
        directory: str | Path,
        topic: str,
        *,
        value: Serializer | None = None,
        key: Callable[[Any], bytes | str | None] | None = None,
        partition: Callable[[Any, int], int] | None = None,
        timestamp: Callable[[Any], int] | None = None,
        partitions: int | None = None,
        transaction_prefix: str | None = None,
        timeout: float = DEFAULT_TIMEOUT,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        if transaction_prefix is not None and not is_name(transaction_prefix):
            raise InvalidError(f"transaction_prefix={transaction_prefix!r} is not a name: A-Z, a-z, 0-9, '_', '-'")
        if timeout <= 0:
            raise InvalidError(f"timeout={timeout} must be some seconds")
        self.directory = Path(directory).absolute()
        self.topic = topic
        self.value: Serializer = Bytes() if value is None else value
        self.key = key
        self.partition = partition
        self.timestamp = timestamp
        self.partitions = partitions
        self.timeout = timeout
        self.clock = clock
        self._transaction_prefix = transaction_prefix

    @property
    def transaction_prefix(self) -> str | None:
        return self._transaction_prefix

    @property
    def recovery_spec(self) -> RecoverySpec:
        directory = str(self.directory)
        return RecoverySpec("tidegate.connectors.local.sink:open_recovery", {"directory": directory}, directory)

    def open_writer(self, context: SinkContext) -> TransactionalSink[Any]:
        log = LocalLog(self.directory, create=self.partitions is not None, clock=self.clock)
        if self.partitions is not None and self.topic not in log.topics():
            log.create_topic(self.topic, self.partitions)
        return LocalSinkWriter(self, log, context.subtask)

    def open_recovery(self) -> TransactionRecovery:
        log = LocalLog(self.directory, create=self.partitions is not None, clock=self.clock)
        return LocalRecovery(log, self.timeout)


class LocalTransaction:
    """One open transaction and what is not yet in the log."""

    def __init__(self, transaction: Transaction, partition_numbers: list[int]) -> None:
        self.transaction = transaction
        self.partition_numbers = partition_numbers
        self.buffer: list[Row] = []
        self.failure: Exception | None = None


class LocalSinkWriter:
    """One subtask's end of a `LocalSink`."""

    def __init__(self, sink: LocalSink, log: LocalLog, subtask: int) -> None:
        self._sink = sink
        self._log = log
        self._batches = itertools.count(subtask)

    def begin(self, id: TransactionalId) -> LocalTransaction:
        partition_numbers = self._log.partition_numbers(self._sink.topic)
        return LocalTransaction(self._log.begin_transaction(str(id), self._sink.timeout), partition_numbers)

    def has_room(self, txn: LocalTransaction) -> bool:
        return True

    def write(self, txn: LocalTransaction, batch: Batch) -> None:
        _raise_failure(txn)
        try:
            txn.buffer += self._rows(batch, txn.partition_numbers)
            while len(txn.buffer) >= CHUNK:
                self._log.write_transaction(txn.transaction, txn.buffer[:CHUNK])
                del txn.buffer[:CHUNK]
        except Exception as error:
            txn.failure = error
            raise

    def prepare(self, txn: LocalTransaction) -> Committable | None:
        _raise_failure(txn)
        description = self._log.prepare_transaction(txn.transaction, txn.buffer)
        txn.failure = InternalError(f"transaction {txn.transaction.id} was used again after it had been prepared")
        return None if description is None else _committable(description)

    def check(self, committables: Sequence[Committable]) -> None:
        for committable in committables:
            found = self._log.describe(committable.id)
            if found is None or found.state is not TransactionState.ONGOING or _committable(found) != committable:
                raise LostDataError(
                    f"the prepared transaction {committable.id} is not pending any more: {_what_became(found)}",
                    remedy="No checkpoint will count on it. See whether the timeout is too short.",
                )

    def commit(self, committable: Committable, permit: CommitPermit) -> Outcome:
        return _commit(self._log, committable)

    def abandon(self, txn: LocalTransaction) -> None:
        txn.buffer = []
        txn.failure = UnavailableError(f"transaction {txn.transaction.id} was abandoned by its producer")

    def close(self) -> None:
        self._log.close()

    def _rows(self, batch: Batch, partition_numbers: list[int]) -> list[Row]:
        sink = self._sink
        values = batch.values
        keys = [None] * len(values) if sink.key is None else [_as_key(sink.key(value)) for value in values]
        if sink.partition is None:
            targets = partitioner.assign(keys, len(partition_numbers), next(self._batches))
        else:
            targets = [
                self._checked(sink.partition(value, len(partition_numbers)), partition_numbers) for value in values
            ]
        return [
            Row(partition_numbers[target], timestamp, key, value)
            for target, timestamp, key, value in zip(
                targets, self._timestamps(batch), keys, sink.value.encode(values), strict=True
            )
        ]

    def _timestamps(self, batch: Batch) -> list[int]:
        if self._sink.timestamp is not None:
            return [self._sink.timestamp(value) for value in batch.values]
        if batch.timestamps is not None:
            return batch.timestamps
        return [int(self._sink.clock.now().wall * 1000)] * len(batch)

    def _checked(self, target: int, partition_numbers: list[int]) -> int:
        if not 0 <= target < len(partition_numbers):
            raise InvalidError(
                f"partition= chose {target}, topic {self._sink.topic} has partitions 0 to {len(partition_numbers) - 1}"
            )
        return target


class LocalRecovery:
    """Transactions of a directory, seen from the JobManager. `timeout`: the sink's, where it is known."""

    def __init__(self, log: LocalLog, timeout: float | None = None) -> None:
        self._log = log
        self._timeout = timeout

    def check_timeout(self, needed: float) -> None:
        if self._timeout is not None and self._timeout <= needed:
            raise InvalidError(
                f"transactions time out after {self._timeout:g} s, and it may take {needed:g} s until one is committed",
                remedy="Give the sink a longer timeout, or take checkpoints more often.",
            )

    def commit(self, committable: Committable, permit: CommitPermit) -> Outcome:
        return _commit(self._log, committable)

    def abort(self, id: TransactionalId) -> None:
        self._log.abort_transaction(str(id))

    def open_transactions(self, prefix: str, sink: OperatorName) -> list[TransactionalId]:
        found = self._log.list_transactions(ongoing_only=True)
        return owned_ids((one.id for one in found), prefix, sink)

    def describe(self, id: TransactionalId) -> TransactionInfo | None:
        found = self._log.describe(str(id))
        if found is None:
            return None
        return TransactionInfo(
            id=id,
            state=found.state.value,
            started_at=None if found.start is None else found.start / 1000,
            timeout=found.timeout / 1000,
            partitions=found.partitions,
            committable=_committable(found) if found.state is TransactionState.ONGOING else None,
        )

    def close(self) -> None:
        self._log.close()


def open_recovery(directory: str) -> LocalRecovery:
    """The factory that a manifest names."""
    return LocalRecovery(LocalLog(directory, create=False))


Number = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class _Payload(msgspec.Struct):
    """What finds a prepared transaction again. The rest of a payload is for people."""

    epoch: Number
    start: Number


def _committable(description: TransactionDescription) -> Committable:
    return Committable(
        id=description.id,
        payload={
            "epoch": description.epoch,
            "start": description.start,
            "timeout": description.timeout,
            "partitions": list(description.partitions),
        },
    )


def _commit(log: LocalLog, committable: Committable) -> Outcome:
    try:
        prepared = msgspec.convert(committable.payload, _Payload)
    except msgspec.ValidationError as error:
        raise CorruptError(
            f"what the checkpoint says of the transaction {committable.id} of an embedded log cannot be read: {error}"
        ) from error
    return log.commit_transaction(committable.id, prepared.epoch, prepared.start)


def _what_became(description: TransactionDescription | None) -> str:
    if description is None:
        return "the log knows nothing of it"
    newest = f"the newest under its id has epoch {description.epoch} and is {description.state.value}"
    return f"{newest} ({description.reason})" if description.reason else newest


def _raise_failure(txn: LocalTransaction) -> None:
    if isinstance(txn.failure, TidegateError):
        raise txn.failure
    if txn.failure is not None:
        raise UnavailableError(
            f"transaction {txn.transaction.id} is incomplete, an earlier write failed: {txn.failure}"
        ) from txn.failure


def _as_key(key: bytes | str | None) -> bytes | None:
    if key is None or isinstance(key, bytes):
        return key
    if isinstance(key, str):
        return key.encode()
    raise InvalidError(f"key= must give bytes, str or None, not {type(key).__name__}: {key!r}")
