"""The simulated cluster in a world: who reaches it how, markers that come later than the decision, what may happen to
brokers, and what readers see of it all.

This is the outside for checkers: it looks at the cluster itself, never through a gate, and changes nothing by looking.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Any
from weakref import WeakValueDictionary

import msgspec

from tidegate.checkpoint.protocol import Committable
from tidegate.clock import Clock
from tidegate.connectors.kafka.client import TopicPartition, TransactionState
from tidegate.connectors.kafka.outcomes import Prepared
from tidegate.connectors.kafka.recovery import KafkaRecovery
from tidegate.formats import Json
from tidegate.operators.contracts import Sink, Source
from tidegate.testing.sim.broker.cluster import Limits, SimCluster
from tidegate.testing.sim.broker.coordinator import CoordinatorLimits, Decision
from tidegate.testing.sim.broker.partition import Batch, Partition, Record, Span
from tidegate.testing.sim.gate import FaultRates, FaultyGate, Gate, OpenGate
from tidegate.testing.sim.job import Event, Total, key_of
from tidegate.testing.sim.kafka.admin import SimTransactionAdmin
from tidegate.testing.sim.kafka.connector import SimKafkaSink, SimKafkaSource
from tidegate.testing.sim.kafka.line import Line, StrainedGate
from tidegate.testing.sim.kafka.producer import ProducerHabits
from tidegate.testing.sim.kafka.reading import ReadingHabits, SimQuestions
from tidegate.testing.sim.outside import OutsideTransaction
from tidegate.testing.sim.scheduler import WALL_ORIGIN, Process, Scheduler
from tidegate.testing.sim.swarm import Swarm

ASK_AGAIN_AFTER = 0.05
"""Seconds after which a marker that could not be written is tried again."""
HEALED_MARKER_DELAY = 0.02
"""Seconds."""
AWAY_AT_MOST = 1.5
"""Seconds for which a broker is away."""
ENCODE, DECODE = msgspec.json.Encoder().encode, msgspec.json.decode


@dataclass
class KafkaTraits:
    """What is particular to a seed's Kafka. Times in seconds."""

    marker_delay: float = 0.002
    """From a decision until a marker of it is written, at most."""
    patience: float = 0.2
    """For which clients ask again when no answer comes."""
    linger: float = 0.01
    largest_batch: int = 10_000
    longest_answer: float = 0.02
    last_epoch: int = 32_767
    expiry_bump: int = 1
    transaction_version: int = 0
    """What the cluster has agreed on: from 2 on an end raises the epoch."""
    check_interval: int = 500
    """Milliseconds."""
    gaps: float = 0.0
    """How often what is appended has aborted records before it and a marker behind it."""
    changes: FaultRates = field(default_factory=FaultRates)
    """Of requests that change something, until faults stop."""


def draw_traits(random: Random) -> KafkaTraits:
    """Where epochs run out soon, none is raised by an end: real ones are not either, close to the last."""
    traits = _drawn(random)
    level = random.choice((0, 2))
    return replace(traits, transaction_version=level if traits.last_epoch == KafkaTraits.last_epoch else 0)


def _drawn(random: Random) -> KafkaTraits:
    return KafkaTraits(
        marker_delay=random.choice((0.0, 0.005, 0.05, 0.5)),
        patience=random.choice((0.0, 0.05, 0.5)),
        linger=random.choice((0.001, 0.02, 0.2)),
        largest_batch=random.choice((1, 3, 10_000)),
        longest_answer=random.choice((0.0, 0.02, 0.2)),
        last_epoch=random.choice((3, 5, 32_767)),
        expiry_bump=random.choice((1, 2)),
        check_interval=random.choice((100, 500, 2000)),
        gaps=random.choice((0.0, 0.3, 0.9)),
        changes=FaultRates(
            refused=random.choice((0.0, 0.05)),
            answer_lost=random.choice((0.0, 0.05, 0.3)),
            lands_later=random.choice((0.0, 0.05, 0.3)),
            pause=random.choice((0.0, 0.3)),
            longest_pause=random.choice((0.01, 0.3)),
            latest_landing=random.choice((0.1, 2.0, 6.0)),
        ),
    )


