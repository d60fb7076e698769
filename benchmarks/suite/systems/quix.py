"""Quix Streams, running totals only: its state in RocksDB with a changelog topic, a process for each slot."""

from collections.abc import Mapping

from benchmarks.suite.contracts import Command, Guarantee, JobRun, Workload
from benchmarks.suite.peers.environments import HERE, Environment

ENVIRONMENT = Environment("quix", ("3.11", "3.12", "3.13"))
CONSUMER: Mapping[str, str] = {"fetch.queue.backoff.ms": "5"}
PRODUCER: Mapping[str, str] = {"linger.ms": "20", "queue.buffering.max.messages": "1000000"}
RECORDS_MAX = 200_000


class Quix:
    @property
    def name(self) -> str:
        return "quix"

    @property
    def title(self) -> str:
        return f"Quix Streams {ENVIRONMENT.version('quixstreams')}"

    @property
    def workloads(self) -> frozenset[Workload]:
        return frozenset({Workload.TOTALS})

    @property
    def guarantees(self) -> tuple[Guarantee, ...]:
        return (Guarantee.EXACTLY_ONCE, Guarantee.AT_LEAST_ONCE)

    def records_of(self, workload: Workload) -> int:
        return RECORDS_MAX

    def prepare(self) -> None:
        ENVIRONMENT.ensure()

    def settings(self) -> Mapping[str, str]:
        return {
            **ENVIRONMENT.settings(),
            **{name: ENVIRONMENT.version(name) for name in ("quixstreams", "confluent-kafka", "rocksdict", "orjson")},
            **{f"consumer.{name}": value for name, value in CONSUMER.items()},
            **{f"producer.{name}": value for name, value in PRODUCER.items()},
        }

    def command(self, run: JobRun) -> Command:
        arguments = [str(ENVIRONMENT.python), str(HERE / "quix_totals.py"), "--bootstrap", run.bootstrap]
        arguments += ["--source", run.source, "--sink", run.sink, "--folder", str(run.folder)]
        arguments += ["--slots", str(run.slots), "--interval", f"{run.checkpoint_seconds:g}"]
        arguments += ["--guarantee", run.guarantee.replace(" ", "-")]
        arguments += [f"--consumer={name}={value}" for name, value in CONSUMER.items()]
        arguments += [f"--producer={name}={value}" for name, value in PRODUCER.items()]
        return Command(arguments, {}, ends=False)


def system(name: str) -> Quix:
    return Quix()
