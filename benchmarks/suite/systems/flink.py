"""Apache Flink, the DataStream API in Java: one process with a cluster inside, as fast as its settings make it.

All settings that differ from Flink's own are in the tables below, which also stand in the report.
"""

from collections.abc import Mapping
from pathlib import Path

from benchmarks import java_programs as java
from benchmarks.java_programs import VERSION
from benchmarks.suite.contracts import Command, Guarantee, JobRun, Workload
from tidegate.deploy.dev_kafka import maven

CONNECTOR = "5.0.0-2.2"
"""Of the Kafka connector: made for Flink 2.2, and runs on 2.3."""
_ARTIFACTS = (
    ("org.apache.flink", "flink-streaming-java", VERSION),
    ("org.apache.flink", "flink-clients", VERSION),
    ("org.apache.flink", "flink-connector-base", VERSION),
    ("org.apache.flink", "flink-connector-kafka", CONNECTOR),
    ("org.slf4j", "slf4j-simple", "1.7.36"),
)
SOURCES = Path(__file__).parents[1] / "java" / "tidegate" / "suite"
JVM = ("-Xmx1g", "-XX:+UseParallelGC")
FLINK: Mapping[str, str] = {
    "pipeline.object-reuse": "true",
    "state.backend.type": "hashmap",
    "execution.checkpointing.unaligned.enabled": "false",
    "execution.buffer-timeout.enabled": "false",
    "restart-strategy.type": "none",
}
CONSUMER: Mapping[str, str] = {
    "fetch.min.bytes": "65536",
    "fetch.max.bytes": "67108864",
    "max.partition.fetch.bytes": "4194304",
    "max.poll.records": "5000",
}
PRODUCER: Mapping[str, str] = {
    "batch.size": "524288",
    "linger.ms": "10",
    "buffer.memory": "134217728",
    "transaction.timeout.ms": "600000",
}
_GUARANTEES = {Guarantee.EXACTLY_ONCE: "EXACTLY_ONCE", Guarantee.AT_LEAST_ONCE: "AT_LEAST_ONCE"}
_OPENED = ("lang", "lang.reflect", "net", "io", "nio", "text", "time", "util", "util.concurrent")
_LOG = ("defaultLogLevel=warn", "log.org.apache.flink.metrics=error")


class Flink:
    @property
    def name(self) -> str:
        return "flink"

    @property
    def title(self) -> str:
        return f"Apache Flink {VERSION}, DataStream API in Java"

    @property
    def workloads(self) -> frozenset[Workload]:
        return frozenset(Workload)

    @property
    def guarantees(self) -> tuple[Guarantee, ...]:
        return (Guarantee.EXACTLY_ONCE, Guarantee.AT_LEAST_ONCE)

    def prepare(self) -> None:
        java.java()
        java.ensure_jars(_jars(), _ARTIFACTS, f"Flink {VERSION} and its Kafka connector {CONNECTOR}")
        java.ensure_classes(_sources(), _jars())

    def settings(self) -> Mapping[str, str]:
        return {
            "Flink": VERSION,
            "flink-connector-kafka": CONNECTOR,
            "Java": java.java_version(),
            "JVM": " ".join(JVM),
            **FLINK,
            **_under("consumer", CONSUMER),
            **_under("producer", PRODUCER),
        }

    def command(self, run: JobRun) -> Command:
        program = [java.java(), *JVM, *(f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in _OPENED)]
        program += [f"-Dorg.slf4j.simpleLogger.{setting}" for setting in _LOG]
        program += [f"-Djava.io.tmpdir={run.folder}", "-cp", f"{java.classes_folder(_sources(), _jars())}:{_jars()}/*"]
        options = {
            "workload": run.workload.value,
            "bootstrap": run.bootstrap,
            "source": run.source,
            "sink": run.sink,
            "slots": str(run.slots),
            "guarantee": _GUARANTEES[run.guarantee],
            **_under("flink", {**FLINK, **checkpointing(run)}),
            **_under("consumer", CONSUMER),
            **_under("producer", PRODUCER),
        }
        arguments = [*program, "tidegate.suite.Job", *(f"{name}={value}" for name, value in options.items())]
        return Command(arguments, {}, ends=True)


def system(name: str) -> Flink:
    return Flink()


def checkpointing(run: JobRun) -> dict[str, str]:
    return {
        "execution.checkpointing.interval": f"{round(run.checkpoint_seconds * 1000)}ms",
        "execution.checkpointing.mode": _GUARANTEES[run.guarantee],
        "execution.checkpointing.dir": (run.folder.absolute() / "checkpoints").as_uri(),
    }


def _under(prefix: str, settings: Mapping[str, str]) -> dict[str, str]:
    return {f"{prefix}.{name}": value for name, value in settings.items()}


def _jars() -> Path:
    return maven.cache_folder(f"flink-{VERSION}-kafka-{CONNECTOR}")


def _sources() -> list[Path]:
    return sorted(SOURCES.glob("*.java"))