@dataclass
class KafkaTransaction:
    """`OutsideTransaction` of the cluster."""

    id: str
    producer_id: int
    epoch: int
    start: float | None = None
    reason: str = ""
    is_open: bool = False
    values: list[Any] = field(default_factory=list)

    @property
    def is_prepared(self) -> bool:
        """No broker knows that: whoever asks compares the values."""
        return self.is_open


class KafkaMedium:
    """One cluster with its topics."""

    def __init__(self, name: str, scheduler: Scheduler, swarm: Swarm, traits: KafkaTraits) -> None:
        self.bootstrap = f"{name}:9092"
        self._scheduler = scheduler
        self._swarm = swarm
        self.traits = traits
        limits = CoordinatorLimits(
            last_epoch=traits.last_epoch,
            maximum_timeout=round(max(900.0, swarm.transaction_timeout) * 1000),
            check_interval=traits.check_interval,
            expiry_bump=traits.expiry_bump,
            transaction_version=traits.transaction_version,
        )
        self.cluster = SimCluster(self._milliseconds, Limits(limits))
        self._random = scheduler.random("kafka/brokers")
        self._appending = scheduler.random("kafka/producers")
        self._reasons: dict[tuple[int, int], str] = {}
        """Of aborted transactions, by producer id and epoch."""
        self._values: dict[bytes, Any] = {}
        self._input_offsets: dict[TopicPartition, list[int]] = {}
        self._forgets_next = False
        self.on_begin = self.cluster.coordinator.on_initialise
        self.on_reuse = self.cluster.coordinator.on_reuse
        self.on_commit: list[Callable[[OutsideTransaction], None]] = []
        self.on_visible: list[Callable[[], None]] = []
        self.cluster.coordinator.on_decided.append(self._decided)
        self.cluster.on_marker.append(self._marked)
        MEDIUMS[self.bootstrap] = self

    def _milliseconds(self) -> int:
        return round((WALL_ORIGIN + self._scheduler.seconds) * 1000)

    # ---- who reaches it how ----------------------------------------------------------------------------------------

    def line(self, gate: Gate) -> Line:
        return Line(self.cluster, gate, self.pause, self.traits.patience)

    def pause(self, seconds: float) -> None:
        """A side thread waits; where none may, nobody does."""
        if self._scheduler.may_block:
            self._scheduler.block(seconds)

    def connectors(
        self, process: Process, clock: Clock, ready: Callable[[], int]
    ) -> tuple[Callable[[str], Source], Callable[[str], Sink]]:
        """What makes source and sink of a topic in `process`."""
        swarm, traits = self._swarm, self.traits
        gate = FaultyGate(process, "kafka", swarm.log_service)
        strained = FaultyGate(process, "kafka/changes", traits.changes)
        line = self.line(StrainedGate(gate, strained, lambda: not (swarm.is_healed or swarm.log_service.is_out)))
        reading = ReadingHabits(swarm.source_slack, lambda at: self._offset_of(at, ready()), traits.longest_answer)
        habits = ProducerHabits(swarm.sink_eagerness, traits.linger, swarm.sink_fullness, traits.largest_batch)

        def source(topic: str) -> SimKafkaSource:
            return SimKafkaSource(line, clock, reading, self.bootstrap, topic, value=Json(Event), bounded=True)

        def sink(topic: str) -> SimKafkaSink:
            return SimKafkaSink(
                line,
                clock,
                process.plan,
                habits,
                self.bootstrap,
                topic,
                value=Json(Total),
                key=key_of,
                timeout=swarm.transaction_timeout,
            )

        return source, sink

    # ---- what brokers do by themselves -----------------------------------------------------------------------------

    def _decided(self, decision: Decision) -> None:
        if decision.commit:
            for told in self.on_commit:
                told(self._view(decision.id, decision.producer_id, decision.transaction_epoch))
        else:
            self._reasons[decision.producer_id, decision.transaction_epoch] = decision.why
        if decision.commit and self._forgets_next:
            self._forgets_next = False
            self._scheduler.note(f"the markers of {decision.id} are forgotten")
            self._scheduler.plan(0.0, "a broker dies behind a decision", self._forget_markers)
            return
        for at in decision.missing:
            self._plan_marker(decision, at, self._random.uniform(0.0, self._marker_delay))

    @property
    def _marker_delay(self) -> float:
        delay = self.traits.marker_delay
        return min(delay, HEALED_MARKER_DELAY) if self._swarm.is_healed else delay

    def _plan_marker(self, decision: Decision, at: TopicPartition, delay: float) -> None:
        what = f"the marker of {decision.id} comes into {at}"
        self._scheduler.plan(delay, what, partial(self._write_marker, decision, at))

    def _write_marker(self, decision: Decision, at: TopicPartition) -> None:
        if not self.cluster.write_marker(decision, at):
            self._plan_marker(decision, at, ASK_AGAIN_AFTER)

    def _marked(self, at: TopicPartition, producer_id: int, commit: bool) -> None:
        for told in self.on_visible:
            told()

    # ---- what may happen to them -----------------------------------------------------------------------------------

    def mishaps(self) -> Mapping[str, Callable[[], None]]:
        """By name, each of which a job survives."""
        return {
            "broker restarts": self._restart,
            "coordinator moves": self._move_coordinator,
            "broker forgets markers": self._forget_next_markers,
            "broker forgets idle ids": self._forget_idle_ids,
            "old input is deleted": self._delete_old_input,
        }

    def _restart(self) -> None:
        self.cluster.go_away()
        self._come_back_later()

    def _move_coordinator(self) -> None:
        self.cluster.lose_coordinator()
        self._come_back_later()

    def _come_back_later(self) -> None:
        delay = self._random.uniform(0.0, AWAY_AT_MOST)
        self._scheduler.plan(delay, "the brokers are back", self.cluster.come_back)

    def _forget_next_markers(self) -> None:
        """At the next commit: its decision is in the log, and no partition will hear of it."""
        self._forgets_next = True

    def _forget_markers(self) -> None:
        self._restart()
        self.cluster.forget_markers()

    def _forget_idle_ids(self) -> None:
        """Those that were initialised and never used: as when they had been left alone for long."""
        self.cluster.coordinator.forget_idle()

    def _delete_old_input(self) -> None:
        """What a completed checkpoint has read: nothing needs it any more."""
        for offsets in self.cluster.groups.values():
            for at, offset in offsets.items():
                self.cluster.partition(at).delete_before(offset)

    # ---- what is there ---------------------------------------------------------------------------------------------

    @property
    def has_timed_out(self) -> bool:
        return bool(self.cluster.coordinator.has_timed_out)

    def create_topic(self, topic: str, partitions: int) -> None:
        self.cluster.create_topic(topic, partitions)

    def append(self, topic: str, partition: int, values: Iterable[Any]) -> None:
        """One by one, as several producers would, some of whose transactions are aborted."""
        log = self.cluster.partition(TopicPartition(topic, partition))
        for value in values:
            record = Record(ENCODE(value), timestamp=self._milliseconds())
            if self._appending.random() < self.traits.gaps:
                self._append_in_transaction(log, [record] * self._appending.randrange(3), commit=False)
                self._append_in_transaction(log, [record], commit=True)
            else:
                log.append_plain([record])

    def _append_in_transaction(self, log: Partition, records: list[Record], commit: bool) -> None:
        producer_id = self.cluster.coordinator.new_producer_id()
        if records:
            log.append(Batch(producer_id, 0, 0, records))
        log.write_marker(producer_id, 0, commit, 0)

    def count_before(self, topic: str, partition: int, position: int) -> int:
        return bisect_left(self._offsets(TopicPartition(topic, partition)), position)

    def _offset_of(self, at: TopicPartition, count: int) -> int:
        """Behind so many records of the input, and what is between them and the next one."""
        offsets = self._offsets(at)
        return offsets[count] if count < len(offsets) else self.cluster.partition(at).end

    def _offsets(self, at: TopicPartition) -> list[int]:
        """Of all the records of an input partition: they are all there before anybody asks."""
        found = self._input_offsets.get(at)
        if found is None:
            log = self.cluster.partition(at).log
            found = self._input_offsets[at] = [offset for offset, one in enumerate(log) if one.is_visible]
        return found

    def visible(self, topic: str) -> list[list[Any]]:
        self.cluster.tick()
        return [
            [self._decoded(one.record) for one in part.log[: part.last_stable_offset] if one.record and one.is_visible]
            for part in self.cluster.topics[topic].partitions
        ]

    def committed(self, topic: str) -> list[list[Any]]:
        return [
            [self._decoded(record) for record in part.committed()] for part in self.cluster.topics[topic].partitions
        ]

    def ongoing(self) -> list[OutsideTransaction]:
        """Those of coordinators, and those that only partitions know, which nobody will ever end."""
        self.cluster.tick()
        coordinator = self.cluster.coordinator
        open_entries = [entry for entry in coordinator.entries.values() if entry.state is TransactionState.ONGOING]
        found: list[OutsideTransaction] = [self._view(e.id, e.producer_id, e.epoch) for e in open_entries]
        known = {(e.producer_id, e.epoch) for e in open_entries}
        known.update((d.producer_id, d.transaction_epoch) for d in self.cluster.decisions)
        hanging = {(span.producer_id, span.epoch) for span in self._open_spans()} - known
        return found + [KafkaTransaction("a transaction that hangs", *who, start=0.0) for who in sorted(hanging)]

    def _open_spans(self) -> list[Span]:
        partitions = [part for topic in self.cluster.topics.values() for part in topic.partitions]
        return [span for part in partitions for span in part.open_spans()]

    def find(self, committable: Committable) -> OutsideTransaction | None:
        self.cluster.tick()
        prepared = Prepared.of(committable)
        entry = self.cluster.coordinator.entries.get(prepared.id)
        is_known = entry is not None and (entry.producer_id, entry.epoch) == (prepared.producer_id, prepared.epoch)
        if not is_known and (prepared.producer_id, prepared.epoch) not in self._reasons:
            return None
        return self._view(prepared.id, prepared.producer_id, prepared.epoch)

    def _view(self, id: str, producer_id: int, epoch: int) -> KafkaTransaction:
        view = KafkaTransaction(id, producer_id, epoch, reason=self._reasons.get((producer_id, epoch), ""))
        entry = self.cluster.coordinator.entries.get(id)
        if entry is None or (entry.producer_id, entry.epoch) != (producer_id, epoch):
            return view
        view.is_open = entry.state is TransactionState.ONGOING
        view.start = None if entry.started is None else entry.started / 1000 - WALL_ORIGIN
        for at in entry.partitions:
            view.values += self._values_of(self.cluster.partition(at), producer_id)
        return view

    def _values_of(self, partition: Partition, producer_id: int) -> list[Any]:
        """What the producer has open there."""
        entry = partition.producers.get(producer_id)
        span = None if entry is None else entry.span
        if span is None:
            return []
        stored = partition.log[span.first_offset :]
        return [self._decoded(one.record) for one in stored if one.span is span and one.record is not None]

    def _decoded(self, record: Record) -> Any:
        """An output record; each text is decoded once."""
        assert record.value is not None, "totals are never null"
        found = self._values.get(record.value)
        if found is None:
            found = self._values[record.value] = DECODE(record.value, type=Total)
        return found


MEDIUMS: WeakValueDictionary[str, KafkaMedium] = WeakValueDictionary()
"""Every cluster by its address: how a sink's recovery is found again by what a manifest says."""


def open_recovery(bootstrap: str) -> KafkaRecovery:
    """The factory that a manifest names."""
    medium = MEDIUMS[bootstrap]
    return KafkaRecovery(SimTransactionAdmin(medium.line(OpenGate())), pause=medium.pause)


class SimInspection:
    """Where partitions end, for who has the checkpoint and not the program."""

    def __init__(self, questions: SimQuestions) -> None:
        self._questions = questions

    def end_positions(self, splits: list[str]) -> dict[str, int]:
        asked = [TopicPartition(topic, int(number)) for topic, _, number in (s.rpartition("/") for s in splits)]
        found = self._questions.offsets(asked, "latest", "read_committed")
        return {str(partition): offset for partition, offset in found.items()}

    def close(self) -> None:
        """Nothing is kept open."""


def open_inspection(bootstrap: str) -> SimInspection:
    """The factory that a source names."""
    medium = MEDIUMS[bootstrap]
    return SimInspection(SimQuestions(medium.line(OpenGate()), bootstrap))
