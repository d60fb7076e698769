"""Copies a Kafka topic into another one, each record exactly once: values and keys as they are, byte for byte.

A record keeps its key, so the records of one key stay in one partition and in order. Headers are left behind, and the
timestamp becomes the time of writing: asking for them would cost as much as the values do.

    tidegate dev-kafka --topic orders:4 --topic copy:4
    tidegate run examples/forward.py --parallelism 2 -- --bootstrap localhost:9092 --input orders --output copy
"""

from argparse import ArgumentParser
from operator import attrgetter

import tidegate as tg
from tidegate.kafka import KafkaSink, KafkaSource, RecordValue


def build(argv: list[str]) -> tg.Job:
    parser = ArgumentParser(prog="forward.py", description="Copies a Kafka topic into another one.")
    parser.add_argument("--bootstrap", required=True, metavar="HOST:PORT", help="a broker, or several with commas")
    parser.add_argument("--input", required=True, metavar="TOPIC")
    parser.add_argument("--output", required=True, metavar="TOPIC")
    parser.add_argument("--bounded", action="store_true", help="end where the input ends now")
    parser.add_argument("--from", dest="start", choices=("earliest", "latest"), default="earliest")
    options = parser.parse_args(argv)

    job = tg.Job("forward")
    source = KafkaSource(
        options.bootstrap, options.input, include=["key"], start=options.start, bounded=options.bounded
    )
    sink = KafkaSink(options.bootstrap, options.output, key=attrgetter("key"), value=RecordValue())
    job.source(source, name="input").sink(sink, name="output")
    return job


if __name__ == "__main__":
    tg.main(build)
