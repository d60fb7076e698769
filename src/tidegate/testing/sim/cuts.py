"""Whether a completed checkpoint is a consistent cut: positions, keyed state, and what its transactions hold tell of
the same input records. Everything is computed anew from the input; the state is read as a restore reads it.
"""

from typing import Any

from tidegate.checkpoint.manifest import Manifest, OperatorRecord
from tidegate.checkpoint.store import CheckpointStore
from tidegate.errors import TidegateError
from tidegate.ids import OperatorName, SubtaskIndex
from tidegate.operators.asynchronous import requests_state
from tidegate.operators.partitioned import partition_subtask
from tidegate.operators.timers import EVENT_TIMERS, PROCESSING_TIMERS
from tidegate.state.backend import StoredFiles
from tidegate.state.descriptors import collect_descriptors
from tidegate.state.key_partitions import partitioned_key_type
from tidegate.state.object_backend import ObjectStateBackend
from tidegate.state.operator_state import OperatorStateBackend
from tidegate.testing.sim.checkers import Violated
from tidegate.testing.sim.job import ASK, TOTALS, Event, RunningTotals
from tidegate.testing.sim.log_service import TIMED_OUT
from tidegate.testing.sim.outside import Outside
from tidegate.testing.sim.swarm import JobShape

Input = dict[str, list[list[Event]]]
StateOfKey = tuple[int, int, frozenset[int]]
"""Count, total, and which events."""


