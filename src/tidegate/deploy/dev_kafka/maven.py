"""Jars of Java programs, fetched by Maven from wherever its settings say, and kept in the user's cache.

A folder in the cache is always whole: it is filled elsewhere and gets its name when it is complete.
"""

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tidegate.deploy.dev_kafka.tools import find_maven
from tidegate.errors import UnavailableError

Artifact = tuple[str, str, str]
"""Group, name and version."""

_DEPENDENCY_PLUGIN = "3.8.1"
_OUTPUT_LINES = 20
_POM = """\
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>tidegate</groupId>
  <artifactId>jars</artifactId>
  <version>1</version>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""
_DEPENDENCY = "    <dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"


def cache_folder(name: str) -> Path:
    """Where the jars of the program `name`, such as 'kafka-4.3.1', are, or will be."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache, "tidegate", name)


def fill(folder: Path, artifacts: Iterable[Artifact], what: str) -> None:
    """Make `folder` with `artifacts` and all that they need, unless it is there; blocks. `what` is for messages.

    Raises InvalidError when Maven is missing, UnavailableError when it could not fetch them.
    """
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _locked(folder.with_name(f"{folder.name}.lock")):
            if not folder.is_dir():
                _fetch(folder, artifacts, what)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """For one process at a time: Maven's own repository does not bear two that fill it."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch(folder: Path, artifacts: Iterable[Artifact], what: str) -> None:
    maven = find_maven()
    making = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=folder.parent))
    try:
        pom, libraries = making / "pom.xml", making / "libs"
        pom.write_text(pom_text(artifacts))
        goal = f"org.apache.maven.plugins:maven-dependency-plugin:{_DEPENDENCY_PLUGIN}:copy-dependencies"
        command = [maven, "--batch-mode", "--quiet", "--file", str(pom), goal, f"-DoutputDirectory={libraries}"]
        ran = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        if ran.returncode != 0:
            tail = "\n".join(ran.stdout.splitlines()[-_OUTPUT_LINES:])
            raise UnavailableError(
                f"Maven could not fetch {what}:\n{tail}",
                remedy="Check that there is such a version, and Maven's settings (~/.m2/settings.xml).",
            )
        libraries.rename(folder)
    finally:
        shutil.rmtree(making, ignore_errors=True)


def pom_text(artifacts: Iterable[Artifact]) -> str:
    """A project that needs `artifacts`."""
    return _POM.format(dependencies="\n".join(_DEPENDENCY.format(*artifact) for artifact in artifacts))
