"""A job that says of each record which subtask has read it."""

import argparse
from collections.abc import Iterator

import tidegate as tg


class Name(tg.ProcessFunction[str, str]):
    """In the source's own chain: so it is the subtask that reads the partition."""

    def process_element(self, value: str, ctx: tg.Context) -> Iterator[str]:
        yield f"{ctx.subtask} {value}"


def build(argv: list[str]) -> tg.Job:
    parser = argparse.ArgumentParser()
    parser.add_argument("--log", help="the folder of an embedded log")
    parser.add_argument("--bootstrap", help="host and port of a Kafka broker")
    parser.add_argument("--job", required=True)
    parser.add_argument("--topic", action="append", required=True)
    parser.add_argument("--out", required=True, help="topic")
    parser.add_argument("--discovery", type=float, required=True, help="seconds between two looks for new partitions")
    options = parser.parse_args(argv)
    job = tg.Job(options.job)
    if options.bootstrap:
        from tidegate.kafka import KafkaSink, KafkaSource

        kafka = KafkaSource(options.bootstrap, options.topic, value=tg.String(), discovery_interval=options.discovery)
        records = job.source(kafka, name="records")
        records.process(Name(), name="name").sink(
            KafkaSink(options.bootstrap, options.out, value=tg.String()), name="out"
        )
    else:
        from tidegate.local import LocalSink, LocalSource

        local = LocalSource(options.log, options.topic, value=tg.String(), discovery_interval=options.discovery)
        records = job.source(local, name="records")
        records.process(Name(), name="name").sink(LocalSink(options.log, options.out, value=tg.String()), name="out")
    return job


if __name__ == "__main__":
    tg.main(build)
