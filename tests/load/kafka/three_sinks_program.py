"""A job with three sinks, each of which gets every third of the numbers that are read."""

import argparse

import tidegate as tg
from tidegate.kafka import KafkaSink, KafkaSource

SINKS = ("first", "second", "third")


def build(argv: list[str]) -> tg.Job:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--job", required=True)
    parser.add_argument("--input", required=True, help="topic")
    parser.add_argument("--output", required=True, help="beginning of the names of three topics")
    options = parser.parse_args(argv)
    job = tg.Job(options.job)
    numbers = job.source(KafkaSource(options.bootstrap, options.input, value=tg.String()), name="numbers")
    for place, name in enumerate(SINKS):

        def is_for_it(number: str, place: int = place) -> bool:
            return int(number) % len(SINKS) == place

        sink = KafkaSink(options.bootstrap, f"{options.output}-{name}", value=tg.String())
        numbers.filter(is_for_it, name=f"for-{name}").sink(sink, name=name)
    return job


if __name__ == "__main__":
    tg.main(build)
