"""Kafka's jars, in the user's cache: which versions there are, and what has to be fetched for one.

They are fetched by Maven, and only where they are missing.
"""

import re
from pathlib import Path

from tidegate.deploy.dev_kafka import maven
from tidegate.errors import InvalidError

DEFAULT_VERSION = "4.3.1"
OLDEST_VERSION = "3.9.0"
_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)")


def ensure_jars(version: str = DEFAULT_VERSION) -> Path:
    """The folder with the jars of Kafka `version`, fetched when it is not there yet; blocks.

    Raises InvalidError when `version` is none or Maven is missing, UnavailableError when Maven could not fetch it.
    """
    folder = jars_folder(version)
    maven.fill(folder, _artifacts(version), f"Kafka {version}")
    return folder


def jars_folder(version: str) -> Path:
    """Where the jars of Kafka `version` are, or will be. Raises InvalidError when `version` is none that can be
    started."""
    if _numbers(version) < _numbers(OLDEST_VERSION):
        remedy = f"Give one from {OLDEST_VERSION} on, written as {DEFAULT_VERSION} is."
        raise InvalidError(f"{version!r} is no version of Kafka that can be started here", remedy=remedy)
    return maven.cache_folder(f"kafka-{version}")


def pom_text(version: str) -> str:
    """A project whose dependencies are a Kafka server, its tools and what its log goes through."""
    return maven.pom_text(_artifacts(version))


def _artifacts(version: str) -> list[maven.Artifact]:
    # Up to 3.9 the server itself calls the first log4j, which came as reload4j; since then it is log4j 2.
    logging = (
        ("org.slf4j", "slf4j-reload4j", "1.7.36")
        if has_log4j_1(version)
        else ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.1")
    )
    return [*(("org.apache.kafka", name, version) for name in ("kafka_2.13", "kafka-tools")), logging]


def has_log4j_1(version: str) -> bool:
    return _numbers(version) < (4, 0, 0)


def _numbers(version: str) -> tuple[int, ...]:
    """Empty, and so before all others, for what is no version."""
    found = _VERSION.fullmatch(version)
    return tuple(map(int, found.groups())) if found else ()
