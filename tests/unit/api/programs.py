"""Sources, sinks and functions from which tests build jobs. Nothing of it reads or writes anything."""

from collections.abc import Iterator, Sequence
from typing import Any, Generic, TypeVar

import msgspec

import tidegate as tg
from tidegate.checkpoint.protocol import CommitPermit, Committable, Outcome, RecoverySpec, SplitState
from tidegate.elements import Batch
from tidegate.ids import OperatorName, TransactionalId
from tidegate.operators.contracts import Fetched, SinkContext, SourceContext

T = TypeVar("T")


class Order(msgspec.Struct):
    user: str
    amount: int


class Total(msgspec.Struct):
    user: str
    total: int


class ReadyValues(Generic[T]):
    """What the deserialiser of a source of `T` is: none, but its type is known."""

    def decode(self, raw: list[Any]) -> list[Any]:
        return raw

    def decode_one(self, raw: Any) -> T:
        value: T = raw
        return value


class EmptySource(Generic[T]):
    """A bounded source of records of type `T` that has none."""

    bounded = True
    discovery_interval = None
    inspection_spec = None

    @property
    def deserializer(self) -> ReadyValues[T] | None:
        return None

    def discover(self, known: frozenset[str] | None) -> list[SplitState]:
        return []

    def open_reader(self, context: SourceContext) -> "EmptySource[T]":
        return self

    def add_splits(self, splits: Sequence[SplitState]) -> None:
        pass

    def poll(self, max_records: int) -> Fetched | None:
        return None

    def notify_checkpoint_complete(self, splits: Sequence[SplitState]) -> None:
        pass

    def close(self) -> None:
        pass


class NullSink:
    """A sink that keeps nothing, with the whole contract."""

    transaction_prefix = None
    recovery_spec = RecoverySpec("nowhere:none")

    def open_writer(self, context: SinkContext) -> "NullSink":
        return self

    def open_recovery(self) -> "NullSink":
        return self

    def begin(self, id: TransactionalId) -> None:
        pass

    def has_room(self, txn: None) -> bool:
        return True

    def write(self, txn: None, batch: Batch) -> None:
        pass

    def prepare(self, txn: None) -> Committable | None:
        return None

    def check(self, committables: Sequence[Committable]) -> None:
        pass

    def commit(self, committable: Committable, permit: CommitPermit) -> Outcome:
        raise AssertionError("nothing was prepared")

    def check_timeout(self, needed: float) -> None:
        pass

    def abort(self, id: TransactionalId) -> None:
        pass

    def abandon(self, txn: None) -> None:
        pass

    def open_transactions(self, prefix: str, sink: OperatorName) -> list[TransactionalId]:
        return []

    def describe(self, id: TransactionalId) -> None:
        return None

    def close(self) -> None:
        pass


class RunningTotal(tg.KeyedProcessFunction[str, Order, Total]):
    total = tg.ValueState(int, default=0)

    def process_element(self, value: Order, ctx: tg.KeyedContext[str]) -> Iterator[Total]:
        self.total.update(self.total.value() + value.amount)
        yield Total(ctx.key, self.total.value())


class Split(tg.ProcessFunction[Order, Order]):
    large = tg.SideOutput[Order]("large")

    def process_element(self, value: Order, ctx: tg.Context) -> Iterator[Order]:
        if value.amount > 100:
            ctx.output(self.large, value)
        else:
            yield value


def orders(job: tg.Job, name: str = "orders", parallelism: int | None = None) -> tg.Stream[Order]:
    source: EmptySource[Order] = EmptySource()
    return job.source(source, name=name, parallelism=parallelism)


def running_totals(job: tg.Job) -> tg.Stream[Total]:
    return orders(job).key_by(lambda order: order.user).process(RunningTotal(), name="totals")