class CutChecker:
    """Looks at each manifest when it is appended."""

    def __init__(
        self, store: CheckpointStore, service: Outside, shape: JobShape, events: Input, violated: Violated
    ) -> None:
        self._store = store
        self._service = service
        self._shape = shape
        self._input = events
        self._violated = violated

    def completed(self, manifest: Manifest) -> None:
        name = f"checkpoint {manifest.checkpoint}"
        before = self.before(manifest, name, self._store)
        if before is None:
            return
        self._check_ends(manifest, name)
        self.check_state(manifest, name, self._store)
        for topic in self._shape.output_topics:
            self._check_output(manifest, topic, before, name)

    def before(self, manifest: Manifest, name: str, files: StoredFiles) -> list[Event] | None:
        """The events before the positions that the manifest holds, but for those that wait for a call."""
        found: list[Event] = []
        for topic in self._shape.input_topics:
            record = manifest.operator(OperatorName(topic))
            splits = record.splits if record is not None else ()
            expected = sorted(f"{topic}/{number}" for number in range(self._shape.partitions))
            if [split.id for split in splits] != expected:
                self._violated(
                    f"{name} holds the splits {[split.id for split in splits]} of {topic}, there are {expected}"
                )
                return None
            for split in splits:
                number = int(split.id.rpartition("/")[2])
                count = self._service.count_before(topic, number, split.position)
                read = self._input[topic][number][:count]
                newest = read[-1].timestamp - 1 if read else None
                if split.watermark != newest:
                    self._violated(f"{name}: {split.id} has the watermark {split.watermark}, what was read {newest}")
                found += read
        return self._past_calls(manifest, name, found, files) if self._shape.calls else found

    def _past_calls(self, manifest: Manifest, name: str, read: list[Event], files: StoredFiles) -> list[Event]:
        record = manifest.operator(OperatorName(ASK))
        backend = OperatorStateBackend(OperatorName(ASK), SubtaskIndex(0), 1)
        backend.restore(record.snapshots if record is not None else (), files)
        waiting = {event.id: event for event in backend.register(requests_state(Event)).get()}
        past = [event for event in read if event != waiting.get(event.id)]
        if len(past) + len(waiting) != len(read):
            self._violated(f"{name}: of {len(read)} events {sorted(waiting)} wait for calls, and some were never read")
        return past

    def _check_ends(self, manifest: Manifest, name: str) -> None:
        """What has ended has ended for ever: there is nothing left to read."""
        open_topics = [topic for topic in self._shape.input_topics if not self._is_read(manifest, topic)]
        for record in manifest.operators:
            if record.ended and (record.name in open_topics or (record.name not in self._input and open_topics)):
                self._violated(f"{name} says that {record.name} has ended, and {open_topics} are not read")

    def _is_read(self, manifest: Manifest, topic: str) -> bool:
        record = manifest.operator(OperatorName(topic))
        return record is not None and all(split.finished for split in record.splits)

    def check_state(self, manifest: Manifest, name: str, files: StoredFiles) -> None:
        """Whether the stored state is that of the positions."""
        record, before = manifest.operator(OperatorName(TOTALS)), self.before(manifest, name, files)
        if record is None or before is None:
            self._violated(f"{name} does not know {TOTALS}, or where its input is")
            return
        keys = sorted({event.key for topic in self._input.values() for part in topic for event in part})
        try:
            stored = self._read_state(record, manifest, keys, files)
            self._check_lists(record, before, name, files)
        except TidegateError as error:
            self._violated(f"{name} cannot be restored: {error}")
            return
        for key in keys:
            of_key = [event for event in before if event.key == key]
            expected = (len(of_key), sum(e.amount for e in of_key), frozenset(e.id for e in of_key))
            if stored[key] != expected:
                self._violated(f"{name}: the state of {key} is {stored[key]}, its positions make it {expected}")

    def _read_state(
        self, record: OperatorRecord, manifest: Manifest, keys: list[str], files: StoredFiles
    ) -> dict[str, StateOfKey]:
        partitions = self._shape.key_partitions
        key_type = "" if partitions is None else partitioned_key_type("str", partitions)
        backend = ObjectStateBackend(record.name, SubtaskIndex(0), 1, manifest.max_parallelism, key_type=key_type)
        backend.restore([snapshot for snapshot in record.snapshots if snapshot.handles], files)
        handles: dict[str, Any] = {
            name: backend.register(descriptor)
            for name, descriptor in collect_descriptors(RunningTotals()).items()
            if descriptor.is_keyed
        }
        timers, waiting = backend.register(PROCESSING_TIMERS), backend.register(EVENT_TIMERS)
        found: dict[str, StateOfKey] = {}
        for key in keys:
            watermarks = self._watermarks(record, key, manifest.max_parallelism)
            watermark = next(iter(watermarks)) if len(watermarks) == 1 else None
            backend.set_current_key(key)
            history, amounts = handles["history"].value(), handles["amounts"].get()
            count, total = handles["count"].value(), handles["total"].value()
            if len(history) != count or len(amounts) != count or sum(amounts) != total:
                self._violated(f"checkpoint {manifest.checkpoint}: the states of {key} are not of one moment")
            due = handles["due"]
            if sum(due.values()) + handles["fired"].value() != count or sorted(due.keys()) != sorted(timers.keys()):
                self._violated(f"checkpoint {manifest.checkpoint}: the timers of {key} are not those that it waits for")
            times = list(waiting.keys())
            overdue = [time for time in times if watermark is not None and time <= watermark]
            # Each has heard the same of every source; but for the end, which all that waits has passed.
            disagrees = len(watermarks) > 1 and bool(times)
            if overdue or disagrees or handles["passed"].value() + len(times) != count:
                what = f"event time is {sorted(map(str, watermarks))}, and {key} waits for {times}"
                self._violated(f"checkpoint {manifest.checkpoint}: {what}")
            found[key] = (count, total, frozenset(history))
        return found

    def _watermarks(self, record: OperatorRecord, key: str, max_parallelism: int) -> set[int | None]:
        """What the subtasks that may have had records of `key` say."""
        snapshots, partitions = record.snapshots, self._shape.key_partitions
        if partitions is not None:
            # Each subtask has a time of its own, that of the partitions that it reads.
            own = partition_subtask(partitions, partitions.of(key), record.parallelism, max_parallelism)
            snapshots = (snapshots[own],)
        return {snapshot.watermark for snapshot in snapshots}

    def _check_lists(self, record: OperatorRecord, before: list[Event], name: str, files: StoredFiles) -> None:
        """The lists of all subtasks together: each event before the cut once, and their number."""
        backend = OperatorStateBackend(record.name, SubtaskIndex(0), 1)
        backend.restore(record.snapshots, files)
        seen, count = backend.register(RunningTotals.seen).get(), sum(backend.register(RunningTotals.counts).get())
        if sorted(seen) != sorted(event.id for event in before):
            odd = sorted(set(seen).symmetric_difference(event.id for event in before))
            self._violated(f"{name}: the lists hold {len(seen)} events of {len(before)}, and disagree about {odd}")
        elif count != len(before):
            self._violated(f"{name}: the subtasks together have counted {count} events of {len(before)}")

    def _check_output(self, manifest: Manifest, topic: str, before: list[Event], name: str) -> None:
        """What is committed and what the manifest names, together, came of exactly the events before the cut."""
        record = manifest.operator(OperatorName(topic))
        ids = {total.id for part in self._service.committed(topic) for total in part}
        for pending in record.pending if record is not None else ():
            transaction = self._service.find(pending.committable)
            if transaction is not None and transaction.reason == TIMED_OUT:
                return
            if transaction is None or not transaction.is_open or not transaction.is_prepared:
                self._violated(f"{name} names {pending.committable.id}, which is not pending: {transaction}")
            else:
                ids.update(total.id for total in transaction.values)
        expected = {event.id for event in before}
        if ids != expected:
            odd = sorted(ids.symmetric_difference(expected))
            self._violated(f"{name}: {topic} and the positions disagree about events {odd}")
