"""Short ways to write into, read and commit in the topic `t` of an embedded log."""

from tidegate.checkpoint.protocol import Outcome
from tidegate.connectors.local.log import Transaction
from tidegate.connectors.local.records import Row
from tidegate.local import LocalLog, TransactionDescription


def values(log: LocalLog, partition: int = 0, *, committed: bool = True) -> list[bytes | None]:
    isolation = "read_committed" if committed else "read_uncommitted"
    return [record.value for record in log.read("t", partition, isolation=isolation)]  # type: ignore[arg-type]


def write(log: LocalLog, transaction: Transaction, *texts: bytes, partition: int = 0) -> None:
    number = log.partition_numbers("t")[partition]
    log.write_transaction(transaction, [Row(number, 0, None, text) for text in texts])


def prepared(log: LocalLog, id: str, *texts: bytes, timeout: float = 60) -> TransactionDescription:
    transaction = log.begin_transaction(id, timeout)
    write(log, transaction, *texts)
    description = log.prepare_transaction(transaction)
    assert description is not None
    return description


def commit(log: LocalLog, description: TransactionDescription) -> Outcome:
    assert description.start is not None
    return log.commit_transaction(description.id, description.epoch, description.start)
