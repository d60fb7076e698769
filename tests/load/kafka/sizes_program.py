"""A job that remembers the last value of each key and, with the next record of the key, writes what it remembered.

So a value goes through the source, between workers, into keyed state, through a checkpoint and into the sink.
"""

import argparse
from typing import Any

import tidegate as tg
from tidegate.kafka import KafkaRecord, KafkaSink, KafkaSource

Keyed = KafkaRecord[bytes | None]


class Remember(tg.KeyedProcessFunction[bytes, Keyed, Keyed]):
    """Writes the value before this one."""

    last = tg.ValueState(bytes)

    def __init__(self, more: int) -> None:
        self.more = more

    def process_element(self, value: Keyed, ctx: tg.KeyedContext[bytes]) -> list[Keyed]:
        before = self.last.value()
        if value.value is not None:
            self.last.update(value.value)
            return []
        # A tombstone asks for it.
        assert before is not None, f"nothing is remembered of {ctx.key!r}"
        return [KafkaRecord(before + b"x" * self.more, ctx.key)]


def build(argv: list[str]) -> tg.Job:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--job", required=True)
    parser.add_argument("--input", required=True, help="topic")
    parser.add_argument("--output", required=True, help="topic")
    parser.add_argument("--limit", type=int, required=True, help="message.max.bytes of the sink")
    parser.add_argument("--more", type=int, default=0, help="bytes that are added to every value")
    options = parser.parse_args(argv)

    def key_of(record: Any) -> bytes:
        return bytes(record.key)

    job = tg.Job(options.job)
    (
        job.source(KafkaSource(options.bootstrap, options.input, include=["key"]), name="records")
        .key_by(key_of, key_type=bytes)
        .process(Remember(options.more), name="remember")
        .sink(
            KafkaSink(
                options.bootstrap,
                options.output,
                key=key_of,
                value=ValueOf(),
                settings={"message.max.bytes": options.limit},
            ),
            name="out",
        )
    )
    return job


class ValueOf:
    """The value of a record that carries its key."""

    def encode(self, values: list[Keyed]) -> list[bytes | None]:
        return [record.value for record in values]


if __name__ == "__main__":
    tg.main(build)
