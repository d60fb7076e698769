"""Apache Flink as a process of its own: its jars, the compiled programs, and one run of a list of cases.

Jars are fetched by Maven into the user's cache as those of Kafka are; nothing is installed.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks import java_programs
from benchmarks.java_programs import VERSION, find
from benchmarks.oracle.cases import Case
from tidegate.deploy.dev_kafka import maven
from tidegate.errors import UnavailableError

HEAP = "1g"
_ARTIFACTS = (
    *(
        ("org.apache.flink", name, VERSION)
        for name in (
            "flink-streaming-java",
            "flink-connector-datagen",
            "flink-clients",
            "flink-table-api-java-bridge",
            "flink-table-planner-loader",
            "flink-table-runtime",
        )
    ),
    ("org.slf4j", "slf4j-simple", "1.7.36"),
)
_SOURCES = Path(__file__).parent / "java" / "tidegate" / "oracle"
_OPENED = ("lang", "lang.reflect", "net", "io", "nio", "text", "time", "util", "util.concurrent")
_TAIL = 30
"""Lines of a log that an error repeats."""


def ensure_jars() -> Path:
    """The folder with Flink's jars, fetched when it is not there yet. Raises as `java_programs.ensure_jars`."""
    folder = maven.cache_folder(f"flink-{VERSION}")
    java_programs.ensure_jars(folder, _ARTIFACTS, f"Flink {VERSION}")
    return folder


def run(cases: Sequence[Case], folder: Path, told: Callable[[str, float], None]) -> None:
    """Run `cases` over the data in `folder`; their rows go there, see `rows_file`. `told(name, seconds)` is called
    behind each. Blocks. Raises UnavailableError when Flink ends with an error. Flink dies with this process."""
    java = find("java")
    jars, sources = ensure_jars(), sorted(_SOURCES.glob("*.java"))
    java_programs.ensure_classes(sources, jars)
    classes = java_programs.classes_folder(sources, jars)
    listed, log = folder / "cases.tsv", folder / "flink.log"
    listed.write_text("".join(f"{case.line}\n" for case in cases))
    guard = [sys.executable, "-P", "-m", "tidegate.deploy.dev_kafka.node_process", str(os.getpid())]
    command = [*guard, java, f"-Xmx{HEAP}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    command += [f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in _OPENED]
    command += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=error", f"-Djava.io.tmpdir={folder}"]
    command += ["-cp", f"{classes}:{jars}/*", "tidegate.oracle.Oracle", str(listed), str(folder)]
    with (
        log.open("w") as errors,
        subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as process,
    ):
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if line.startswith("done "):
                    _, name, seconds = line.split()
                    told(name, float(seconds))
        except BaseException:
            process.kill()
            raise
    if process.returncode != 0:
        raise UnavailableError(
            f"Flink ended with {process.returncode}:\n{_errors_in(log)}",
            remedy=f"Its log is {log}, if --keep is given.",
        )


def _errors_in(log: Path) -> str:
    """The lines that name errors, or the last ones where none does."""
    lines = log.read_text(errors="replace").splitlines()
    named = [line for line in lines if line.startswith("Caused by") or "Exception in thread" in line]
    return "\n".join((named or lines)[-_TAIL:])


def rows_file(case: Case, folder: Path) -> Path:
    return folder / f"{case.name}.flink.jsonl"
