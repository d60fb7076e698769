"""Apache Flink as a process of its own: its jars, the compiled programs, and one run of a list of cases.

Jars are fetched by Maven into the user's cache as those of Kafka are; nothing is installed.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.oracle.cases import Case
from tidegate.deploy.dev_kafka import maven
from tidegate.deploy.dev_kafka.tools import JAVA_MIN, java_release
from tidegate.errors import InvalidError, UnavailableError

VERSION = "2.3.0"
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


def find(tool: str) -> str:
    """The command `tool` of the JDK: of JAVA_HOME, else of PATH. Raises InvalidError when there is none."""
    home = os.environ.get("JAVA_HOME", "")
    command = (shutil.which(tool, path=str(Path(home, "bin"))) if home else None) or shutil.which(tool)
    remedy = (
        f"Install a JDK of {JAVA_MIN} or newer (Debian, Ubuntu: apt-get install openjdk-{JAVA_MIN}-jdk-headless), "
        "or set JAVA_HOME to one."
    )
    if command is None:
        raise InvalidError(f"Flink's programs need a JDK, and no {tool} is on PATH", remedy=remedy)
    if tool == "java":
        said = subprocess.run([command, "-version"], capture_output=True, text=True, check=False)
        if java_release(said.stderr + said.stdout) < JAVA_MIN:
            raise InvalidError(f"Flink {VERSION} needs Java {JAVA_MIN}, and {command} is older", remedy=remedy)
    return command


def ensure_jars() -> Path:
    """The folder with Flink's jars, fetched when it is not there yet. Raises InvalidError when Maven is missing,
    UnavailableError when it could not fetch them."""
    folder = maven.cache_folder(f"flink-{VERSION}")
    if not folder.is_dir() and shutil.which("mvn") is None:
        raise InvalidError(
            "Maven fetches Flink, and no mvn is on PATH",
            remedy="Install Maven (Debian, Ubuntu: apt-get install maven).",
        )
    maven.fill(folder, _ARTIFACTS, f"Flink {VERSION}")
    return folder


def ensure_programs(jars: Path) -> Path:
    """The folder with the compiled programs; compiled anew only when a source or Flink is another. Raises InvalidError
    when there is no compiler, or it refuses them."""
    sources = sorted(_SOURCES.glob("*.java"))
    content = b"".join(source.read_bytes() for source in sources)
    folder = jars.with_name(f"flink-oracle-{VERSION}-{hashlib.sha256(content).hexdigest()[:16]}")
    if not folder.is_dir():
        with tempfile.TemporaryDirectory(prefix=f"{folder.name}.", dir=folder.parent) as making:
            classes = Path(making, "classes")
            command = [find("javac"), "-nowarn", "-cp", f"{jars}/*", "-d", str(classes), *map(str, sources)]
            ran = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
            if ran.returncode != 0:
                raise InvalidError(f"javac refuses Flink's programs:\n{ran.stdout}", remedy="Correct them.")
            if not folder.is_dir():
                classes.rename(folder)
    return folder


def run(cases: Sequence[Case], folder: Path, told: Callable[[str, float], None]) -> None:
    """Run `cases` over the data in `folder`; their rows go there, see `rows_file`. `told(name, seconds)` is called
    behind each. Blocks. Raises UnavailableError when Flink ends with an error. Flink dies with this process."""
    java = find("java")
    jars = ensure_jars()
    classes = ensure_programs(jars)
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
