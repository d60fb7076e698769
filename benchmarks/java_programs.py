"""Programs in Java: their jars, fetched by Maven, and their classes, compiled once. Both stay in the user's cache.

Names of folders follow from what is in them, so that a command line can be said without fetching or compiling.
"""

import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tidegate.deploy.dev_kafka import maven
from tidegate.deploy.dev_kafka.tools import JAVA_MIN, java_release
from tidegate.errors import InvalidError

Artifact = tuple[str, str, str]
VERSION = "2.3.0"
"""Of Flink, for all programs."""


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


@functools.cache
def java() -> str:
    """The command. Raises InvalidError where there is none that will do."""
    return find("java")


@functools.cache
def java_version() -> str:
    said = subprocess.run([java(), "-version"], capture_output=True, text=True, check=False)
    return (said.stderr or said.stdout).splitlines()[0]


def ensure_jars(folder: Path, artifacts: Sequence[Artifact], what: str) -> None:
    """Raises InvalidError where Maven is missing, UnavailableError where it could not fetch them."""
    if not folder.is_dir() and shutil.which("mvn") is None:
        raise InvalidError(
            f"Maven fetches {what}, and no mvn is on PATH",
            remedy="Install Maven (Debian, Ubuntu: apt-get install maven).",
        )
    maven.fill(folder, artifacts, what)


def classes_folder(sources: Sequence[Path], jars: Path) -> Path:
    """Where the classes of `sources`, compiled against `jars`, are or will be."""
    content = b"".join(source.read_bytes() for source in sources)
    return jars.with_name(f"{jars.name}-classes-{hashlib.sha256(content).hexdigest()[:16]}")


def ensure_classes(sources: Sequence[Path], jars: Path) -> None:
    """Raises InvalidError where there is no compiler, or it refuses them."""
    folder = classes_folder(sources, jars)
    if folder.is_dir():
        return
    with tempfile.TemporaryDirectory(prefix=f"{folder.name}.", dir=folder.parent) as making:
        classes = Path(making, "classes")
        command = [find("javac"), "-nowarn", "-cp", f"{jars}/*", "-d", str(classes), *map(str, sources)]
        ran = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if ran.returncode != 0:
            raise InvalidError(f"javac refuses {sources[0].parent}:\n{ran.stdout}", remedy="Correct them.")
        if not folder.is_dir():
            classes.rename(folder)
