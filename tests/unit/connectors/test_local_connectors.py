"""What the embedded log's source and sink do beyond what every source and sink must."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.unit.connectors.clocks import HandClock
from tidegate.checkpoint.protocol import SplitState
from tidegate.connectors.local.sink import CHUNK
from tidegate.elements import Batch
from tidegate.errors import InvalidError, LostDataError, SinkFencedError, UnavailableError
from tidegate.formats import Json, String
from tidegate.ids import Attempt, JobName, LogInstance, OperatorName, SubtaskIndex, TransactionalId
from tidegate.local import LocalLog, LocalSink, LocalSource, LogRecord
from tidegate.operators.contracts import Fetched, SourceContext
from tidegate.testing.conformance.sink_kit import open_writer, permit

CONTEXT = SourceContext(JobName("job"), OperatorName("in"), SubtaskIndex(0), 1, Attempt(1))
ID = TransactionalId("app", LogInstance("log"), Attempt(1), OperatorName("out"), SubtaskIndex(0), 0)


def positions(source: LocalSource, known: frozenset[str] | None = None) -> dict[str, tuple[int, int | None]]:
    return {split.id: (split.position, split.stop) for split in source.discover(known)}


def read_all(source: LocalSource, splits: list[SplitState]) -> list[Fetched]:
    reader = source.open_reader(CONTEXT)
    reader.add_splits(splits)
    fetched = []
    while (one := reader.poll(100)) is not None:
        fetched.append(one)
    reader.close()
    return fetched


# ---- source ----------------------------------------------------------------------------------------------------------


def test_several_topics_are_read_as_one_source(log: LocalLog) -> None:
    log.create_topic("u", 1)
    log.append("t", 1, [b"a"])
    log.append("u", 0, [b"b"])
    source = LocalSource(log.directory, ["t", "u"], bounded=True)
    assert positions(source) == {"t/0": (0, 0), "t/1": (0, 1), "u/0": (0, 1)}
    fetched = read_all(source, source.discover(None))
    assert {(one.split, *one.values) for one in fetched} == {("t/0",), ("t/1", b"a"), ("u/0", b"b")}


def test_keys_and_timestamps_are_handed_out(log: LocalLog) -> None:
    log.append("t", 0, [b"v", None], keys=[b"k", None], timestamps=[5, 6])
    source = LocalSource(log.directory, "t", bounded=True)
    fetched = next(one for one in read_all(source, source.discover(None)) if one.values)
    assert fetched == Fetched("t/0", [b"v", None], 2, keys=[b"k", None], timestamps=[5, 6], finished=True)


def test_starts_are_numbers_of_their_partitions(log: LocalLog) -> None:
    log.append("t", 0, [b"a", b"b"])
    log.append("t", 1, [b"c"])
    log.delete_records("t", 1, before=1)
    assert positions(LocalSource(log.directory, "t")) == {"t/0": (0, None), "t/1": (1, None)}
    assert positions(LocalSource(log.directory, "t", start="latest")) == {"t/0": (2, None), "t/1": (1, None)}
    assert positions(LocalSource(log.directory, "t", start={0: 1})) == {"t/0": (1, None), "t/1": (1, None)}
    assert positions(LocalSource(log.directory, "t", start={"t/0": 2})) == {"t/0": (2, None), "t/1": (1, None)}
    found_later = positions(LocalSource(log.directory, "t", start="latest"), frozenset({"t/1"}))
    assert found_later == {"t/0": (0, None)}


@pytest.mark.parametrize("start", [{0: 3}, {0: -1}, {5: 0}, {"u/0": 0}, "newest"])
def test_a_start_that_does_not_exist_is_refused(log: LocalLog, start: Any) -> None:
    log.append("t", 0, [b"a", b"b"])
    with pytest.raises(InvalidError):
        LocalSource(log.directory, "t", start=start).discover(None)


def test_numbers_alone_do_not_name_partitions_of_several_topics(log: LocalLog) -> None:
    with pytest.raises(InvalidError, match="several topics"):
        LocalSource(log.directory, ["t", "u"], start={0: 3})


def test_latest_and_stop_depend_on_the_isolation(log: LocalLog) -> None:
    write_open(log, "open")
    committed = LocalSource(log.directory, "t", start="latest", bounded=True)
    uncommitted = LocalSource(log.directory, "t", bounded=True, isolation="read_uncommitted")
    assert positions(committed)["t/0"] == (0, 0)
    assert positions(uncommitted)["t/0"] == (0, 1)
    values = [value for one in read_all(uncommitted, uncommitted.discover(None)) for value in one.values]
    assert values == [b"open"]


def write_open(log: LocalLog, text: str) -> None:
    writer = open_writer(LocalSink(log.directory, "t", value=String(), partition=lambda value, partitions: 0))
    txn = writer.begin(ID)
    writer.write(txn, Batch([text]))
    assert writer.prepare(txn) is not None
    writer.close()


def test_a_topic_or_directory_that_is_missing_is_named(log: LocalLog, tmp_path: Path) -> None:
    with pytest.raises(InvalidError, match="no topic 'x'"):
        LocalSource(log.directory, "x").discover(None)
    with pytest.raises(InvalidError, match="nowhere"):
        LocalSource(tmp_path / "nowhere", "t").discover(None)


def test_a_log_put_in_the_place_of_the_one_that_was_read_is_refused(log: LocalLog) -> None:
    log.append("t", 0, [b"a"])
    splits = LocalSource(log.directory, "t").discover(None)
    log.close()
    shutil.rmtree(log.directory)
    clock = HandClock()
    clock.seconds += 60
    with LocalLog(log.directory, clock=clock) as other:
        other.create_topic("t", 2)
        other.append("t", 0, [b"b"])
    with pytest.raises(LostDataError, match="not the one that was read before"):
        read_all(LocalSource(log.directory, "t"), splits)


def test_a_bounded_source_looks_for_splits_once(log: LocalLog) -> None:
    assert LocalSource(log.directory, "t", bounded=True).discovery_interval is None
    assert LocalSource(log.directory, "t", discovery_interval=3).discovery_interval == 3


# ---- sink ------------------------------------------------------------------------------------------------------------


def written(log: LocalLog, sink: LocalSink, *batches: Batch, subtask: int = 0) -> list[list[LogRecord]]:
    """What a transaction of `batches` leaves in each partition."""
    writer = open_writer(sink, subtask)
    txn = writer.begin(ID)
    for batch in batches:
        writer.write(txn, batch)
    committable = writer.prepare(txn)
    assert committable is not None
    writer.commit(committable, permit())
    writer.close()
    return [log.read("t", partition) for partition in range(log.partitions("t"))]


def test_key_partition_and_timestamp_come_from_the_record(log: LocalLog) -> None:
    sink = LocalSink(
        log.directory,
        "t",
        value=Json(),
        key=lambda value: value["k"],
        partition=lambda value, partitions: value["p"] % partitions,
        timestamp=lambda value: value["p"] * 10,
    )
    found = written(log, sink, Batch([{"k": "a", "p": 1}, {"k": None, "p": 4}, {"k": b"c", "p": 3}]))
    assert [[record[1:3] for record in records] for records in found] == [[(40, None)], [(10, b"a"), (30, b"c")]]


def test_the_batch_s_timestamps_are_kept(log: LocalLog) -> None:
    found = written(log, LocalSink(log.directory, "t"), Batch([b"a", b"b"], timestamps=[7, 8]))
    assert [record.timestamp for record in found[0]] == [7, 8]


def test_records_with_a_key_go_where_the_log_itself_would_put_them(log: LocalLog) -> None:
    texts = [f"user-{number}" for number in range(20)]
    log.append("t", None, [b"x"] * 20, keys=[text.encode() for text in texts])
    before = [{record.key for record in log.read("t", partition)} for partition in range(2)]
    found = written(log, LocalSink(log.directory, "t", value=String(), key=str), Batch(texts))
    assert [{record.key for record in records} for records in found] == before
    assert all(before)


def test_keyless_batches_take_turns_from_the_subtask_s_partition_on(log: LocalLog) -> None:
    found = written(log, LocalSink(log.directory, "t"), Batch([b"a", b"b"]), Batch([b"c"]), subtask=1)
    assert [[record.value for record in records] for records in found] == [[b"c"], [b"a", b"b"]]


def test_a_tombstone_is_written(log: LocalLog) -> None:
    found = written(log, LocalSink(log.directory, "t", value=String(), partition=lambda v, n: 0), Batch(["a", None]))
    assert [record.value for record in found[0]] == [b"a", None]


def test_a_missing_topic_is_made_when_its_partitions_are_given(log: LocalLog, tmp_path: Path) -> None:
    sink = LocalSink(tmp_path / "new", "made", partitions=3)
    open_writer(sink).close()
    open_writer(sink).close()
    with LocalLog(tmp_path / "new") as made:
        assert made.topics() == {"made": 3}
    with pytest.raises(InvalidError, match="no topic 'missing'"):
        open_writer(LocalSink(log.directory, "missing")).begin(ID)
    with pytest.raises(InvalidError, match="no embedded log"):
        LocalSink(tmp_path / "nowhere", "t").open_recovery()


def test_a_chosen_partition_that_does_not_exist_fails_the_transaction(log: LocalLog) -> None:
    writer = open_writer(LocalSink(log.directory, "t", partition=lambda value, partitions: partitions))
    txn = writer.begin(ID)
    with pytest.raises(InvalidError, match="has partitions 0 to 1"):
        writer.write(txn, Batch([b"a"]))
    with pytest.raises(InvalidError):
        writer.prepare(txn)


def test_an_error_of_the_user_s_function_passes_and_the_transaction_stays_broken(log: LocalLog) -> None:
    writer = open_writer(LocalSink(log.directory, "t", value=String(), key=lambda value: value["no"]))
    txn = writer.begin(ID)
    with pytest.raises(TypeError):
        writer.write(txn, Batch(["a"]))
    with pytest.raises(UnavailableError, match="an earlier write failed"):
        writer.prepare(txn)


def test_a_fenced_write_stays_fenced(log: LocalLog) -> None:
    sink = LocalSink(log.directory, "t")
    writer = open_writer(sink)
    txn = writer.begin(ID)
    sink.open_recovery().abort(ID)
    with pytest.raises(SinkFencedError):
        writer.write(txn, Batch([b"a"] * CHUNK))
    with pytest.raises(SinkFencedError):
        writer.prepare(txn)


def test_an_abandoned_handle_takes_nothing_more(log: LocalLog) -> None:
    writer = open_writer(LocalSink(log.directory, "t"))
    txn = writer.begin(ID)
    writer.abandon(txn)
    with pytest.raises(UnavailableError, match="abandoned"):
        writer.write(txn, Batch([b"a"]))


def test_the_committable_says_what_an_operator_wants_to_know(log: LocalLog) -> None:
    writer = open_writer(LocalSink(log.directory, "t", timeout=60))
    txn = writer.begin(ID)
    writer.write(txn, Batch([b"a"]))
    committable = writer.prepare(txn)
    assert committable is not None
    described = log.describe(str(ID))
    assert described is not None
    assert committable.payload == {"epoch": 0, "start": described.start, "timeout": 60_000, "partitions": ["t/0"]}


@pytest.mark.parametrize("arguments", [{"transaction_prefix": "a:b"}, {"timeout": 0}])
def test_a_wrong_argument_is_refused(arguments: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(InvalidError):
        LocalSink(tmp_path, "t", **arguments)
