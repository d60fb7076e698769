"""A job whose topics are aligned: partitions are left out and read again many times, and every record comes once."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

import tidegate as tg
from tests.kafka.brokers import Broker
from tidegate.connectors.collections import CollectionSink
from tidegate.formats import Json
from tidegate.kafka import KafkaSource

PARTITIONS = 4
END = 20_000_000
"""Milliseconds of event time in each partition."""
STEPS = {"dense": 1_000, "sparse": 20_000}
"""Milliseconds between two records of a topic: read at the same pace, the sparse one is soon at its end."""
LEADS: list[int] = []
"""By how many milliseconds records were ahead of event time."""


class Sent(msgspec.Struct, frozen=True):
    topic: str
    partition: int
    at: int


class Lead(tg.KeyedProcessFunction[int, Sent, Sent]):
    def process_element(self, value: Sent, ctx: tg.KeyedContext[int]) -> Iterator[Sent]:
        LEADS.append(value.at - max(0, ctx.timer_service.current_watermark()))
        yield value

    def on_timer(self, timestamp: int, ctx: tg.KeyedContext[int]) -> None:
        """There are none; only a function that might have some is told of event time."""


@pytest.mark.slow
@pytest.mark.usefixtures("each_client_of_faults")
@pytest.mark.parametrize("is_aligned", [True, False])
def test_topics_are_read_whole_and_where_they_are_aligned_no_partition_is_far_ahead(
    kafka: Broker, tmp_path: Path, is_aligned: bool
) -> None:
    LEADS.clear()
    strategy: tg.WatermarkStrategy[Sent] = tg.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        lambda sent: sent.at
    )
    if is_aligned:
        strategy = strategy.with_watermark_alignment("topics", "30m", update_interval="100ms")
    config = tg.Config(parallelism=2, checkpoint_dir=tmp_path, checkpoint_interval="200ms", batch_size=100)
    job, sink = tg.Job("aligned", config=config), CollectionSink()
    expected: dict[tuple[str, int], list[int]] = {}
    streams: list[tg.Stream[Sent]] = []
    for name, step in STEPS.items():
        topic = kafka.create_topic(partitions=PARTITIONS)
        for partition in range(PARTITIONS):
            sent = [Sent(name, partition, at) for at in range(0, END, step)]
            kafka.produce(topic, [msgspec.json.encode(one) for one in sent], partition=partition)
            expected[name, partition] = [one.at for one in sent]
        source = KafkaSource(kafka.bootstrap, topic, value=Json(Sent), bounded=True)
        streams.append(job.source(source, name=name, watermarks=strategy))
    both = streams[0].union(streams[1]).key_by(lambda sent: sent.partition)
    both.process(Lead(), name="lead").sink(sink, name="out")
    job.run(in_process=True)
    found: dict[tuple[str, int], list[int]] = {}
    for one in sink.committed:
        found.setdefault((one.topic, one.partition), []).append(one.at)
    assert found == expected
    # Half an hour, a batch, and what event time is behind its sources.
    assert (max(LEADS) < END // 2) is is_aligned
