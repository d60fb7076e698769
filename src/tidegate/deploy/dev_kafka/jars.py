"""Kafka's jars, fetched by Maven from wherever its settings say, and kept in the user's cache.

A folder in the cache is always whole: it is filled elsewhere and gets its name when it is complete.
"""

import fcntl
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tidegate.deploy.dev_kafka.tools import find_maven
from tidegate.errors import InvalidError, UnavailableError

DEFAULT_VERSION = "4.3.1"
OLDEST_VERSION = "3.9.0"
_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)")
_DEPENDENCY_PLUGIN = "3.8.1"
_OUTPUT_LINES = 20
_POM = """\
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>tidegate</groupId>
  <artifactId>dev-kafka</artifactId>
  <version>1</version>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""
_DEPENDENCY = "    <dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"


def ensure_jars(version: str = DEFAULT_VERSION) -> Path:
    """The folder with the jars of Kafka `version`, fetched when it is not there yet; blocks.

    Raises InvalidError when `version` is none or Maven is missing, UnavailableError when Maven could not fetch it.
    """
    folder = jars_folder(version)
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _locked(folder.with_name(f"{folder.name}.lock")):
            if not folder.is_dir():
                _fetch(version, folder)
    return folder


def jars_folder(version: str) -> Path:
    """Where the jars of Kafka `version` are, or will be. Raises InvalidError when `version` is none that can be
    started."""
    if _numbers(version) < _numbers(OLDEST_VERSION):
        remedy = f"Give one from {OLDEST_VERSION} on, written as {DEFAULT_VERSION} is."
        raise InvalidError(f"{version!r} is no version of Kafka that can be started here", remedy=remedy)
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache, "tidegate", f"kafka-{version}")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """For one process at a time: Maven's own repository does not bear two that fill it."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch(version: str, folder: Path) -> None:
    maven = find_maven()
    making = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=folder.parent))
    try:
        pom, libraries = making / "pom.xml", making / "libs"
        pom.write_text(pom_text(version))
        goal = f"org.apache.maven.plugins:maven-dependency-plugin:{_DEPENDENCY_PLUGIN}:copy-dependencies"
        command = [maven, "--batch-mode", "--quiet", "--file", str(pom), goal, f"-DoutputDirectory={libraries}"]
        ran = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        if ran.returncode != 0:
            tail = "\n".join(ran.stdout.splitlines()[-_OUTPUT_LINES:])
            raise UnavailableError(
                f"Maven could not fetch Kafka {version}:\n{tail}",
                remedy="Check that there is such a version, and Maven's settings (~/.m2/settings.xml).",
            )
        libraries.rename(folder)
    finally:
        shutil.rmtree(making, ignore_errors=True)


def pom_text(version: str) -> str:
    """A project whose dependencies are a Kafka server, its tools and what its log goes through."""
    # Up to 3.9 the server itself calls the first log4j, which came as reload4j; since then it is log4j 2.
    logging = (
        ("org.slf4j", "slf4j-reload4j", "1.7.36")
        if has_log4j_1(version)
        else ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.1")
    )
    kafka = [("org.apache.kafka", name, version) for name in ("kafka_2.13", "kafka-tools")]
    return _POM.format(dependencies="\n".join(_DEPENDENCY.format(*artifact) for artifact in (*kafka, logging)))


def has_log4j_1(version: str) -> bool:
    return _numbers(version) < (4, 0, 0)


def _numbers(version: str) -> tuple[int, ...]:
    """Empty, and so before all others, for what is no version."""
    found = _VERSION.fullmatch(version)
    return tuple(map(int, found.groups())) if found else ()
