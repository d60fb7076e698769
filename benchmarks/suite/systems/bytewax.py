"""Bytewax, running totals only: at least once, the most that its sink for Kafka offers, and a process for each slot."""

from collections.abc import Mapping

from benchmarks.suite.contracts import Command, Guarantee, JobRun, Workload
from benchmarks.suite.peers.environments import HERE, Environment

ENVIRONMENT = Environment("bytewax", ("3.11", "3.12", "3.10"))
BATCH = 10_000
"""Records in a poll, and so in a flush of the producer, at most."""
CONSUMER: Mapping[str, str] = {}
PRODUCER: Mapping[str, str] = {"partitioner": "murmur2_random", "enable.idempotence": "true"}
RECORDS_MAX = 500_000


class Bytewax:
    @property
    def name(self) -> str:
        return "bytewax"

    @property
    def title(self) -> str:
        return f"Bytewax {ENVIRONMENT.version('bytewax')}"

    @property
    def workloads(self) -> frozenset[Workload]:
        return frozenset({Workload.TOTALS})

    @property
    def guarantees(self) -> tuple[Guarantee, ...]:
        return (Guarantee.AT_LEAST_ONCE,)

    def records_of(self, workload: Workload) -> int:
        return RECORDS_MAX

    def prepare(self) -> None:
        ENVIRONMENT.ensure()

    def settings(self) -> Mapping[str, str]:
        return {
            **ENVIRONMENT.settings(),
            **{name: ENVIRONMENT.version(name) for name in ("bytewax", "confluent-kafka", "orjson")},
            "batch": str(BATCH),
            **{f"consumer.{name}": value for name, value in CONSUMER.items()},
            **{f"producer.{name}": value for name, value in PRODUCER.items()},
        }

    def command(self, run: JobRun) -> Command:
        arguments = [str(ENVIRONMENT.python), str(HERE / "bytewax_totals.py"), "--bootstrap", run.bootstrap]
        arguments += ["--source", run.source, "--sink", run.sink, "--folder", str(run.folder)]
        arguments += ["--slots", str(run.slots), "--interval", f"{run.checkpoint_seconds:g}", "--batch", str(BATCH)]
        arguments += [f"--consumer={name}={value}" for name, value in CONSUMER.items()]
        arguments += [f"--producer={name}={value}" for name, value in PRODUCER.items()]
        return Command(arguments, {}, ends=True)


def system(name: str) -> Bytewax:
    return Bytewax()
