"""Java and Maven, without which there is no Kafka: where they are, whether they will do, and how to get them.

Nothing is installed unless somebody asks for it with `install_missing`.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from tidegate.errors import InvalidError

JAVA_MIN = 17
_JAVA_PACKAGES = ("openjdk-17-jre-headless", "default-jre-headless")
_MAVEN_PACKAGES = ("maven",)
_VERSION = re.compile(r'version "(\d+)')


def find_java() -> str:
    """The command that starts Java: of JAVA_HOME, else of PATH. Raises InvalidError when there is none of at least
    `JAVA_MIN`."""
    home = os.environ.get("JAVA_HOME", "")
    command = shutil.which("java", path=str(Path(home, "bin"))) if home else None
    command = command or shutil.which("java")
    if command is None:
        raise InvalidError("Kafka needs Java, and no java is on PATH", remedy=_how_to_get_java())
    said = subprocess.run([command, "-version"], capture_output=True, text=True, check=False)
    release = java_release(said.stderr + said.stdout)
    if release < JAVA_MIN:
        found = f"is Java {release}" if release else "does not say which it is"
        raise InvalidError(f"Kafka needs Java {JAVA_MIN}, and {command} {found}", remedy=_how_to_get_java())
    return command


def java_release(text: str) -> int:
    """17 for what `java -version` of Java 17 says; 0 when it says no version."""
    found = _VERSION.search(text)
    return int(found[1]) if found else 0


def find_maven() -> str:
    """The command that starts Maven. Raises InvalidError when there is none."""
    command = shutil.which("mvn")
    if command is None:
        raise InvalidError(
            "Maven fetches Kafka, and no mvn is on PATH",
            remedy="Install Maven (Debian, Ubuntu: apt-get install maven).",
        )
    return command


def _how_to_get_java() -> str:
    package = _JAVA_PACKAGES[0]
    return f"Install Java {JAVA_MIN} or newer (Debian, Ubuntu: apt-get install {package}), or set JAVA_HOME to one."


# ---- installing ----------------------------------------------------------------------------------------------------


def install_missing(*, maven: bool, say: Callable[[str], None]) -> None:
    """Install Java, and Maven if asked for, where they are missing and this process may: root, with apt-get. Raises
    InvalidError where it may not, or where what was installed will not do."""
    for find, packages in ((find_java, _JAVA_PACKAGES), *([(find_maven, _MAVEN_PACKAGES)] if maven else [])):
        try:
            find()
        except InvalidError:
            if os.geteuid() != 0 or shutil.which("apt-get") is None:
                raise
            _apt_get_one_of(packages, say)
            find()


def _apt_get_one_of(packages: tuple[str, ...], say: Callable[[str], None]) -> None:
    """The first that the distribution has. One that cannot be installed is told on standard error by apt-get."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", "update", "-qq"], env=environment, check=False)
    for package in packages:
        say(f"installing {package}")
        command = ["apt-get", "install", "-qq", "--yes", "--no-install-recommends", package]
        if subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=False).returncode == 0:
            return
