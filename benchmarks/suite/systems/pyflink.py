"""PyFlink's DataStream API, running totals only: Apache Flink with functions in Python."""

from collections.abc import Mapping
from pathlib import Path

from benchmarks import java_programs as java
from benchmarks.suite.contracts import Command, Guarantee, JobRun, Workload
from benchmarks.suite.peers.environments import HERE, Environment
from benchmarks.suite.systems import flink
from tidegate.deploy.dev_kafka import maven

ENVIRONMENT = Environment("pyflink", ("3.11", "3.12", "3.10"))
_CONNECTOR_JAR = f"flink-sql-connector-kafka-{flink.CONNECTOR}.jar"
FLINK: Mapping[str, str] = {
    **flink.FLINK,
    # Functions in Python run inside the JVM; by default in processes beside it, to which records and state travel.
    "python.execution-mode": "thread",
}
RECORDS_MAX = 200_000


class PyFlink:
    @property
    def name(self) -> str:
        return "pyflink"

    @property
    def title(self) -> str:
        return f"PyFlink {ENVIRONMENT.version('apache-flink')}, DataStream API"

    @property
    def workloads(self) -> frozenset[Workload]:
        return frozenset({Workload.TOTALS})

    @property
    def guarantees(self) -> tuple[Guarantee, ...]:
        return (Guarantee.EXACTLY_ONCE, Guarantee.AT_LEAST_ONCE)

    def records_of(self, workload: Workload) -> int:
        return RECORDS_MAX

    def prepare(self) -> None:
        java.java()
        artifact = ("org.apache.flink", "flink-sql-connector-kafka", flink.CONNECTOR)
        java.ensure_jars(_jars(), [artifact], f"Flink's Kafka connector {flink.CONNECTOR}")
        ENVIRONMENT.ensure()

    def settings(self) -> Mapping[str, str]:
        return {
            **ENVIRONMENT.settings(),
            "apache-flink": ENVIRONMENT.version("apache-flink"),
            "flink-sql-connector-kafka": flink.CONNECTOR,
            "Java": java.java_version(),
            "JVM": " ".join(flink.JVM),
            **FLINK,
            **{f"consumer.{name}": value for name, value in flink.CONSUMER.items()},
            **{f"producer.{name}": value for name, value in flink.PRODUCER.items()},
        }

    def command(self, run: JobRun) -> Command:
        arguments = [str(ENVIRONMENT.python), str(HERE / "pyflink_totals.py"), "--bootstrap", run.bootstrap]
        arguments += ["--source", run.source, "--sink", run.sink, "--slots", str(run.slots)]
        arguments += ["--guarantee", run.guarantee.replace(" ", "-")]
        settings = {**FLINK, **flink.checkpointing(run), "pipeline.jars": (_jars() / _CONNECTOR_JAR).as_uri()}
        arguments += [f"--flink={name}={value}" for name, value in settings.items()]
        arguments += [f"--consumer={name}={value}" for name, value in flink.CONSUMER.items()]
        arguments += [f"--producer={name}={value}" for name, value in flink.PRODUCER.items()]
        java_home = str(Path(java.java()).resolve().parents[1])
        environment = {
            "JAVA_HOME": java_home,
            "JVM_ARGS": " ".join(flink.JVM),
            "FLINK_LOG_DIR": str(run.folder),
            # The Python inside the JVM does not know that it belongs to a virtual environment.
            "PYTHONPATH": str(ENVIRONMENT.packages),
        }
        return Command(arguments, environment, ends=True)


def system(name: str) -> PyFlink:
    return PyFlink()


def _jars() -> Path:
    return maven.cache_folder(f"flink-sql-connector-kafka-{flink.CONNECTOR}")
